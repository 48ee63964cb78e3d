"""Aggregate against a dictionary of lists, on ranges of window ids and promises about them.

* The printed trace catches a window closed by equality of ids, and one that misses a late tuple of an open window.
* Random streams detect every dependency on order, on jumps of punctuation, and on which partials share a table. They
  detect dependencies on the times of compaction and restarts.
* Counted state, not time, catches a loop over a gap of years and a table that grows with rows instead of groups.
"""

from collections import defaultdict
from random import Random

import pyarrow as pa
import pytest

from highlevel.groups import merge_buffer as buffer
from highlevel.sliding import aggregate, window_rows
from highlevel.sliding.aggregate import END_WID, FIRST_WID, Aggregate
from highlevel.sliding.open_partials import WID, ScatteredPartials
from highlevel.spark.run_folder.state import value_addresses
from lowlevel.integer_ranges import count
from lowlevel.punctuation import BEGINNING, END, Item, Punctuation
from lowlevel.subaggregates import Kind, SubAggregate
from tests.conftest import Rounds
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
from tests.references.windows_oracle import Arrival, Spec, random_spec, random_stream

SUBS = [SubAggregate(f"s{n}", kind) for n, kind in enumerate((Kind.COUNT, Kind.SUM, Kind.MIN, Kind.MAX))]
SCHEMA = pa.schema([(name, pa.int64()) for name in ("k0", "s0", "s1", "s2", "s3", FIRST_WID, END_WID)])


def partials(spec: Spec, arrivals: list[Arrival]) -> pa.RecordBatch:
    rows = [(each.group, 1, *[each.number] * 3, spec.wids(each.ts).start, spec.wids(each.ts).stop) for each in arrivals]
    return pa.RecordBatch.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], schema=SCHEMA)


def in_wids(spec: Spec, stream: list[Arrival | int]) -> list[Arrival | int]:
    """The stream as Bucket hands it on: promises as ids, tuples of no window left out."""
    return [
        each if each == END else max(0, (each - spec.origin) // spec.slide) if isinstance(each, int) else each
        for each in stream
        if isinstance(each, int) or spec.wids(each.ts)
    ]


def contract() -> Contract:
    return Contract(
        make=lambda: Aggregate(["k0"], SUBS),
        ports=1,
        progress=lambda rows: min(rows[WID].to_pylist()),
        # no id is below 0, so this punctuation has no effect
        watermark=lambda lows: lows[0] if lows[0] > 0 else BEGINNING,
        held=lambda tables: sum(table.num_rows for name, table in tables.items() if name != "closed"),
    )


def by_definition(spec: Spec, stream: list[Arrival | int]) -> set[tuple]:
    seen: dict[tuple, list[int]] = defaultdict(list)
    for each in stream:
        if not isinstance(each, int):
            for wid in spec.wids(each.ts):
                seen[wid, each.group].append(each.number)
    return {(*key, len(each), sum(each), min(each), max(each)) for key, each in seen.items()}


def test_the_printed_trace_of_a_disordered_sliding_count() -> None:
    spec, operator = Spec(10, 5), Aggregate(["k0"], SUBS[:1])
    a, b = 0, 1

    def out(*events: tuple[int, int] | int) -> list[tuple[int, int, int]]:
        items: list[Item] = []
        for event in events:
            if isinstance(event, int):
                items += operator.punctuate(0, Punctuation("M", event))
            else:
                items += operator.process_rows(0, partials(spec, [Arrival(*event, 0)]))
        return sorted(rows_of(items).elements())

    assert out((1, a), (7, a), (3, b)) == []
    assert out(1) == [(0, a, 1), (0, b, 1)]
    assert out((12, a), (6, b)) == []
    assert out(2) == [(1, a, 2), (1, b, 2)]
    assert out((11, b), 3) == [(2, a, 2), (2, b, 2)]
    assert out(END) == [(3, a, 1), (3, b, 1)]


def test_any_stream_in_any_order_gives_each_window_once(monkeypatch: pytest.MonkeyPatch, rounds: Rounds) -> None:
    for seed in rounds(300):
        random = Random(seed)
        monkeypatch.setattr(buffer, "MERGE_ROWS", random.choice([0, 3, 16_384]))
        monkeypatch.setattr(buffer, "FEW_ROWS", random.choice([0, 4096]))
        monkeypatch.setattr(buffer, "SIMILAR_PIECES", random.choice([2, 16]))
        monkeypatch.setattr(aggregate, "MANY_WINDOWS", random.choice([1, 2, 64]))
        spec = random_spec(random)
        stream = in_wids(spec, random_stream(random, 30))

        def batch(arrivals: list[Arrival], spec: Spec = spec) -> pa.RecordBatch:
            return partials(spec, arrivals)

        found = all_rows(check(contract(), batched(random, ((0, each) for each in stream), batch)))
        assert set(found) == by_definition(spec, stream), seed
        assert max(found.values(), default=1) == 1
        # Arrivals are reordered by time, so promises go back to times: the first instant of their window.
        times = [
            each if not isinstance(each, int) or each == END else spec.origin + each * spec.slide for each in stream
        ]
        again = in_wids(spec, reordered(random, times))
        events = batched(random, ((0, each) for each in again), batch)
        trace = check(contract(), events)
        assert all_rows(trace) == found, seed
        check_restart(contract(), events, trace, random.randint(0, len(events)), ipc=seed % 2 == 0)


def test_groups_may_be_none_at_all_or_many_columns() -> None:
    batch = partials(Spec(10, 10), [Arrival(1, None, 4), Arrival(2, 1, 6), Arrival(3, None, 8)])
    whole = Aggregate([], SUBS)
    end = (0, Punctuation("M", END))
    assert feed(whole, (0, batch)) == []
    assert rows_of(feed(whole, end)) == {(0, 3, 18, 4, 8): 1}
    pairs = Aggregate(["k0", "s1"], SUBS[:1])
    assert feed(pairs, (0, batch)) == []
    assert rows_of(feed(pairs, end)) == {(0, None, 4, 1): 1, (0, 1, 6, 1): 1, (0, None, 8, 1): 1}


def test_a_promise_that_jumps_closes_all_windows_below_it_in_their_order() -> None:
    operator = Aggregate(["k0"], SUBS[:1])
    feed(operator, (0, partials(Spec(10, 5), [Arrival(ts, 0, 0) for ts in (31, 2, 12)])))
    items = feed(operator, (0, Punctuation("M", 7)))
    assert [wid for item in items[:-1] for wid in item[WID].to_pylist()] == [0, 1, 2, 3, 6]
    assert items[-1] == Punctuation("M", 7)
    assert count(operator.open_windows()) == 1  # window 7 holds the tuple at 31 too


def test_late_rows_are_counted_per_window_and_never_open_one_again() -> None:
    spec, operator = Spec(10, 5), Aggregate(["k0"], SUBS[:1])
    feed(operator, (0, partials(spec, [Arrival(6, 0, 0)])))
    assert rows_of(feed(operator, (0, Punctuation("M", 2)))) == {(1, 0, 1): 1}
    # 7 is late only for window 1, and 3 for windows 0 and 1. 12 is in time.
    feed(operator, (0, partials(spec, [Arrival(7, 0, 0), Arrival(3, 0, 0), Arrival(12, 0, 0)])))
    assert (operator.late, operator.received) == (3, 4)
    assert rows_of(feed(operator, (0, Punctuation("M", END)))) == {(2, 0, 3): 1, (3, 0, 1): 1}


def test_rows_after_the_end_are_late_and_leave_no_state() -> None:
    operator = Aggregate(["k0"], SUBS[:1])
    feed(operator, (0, partials(Spec(10, 10), [Arrival(1, 0, 0)])))
    feed(operator, (0, Punctuation("M", END)))
    feed(operator, (0, partials(Spec(10, 10), [Arrival(95, 0, 0)])))
    assert (operator.late, operator.open.buffers) == (1, {})


def test_a_batch_without_rows_is_nothing() -> None:
    operator = Aggregate(["k0"], SUBS)
    assert feed(operator, (0, partials(Spec(10, 10), []))) == []
    assert operator.snapshot()["closed"].num_rows == 1


def test_a_gap_of_years_holds_two_tables_and_closes_two_windows() -> None:
    year = 365 * 86_400 * 10**9
    spec, operator = Spec(60 * 10**9, 60 * 10**9), Aggregate(["k0"], SUBS[:1])
    feed(operator, (0, partials(spec, [Arrival(5, 0, 0), Arrival(30 * year, 0, 0)])))
    assert (len(operator.open.buffers), count(operator.open_windows())) == (2, 2)
    items = feed(operator, (0, Punctuation("M", END)))
    assert [isinstance(item, Punctuation) for item in items] == [False, True]
    assert [item[WID].to_pylist() for item in items[:-1]] == [[0, 30 * year // spec.slide]]


@pytest.mark.parametrize("at_a_time", [1, 3, 65_536])
def test_however_many_windows_are_merged_at_a_time_the_rows_are_the_same(
    at_a_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window_rows, "CLOSE_ROWS", at_a_time)
    random = Random(2)
    spec, operator = Spec(7, 3), Aggregate(["k0"], SUBS[:1])
    arrivals = [Arrival(random.randrange(100), random.randrange(3), 1) for _ in range(200)]
    feed(operator, (0, partials(spec, arrivals)))
    emitted = feed(operator, (0, Punctuation("M", END)))
    monkeypatch.setattr(window_rows, "CLOSE_ROWS", 10**9)
    other = Aggregate(["k0"], SUBS[:1])
    feed(other, (0, partials(spec, arrivals)))
    assert rows_of(emitted) == rows_of(feed(other, (0, Punctuation("M", END))))
    assert operator.open.buffers == {}


def test_a_pile_never_holds_more_than_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffer, "MERGE_ROWS", 10)
    random = Random(1)
    operator = Aggregate(["k0"], SUBS)
    groups = 5
    for _ in range(200):
        rows = [Arrival(random.randrange(20), random.randrange(groups), 1) for _ in range(random.randint(1, 7))]
        feed(operator, (0, partials(Spec(10, 10), rows)))
        for each in operator.open.buffers.values():
            assert each.waiting_rows == sum(batch.num_rows for batch in each.waiting) <= 10
            assert each.table is None or each.table.count <= groups
            assert each.pieces == []


def test_a_pile_keeps_no_more_memory_alive_than_its_rows() -> None:
    operator = Aggregate(["k0"], SUBS)
    batch = partials(Spec(10, 10), [Arrival(0, group, 1) for group in range(5000)] + [Arrival(15, 0, 1)])
    feed(operator, (0, batch))
    small = operator.open.buffers[1, 2].waiting[0]
    assert small.get_total_buffer_size() <= 2 * small.nbytes


def test_merging_changes_neither_columns_nor_types(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffer, "MERGE_ROWS", 0)
    operator = Aggregate(["k0"], SUBS)
    batch = partials(Spec(10, 10), [Arrival(1, 0, 3)])
    for each in (batch, batch, partials(Spec(10, 10), [Arrival(1, 0, 4)])):
        feed(operator, (0, each))
    merged = operator.open.buffers[0, 1].merged_batches()
    assert [each.schema for each in merged] == [batch.select(operator.columns).schema]
    assert rows_of(merged) == {(0, 3, 10, 3, 4): 1}


def test_a_table_that_did_not_change_is_handed_out_as_it_was() -> None:
    operator = Aggregate(["k0"], SUBS)
    feed(operator, (0, partials(Spec(10, 10), [Arrival(1, 0, 3), Arrival(1, 0, 4), Arrival(11, 0, 5)])))
    before = operator.snapshot()
    restarted = Aggregate(["k0"], SUBS)
    restarted.restore(before)
    for again in (operator, restarted):
        feed(again, (0, partials(Spec(10, 10), [Arrival(12, 0, 3)])))
        tables = again.snapshot()
        assert value_addresses(tables["0-1"]) == value_addresses(before["0-1"])
        assert value_addresses(tables["1-2"]) != value_addresses(before["1-2"])


def test_a_thousand_short_windows_in_one_batch_need_no_pile_each_and_close_in_order() -> None:
    random = Random(5)
    spec, operator = Spec(10, 10), Aggregate(["k0"], SUBS)
    arrivals = [Arrival(random.randrange(20_000), random.randrange(3), random.randrange(100)) for _ in range(8000)]
    found: list[tuple[int, ...]] = []
    for start in range(0, 8000, 1000):
        feed(operator, (0, partials(spec, arrivals[start : start + 1000])))
    assert not operator.open.buffers
    assert count(operator.open_windows()) == len({each.ts // 10 for each in arrivals})
    # One more merge buffer, for a window with scattered rows: both are one window.
    arrivals.append(Arrival(55, 0, 1))
    feed(operator, (0, partials(spec, arrivals[-1:])))
    for low in (3, 4, 700, 1999, END):
        for item in feed(operator, (0, Punctuation("M", low))):
            if isinstance(item, pa.RecordBatch):
                found += zip(*(column.to_pylist() for column in item.columns), strict=True)
    assert [row[0] for row in found] == sorted(row[0] for row in found)
    assert set(found) == by_definition(spec, [*arrivals])
    assert len(set(found)) == len(found)
    assert operator.bytes == 0


def test_scattered_partials_of_one_group_are_merged_while_they_wait() -> None:
    spec, operator = Spec(10, 10), Aggregate(["k0"], SUBS)
    batch = partials(spec, [Arrival(ts, 0, 1) for ts in range(0, 1000, 10)])
    for _ in range(200):
        feed(operator, (0, batch))
    assert operator.rows_held <= 400
    assert rows_of(feed(operator, (0, Punctuation("M", END)))) == {(wid, 0, 200, 200, 1, 1): 1 for wid in range(100)}


def test_rows_that_have_left_do_not_keep_the_memory_of_a_run() -> None:
    scattered = ScatteredPartials([], [])
    scattered.add(pa.RecordBatch.from_pydict({WID: list(range(10_000))}))
    for low in range(0, 10_000, 7):
        assert [row for run in scattered.take_below(low) for row in run[WID].to_pylist()] == [
            *range(max(0, low - 7), low)
        ]
        assert scattered.bytes <= 2 * 8 * scattered.rows
    assert scattered.rows == 10_000 - 9996
