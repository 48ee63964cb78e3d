"""What can go wrong with an input, split by what the caller does next."""

from __future__ import annotations


class InputError(Exception):
    """A file that cannot be used as a capture at all: fix the file, or name another.

    Damage inside a capture is no error: everything before it is read and the damage is counted.
    """
