"""Sessions of a query that states REMEMBER: when they end, and which late rows still join them.

The tests detect an end that is one tick early or late, a time that is counted from the last row in place of the end of
the session, a late row that does not join two sessions, and a session that a restore divides.
"""

from pathlib import Path

import pytest

from lowlevel.punctuation import END, Punctuation
from tests.harness.live_pipes import AGREED, START
from tests.harness.recorded_runs import RecordedRun, rows_in
from tests.references.pcap_bytes import NS, pcap_bytes
from tests.references.small_captures import RAW_IP, udp

SQL = "SELECT count(*) AS n FROM packets [SESSION 10 seconds] WITH CONSISTENCY (REMEMBER 8 seconds)"
FRAME = udp("10.0.0.1", "10.0.0.2", 1, 2)
ZERO = START + 100 * NS  # a multiple of 10 s, because watermarks of sessions are multiples of their gap
"""The time 0 of the tests. Earlier packets agree about the time."""


def sessions(path: Path, arrivals: list[float], restart: int | None = None) -> dict[float, list[tuple]]:
    """Return the sessions that become final, by the watermark: bounds in seconds, and the number of packets.

    `restart`: the operators are restored before the item with this position from the end.
    """
    early = [START + number for number in range(AGREED)]
    records = [(ts, FRAME) for ts in early] + [(ZERO + round(ts * NS), FRAME) for ts in arrivals]
    path.write_bytes(pcap_bytes(records, RAW_IP))
    run, found = RecordedRun(SQL, path, block_records=1), dict[float, list[tuple]]()
    items = run.items()
    steps = run.steps(None if restart is None else len(items) - restart)
    for (_, item), result in zip(items, steps, strict=True):
        ended = [((start - ZERO) / NS, (end - ZERO) / NS, n) for start, end, n in rows_in(result) if start >= ZERO]
        if ended:
            assert isinstance(item, Punctuation)
            found[END if item.watermark == END else (item.watermark - ZERO) / NS] = ended
    return found


@pytest.mark.parametrize("restart", [None, 1, 2, 3, 4, 5])
def test_a_session_ends_when_the_newest_row_is_remember_later_than_its_end(tmp_path: Path, restart: int | None) -> None:
    path = tmp_path / "a.pcap"
    # The session [0, 20) of the rows 0, 5 and 10 is final when a row has the time 28: REMEMBER after its end.
    assert sessions(path, [0, 5, 10, 28, 30], restart) == {20: [(0, 20, 3)], END: [(28, 40, 2)]}
    before = 28 - 1e-9
    assert sessions(path, [0, 5, 10, before], restart) == {END: [(0, 20, 3), (before, 38 - 1e-9, 1)]}


@pytest.mark.parametrize("restart", [None, 1, 2, 3, 4, 5])
def test_a_late_row_joins_two_sessions_until_the_first_one_is_final(tmp_path: Path, restart: int | None) -> None:
    path = tmp_path / "a.pcap"
    assert sessions(path, [0, 10], restart) == {END: [(0, 10, 1), (10, 20, 1)]}, "a row on the gap is another session"
    assert sessions(path, [0, 12, 9], restart) == {END: [(0, 22, 3)]}, "the row at 9 s joins both sessions"
    final = sessions(path, [0, 12, 18, 9.9], restart)
    assert final == {10: [(0, 10, 1)], END: [(12, 28, 2)]}, "the row at 9.9 s is late for both"
