"""Random disordered streams with valid watermarks of one or two time columns, and the rules of all graph operators.

No row is older than a watermark, no watermark falls, and no state remains after the end. The result depends neither on
the position of a restart nor on the order of two watermarks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any

import pyarrow as pa

from highlevel.plan.operators.operator import GraphItem, NodeOperator, bounds_of
from lowlevel.punctuation import BEGINNING, END, JointPunctuation, Punctuation
from tests.references.operator_contract import through_ipc

Row = tuple
Bounds = tuple[int, ...]
Event = tuple[int, list[Row] | Bounds]
"""A port, and rows that come on it together, or the bounds of a promise."""

Times = Callable[[Row], Sequence[int | None]]
"""The progressing values of a row."""


def is_covered(times: Sequence[int | None], lows: Bounds) -> bool:
    """The definition: below in every progressing column; a stream that has ended is below nowhere."""
    return all(low == END or (time is not None and time < low) for time, low in zip(times, lows, strict=True))


def stream(random: Random, rows: list[Row], times: Times, width: int) -> list[list[Row] | Bounds]:
    """Rows in batches, in their order, with promises that no later row contradicts; the last is the end."""
    events: list[list[Row] | Bounds] = []
    watermarks: Bounds = (BEGINNING,) * width
    at = 0
    while at < len(rows):
        size = random.randint(1, 4)
        events.append(rows[at : at + size])
        at += size
        if random.random() < 0.6:
            later = [times(row) for row in rows[at:]]
            lows = _grammatical(random, later, watermarks)
            if lows != watermarks and BEGINNING not in lows:
                events.append(lows)
                watermarks = lows
    return [*events, (END,) * width]


def _grammatical(random: Random, later: list[Sequence[int | None]], watermarks: Bounds) -> Bounds:
    firsts = [time for time, *_ in later if time is not None]
    lowest = min(firsts, default=1000) - random.choice([0, 0, 3])
    if len(watermarks) == 1:
        return (max(watermarks[0], lowest),)
    first = max(watermarks[0], lowest + random.choice([0, 2, 9, 30]))
    inside = [second for time, second in later if time is not None and time < first and second is not None]
    second = min(inside, default=max(watermarks[1], first)) - random.choice([0, 0, 2])
    return (first, second) if second >= watermarks[1] else watermarks


def interleaved(random: Random, streams: Sequence[list[list[Row] | Bounds]]) -> list[Event]:
    """One order of the events of all ports, each in its own order."""
    left = [list(each) for each in streams]
    events = []
    while any(left):
        port = random.choice([port for port, each in enumerate(left) if each])
        events.append((port, left[port].pop(0)))
    return events


def shuffled(random: Random, events: list[Event]) -> list[Event]:
    """The same events with the rows between two promises of anybody in another order."""
    run: list[tuple[int, Row]] = []
    found: list[Event] = []
    for port, what in [*events, (0, ())]:
        if isinstance(what, list):
            run += [(port, row) for row in what]
            continue
        random.shuffle(run)
        found += [(of, [row]) for of, row in run]
        run = []
        if what:
            found.append((port, what))
    return found


def item(what: list[Row] | Bounds, schema: pa.Schema) -> GraphItem:
    if isinstance(what, list):
        columns = [pa.array(values, field.type) for values, field in zip(zip(*what, strict=True), schema, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=schema)
    return Punctuation("link", what[0]) if len(what) == 1 else JointPunctuation("link", (what[0], what[1]))


def feed(operator: NodeOperator, event: Event, schema: pa.Schema) -> list[GraphItem]:
    port, what = event
    given = item(what, schema)
    return list(
        operator.process_rows(port, given) if isinstance(given, pa.RecordBatch) else operator.punctuate(port, given)
    )


def rows_of(items: Iterable[GraphItem]) -> Counter[Row]:
    """All rows that left, floats rounded to what does not depend on the order of additions."""
    found = (tuple(row.values()) for each in items if isinstance(each, pa.RecordBatch) for row in each.to_pylist())
    return Counter(found)


def marks_of(items: Iterable[GraphItem]) -> list[GraphItem]:
    return [each for each in items if not isinstance(each, pa.RecordBatch)]


def check(
    make: Callable[[], NodeOperator],
    events: list[Event],
    schema: pa.Schema,
    progress: Sequence[str],
    random: Random,
    watch: Callable[[Any, Event], None] = lambda *_: None,
    *,
    is_changing: bool = False,
) -> Counter[Row]:
    """Run an operator whose results progress with the columns `progress`.

    Check the rules of all operators; return its rows.

    `watch` is called after each event. If `is_changing`, the rows are changes: only their sums do not depend on the
    order of arrival.
    """
    operator = make()
    width = max(1, len(progress))
    watermarks: Bounds = (BEGINNING,) * width
    trace: list[list[GraphItem]] = []
    for event in events:
        trace.append(feed(operator, event, schema))
        for each in trace[-1]:
            if isinstance(each, pa.RecordBatch):
                assert each.num_rows, "an empty batch is no item"
                times = zip(*(each.column(name).to_pylist() for name in progress), strict=True)
                covered = [row for row in times if BEGINNING not in watermarks and is_covered(row, watermarks)]
                assert not covered, f"{covered} after the promise {watermarks}"
                assert set(watermarks) != {END}, "a row behind the end"
            else:
                lows = bounds_of(each, width)
                assert all(low >= before for low, before in zip(lows, watermarks, strict=True)), (
                    f"{lows} after {watermarks}"
                )
                watermarks = lows
        watch(operator, event)
    assert set(watermarks) == {END}, f"watermarks {watermarks} at the end"
    _check_restart(make, events, schema, trace, random)
    rows = rows_of(each for items in trace for each in items)
    again = make()
    other = rows_of(each for event in shuffled(random, events) for each in feed(again, event, schema))
    assert (added_up(other) if is_changing else other) == (added_up(rows) if is_changing else rows)
    return rows


def added_up(changes: Counter[Row]) -> Counter[Row]:
    """Add up the weights of equal rows of changes, whether they are final or not."""
    totals: Counter[Row] = Counter()
    for (*row, weight, _), times in changes.items():
        totals[tuple(row)] += weight * times
    return +totals


def _check_restart(
    make: Callable[[], NodeOperator],
    events: list[Event],
    schema: pa.Schema,
    trace: list[list[GraphItem]],
    random: Random,
) -> None:
    place = random.randrange(len(events))
    stopped, restarted = make(), make()
    for event in events[:place]:
        feed(stopped, event, schema)
    restarted.restore(through_ipc(stopped.snapshot()))
    for event, expected in zip(events[place:], trace[place:], strict=True):
        items = feed(restarted, event, schema)
        assert rows_of(items) == rows_of(expected)
        assert marks_of(items) == marks_of(expected)
