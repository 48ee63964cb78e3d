"""Files with the vendors of MAC addresses, in four public formats.

* Wireshark's `manuf`: a MAC prefix, an optional length, a short name and a full name between tabs.
* The CSV files of the IEEE registration authority (`oui.csv`, `mam.csv`, `oui36.csv`).
* The text file of the same authority (`oui.txt`): lines with `(hex)`.
* Lines of digits and a name, as in `nmap-mac-prefixes`, in `ieee-oui.txt` of arp-scan, and in a user's own files.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator

import numpy as np

from capture.lazy_dataclasses import dataclass
from lowlevel.watch.errors import WatchlistError
from lowlevel.watch.ranges import MAC_SHIFT, Prefixes

MAC_BITS = 48

CSV_HEADER = "Registry,Assignment,"
HEX_MARK = "(hex)"

_PREFIX = re.compile(r"([0-9A-Fa-f]+(?:[:.-][0-9A-Fa-f]+)*)(?:/(\d{1,3}))?")
_COMMENT = re.compile(r"(^|\s)#.*")


@dataclass(frozen=True, slots=True)
class VendorLine:
    """A line with its number (from 1), the word of the MAC prefix and the name of the vendor."""

    number: int
    word: str
    name: str


def read_vendors(text: str) -> tuple[int, Prefixes, tuple[str, ...]]:
    """Return the number of lines, the sorted distinct prefixes, and the names that are their labels.

    If a prefix has several names, as some of the oldest prefixes have, its label is `A or B`. Raises WatchlistError
    for the first line without a prefix or a name.
    """
    lines = list(_split_csv(text) if text.lstrip("\ufeff").startswith(CSV_HEADER) else _split_lines(text))
    names_by_prefix: dict[tuple[int, int], list[str]] = {}
    for line in lines:
        names = names_by_prefix.setdefault(_read_prefix(line), [])
        if not line.name:
            raise WatchlistError(f"line {line.number}: got '{line.word}' without a vendor, expected '00:00:0c Cisco'")
        if line.name not in names:
            names.append(line.name)
    labels: dict[str, int] = {}
    label_indexes = [labels.setdefault(" or ".join(names), len(labels)) for names in names_by_prefix.values()]
    prefixes = Prefixes(
        128,
        np.array([value << MAC_SHIFT for value, _ in names_by_prefix], np.uint64),
        np.zeros(len(names_by_prefix), np.uint64),
        np.array([length for _, length in names_by_prefix], np.int64),
        np.array(label_indexes, np.int64),
    )
    return len(lines), prefixes.sorted()[0], tuple(labels)


def _split_csv(text: str) -> Iterator[VendorLine]:
    import csv  # only for this format

    reader = csv.reader(io.StringIO(text.lstrip("\ufeff")))
    next(reader)
    for row in reader:
        if row and len(row) < 3:
            raise WatchlistError(f"line {reader.line_num}: got {len(row)} columns, expected 'MA-L,00000C,Cisco,…'")
        if row:
            yield VendorLine(reader.line_num, row[1].strip(), row[2].strip())


def _split_lines(text: str) -> Iterator[VendorLine]:
    has_marks = HEX_MARK in text
    for number, raw_line in enumerate(text.splitlines(), 1):
        line = _COMMENT.sub("", raw_line).strip()
        if not line or (has_marks and HEX_MARK not in line):
            continue
        word, *rest = line.split(None, 1)
        name = rest[0].replace(HEX_MARK, "") if rest else ""
        yield VendorLine(number, word, name.strip().split("\t")[-1].strip())


def _read_prefix(line: VendorLine) -> tuple[int, int]:
    """Return the prefix as a number of 48 bits, and its length in bits."""
    match = _PREFIX.fullmatch(line.word)
    digits = re.sub(r"[:.-]", "", match[1]) if match else ""
    if match is None or not 1 <= len(digits) <= MAC_BITS // 4:
        raise WatchlistError(f"line {line.number}: got '{line.word}', expected a MAC prefix like '00:00:0c'")
    length = int(match[2]) if match[2] else 4 * len(digits)
    value = int(digits, 16) << (MAC_BITS - 4 * len(digits))
    if length > MAC_BITS:
        raise WatchlistError(f"line {line.number}: '{line.word}' has the length {length}, MAC addresses have 0 to 48")
    if value & ((1 << (MAC_BITS - length)) - 1):
        raise WatchlistError(f"line {line.number}: '{line.word}' has bits set after its length of {length}")
    return value, length
