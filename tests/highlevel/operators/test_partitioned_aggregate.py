"""Partitions that count their own rows: random streams in any batches, against plain lists of rows.

The tests detect rows numbered in the wrong partition, and windows that close early, late or twice. They detect a
partition that is forgotten too early or restarts its count. They detect a result that depends on watermarks or batches,
partials that outlive their windows, and a restart that loses a count.
"""

from collections import Counter
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from highlevel.operators.partitioned import OPEN, PartitionedAggregate
from highlevel.operators.window_operator import WINDOW_END, WINDOW_INSTANCE
from highlevel.partitions import open_panes
from highlevel.partitions.kernels import NO_LIFE, find_closing_windows, rank_rows
from highlevel.windows.kind import TupleWindow
from lowlevel.punctuation import END, Item, Punctuation
from lowlevel.subaggregates import INT_MAX
from tests.references.operator_contract import Event, batched, feed, rows_of, through_ipc
from tests.references.tuple_windows_twin import SUBS, aggregates, lives, partials, window_of, windows_of
from tests.references.windows_oracle import Arrival, random_stream


def make(window: TupleWindow) -> PartitionedAggregate:
    return PartitionedAggregate(window, ["p"], ["p", "k"], SUBS)


def without_promises(events: list[Event]) -> list[Event]:
    """The same rows, and only then the end: what a micro-batch, or a finite run, is given."""
    return [event for event in events if not isinstance(event[1], Punctuation) or event[1].watermark == END]


@pytest.mark.parametrize("seed", range(1000))
def test_windows_are_those_of_plain_lists_whatever_the_batches_and_promises(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(seed)
    of = window_of(random)
    idle = random.choice([None, 1, random.randint(2, 60), 10_000])
    window = TupleWindow(of.range, of.slide_rows, True, idle)
    monkeypatch.setattr(open_panes, "MAX_MERGED_PARTIALS", random.choice([1, 7, 1 << 20]))
    stream, partitions = random_stream(random, 30), random.randint(1, 5)
    arrivals = [each for each in stream if not isinstance(each, int)]
    events = batched(random, [(0, each) for each in stream], lambda rows: partials(rows, partitions))
    operator = make(window)
    place = random.randrange(len(events))
    trace = [feed(operator, event) for event in events[:place]]
    bound = bound_of(window, operator)
    state = through_ipc(operator.snapshot())
    assert sum(table.num_rows for name, table in state.items() if name == OPEN) <= bound
    restarted = make(window)
    restarted.restore(state)
    assert restarted.open_windows() == operator.open_windows()
    for event in events[place:]:  # a snapshot must not share changing state
        feed(operator, event)
        trace.append(feed(restarted, event))
    wanted = aggregates(window, arrivals, partitions)
    assert reported(trace) == wanted
    parted = [(each.number % partitions, each.ts, each) for each in arrivals]
    windows = [windows_of(window, life) for _, life in lives(window, parted)]
    assert operator.take_closed_windows() == sum(len(each) for each in windows)
    assert 0 <= restarted.take_closed_windows() <= sum(len(each) for each in windows)
    inside = {id(row) for each in windows for _, _, rows in each for row in rows}
    assert (operator.received, operator.outside) == (len(arrivals), len(arrivals) - len(inside))
    assert [item for items in trace for item in items if isinstance(item, Punctuation)] == [Punctuation("link0", END)]
    assert (operator.snapshot(), operator.bytes, operator.open_windows(), operator.late) == ({}, 0, 0, 0)
    if seed % 4 == 0:
        at_once = make(window)
        assert reported([feed(at_once, event) for event in without_promises(events)]) == wanted


def reported(trace: list[list[Item]]) -> Counter[tuple]:
    """The rows of a run without WINDOW_INSTANCE, which tells apart the windows with equal bounds in a batch."""
    found: Counter[tuple] = Counter()
    for batch in (item for items in trace for item in items if isinstance(item, pa.RecordBatch)):
        keys = [
            name for name in ("window_start", "window_end", "p", "k", WINDOW_INSTANCE) if name in batch.schema.names
        ]
        assert max(Counter(tuple(row.values()) for row in batch.select(keys).to_pylist()).values()) == 1
        named = [name for name in batch.schema.names if name != WINDOW_INSTANCE]
        found += rows_of([batch.select(named)])
    return found


def bound_of(window: TupleWindow, operator: PartitionedAggregate) -> int:
    """Partials of open windows at most: of each partition RANGE and a pane of rows, by pane and five groups."""
    known = 0 if operator.lives is None else int(np.count_nonzero(operator.lives.is_current))
    panes = -(-window.range // window.over_row_numbers.pane) + 1
    return known * panes * min(5, window.over_row_numbers.pane)


def test_a_partition_that_falls_silent_is_reported_once_and_begins_anew() -> None:
    operator = make(TupleWindow(4, 2, True, 100))
    feed(operator, (0, partials([Arrival(5, 0, 1), Arrival(9, 0, 1), Arrival(7, 0, 1)])))
    assert operator.open_windows() == 2  # [0, 4) and [2, 6); [-2, 2) is final
    assert feed(operator, (0, Punctuation("M", 108))) == []
    (rows,) = feed(operator, (0, Punctuation("M", 109)))
    assert sorted(zip(rows[WINDOW_END].to_pylist(), rows["s0"].to_pylist(), strict=True)) == [(4, 3), (6, 1)]
    assert feed(operator, (0, Punctuation("M", 10**6))) == []
    assert (operator.open_windows(), operator.take_closed_windows()) == (0, 3)
    rows = [*feed(operator, (0, partials([Arrival(10**6, 0, 1)]))), *feed(operator, (0, Punctuation("M", END)))][0]
    assert rows[WINDOW_END].to_pylist() == [2, 4]


def test_without_idle_partitions_wait_until_the_end() -> None:
    operator = make(TupleWindow(4, 4, True))
    feed(operator, (0, partials([Arrival(5, 0, 1), Arrival(6, 0, 2)], 2)))
    assert feed(operator, (0, Punctuation("M", 2**62))) == []
    assert operator.open_windows() == 2
    rows, mark = feed(operator, (0, Punctuation("M", END)))
    assert (rows["p"].to_pylist(), mark.watermark) == ([1, 0], END)


@pytest.mark.slow("a long stream")
def test_memory_is_that_of_open_windows_however_many_rows_and_partitions_there_were() -> None:
    """Partitions appear and disappear, or stay. The held state does not grow with the rows."""
    for idle in (50, None):
        operator = make(TupleWindow(8, 4, True, idle))
        sizes = []
        for step in range(400):
            names = range(step * 20, step * 20 + 20) if idle else range(20)
            rows = [Arrival(step * 10, 0, name) for name in names for _ in range(7)]
            feed(operator, (0, partials(rows, 10**6)))
            feed(operator, (0, Punctuation("M", step * 10)))
            sizes.append(operator.bytes)
        assert operator.received == 400 * 140
        assert max(sizes[200:]) <= 1.01 * max(sizes[:200])


def test_the_kernel_that_numbers_rows_does_what_python_does() -> None:
    random = Random(1)
    for idle in (INT_MAX, 30):
        partitions = np.array([random.randrange(4) for _ in range(300)])
        times = np.array([random.randrange(400) for _ in range(300)])
        results = []
        for function in (rank_rows, rank_rows.function):
            current, (lives_, ranks) = np.full(4, NO_LIFE), np.empty((2, 300), np.int64)
            state = np.zeros((3, 301), np.int64)
            known = function(partitions, times, 300, idle, 0, current, *state, lives_, ranks)
            results.append((known, current.tolist(), state[:, :known].tolist(), lives_.tolist(), ranks.tolist()))
        assert results[0] == results[1]


def test_the_kernel_that_finds_windows_does_what_python_does() -> None:
    random = Random(2)
    lives_, panes = (np.array([random.randrange(20) for _ in range(300)]) for _ in range(2))
    reported = np.array([random.randrange(6) for _ in range(20)])
    final = reported + np.array([random.randrange(6) for _ in range(20)])
    results = []
    for function in (find_closing_windows, find_closing_windows.function):
        first, counts = np.empty((2, 300), np.int64)
        over = function(lives_, panes, 300, 2, 6, 4, reported, final, first, counts)
        results.append((over, first.tolist(), counts.tolist()))
    assert results[0] == results[1]
