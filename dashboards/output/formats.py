"""Formats of results. `--help` lists them and must be fast, so this module imports no large package."""

from __future__ import annotations

from enum import StrEnum


class Format(StrEnum):
    """The format of results."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"
    ARROW = "arrow"
    OPENMETRICS = "openmetrics"


class Times(StrEnum):
    """The format of times in text formats: ISO 8601, or nanoseconds since 1970."""

    ISO = "iso"
    NS = "ns"


class ChangeForm(StrEnum):
    """The format of changes (`dashboards.output.change_forms`)."""

    WEIGHTS = "weights"
    DEBEZIUM = "debezium"
    FLINK = "flink"
    DIFF = "diff"


DEFAULT_TIMES = {Format.TABLE: Times.ISO, Format.CSV: Times.NS, Format.JSON: Times.NS}
"""Default format of times in each text format."""

SUFFIXES = {
    ".txt": Format.TABLE,
    ".csv": Format.CSV,
    ".json": Format.JSON,
    ".jsonl": Format.JSON,
    ".ndjson": Format.JSON,
    ".parquet": Format.PARQUET,
    ".arrow": Format.ARROW,
    ".arrows": Format.ARROW,
    ".om": Format.OPENMETRICS,
}
"""The format by the suffix of the output file."""

COMPRESSED = (".gz", ".zst", ".bz2", ".xz", ".lz4", ".zip")
"""Suffixes of compressed files. Results are not compressed."""

BINARY = (Format.PARQUET, Format.ARROW)
"""Binary formats, which are not written to a terminal."""
