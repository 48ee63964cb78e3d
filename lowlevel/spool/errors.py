"""What can go wrong with a spool, split by what the caller does next."""

from __future__ import annotations

from capture.errors import WiretideError


class SpoolError(WiretideError):
    """The spool cannot be used as it is: name another folder, or mend this one."""


class SpoolFullError(SpoolError):
    """There is no room for an item, and nothing of it was taken: append it again later, or shed it."""


class SegmentFormatError(SpoolError):
    """A segment is whole and of another version of Wiretide: read it with that one, or name another folder."""


class SegmentLostError(SpoolError):
    """A segment is not there or not whole: go on with the next, whose head says how much was lost."""
