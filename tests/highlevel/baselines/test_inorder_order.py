"""Sort and Merge, which keep order, against twins that do the same to one row at a time.

The tests detect rows that are out of order or lost. They detect rows that leave later or earlier than defined, which
would flatter the compared operators. They detect a watermark that a later row breaks, and state that restarts lose.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from highlevel.baselines import sort_buffer
from highlevel.baselines.merge import OrderedMerge
from highlevel.baselines.sort import SlackSort
from lowlevel.punctuation import BEGINNING, END, Item, Punctuation
from tests.conftest import Rounds
from tests.references.operator_contract import Event, batched, feed, interleaved, rows_behind_promises, through_ipc
from tests.references.windows_oracle import Arrival, random_inputs, random_stream

RUNS = 300
SCHEMA = pa.schema([("ts", pa.int64()), ("group", pa.int64()), ("number", pa.int64())])


def rows(arrivals: Iterable[Arrival]) -> pa.RecordBatch:
    columns = [pa.array(column, pa.int64()) for column in zip(*arrivals, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def arrivals_of(items: Iterable[Item]) -> list[Arrival]:
    batches = [item for item in items if isinstance(item, pa.RecordBatch)]
    return [
        Arrival(*row) for batch in batches for row in zip(*(each.to_pylist() for each in batch.columns), strict=True)
    ]


def in_order(found: list[tuple]) -> bool:
    times = [ts for ts, *_ in found]
    return times == sorted(times)


class SortTwin:
    """One row at a time: those up to a bound leave, the smallest first, the first to come of equal ones."""

    def __init__(self, slack: int | None) -> None:
        self.slack = slack
        self.high = self.bound = BEGINNING
        self.late = 0
        self.held: list[Arrival] = []
        self.left: list[Arrival] = []

    def take(self, each: Arrival | int) -> None:
        if isinstance(each, int):
            self.bound = max(self.bound, each)
        else:
            self.high = max(self.high, each.ts)
            if each.ts < self.bound or (self.slack is not None and each.ts < self.high - self.slack):
                self.late += 1
            else:
                self.held.append(each)
            if self.slack is not None:
                self.bound = max(self.bound, self.high - self.slack)
        self.held.sort(key=lambda held: held.ts)
        while self.held and self.held[0].ts <= self.bound:
            self.left.append(self.held.pop(0))


@pytest.mark.parametrize("slack", [None, 0, 3, 20])
def test_sort_lets_go_of_what_no_later_row_is_before_and_loses_what_is_behind(
    slack: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = 0
    for seed in range(RUNS // 2):
        random = Random(seed)
        monkeypatch.setattr(sort_buffer, "SMALL_RUN", random.choice([2, 8, 32_768]))
        stream = random_stream(random)
        if slack is not None and random.random() < 0.5:  # the largest time alone, and the end
            stream = [each for each in stream if each == END or isinstance(each, Arrival)]
        events = batched(random, [(0, each) for each in stream], rows)
        operator, twin = SlackSort(slack), SortTwin(slack)
        stop = random.randrange(len(events))
        items: list[Item] = []
        found: list[Arrival] = []
        for place, event in enumerate(events):
            if place == stop:
                stopped, operator = operator, SlackSort(slack)
                operator.restore(through_ipc(stopped.snapshot()))
            items += (new := feed(operator, event))
            found += arrivals_of(new)
            for each in [event[1].watermark] if isinstance(event[1], Punctuation) else arrivals_of([event[1]]):
                twin.take(each)
            assert found == twin.left, seed
            assert operator.rows_held == len(twin.held)
            assert (operator.bytes > 0) == (operator.rows_held > 0)
            assert operator.emitted_watermark == twin.bound
        left = rows_behind_promises(items)
        assert in_order(left)
        assert stopped.results + operator.results == len(left)
        assert stopped.late + operator.late == twin.late
        assert stopped.received + operator.received == len(twin.left) + twin.late
        assert (operator.rows_held, twin.bound) == (0, END)
        late += twin.late
    assert late > 100 or slack is None or slack == 20


def test_a_slack_counts_from_the_largest_time_and_what_is_behind_what_has_left_is_lost() -> None:
    operator = SlackSort(5)
    assert arrivals_of(feed(operator, (0, rows([Arrival(8, 0, 1), Arrival(4, 0, 2), Arrival(5, 0, 3)])))) == []
    assert (operator.rows_held, operator.late) == (3, 0)
    assert [each.ts for each in arrivals_of(feed(operator, (0, rows([Arrival(10, 0, 4), Arrival(3, 0, 5)]))))] == [4, 5]
    assert (operator.rows_held, operator.late) == (2, 1)
    assert [each.ts for each in arrivals_of(feed(operator, (0, Punctuation("M", 8))))] == [8]
    with pytest.raises(ValueError, match="got -1"):
        SlackSort(-1)


class MergeTwin:
    """The smallest head leaves while every input has one, or is known not to send anything before it."""

    def __init__(self, inputs: int) -> None:
        self.queues: list[list[Arrival]] = [[] for _ in range(inputs)]
        self.known = [BEGINNING] * inputs
        self.late = 0

    def take(self, port: int, each: Arrival | int) -> list[Arrival]:
        if isinstance(each, int):
            self.known[port] = max(self.known[port], each)
        elif each.ts < self.known[port]:
            self.late += 1
        else:
            self.known[port] = each.ts
            self.queues[port].append(each)
        left = []
        while heads := [(queue[0].ts, place) for place, queue in enumerate(self.queues) if queue]:
            least, place = min(heads)
            if not all(queue or known >= least for queue, known in zip(self.queues, self.known, strict=True)):
                break
            left.append(self.queues[place].pop(0))
        return left


def ordered(stream: list[Arrival | int]) -> list[Arrival | int]:
    """The rows of a stream in order, with its promises where they still hold."""
    arrivals = sorted((each for each in stream if isinstance(each, Arrival)), key=lambda each: each.ts)
    marks = [each for each in stream if isinstance(each, int)]
    merged: list[Arrival | int] = []
    for each in arrivals:
        while marks[0] <= each.ts:
            merged.append(marks.pop(0))
        merged.append(each)
    return [*merged, *marks]


def test_merge_lets_the_smallest_head_go_when_every_input_has_one_or_a_promise(rounds: Rounds) -> None:
    dropped = 0
    seeds = rounds(RUNS)
    for seed in seeds:
        random = Random(seed)
        inputs = random_inputs(random)
        if random.random() < 0.8:
            inputs = [ordered(each) for each in inputs]
        events: list[Event] = batched(random, interleaved(random, inputs), rows)
        operator, twin = OrderedMerge(len(inputs)), MergeTwin(len(inputs))
        waiting: Counter[Arrival] = Counter()  # what the twin let go and the operator did not
        items: list[Item] = []
        stop = random.randrange(len(events))
        for place, (port, item) in enumerate(events):
            if place == stop:
                stopped, operator = operator, OrderedMerge(len(inputs))
                operator.restore(through_ipc(stopped.snapshot()))
                assert operator.rows_held == stopped.rows_held
            items += (new := feed(operator, (port, item)))
            for each in [item.watermark] if isinstance(item, Punctuation) else arrivals_of([item]):
                waiting.update(twin.take(port, each))
            waiting.subtract(arrivals_of(new))
            assert not +waiting, seed
            assert not -waiting, seed
            waiting.clear()
            assert operator.rows_held == sum(map(len, twin.queues))
            assert (operator.bytes > 0) == (operator.rows_held > 0)
        left = rows_behind_promises(items)
        assert in_order(left)
        assert stopped.results + operator.results == len(left)
        assert stopped.late + operator.late == twin.late
        assert stopped.received + operator.received == len(left) + twin.late
        assert operator.rows_held == 0
        dropped += twin.late
    assert dropped > len(seeds) // 3


def most_held(gap: int, lull: int | None, skew: int = 0) -> int:
    """Return the largest number of rows that Merge holds.

    Two mains send 100 rows/s; the second is `skew` s late. A third input sends a row each `gap` s. A timer of a second
    ensures that it is at most `lull` s older than the clock. Times in centiseconds.
    """
    operator = OrderedMerge(3)
    spoken = most = 0
    for now in range(100 * 32):
        for port, behind in ((0, 0), (1, skew * 100)):
            if now >= behind:
                feed(operator, (port, rows([Arrival(now - behind, 0, 0)])))
        most = max(most, operator.rows_held)
        if now % (gap * 100) == 0:
            spoken = now
            feed(operator, (2, rows([Arrival(now, 0, 0)])))
        if lull is not None and now % 100 == 0 and now - spoken > lull * 100:
            spoken = now - lull * 100
            feed(operator, (2, Punctuation("C", spoken)))
    return most


def test_merge_holds_the_traffic_of_a_lull_or_of_a_skew() -> None:
    # Two mains of 100 rows/s: 30 s of both, 1 s and the time until the timer's next tick, and 10 s of one.
    assert most_held(30, None) == pytest.approx(6000, abs=5)
    assert most_held(30, 1) == pytest.approx(400, abs=5)
    assert most_held(30, 1, skew=10) == pytest.approx(1002, abs=5)


def test_a_buffer_holds_on_to_no_more_than_twice_the_memory_of_its_rows() -> None:
    operator = SlackSort(None)
    feed(operator, (0, rows(Arrival(ts, 0, 0) for ts in np.random.default_rng(1).permutation(4096).tolist())))
    for low in range(0, 4096, 64):
        feed(operator, (0, Punctuation("M", low)))
        (run,) = operator.buffer._runs
        assert operator.rows_held <= run.shared_rows <= 2 * operator.rows_held
        assert run.batch.column(0).buffers()[1].size <= 8 * run.shared_rows + 64
