"""Rows that the product reads from a pcapng file, in the form of the reference, and its frames as classic pcap."""

from __future__ import annotations

import struct
from collections import Counter
from pathlib import Path
from typing import Any

from capture.files.interfaces import REPLACED_TIME_CAUSES
from capture.files.scan import scan
from capture.open import open_capture
from capture.packets.decoder import Decoder
from tests.references.packet_rows import ALL_COLUMNS, decode_file, rows_of
from tests.references.pcap_bytes import pcap_bytes
from tests.references.pcapng_oracle import Pcapng

Row = dict[str, Any]
NAMES = ALL_COLUMNS | {"interface"}


def read_file(path: Path, block_records: int) -> tuple[list[Row], Counter[str], list[str], str | None]:
    """Every record of a file as a row of `frames`, the times replaced by cause, the interfaces' names, the damage."""
    file = open_capture(path)
    index = scan(file, block_records)
    decoder = Decoder(file, NAMES, block_records, every_frame=True)
    rows = [row for block in index.blocks for row in rows_of(decoder.decode(block), file.data, NAMES)]
    assert len(rows) == index.records
    replaced = Counter(dict(zip(REPLACED_TIME_CAUSES, decoder.replaced_time_counts.tolist(), strict=True)))
    return rows, +replaced, file.format.interface_names, index.damage


def expected_rows(twin: Pcapng, folder: Path) -> list[Row]:
    """Return the same rows from one classic pcap per link type. Only the positions and times are from the reference."""
    rows: list[Row] = [{} for _ in twin.records]
    for link_type in {record.link_type for record in twin.records}:
        places = [place for place, record in enumerate(twin.records) if record.link_type == link_type]
        path = folder / f"of-type-{link_type}.pcap"
        of_type = [twin.records[place] for place in places]
        heads = [struct.pack("<4I", 0, 0, len(record.frame), record.wire) for record in of_type]
        records = b"".join(head + record.frame for head, record in zip(heads, of_type, strict=True))
        path.write_bytes(pcap_bytes([], link_type) + records)
        found = decode_file(path, 1000, NAMES, every_frame=True)[0]
        for place, row in zip(places, found, strict=True):
            record = twin.records[place]
            assert (row["len"], row["caplen"]) == (record.wire, len(record.frame))
            rows[place] = row | {"ts": record.ts, "interface": record.interface}
    return rows
