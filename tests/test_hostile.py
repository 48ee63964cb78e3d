"""Real captures, well-formed and hostile, against the twin: every column of every packet.

Where the truth of `test_truth` stops (ports, flags, times to live, lengths, which bytes were there), the twin goes
on. Nothing may differ: both follow the definitions of `capture.packets.columns`.
"""

from pathlib import Path

import pytest

from capture.errors import InputError
from capture.packets.link_layers import LINK_TYPES
from tests.capture_oracle import FORMATS, read_pcap
from tests.packet_rows import decode_file


def classic_captures(folder: Path) -> list[Path]:
    """Files that begin as a classic pcap does, whatever their names say, with a link type that is read."""
    found = [path for path in sorted(folder.iterdir()) if path.read_bytes()[:4] in FORMATS]
    return [path for path in found if read_pcap(path).link_type in LINK_TYPES]


@pytest.mark.parametrize("folder, least", [("pcap", 118), ("hostile", 330)])
def test_every_column_of_every_packet_is_the_twins(folder: str, least: int, captures: Path) -> None:
    paths = classic_captures(captures / folder)
    assert len(paths) >= least
    for path in paths:
        rows, skipped, index = decode_file(path)
        twin = read_pcap(path)
        seen = list(twin.rows())
        causes = [row for row in seen if isinstance(row, str)]
        expected = [row for row in seen if isinstance(row, dict)]
        assert [pair for pair in zip(rows, expected, strict=True) if pair[0] != pair[1]] == [], path.name
        assert skipped == {cause: causes.count(cause) for cause in causes}, path.name
        assert (index.damage, index.records) == (twin.damage, len(seen)), path.name


@pytest.mark.parametrize("folder", ["pcap", "hostile"])
def test_a_file_that_is_no_classic_pcap_is_refused_and_never_crashes(folder: str, captures: Path) -> None:
    others = [path for path in (captures / folder).iterdir() if path.read_bytes()[:4] not in FORMATS]
    assert others
    for path in others:
        with pytest.raises(InputError, match="it is a pcapng capture"):
            decode_file(path)
