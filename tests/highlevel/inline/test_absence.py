"""Requests without a reply: certain results after the deadline, and provisional results that are withdrawn.

The tests detect an absence that is reported before the reply could have arrived, a reply that does not withdraw it, and
a timer that a restart loses.
"""

import struct
from pathlib import Path

import pytest

from lowlevel.punctuation import Punctuation
from tests.harness.live_pipes import START
from tests.harness.recorded_runs import RecordedRun, rows_in
from tests.references.pcap_bytes import NS, pcap_bytes
from tests.references.small_captures import RAW_IP, ip

MINUTE = 60
TCP, SYN, SYN_ACK, ACK = 6, 2, 18, 16
UNANSWERED = (
    "SELECT s.ts, s.srcPort FROM packets s [RANGE 10 minutes] ANTI JOIN packets r [RANGE 0 s] "
    "ON r.srcIP = s.destIP AND r.destIP = s.srcIP AND r.srcPort = s.destPort AND r.destPort = s.srcPort "
    "AND r.tcp_flags & 18 = 18 WHERE s.tcp_flags & 18 = 2"
)


def segment(flags: int, port: int) -> bytes:
    """A TCP segment of the connection from `port` of the client, from the server if it is SYN-ACK."""
    ends, ports = ("10.0.0.1", "10.0.0.2"), (port, 443)
    if flags == SYN_ACK:
        ends, ports = ends[::-1], ports[::-1]
    header = struct.pack(">HHIIBBHHH", *ports, 0, 0, 5 << 4, flags, 1024, 0, 0)
    return ip(*ends, TCP, header, 40)


def capture(path: Path, *packets: tuple[float, int, int]) -> Path:
    """A capture of TCP segments, each with its minute, flags and client port, in the order of their arrival."""
    records = [(START + round(minute * MINUTE * NS), segment(flags, port)) for minute, flags, port in packets]
    path.write_bytes(pcap_bytes(records, RAW_IP))
    return path


def at(minute: float) -> int:
    return START + round(minute * MINUTE * NS)


def shown(run: RecordedRun, restart: int | None = None) -> list[list[tuple]]:
    """Return the rows after each item of the low level that has some, with the minute in place of the time."""
    steps = [rows_in(items) for items in run.steps(restart)]
    return [[((ts - START) / MINUTE / NS, *rest) for ts, *rest in rows] for rows in steps if rows]


CLOCK = [(minute / 8, ACK, 9) for minute in range(30 * 8)]
"""Eight packets in each minute, so that time advances, and the first packets agree about the time."""


def merged(*packets: tuple[float, int, int]) -> list[tuple[float, int, int]]:
    return sorted([*CLOCK, *packets])


@pytest.mark.parametrize("restart", [None, 10, 100, 250, 400])
def test_an_absence_is_reported_only_after_the_watermark_has_passed_the_deadline(
    tmp_path: Path, restart: int | None
) -> None:
    path = capture(tmp_path / "a.pcap", *merged((0.5, SYN, 1), (0.5, SYN, 2), (6.5, SYN_ACK, 1)))
    for clauses in ("", "EMIT FINAL", "WITH CONSISTENCY (REMEMBER 1 minute)"):
        assert shown(RecordedRun(f"{UNANSWERED} {clauses}", path, 1), restart) == [[(0.5, 2)]], clauses
    run = RecordedRun(f"{UNANSWERED} WITH CONSISTENCY (WAIT FOREVER, REMEMBER 1 minute) EMIT CHANGES", path, 1)
    items, steps = run.items(), list(run.steps(restart))
    (reported,) = [step for step, result in enumerate(steps) if rows_in(result)]
    assert shown(run, restart) == [[(0.5, 2, 1, True)]]
    marks = [item.watermark for _, item in items[: reported + 1] if isinstance(item, Punctuation)]
    assert at(10.5) < marks[-1] <= at(12), "the watermark has just passed the deadline"


@pytest.mark.parametrize("wait", ["0", "2 minutes", "FOREVER"])
def test_with_emit_changes_an_absence_is_final_only_after_the_deadline(wait: str, tmp_path: Path) -> None:
    """The query reads windows of the absences: their rows become final while the input continues."""
    path = capture(tmp_path / "a.pcap", *merged((0.5, SYN, 1), (0.5, SYN, 2), (6.5, SYN_ACK, 1)))
    clauses = f"WITH CONSISTENCY (WAIT {wait}, REMEMBER 5 minutes) EMIT CHANGES"
    run = RecordedRun(f"SELECT count(*) AS silent [RANGE 1 minute, WA ts] FROM ({UNANSWERED}) {clauses}", path, 1)
    mark, total, finals = 0, 0, 0
    for (_, item), result in zip(run.items(), run.steps(), strict=True):
        mark = max(mark, item.watermark) if isinstance(item, Punctuation) else mark
        for _, _, silent, weight, final in rows_in(result):
            total += silent * weight
            finals += final
            assert not final or mark > at(10.5), "the reply could still arrive"
    assert total == 1
    assert finals == 1


@pytest.mark.parametrize("restart", [None, 10, 100, 250, 400, 600])
def test_a_provisional_absence_is_withdrawn_by_the_reply(tmp_path: Path, restart: int | None) -> None:
    path = capture(tmp_path / "a.pcap", *merged((0.5, SYN, 1), (0.5, SYN, 2), (6.5, SYN_ACK, 1)))
    run = RecordedRun(f"{UNANSWERED} EMIT CHANGES", path, 1)
    changes = [[(0.5, 1, 1, False)], [(0.5, 2, 1, False)], [(0.5, 1, -1, False)]]
    assert shown(run, restart) == changes


def test_a_reply_within_the_wait_leaves_no_trace(tmp_path: Path) -> None:
    path = capture(tmp_path / "a.pcap", *merged((0.5, SYN, 1), (2.2, SYN_ACK, 1), (3.5, SYN, 2)))
    run = RecordedRun(f"{UNANSWERED} WITH CONSISTENCY (WAIT 2 minutes, REMEMBER 5 minutes) EMIT CHANGES", path, 1)
    assert shown(run) == [[(3.5, 2, 1, False)]]


def test_a_late_reply_withdraws_an_absence_after_the_deadline(tmp_path: Path) -> None:
    late = [*merged((0.5, SYN, 1))[:-100], (6.5, SYN_ACK, 1), *CLOCK[-100:]]
    path = capture(tmp_path / "a.pcap", *late)
    run = RecordedRun(f"{UNANSWERED} WITH CONSISTENCY (WAIT 10 minutes, REMEMBER 20 minutes) EMIT CHANGES", path, 1)
    assert shown(run) == [[(0.5, 1, 1, False)], [(0.5, 1, -1, False)]]


def test_a_row_that_waits_is_returned_after_a_restart_without_further_packets(tmp_path: Path) -> None:
    path = capture(tmp_path / "a.pcap", (0, ACK, 9), (0.5, SYN, 1), (1, ACK, 9))
    run = RecordedRun(f"{UNANSWERED} WITH CONSISTENCY (WAIT 2 minutes) EMIT CHANGES", path, 1)
    for restart in range(len(run.items())):
        assert shown(run, restart) == [[(0.5, 1, 1, True)]], restart
