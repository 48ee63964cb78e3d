"""Real captures, well-formed and hostile, against the twin: every column of every packet.

Where the truth of `test_truth` stops (ports, flags, times to live, lengths, which bytes were there), the twin goes
on. Nothing may differ: both follow the definitions of `capture.packets.columns`.
"""

from pathlib import Path

import pytest

from capture.packets.link_layers import LINK_TYPES
from tests.capture_oracle import FORMATS, Row, packet, read_pcap
from tests.packet_rows import decode_file
from tests.pcapng_oracle import parse_pcapng


def twin_rows(path: Path) -> tuple[list[Row | str], str | None] | None:
    """What the twin sees of a capture, by its content, and how that ends; None for a link type that is not read."""
    if path.read_bytes()[:4] in FORMATS:
        classic = read_pcap(path)
        return (list(classic.rows()), classic.damage) if classic.link_type in LINK_TYPES else None
    twin = parse_pcapng(path.read_bytes())
    if not {record.link_type for record in twin.records} <= set(LINK_TYPES):
        return None
    rows: list[Row | str] = []
    for record in twin.records:
        found = packet(record.link_type, record.frame, record.wire - len(record.frame))
        own = {"ts": record.ts, "len": record.wire, "caplen": len(record.frame), "interface": record.interface}
        if isinstance(found, dict):
            found = own | {name: value for name, value in found.items() if not name.startswith("inner.")}
        rows.append(found)
    return rows, twin.damage


@pytest.mark.parametrize("folder, least", [("pcap", 190), ("hostile", 432)])
def test_every_column_of_every_packet_is_the_twins(folder: str, least: int, captures: Path) -> None:
    compared = 0
    for path in sorted((captures / folder).iterdir()):
        twin = twin_rows(path)
        if twin is None:
            continue
        compared += 1
        rows, skipped, index = decode_file(path)
        seen, damage = twin
        causes = [row for row in seen if isinstance(row, str)]
        expected = [row for row in seen if isinstance(row, dict)]
        assert [pair for pair in zip(rows, expected, strict=True) if pair[0] != pair[1]] == [], path.name
        assert skipped == {cause: causes.count(cause) for cause in causes}, path.name
        assert (index.damage, index.records) == (damage, len(seen)), path.name
    assert compared >= least
