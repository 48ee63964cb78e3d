"""The formats results are written in; light, so that the command line can name them before it loads anything."""

from __future__ import annotations

from enum import StrEnum


class Format(StrEnum):
    """How results are written."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"
    ARROW = "arrow"


BINARY = (Format.PARQUET, Format.ARROW)
"""Formats that are no text and do not belong on a terminal."""
