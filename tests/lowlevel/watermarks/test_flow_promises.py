"""Watermarks of flow records of several exporters on one link; one exporter has a wrong clock.

* An exporter is ahead by hours or years, in any number of records in a row. It detects a watermark that exceeds the
  arrival times of datagrams: then all rows of the right exporter would be late.
* An exporter that is late detects a link that it delays, and late rows that are not counted.
* A file of bare messages, which nobody saw arrive, catches an exporter's own header taken for an arrival.
"""

from pathlib import Path

import pytest

from capture.files.capture import Capture
from capture.files.scan import scan
from capture.open import open_capture
from lowlevel.punctuation import BEGINNING
from lowlevel.rows.flows import FlowReader
from lowlevel.watermarks.generators import WatermarkGenerator
from lowlevel.watermarks.jumps import AGREEING_ROWS
from lowlevel.watermarks.rule import parse_rule
from tests.references.netflow_bytes import v5, v5_record
from tests.references.pcap_bytes import NS
from tests.references.small_captures import UDP, ip, write

START = 1_700_000_000
UPTIME = 86_400_000
HOUR = 3600
YEAR = 365 * 24 * HOUR
DATAGRAMS = 60
RECORDS = 30
RIGHT, WRONG = "192.0.2.1", "192.0.2.7"


def export(seconds: int, ahead: int, number: int) -> bytes:
    """Return a datagram sent at `seconds` by an exporter that is `ahead`. Its flows ended up to 29 s before."""
    records = [v5_record(octets=100, last=UPTIME - 1000 * ((number + row) % RECORDS)) for row in range(RECORDS)]
    return v5(records, uptime=UPTIME, seconds=seconds + ahead, sequence=number * RECORDS)


def exports(path: Path, ahead: int | None, wrong_first: bool = True) -> Path:
    """Write a capture in which two exporters alternate, with a datagram per 10 s.

    If `ahead` is None, it has only the right one.
    """
    packets = []
    for number in range(DATAGRAMS):
        seconds = START + 10 * number
        both = [(RIGHT, export(seconds, 0, number))]
        if ahead is not None:
            # Three in a row: more records than make a jump believed that arrivals do not contradict.
            several = [(WRONG, export(seconds, ahead, 3 * number + part)) for part in range(3)]
            both = several + both if wrong_first else both + several
        for sender, payload in both:
            segment = bytes([4, 0, 8, 7]) + (len(payload) + 8).to_bytes(2, "big") + bytes(2) + payload  # to port 2055
            packets.append((seconds, ip(sender, "192.0.2.2", UDP, segment, 20 + len(segment))))
    write(path, packets)
    return path


def lows(path: Path, watermark_rule: str, block: int) -> tuple[list[int], WatermarkGenerator]:
    """Return the watermark after each block, and its generator."""
    capture = open_capture(path)
    assert isinstance(capture, Capture)
    reader, promise = FlowReader("link", capture, ["ts"], 16_384), parse_rule(watermark_rule).make()
    found = []
    for each in scan(capture, block).blocks:
        for rows in reader.read(each):
            promise.advance(rows)
        found.append(promise.watermark)
    return found, promise


@pytest.mark.parametrize("wrong_first", [True, False])
@pytest.mark.parametrize("ahead", [2 * HOUR, YEAR])
def test_an_exporter_that_is_ahead_moves_nothing_past_what_arrives(
    ahead: int, wrong_first: bool, tmp_path: Path
) -> None:
    path = exports(tmp_path / "ahead.pcap", ahead, wrong_first)
    assert 3 * RECORDS > AGREEING_ROWS
    found, promise = lows(path, "late 30s", 4)
    # Its rows are of the present. The watermark follows the arrival times, and no right row is below it.
    assert found == [(START + 10 * number - 30) * NS for number in range(DATAGRAMS)]
    assert promise.rows_after_arrival == 3 * RECORDS * DATAGRAMS
    assert (promise.rows_below, promise.future_rows, promise.past_rows) == (0, 0, 0)


def test_an_exporter_that_is_ahead_alone_on_its_link_moves_it_as_it_arrives(tmp_path: Path) -> None:
    payloads = [export(START + 10 * number, YEAR, number) for number in range(DATAGRAMS)]
    segments = [bytes([4, 0, 8, 7]) + (len(each) + 8).to_bytes(2, "big") + bytes(2) + each for each in payloads]
    packets = [
        (START + 10 * number, ip(WRONG, "192.0.2.2", UDP, each, 20 + len(each))) for number, each in enumerate(segments)
    ]
    write(tmp_path / "alone.pcap", packets)
    found, promise = lows(tmp_path / "alone.pcap", "late 30s", 1)
    begun = -(-AGREEING_ROWS // RECORDS) - 1  # the datagram that brings enough rows
    assert found[:begun] == [BEGINNING] * begun
    assert found[begun:] == [(START + 10 * number - 30) * NS for number in range(begun, DATAGRAMS)]
    assert (promise.rows_after_arrival, promise.rows_below) == (RECORDS * DATAGRAMS, 0)


@pytest.mark.parametrize("watermark_rule", ["ordered", "late 10s", "late 40s", "late 20 rows", "blocks 1m"])
@pytest.mark.parametrize("wrong_first", [True, False])
@pytest.mark.parametrize("behind", [2 * HOUR, YEAR])
def test_an_exporter_that_is_far_behind_neither_holds_back_nor_moves_what_is_promised(
    behind: int, wrong_first: bool, watermark_rule: str, tmp_path: Path
) -> None:
    alone, right = lows(exports(tmp_path / "alone.pcap", None), watermark_rule, 1)
    found, promise = lows(exports(tmp_path / "behind.pcap", -behind, wrong_first), watermark_rule, 4)
    assert found == alone
    # `past` counts all its rows, except those before any other row. `below` counts those after the first watermark.
    assert promise.past_rows == 3 * RECORDS * (DATAGRAMS - wrong_first)
    blocks_before = sum(low == BEGINNING for low in [BEGINNING, *found[:-1]])
    assert promise.rows_below - right.rows_below == 3 * RECORDS * (DATAGRAMS - blocks_before)
    assert (promise.future_rows, promise.rows_after_arrival) == (0, 0)


def test_rows_that_are_late_by_a_constant_keep_a_promise_with_as_much_slack(tmp_path: Path) -> None:
    path = exports(tmp_path / "slow.pcap", -600)
    for slack, below in ((630, False), (600, True)):
        found, promise = lows(path, f"late {slack}s", 4)
        assert found[-1] == (START + 10 * (DATAGRAMS - 1) - slack) * NS
        assert (promise.rows_below > 0) == below
        assert promise.past_rows == 0


def test_in_bare_messages_nothing_but_the_exporter_says_when_they_came(tmp_path: Path) -> None:
    path = tmp_path / "messages"
    path.write_bytes(b"".join(export(START + 10 * number, YEAR, number) for number in range(DATAGRAMS)))
    found, promise = lows(path, "ordered", 1)
    assert found[-1] == (START + YEAR + 10 * (DATAGRAMS - 1)) * NS
    assert promise.rows_after_arrival == 0
