"""The types that values of a query have."""

from enum import StrEnum


class Type(StrEnum):
    """The types of GSQL values; times are INT nanoseconds, a MAC is 48 bits, BYTES are for predicates alone."""

    INT = "integer"
    FLOAT = "float"
    BOOL = "boolean"
    ADDRESS = "address"
    TEXT = "text"
    MAC = "mac"
    BYTES = "bytes"


NUMBERS = (Type.INT, Type.FLOAT)
"""The types that are computed with, and compared with each other."""
