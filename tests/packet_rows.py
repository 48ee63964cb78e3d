"""What the product decodes, as the rows of `tests.capture_oracle`, so that the two can be compared with `==`."""

from __future__ import annotations

from collections import Counter
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Any

from capture.files.blocks import Index
from capture.files.capture import open_capture
from capture.files.scan import scan
from capture.packets.columns import COLUMNS
from capture.packets.decoder import Decoder, Packets
from capture.packets.fields import FIELDS, SKIPPED

ALL_COLUMNS = frozenset(COLUMNS) - {"link"}


def address(version: int, high: int, low: int) -> IPv4Address | IPv6Address:
    """An address out of its physical columns, bit patterns in signed numbers."""
    return IPv4Address(low) if version == 4 else IPv6Address(high % 2**64 << 64 | low % 2**64)


def rows_of(packets: Packets) -> list[dict[str, Any]]:
    """Rows with every column of the stream but `link`; NULL is None."""
    rows = []
    for values in zip(*(packets.field(name).tolist() for name in FIELDS), strict=True):
        row: dict[str, Any] = dict(zip(FIELDS, values, strict=True))
        for end in ("src", "dest"):
            row[f"{end}IP"] = address(row["ip_version"], row.pop(f"{end}_high"), row.pop(f"{end}_low"))
        rows.append({name: None if COLUMNS[name].nullable and value == -1 else value for name, value in row.items()})
    return rows


def decode_file(path: Path, block_records: int = 64) -> tuple[list[dict[str, Any]], Counter[str], Index]:
    """All rows of a capture, the records skipped by cause, and its index."""
    file = open_capture(path)
    index = scan(file, block_records)
    decoder = Decoder(file, ALL_COLUMNS, block_records)
    rows = [row for block in index.blocks for row in rows_of(decoder.decode(block))]
    skipped = Counter(dict(zip(SKIPPED, decoder.skipped.tolist(), strict=True)))
    return rows, +skipped, index
