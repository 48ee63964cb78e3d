"""Windows of a number of rows, short and long: what random streams make of them, in any batches, by definition.

The tests detect rows that are numbered twice or never, and windows that close before their last row or long after it.
They detect times that close a window, watermarks of numbers that are broken, and a count that a restart loses.
"""

from collections.abc import Callable
from random import Random

import pytest

from highlevel.operators.partitioned import PartitionedAggregate
from highlevel.operators.row_number_windows import MIN_LONG_RANGE, NUMBERS, TupleAggregate
from highlevel.operators.window_operator import WINDOW_END, WindowOperator
from highlevel.plan.operators.counters import window_count
from highlevel.plan.operators.windowed import make_window_operator
from highlevel.windows.kind import TupleWindow
from lowlevel.punctuation import END, Item, Punctuation
from queries.gsql import compile_query
from tests.references.operator_contract import all_rows, batched, feed, through_ipc
from tests.references.tuple_windows_twin import SUBS, aggregates, partials, window_of
from tests.references.windows_oracle import Arrival, random_stream


def long(window: TupleWindow, groups: list[str]) -> WindowOperator:
    return TupleAggregate(window, groups, SUBS)


def short(window: TupleWindow, groups: list[str]) -> WindowOperator:
    return PartitionedAggregate(window, [], groups, SUBS)


Make = Callable[[TupleWindow, list[str]], WindowOperator]


def check_promises(window: TupleWindow, events: list, trace: list[list[Item]]) -> None:
    """After each event the watermark is the end of the last window that has all its rows. It is END at the end."""
    said, rows = None, 0
    for (_, event), items in zip(events, trace, strict=True):
        rows += 0 if isinstance(event, Punctuation) else event.num_rows
        for item in items:
            if isinstance(item, Punctuation):
                assert said is None or item.watermark > said
                said = item.watermark
            else:
                assert said is None or min(item[WINDOW_END].to_pylist()) > said
        closed = rows // window.slide_rows
        ended = isinstance(event, Punctuation) and event.watermark == END
        assert said == (END if ended else window.bounds(closed - 1)[1] if closed else None)


@pytest.mark.parametrize("seed", range(1000))
def test_windows_are_those_of_the_definition_in_the_order_of_arrival(seed: int) -> None:
    random = Random(seed)
    window, stream, makers = window_of(random), random_stream(random, 30), (long, short)
    arrivals = [each for each in stream if not isinstance(each, int)]
    events = batched(random, [(0, each) for each in stream], partials)
    make = makers[seed % 2]
    operator = make(window, ["p", "k"])
    place = random.randrange(len(events))
    trace = [feed(operator, event) for event in events[:place]]
    restarted = make(window, ["p", "k"])
    restarted.restore(through_ipc(operator.snapshot()))
    assert restarted.open_windows() == operator.open_windows()
    trace += [feed(restarted, event) for event in events[place:]]
    check_promises(window, events, trace)
    assert all_rows(trace) == aggregates(window, arrivals, 1)
    assert all(table.num_rows == 0 for name, table in restarted.snapshot().items() if name not in ("closed", NUMBERS))


@pytest.mark.parametrize("make", [long, short])
def test_a_window_is_final_with_its_last_row_and_times_say_nothing(make: Make) -> None:
    operator = make(TupleWindow(6, 4), ["k"])
    row = Arrival(5, 0, 1)
    assert feed(operator, (0, partials([row] * 3))) == []
    assert feed(operator, (0, Punctuation("M", 10**9))) == []
    assert window_count(operator.open_windows()) == 2  # [-2, 4) and [2, 8)
    rows, mark = feed(operator, (0, partials([row])))
    assert (rows["s0"].to_pylist(), mark.watermark) == ([4], 4)
    (rows, mark) = feed(operator, (0, Punctuation("M", END)))
    assert rows.select([0, 1]).to_pylist() == [{"window_start": 2, "window_end": 8}]
    assert mark.watermark == END
    assert window_count(operator.take_closed_windows()) == 2
    assert operator.bytes == 0


@pytest.mark.parametrize("make", [long, short])
def test_rows_between_windows_are_counted(make: Make) -> None:
    operator = make(TupleWindow(2, 5), ["k"])  # [3, 5), [8, 10), …
    for times in (7, 6):
        feed(operator, (0, partials([Arrival(5, 0, 1)] * times)))
    assert (operator.received, operator.outside, operator.late, operator.late_rows) == (13, 9, 0, 0)
    assert window_count(operator.take_closed_windows()) == 2


def test_the_operator_is_the_one_that_is_cheaper_for_the_window() -> None:
    for rows, kind in ((MIN_LONG_RANGE - 1, PartitionedAggregate), (MIN_LONG_RANGE, TupleAggregate)):
        plan = compile_query(f"SELECT count(*) FROM M [RANGE {rows} rows]")
        assert type(make_window_operator(plan.aggregation)) is kind
    plan = compile_query(f"SELECT srcIP, count(*) FROM M [RANGE {MIN_LONG_RANGE} rows, PA srcIP]")
    assert type(make_window_operator(plan.aggregation)) is PartitionedAggregate
