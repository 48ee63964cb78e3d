"""Sliding windows over times: what Bucket and Aggregate make of random streams, with bounds, against the definition.

The tests detect bounds that are off by one window, and punctuation that covers a window with later rows. They detect
partials that are counted in the wrong window, and windows that are closed or open twice.
"""

from math import gcd
from random import Random
from typing import NoReturn

import pyarrow as pa
import pytest

from highlevel.operators.window_operator import WINDOW_END
from highlevel.sliding.aggregate import Aggregate, SlidingAggregate
from highlevel.windows.kind import SlidingWindow
from lowlevel.integer_ranges import count
from lowlevel.punctuation import BEGINNING, END, Punctuation
from lowlevel.subaggregates import Kind, SubAggregate
from tests.references.operator_contract import Contract, all_rows, batched, check, check_restart, feed, reordered
from tests.references.windows_oracle import Arrival, Spec, random_spec, random_stream, window_aggregates

KINDS = (Kind.COUNT, Kind.SUM, Kind.MIN, Kind.MAX)
SUBS = [SubAggregate(f"s{number}", kind) for number, kind in enumerate(KINDS)]
SCHEMA = pa.schema([(name, pa.int64()) for name in ("pane", "k0", "s0", "s1", "s2", "s3")])


def make(spec: Spec) -> SlidingAggregate:
    window = SlidingWindow(spec.range, spec.slide, spec.origin)
    return SlidingAggregate(window, window.pane, ["k0"], SUBS)


def partials(spec: Spec, arrivals: list[Arrival]) -> pa.RecordBatch:
    pane = gcd(spec.range, spec.slide)
    rows = [((each.ts - spec.origin) // pane, each.group, 1, *[each.number] * 3) for each in arrivals]
    return pa.RecordBatch.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], schema=SCHEMA)


def contract(spec: Spec) -> Contract:
    def watermark(lows: list[int]) -> int:
        closed = (lows[0] - spec.origin) // spec.slide
        return lows[0] if lows[0] == END else spec.extent(closed - 1)[1] if closed > 0 else BEGINNING

    return Contract(
        make=lambda: make(spec),
        ports=1,
        progress=lambda rows: min(rows[WINDOW_END].to_pylist()) - 1,
        watermark=watermark,
        held=lambda tables: sum(table.num_rows for name, table in tables.items() if name != "closed"),
    )


@pytest.mark.parametrize("seed", range(300))
def test_windows_are_those_of_the_definition_whatever_the_order(seed: int) -> None:
    random = Random(seed)
    spec, stream = random_spec(random), random_stream(random, 30)
    for order in (stream, reordered(random, stream)):
        events = batched(random, [(0, each) for each in order], lambda rows: partials(spec, rows))
        trace = check(contract(spec), events)
        arrivals = [each for each in order if not isinstance(each, int)]
        assert set(all_rows(trace)) == window_aggregates(arrivals, spec)
        assert all(times == 1 for times in all_rows(trace).values())
        check_restart(contract(spec), events, trace, random.randrange(len(events)), ipc=True)


def test_each_window_is_open_and_then_closed_once_and_partials_outside_are_counted() -> None:
    spec = Spec(range=5, slide=10)  # [5, 10), [15, 20), …
    operator = make(spec)
    for low, ts in ((0, 7), (8, 12), (12, 17)):
        feed(operator, (0, Punctuation("M", low)))
        feed(operator, (0, partials(spec, [Arrival(ts, 0, 1)])))
    assert operator.take_closed_windows() == [(0, 1)]
    assert operator.take_closed_windows() == []
    assert count(operator.open_windows()) == 1
    feed(operator, (0, partials(spec, [Arrival(8, 0, 1), Arrival(9, 1, 1)])))
    feed(operator, (0, Punctuation("M", END)))
    assert operator.take_closed_windows() == [(1, 2)]
    assert operator.open_windows() == []
    assert (operator.received, operator.outside, operator.late, operator.late_rows) == (5, 1, 2, 2)
    assert operator.bytes == 0


class Untold(list):
    """Window ids that nobody asked for so far."""

    def __iter__(self) -> NoReturn:
        raise AssertionError("as slow as there are windows that were closed before")


def test_a_promise_costs_what_it_closes_however_much_is_open_or_was_closed_before() -> None:
    spec = Spec(range=5, slide=5)
    operator = make(spec)
    operator._closed = Untold()
    for ts in (0, 10, 12, 20, 21, 40, 1000):
        feed(operator, (0, partials(spec, [Arrival(ts, 0, 1)])))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Aggregate, "open_windows", lambda _: pytest.fail("as slow as there are piles"))
        for low in (3, 5, 6, 14, 15, 17, 50):
            feed(operator, (0, Punctuation("M", low)))
    assert operator._closed[:] == [(0, 1), (2, 3), (4, 5), (8, 9)]
