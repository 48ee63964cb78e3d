"""Packets that the product decodes, as rows of `tests.references.capture_oracle`, to compare the two with `==`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Any

import numpy as np

from capture.files.blocks import Index
from capture.files.scan import scan
from capture.open import open_capture
from capture.packets.columns import COLUMNS, FRAME_COLUMNS, PACKET_COLUMNS
from capture.packets.decoder import Decoder, Packets
from capture.packets.fields import INNER_PREFIX, PHYSICAL_COLUMNS, SKIP_CAUSES

ALL_COLUMNS = frozenset(COLUMNS) - {"link"}
BOTH_LAYERS = frozenset(PACKET_COLUMNS) - {"link"}


def address(version: int, high: int, low: int) -> IPv4Address | IPv6Address | None:
    """An address out of its physical columns, bit patterns in signed numbers."""
    if version == 0:
        return None
    return IPv4Address(low) if version == 4 else IPv6Address(high % 2**64 << 64 | low % 2**64)


def rows_of(packets: Packets, data: np.ndarray, names: Iterable[str] = ALL_COLUMNS) -> list[dict[str, Any]]:
    """Rows with the columns `names`; NULL is None, a payload its bytes in `data`, a MAC address a number."""
    columns = {name: column(packets, data, name) for name in names}
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def column(packets: Packets, data: np.ndarray, name: str) -> list[Any]:
    """One column of the stream, as Python values."""
    parts = [packets.field(part).tolist() for part in PHYSICAL_COLUMNS.get(name, (name,))]
    match name.removeprefix(INNER_PREFIX):
        case "srcIP" | "destIP":
            return [address(*values) for values in zip(*parts, strict=True)]
        case "payload":
            return [None if at < 0 else data[at : at + size].tobytes() for at, size in zip(*parts, strict=True)]
        case "ip_version":
            return [value or None for value in parts[0]]
    return [None if FRAME_COLUMNS[name].nullable and value == -1 else value for value in parts[0]]


def decode_file(
    path: Path, block_records: int = 64, names: Iterable[str] = ALL_COLUMNS, every_frame: bool = False
) -> tuple[list[dict[str, Any]], Counter[str], Index]:
    """All rows of a capture, the records skipped by cause, and its index."""
    file = open_capture(path)
    index = scan(file, block_records)
    decoder = Decoder(file, names, block_records, every_frame)
    rows = [row for block in index.blocks for row in rows_of(decoder.decode(block), file.data, names)]
    skipped = Counter(dict(zip(SKIP_CAUSES, decoder.skipped.tolist(), strict=True)))
    return rows, +skipped, index
