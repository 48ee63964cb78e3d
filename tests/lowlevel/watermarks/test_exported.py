"""The rule `exported`: sequence numbers prove which flow records have arrived.

The tests detect a watermark that a record below it contradicts, one that is not the proven one, a lost datagram that
stops the watermark, and an exporter that is ignored because another one is complete.
"""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from capture.files.capture import Capture
from capture.files.scan import scan
from capture.metrics import FLOW_UNITS_LOST
from capture.open import open_capture
from lowlevel.punctuation import BEGINNING
from lowlevel.rows.flows import FlowReader
from lowlevel.watermarks.generators import LateByExport
from lowlevel.watermarks.rule import Kind, WatermarkRule, parse_rule
from tests.references.netflow_bytes import a_set, ipfix, template, v5, v5_record, v9
from tests.references.pcap_bytes import NS
from tests.references.small_captures import UDP, ip, write

START = 1_700_000_000
UPTIME = 86_400_000
DELAY, LATE = 20, 300
FIELDS = ((1, 8), (152, 8), (153, 8))

Sent = tuple[float, str, int, int, int, bytes]
"""Arrival and export time (s), version, first number, number of units, payload; the sender is its version."""


def exports(
    random: Random, version: int, minutes: int, jitter: float, loss: float, set_back: tuple[int, int] = (0, 0)
) -> Iterator[Sent]:
    """Datagrams of an exporter, one in five seconds. Their flows ended up to DELAY seconds before.

    `set_back`: the clock is so many seconds ahead until it is set back after so many minutes.
    """
    number = 0
    for sent_at in range(START, START + 60 * minutes, 5):
        seconds = sent_at + (set_back[0] if sent_at < START + 60 * set_back[1] else 0)
        ends = [random.randrange(DELAY * 1000) for _ in range(random.randrange(1, 30))]
        uptime = UPTIME + 1000 * (sent_at - START)
        if version == 5:
            records = [v5_record(octets=1, first=uptime - end, last=uptime - end) for end in ends]
            payload, units = v5(records, uptime=uptime, seconds=seconds, sequence=number), len(ends)
        else:
            times = [(seconds * 1000 - end).to_bytes(8, "big") for end in ends]
            body = b"".join(bytes(7) + b"\1" + time + time for time in times)
            sets = [a_set(2 if version == 10 else 0, template(256, FIELDS)), a_set(256, body)]
            if version == 10:
                payload, units = ipfix(sets, seconds=seconds, sequence=number), len(ends)
            else:
                payload, units = v9(sets, uptime=uptime, seconds=seconds, sequence=number), 1
        if random.random() >= loss:
            yield sent_at + random.random() * jitter, seconds, version, number, units, payload
        number += units


def capture_of(path: Path, sent: list[Sent]) -> Path:
    packets = []
    for arrival, _, version, _, _, payload in sent:
        segment = bytes([4, 0, 8, 7]) + (len(payload) + 8).to_bytes(2, "big") + bytes(2) + payload  # to port 2055
        packets.append((arrival, ip(f"192.0.2.{version}", "192.0.2.100", UDP, segment, 20 + len(segment))))
    return write(path, packets)


def proven(sent: list[Sent], lost_after: int) -> int:
    """The time before which all exports have arrived: per sender until the last one before its first missing number."""
    complete = []
    for version in {each[2] for each in sent}:
        own = [each for each in sent if each[2] == version]
        arrived = {number for each in own for number in range(each[3], each[3] + each[4])}
        newest, expected, gaps = -1, own[0][3], list[tuple[int, int, int]]()  # first and last number, export before
        for _, seconds, _, number, units, _ in own:
            if number > expected:
                gaps.append((expected, number, newest))
            expected, newest = max(expected, number + units), max(newest, seconds)
        if newest - own[0][1] <= lost_after:
            return 0
        missing = [before for first, end, before in gaps if not set(range(first, end)) <= arrived]
        complete.append(min([newest, *(before for before in missing if before >= newest - lost_after)]))
    return min(complete) * NS


def watermarks(path: Path, rule: str) -> tuple[list[tuple[int, int, int]], LateByExport, FlowReader]:
    """Return the proven time, the watermark, and how far it is behind the newest row, after each datagram."""
    capture = open_capture(path)
    assert isinstance(capture, Capture)
    reader, generator = FlowReader("link", capture, ["ts"], 16_384), parse_rule(rule).make()
    assert isinstance(generator, LateByExport)
    found = []
    for block in scan(capture, 1).blocks:
        for rows in reader.read(block):
            generator.advance(rows)
        complete = reader.decoder.sessions.complete_until(LATE * NS)
        found.append((complete, generator.watermark, generator.newest - generator.watermark))
    return found, generator, reader


@pytest.mark.parametrize("versions", [(5,), (9,), (10,), (5, 9, 10)])
@pytest.mark.parametrize(("jitter", "loss"), [(0, 0), (25, 0), (25, 0.05)])
def test_sequence_numbers_prove_what_has_arrived(
    versions: tuple[int, ...], jitter: float, loss: float, tmp_path: Path
) -> None:
    random = Random(f"exports {versions} {jitter} {loss}")
    sent = sorted(each for version in versions for each in exports(random, version, 12, jitter, loss))
    path = capture_of(tmp_path / "a.pcap", sent)
    found, generator, reader = watermarks(path, f"exported {DELAY}s late {LATE}s")
    for number, (complete, _, _) in enumerate(found, 1):
        assert complete == proven(sent[:number], LATE), number
    assert generator.rows_below == 0
    lag = [behind for *_, behind in found[-20:]]
    assert max(lag) <= LATE * NS
    assert (reader.samples().total(FLOW_UNITS_LOST) > 0) == (jitter > 0)
    if not loss:
        assert min(lag) < (jitter + DELAY + 10) * NS, "the proven watermark is later than that of `late`"


def test_a_lost_datagram_holds_the_watermark_until_the_rule_late(tmp_path: Path) -> None:
    random = Random("one lost datagram")
    sent = list(exports(random, 5, 20, 0, 0))
    del sent[100]
    found, generator, _ = watermarks(capture_of(tmp_path / "a.pcap", sent), f"exported {DELAY}s late {LATE}s")
    lost_at = sent[99][1]
    held = [watermark for _, watermark, _ in found[101 : 100 + LATE // 5 - DELAY // 5 - 5]]
    assert set(held) == {(lost_at - DELAY) * NS}, "nothing proves that the records of the missing datagram are newer"
    assert found[-1][1] > (sent[-1][1] - DELAY - 10) * NS, "a datagram that is missing for long is lost"
    assert generator.rows_below == 0


def test_a_silent_exporter_delays_the_others_as_long_as_the_rule_late(tmp_path: Path) -> None:
    random = Random("silent exporter")
    stopped = list(exports(random, 9, 6, 0, 0))
    sent = sorted([*stopped, *exports(random, 5, 15, 0, 0)])
    found, _, _ = watermarks(capture_of(tmp_path / "a.pcap", sent), f"exported {DELAY}s late {LATE}s")
    assert found[-1][0] == stopped[-1][1] * NS
    assert found[-1][2] == LATE * NS


def test_after_a_restart_nothing_is_proven_until_earlier_exports_are_lost(tmp_path: Path) -> None:
    """A new process knows no numbers of the exports that the old one has read."""
    random = Random("restart")
    sent = sorted(exports(random, 5, 20, 25, 0))
    half = len(sent) // 2
    first, before, _ = watermarks(capture_of(tmp_path / "1.pcap", sent[:half]), f"exported {DELAY}s late {LATE}s")
    capture = open_capture(capture_of(tmp_path / "2.pcap", sent[half:]))
    assert isinstance(capture, Capture)
    reader, after = FlowReader("link", capture, ["ts"], 16_384), parse_rule(f"exported {DELAY}s late {LATE}s").make()
    after.resume(before.guard.link_time)
    assert after.watermark == before.newest - LATE * NS < first[-1][1]
    lag = []
    for block in scan(capture, 1).blocks:
        for rows in reader.read(block):
            after.advance(rows)
        lag.append(after.newest - after.watermark)
    assert after.rows_below == 0
    assert set(lag[: LATE // 5]) == {LATE * NS}, "nothing is proven"
    assert lag[-1] < (25 + DELAY + 10) * NS


@pytest.mark.parametrize("version", [5, 9, 10])
@pytest.mark.parametrize("ahead", [600, 86_400])
def test_a_clock_that_is_set_back_makes_no_record_late(version: int, ahead: int, tmp_path: Path) -> None:
    """The times of the fast clock would prove exports of the future."""
    random = Random(f"set back {version} {ahead}")
    sent = list(exports(random, version, 30, 0, 0, (ahead, 12)))
    found, generator, reader = watermarks(capture_of(tmp_path / "a.pcap", sent), f"exported {DELAY}s late {LATE}s")
    assert generator.rows_below == 0
    assert reader.samples().total(FLOW_UNITS_LOST) == 0
    set_back = 12 * 60 // 5
    assert {complete for complete, *_ in found[set_back : set_back + LATE // 5]} == {0}, "nothing is proven"
    assert found[-1][0] == sent[-1][1] * NS, "the new times prove it again"
    assert found[-1][2] < (DELAY + 10) * NS


def test_rows_that_are_no_exports_have_the_rule_late() -> None:
    generator = parse_rule("exported 1s late 5s").make()
    assert isinstance(generator, LateByExport)
    assert generator.watermark == BEGINNING
    assert generator.slack == 5 * NS


def test_the_rule_is_read() -> None:
    assert parse_rule("exported 15s late 5m") == WatermarkRule(Kind.LATE_BY_TIME, 300 * NS, export_delay=15 * NS)
    for text, message in (
        ("exported 15s", "expected one of"),
        ("exported 6m late 5m", "cannot be exported later than it may be late"),
        ("exported x late 5m", "exported TIME late TIME"),
    ):
        with pytest.raises(ValueError, match=message):
            parse_rule(text)
