"""The names in a spool's folder."""

from __future__ import annotations

import os
import re
from pathlib import Path

NAME = re.compile(r"(\d{12}|[1-9]\d{12,17})\.segment", re.ASCII)
PART = ".part"
LOCK = ".writer.lock"


def segment_path(folder: Path, number: int) -> Path:
    """Path of the segment of a number.

    >>> segment_path(Path("eth0"), 7).name
    '000000000007.segment'
    """
    return folder / f"{number:012d}.segment"


def part_of(path: Path) -> Path:
    """Path under which a file is written before it has its name."""
    return path.with_name(path.name + PART)


def numbers(folder: Path) -> list[int]:
    """Numbers of all files that are named as segments, ascending; whether they are whole is another question."""
    with os.scandir(folder) as entries:
        return sorted(int(match[1]) for entry in entries if (match := NAME.fullmatch(entry.name)) and entry.is_file())
