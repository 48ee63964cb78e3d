"""Base classes of errors. Two errors have different classes only if the caller must react to them in different ways."""

from __future__ import annotations


class WiretideError(Exception):
    """Base of all errors that are shown to the user. `status` is the exit status of the command line.

    1: the input or the run failed. 2: the command line, the query or the pipeline file is wrong.
    """

    status = 1


class InputError(WiretideError):
    """An input that cannot be read as a capture. The user must fix the input or name another input.

    A damaged capture does not raise this error: all records before the damage are read, and the damage is counted.
    """


class SettingError(WiretideError):
    """An invalid setting of the collector or of an interface. The user must correct it."""

    status = 2


class MissingPackageError(WiretideError):
    """An optional package is not installed. The user must install the extra that contains it."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        """Name the package, the extra that contains it, and the feature that requires it."""
        super().__init__(f"{purpose} requires {package}, which is not installed: pip install 'wiretide[{extra}]'")
