"""Sessions of random streams against their definition, row by row; late partials against a twin over Python lists.

* The contract is checked over streams with disorder, ties, gaps of years and watermarks that jump. This detects
  sessions that are split, joined over GAP, closed early, emitted twice, lost in a restart or kept after their end.
* The reference for late partials keeps every session that was ever emitted. It detects a row that re-opens or doubles a
  session, and a row that is refused although its session is open.
* Slots and groups that are used again catch totals that are left over from their last session.
* The same tests with the kernels' plain Python detect errors that only bound checks show.
"""

from __future__ import annotations

from collections import defaultdict
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from highlevel.operators import session as open_sessions
from highlevel.operators import session_kernels
from highlevel.operators.session import TS, SessionAggregate
from highlevel.operators.window_operator import WINDOW_END
from highlevel.windows.kind import SessionWindow
from lowlevel.punctuation import BEGINNING, END, Punctuation
from lowlevel.subaggregates import Kind, SubAggregate
from tests.references.flat_groups import flat
from tests.references.operator_contract import (
    Contract,
    all_rows,
    batched,
    check,
    check_restart,
    feed,
    reordered,
    rows_of,
)
from tests.references.session_twin import GAPS, sessions
from tests.references.windows_oracle import Arrival, random_stream

NUMBER = SubAggregate("s1", Kind.SUM)
SUBS = [
    SubAggregate("s0", Kind.COUNT),
    NUMBER,
    SubAggregate("s2", Kind.MIN, TS),
    SubAggregate("s3", Kind.MAX, TS),
    SubAggregate("s4", Kind.MAX),
]
SCHEMA = pa.schema([(name, pa.int64()) for name in ("pane", "k0", "s0", "s1", "s2", "s3", "s4")])


def make(gap: int) -> SessionAggregate:
    return SessionAggregate(SessionWindow(gap), ["k0"], SUBS)


def table(rows: list[tuple]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], schema=SCHEMA)


def partials(gap: int, arrivals: list[Arrival], reduce: bool) -> pa.RecordBatch:
    """Partials of panes of the gap: one for each row, or where `reduce` one for the rows of a pane and group."""
    seen: dict[tuple, list[Arrival]] = defaultdict(list)
    for place, each in enumerate(arrivals):
        seen[each.ts // gap, each.group, 0 if reduce else place].append(each)
    return table(
        [
            (
                *(pane, group, len(rows), sum(each.number for each in rows)),
                *(min(each.ts for each in rows), max(each.ts for each in rows), max(each.number for each in rows)),
            )
            for (pane, group, _), rows in seen.items()
        ]
    )


def contract(gap: int) -> Contract:
    return Contract(
        make=lambda: make(gap),
        ports=1,
        progress=lambda rows: min(rows[WINDOW_END].to_pylist()) - 1,
        watermark=lambda lows: lows[0],
        held=lambda tables: sum(each.num_rows for name, each in tables.items() if name != "low"),
    )


def compare_with_the_definition(seed: int) -> None:
    random = Random(seed)
    gap, stream = random.choice(GAPS), random_stream(random, 30)
    expected = sessions(gap, [each for each in stream if not isinstance(each, int)])
    for order in (stream, reordered(random, stream)):
        reduce = random.random() < 0.5
        events = batched(random, [(0, each) for each in order], lambda rows, reduce=reduce: partials(gap, rows, reduce))
        trace = check(contract(gap), events)
        assert set(all_rows(trace)) == expected, seed
        assert all(times == 1 for times in all_rows(trace).values())
        check_restart(contract(gap), events, trace, random.randrange(len(events)), ipc=True)


@pytest.mark.parametrize("block", range(10))
def test_sessions_are_those_of_the_definition_whatever_the_order(block: int) -> None:
    for seed in range(100 * block, 100 * block + 100):
        compare_with_the_definition(seed)


@pytest.mark.parametrize("seed", range(15))
def test_the_kernels_do_in_plain_python_what_they_do_compiled(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("place_partials", "take_final"):
        monkeypatch.setattr(open_sessions, name, flat(getattr(session_kernels, name).function))
    compare_with_the_definition(seed)


class Twin:
    """Sessions as lists of [group, first, last, count], open and answered; a partial at a time, by the definition."""

    def __init__(self, gap: int) -> None:
        self.gap, self.low = gap, BEGINNING
        self.open: list[list[int]] = []
        self.answered: list[list[int]] = []
        self.late = self.late_rows = 0

    def touching(self, held: list[list[int]], group: int, begin: int, end: int) -> list[list[int]]:
        return [each for each in held if each[0] == group and begin - each[2] < self.gap and each[1] - end < self.gap]

    def partial(self, group: int, begin: int, end: int, count: int) -> None:
        touched = self.touching(self.open, group, begin, end)
        if end < self.low and not any(each[1] <= begin for each in touched):
            over = not touched and end + self.gap <= self.low
            if over or self.touching(self.answered, group, begin, end):
                self.late, self.late_rows = self.late + 1, self.late_rows + count
                return
        self.open = [each for each in self.open if each not in touched]
        firsts, lasts = [begin, *(each[1] for each in touched)], [end, *(each[2] for each in touched)]
        self.open.append([group, min(firsts), max(lasts), count + sum(each[3] for each in touched)])

    def watermark(self, low: int) -> list[tuple]:
        if low <= self.low:
            return []
        self.low = low
        final = [each for each in self.open if each[2] + self.gap <= low]
        self.open = [each for each in self.open if each not in final]
        self.answered += final
        return sorted((first, last + self.gap, group, count) for group, first, last, count in final)


@pytest.mark.parametrize("block", range(10))
def test_rows_below_the_promise_are_late_where_their_session_is_over_and_never_elsewhere(block: int) -> None:
    counted = joined = 0
    for seed in range(100 * block, 100 * block + 100):
        random = Random(seed)
        gap = random.choice([2, 5, 10, 40])
        operator, twin, low = make(gap), Twin(gap), 0
        reach = random.choice([1, 3, 8])
        for _ in range(random.randint(5, 60)):
            if random.random() < 0.3:
                low += random.choice([0, 1, gap // 2, gap, 4 * gap])
                mark = END if random.random() < 0.02 else low
                got = feed(operator, (0, Punctuation("a", mark)))
                expected = twin.watermark(mark)
                assert sorted(row[:4] for row in rows_of(got)) == expected, seed
                assert len(rows_of(got)) == len(expected)
            else:
                rows = []
                for _ in range(random.randint(1, 4)):
                    begin = low + random.randint(-reach * gap, reach * gap)
                    end = min(begin + random.choice([0, 0, gap // 2, gap - 1]), (begin // gap + 1) * gap - 1)
                    count = random.randint(1, 9)
                    group = random.randrange(3)
                    rows.append((begin // gap, group, count, 0, begin, end, 0))
                    below = begin < twin.low
                    late = twin.late
                    twin.partial(group, begin, end, count)
                    joined += below and late == twin.late
                feed(operator, (0, table(rows)))
            assert operator.open_windows() == len(twin.open)
            if random.random() < 0.1:
                restarted = make(gap)
                restarted.restore(operator.snapshot())
                restarted.late, restarted.late_rows = operator.late, operator.late_rows
                operator = restarted
            assert (operator.late, operator.late_rows) == (twin.late, twin.late_rows), seed
        counted += twin.late
    assert counted > 300
    assert joined > 300


def test_a_row_on_the_gap_begins_another_session_and_one_before_it_does_not() -> None:
    # gap 10:  0 ─9─ 9 ─10─ 19     [0, 19) [19, 29)
    operator = make(10)
    feed(operator, (0, partials(10, [Arrival(19, 1, 1), Arrival(0, 1, 1), Arrival(9, 1, 1)], False)))
    assert operator.open_windows() == 2
    assert rows_of(feed(operator, (0, Punctuation("a", 18)))) == {}
    assert rows_of(feed(operator, (0, Punctuation("a", 19)))) == {(0, 19, 1, 2, 2, 0, 9, 1): 1}
    assert rows_of(feed(operator, (0, Punctuation("a", END)))) == {(19, 29, 1, 1, 1, 19, 19, 1): 1}
    assert operator.take_closed_windows() == 2
    assert operator.take_closed_windows() == 0


def test_a_partial_between_two_sessions_joins_them() -> None:
    operator = make(10)
    feed(operator, (0, partials(10, [Arrival(0, 1, 1), Arrival(18, 1, 2), Arrival(40, 1, 4)], False)))
    assert operator.open_windows() == 3
    feed(operator, (0, partials(10, [Arrival(9, 1, 8)], False)))
    assert operator.open_windows() == 2
    assert rows_of(feed(operator, (0, Punctuation("a", END)))) == {
        (0, 28, 1, 3, 11, 0, 18, 8): 1, (40, 50, 1, 1, 4, 40, 40, 4): 1
    }  # fmt: skip


def test_a_chain_without_end_costs_one_interval_however_it_arrives() -> None:
    operator = make(10)
    times = list(range(0, 50_000, 9))
    Random(1).shuffle(times)
    for place in range(0, len(times), 500):
        feed(operator, (0, partials(10, [Arrival(ts, 1, 1) for ts in times[place : place + 500]], False)))
    assert operator.open_windows() == 1
    state = operator.bytes
    for ts in range(50_000, 90_000, 9):
        feed(operator, (0, partials(10, [Arrival(ts, 1, 1)], False)))
    assert operator.open_windows() == 1
    assert operator.bytes == state


@pytest.mark.slow("a long stream")
def test_groups_that_are_over_are_forgotten_and_memory_stays_bounded() -> None:
    operator = make(10)
    most = 0
    for block in range(200):
        rows = [Arrival(100 * block + number % 7, 1000 * block + number, 1) for number in range(1000)]
        feed(operator, (0, partials(10, rows, False)))
        assert len(rows_of(feed(operator, (0, Punctuation("a", 100 * block + 60))))) == 1000
        most = max(most, operator.bytes)
    assert operator.open_windows() == 0
    assert most < 1_000_000  # 200 000 groups would be tens of megabytes


def test_memory_of_a_flood_is_given_back_when_it_is_over() -> None:
    operator = make(10)
    feed(operator, (0, partials(10, [Arrival(5, number, 1) for number in range(50_000)], False)))
    at_most = operator.bytes
    feed(operator, (0, partials(10, [Arrival(ts, 1, 1) for ts in range(6, 100)], False)))
    assert sum(rows_of(feed(operator, (0, Punctuation("a", 90)))).values()) == 49_999
    assert operator.bytes < at_most / 20
    assert rows_of(feed(operator, (0, Punctuation("a", END)))) == {(5, 109, 1, 95, 95, 5, 99, 1): 1}


def test_late_rows_alone_leave_no_groups_behind() -> None:
    operator = make(10)
    feed(operator, (0, Punctuation("a", 1_000_000)))
    for block in range(100):
        feed(operator, (0, partials(10, [Arrival(0, 1000 * block + number, 1) for number in range(1000)], False)))
        feed(operator, (0, Punctuation("a", 1_000_001 + block)))
    assert operator.late == operator.late_rows == 100_000
    assert operator.bytes < 1_000_000


def test_nothing_is_looked_at_where_nothing_can_close(monkeypatch: pytest.MonkeyPatch) -> None:
    operator = make(1000)
    feed(operator, (0, partials(1000, [Arrival(5000 + ts, ts, 1) for ts in range(100)], False)))
    monkeypatch.setattr(open_sessions, "take_final", lambda *_: pytest.fail("the sessions were scanned"))
    for low in range(0, 6000, 7):
        assert feed(operator, (0, Punctuation("a", low))) == [Punctuation("a", low)]


def test_a_key_of_any_type_has_sessions_and_no_group_is_one_group() -> None:
    times = pa.array([0, 5, 30], pa.int64())
    ones = pa.array(np.ones(3, np.int64))
    subs = [SubAggregate("n", Kind.COUNT), SubAggregate("f", Kind.MIN, TS), SubAggregate("l", Kind.MAX, TS)]
    keys = pa.array([b"\x0a\0\0\1", None, bytes(16)], pa.binary())
    batch = pa.RecordBatch.from_arrays([keys, ones, times, times], ["k", "n", "f", "l"])
    for groups, expected in (
        (["k"], {(0, 10, b"\x0a\0\0\1", 1): 1, (5, 15, None, 1): 1, (30, 40, bytes(16), 1): 1}),
        ([], {(0, 15, 2): 1, (30, 40, 1): 1}),
    ):
        operator = SessionAggregate(SessionWindow(10), groups, subs)
        feed(operator, (0, batch))
        found = rows_of(feed(operator, (0, Punctuation("a", END))))
        assert {row[: len(groups) + 3]: count for row, count in found.items()} == expected
