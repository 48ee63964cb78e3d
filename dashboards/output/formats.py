"""Formats of results. The command line lists them in `--help`, so this module imports nothing heavy."""

from __future__ import annotations

from enum import StrEnum


class Format(StrEnum):
    """How results are written."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"
    ARROW = "arrow"


class Times(StrEnum):
    """How text formats write times."""

    ISO = "iso"
    NS = "ns"


DEFAULT_TIMES = {Format.TABLE: Times.ISO, Format.CSV: Times.NS, Format.JSON: Times.NS}
"""Default style of times in each text format."""

SUFFIXES = {
    ".txt": Format.TABLE,
    ".csv": Format.CSV,
    ".json": Format.JSON,
    ".jsonl": Format.JSON,
    ".ndjson": Format.JSON,
    ".parquet": Format.PARQUET,
    ".arrow": Format.ARROW,
    ".arrows": Format.ARROW,
}
"""The format that the suffix of an output file selects."""

COMPRESSED = (".gz", ".zst", ".bz2", ".xz", ".lz4", ".zip")
"""Suffixes of compressed files. Results are not compressed."""

BINARY = (Format.PARQUET, Format.ARROW)
"""Binary formats, which are not written to a terminal."""
