"""Real captures, well-formed and hostile, against the twin: every column of both layers of every packet.

`test_truth` does not cover ports, flags, times to live, lengths and captured bytes. The reference implementation covers
them. Nothing may differ: both follow the definitions of `capture.packets.columns`.
"""

from pathlib import Path

import pytest

from tests.references.capture_oracle import FORMATS, Row, packet, read_pcap
from tests.references.packet_rows import BOTH_LAYERS, decode_file
from tests.references.pcapng_oracle import parse_pcapng


def twin_rows(path: Path) -> tuple[list[Row | str], str | None]:
    """Return the rows of the reference for a capture, by its content, and how the capture ends."""
    if path.read_bytes()[:4] in FORMATS:
        classic = read_pcap(path)
        return list(classic.rows(inner=True)), classic.damage
    twin = parse_pcapng(path.read_bytes())
    rows: list[Row | str] = []
    for record in twin.records:
        found = packet(record.link_type, record.frame, record.wire - len(record.frame))
        own = {"ts": record.ts, "len": record.wire, "caplen": len(record.frame), "interface": record.interface}
        rows.append(own | found if isinstance(found, dict) else found)
    return rows, twin.damage


@pytest.mark.parametrize("folder, files", [("pcap", 190), ("hostile", 451)])
@pytest.mark.slow("hundreds of captures decoded by the slow twin")
def test_every_column_of_every_packet_is_the_twins(folder: str, files: int, captures: Path) -> None:
    paths = sorted((captures / folder).iterdir())
    assert len(paths) == files
    for path in paths:
        rows, skipped, index = decode_file(path, 64, BOTH_LAYERS)
        seen, damage = twin_rows(path)
        causes = [row for row in seen if isinstance(row, str)]
        expected = [row for row in seen if isinstance(row, dict)]
        assert [pair for pair in zip(rows, expected, strict=True) if pair[0] != pair[1]] == [], path.name
        assert skipped == {cause: causes.count(cause) for cause in causes}, path.name
        assert (index.damage, index.records) == (damage, len(seen)), path.name
