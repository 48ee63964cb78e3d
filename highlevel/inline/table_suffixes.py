"""The suffixes of files that contain tables. The format of such a file follows from its name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

CSV = (".csv", ".csv.gz", ".csv.zst", ".csv.bz2", ".csv.lz4")
JSON = tuple(f"{kind}{packed}" for kind in (".ndjson", ".jsonl") for packed in ("", ".gz", ".zst", ".bz2", ".lz4"))
PARQUET = (".parquet", ".pq")
ARROW = (".arrow", ".arrows", ".feather", ".ipc")
SUFFIXES = (*CSV, *JSON, *PARQUET, *ARROW)
"""Suffixes of files, by format."""


def has_suffix(path: Path, suffixes: Sequence[str]) -> bool:
    """Return True if the name of a file ends in one of `suffixes`. Upper and lower case are equal."""
    return path.name.lower().endswith(tuple(suffixes))
