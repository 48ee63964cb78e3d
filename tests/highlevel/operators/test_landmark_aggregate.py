"""Landmark windows of random streams against their definition, the cap, and rows that are late only for some windows.

* The contract is checked over streams with disorder, ties, gaps of years and watermarks that jump. This detects slides
  that are emitted twice, without rows, or in between. It detects totals that miss a slide, and totals that a restart
  loses or doubles.
* The reference keeps all rows and cuts them again for each window. It detects a late row that later windows lose, or
  that changes an emitted result.
* Random caps catch groups that are kept by the order of arrival, and rows that nobody counted.
"""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from highlevel.groups import merge_buffer
from highlevel.inline.engine import InlineRun, Input
from highlevel.operators.landmark import LandmarkAggregate
from highlevel.operators.window_operator import WINDOW_END, CappedOperator, beyond_cap
from highlevel.plan.pipeline import make_operator
from highlevel.spark.run_folder.state import value_addresses
from highlevel.windows.kind import DEFAULT_CAP, LandmarkWindow
from lowlevel.integer_ranges import count
from lowlevel.punctuation import BEGINNING, END, Punctuation
from lowlevel.subaggregates import Kind, SubAggregate
from queries.gsql import compile_query
from tests.references import small_captures
from tests.references.landmark_twin import definition
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
from tests.references.windows_oracle import Arrival, random_stream

KINDS = (Kind.COUNT, Kind.SUM, Kind.MIN, Kind.MAX)
SUBS = [SubAggregate(f"s{number}", kind) for number, kind in enumerate(KINDS)]
SCHEMA = pa.schema([(name, pa.int64()) for name in ("pane", "k0", "s0", "s1", "s2", "s3")])


def make(window: LandmarkWindow) -> LandmarkAggregate:
    return LandmarkAggregate(window, ["k0"], SUBS)


def partials(window: LandmarkWindow, arrivals: list[Arrival]) -> pa.RecordBatch:
    rows = [((each.ts - window.origin) // window.slide, each.group, 1, *[each.number] * 3) for each in arrivals]
    return pa.RecordBatch.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], schema=SCHEMA)


def random_window(random: Random, cap: int = DEFAULT_CAP) -> LandmarkWindow:
    return LandmarkWindow(random.randint(1, 40), random.choice([0, 0, random.randint(-100, 100)]), cap)


def contract(window: LandmarkWindow) -> Contract:
    def watermark(lows: list[int]) -> int:
        closed = (lows[0] - window.origin) // window.slide
        return END if lows[0] == END else window.origin + closed * window.slide if closed > 0 else BEGINNING

    return Contract(
        make=lambda: make(window),
        ports=1,
        progress=lambda rows: min(rows[WINDOW_END].to_pylist()) - 1,
        watermark=watermark,
        held=lambda tables: sum(each.num_rows for name, each in tables.items() if name != "closed"),
    )


@pytest.mark.parametrize("block", range(10))
def test_windows_are_those_of_the_definition_whatever_the_order(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge_buffer, "MERGE_ROWS", [0, 4, 16_384][block % 3])
    monkeypatch.setattr(merge_buffer, "FEW_ROWS", [0, 4096][block % 2])
    monkeypatch.setattr(merge_buffer, "SIMILAR_PIECES", 2)
    for seed in range(100 * block, 100 * block + 100):
        random = Random(seed)
        window = random_window(random, random.choice([DEFAULT_CAP, DEFAULT_CAP, 1, 2, 4]))
        stream = random_stream(random, 30)
        arrivals = [each for each in stream if not isinstance(each, int)]
        expected = definition(window, arrivals)
        for order in (stream, reordered(random, stream)):
            events = batched(random, [(0, each) for each in order], lambda rows, window=window: partials(window, rows))
            trace = check(contract(window), events)
            assert set(all_rows(trace)) == expected, seed
            assert all(times == 1 for times in all_rows(trace).values())
            check_restart(contract(window), events, trace, random.randrange(len(events)), ipc=True)


def test_what_comes_in_is_in_the_totals_or_counted_away() -> None:
    left_out = 0
    for seed in range(200):
        random = Random(seed)
        window = random_window(random, random.choice([1, 2, 3]))
        arrivals = [each for each in random_stream(random, 30) if not isinstance(each, int)]
        operator = make(window)
        feed(operator, (0, partials(window, arrivals)))
        last = feed(operator, (0, Punctuation("a", END)))
        held = [item for item in last if isinstance(item, pa.RecordBatch)]
        in_totals = sum(held[-1].column("s0").to_pylist()) if held else 0
        assert operator.received == len(arrivals) == in_totals + operator.outside + operator.beyond_cap
        assert beyond_cap(operator) == (operator.beyond_cap, operator.beyond_cap_rows)
        assert operator.beyond_cap == operator.beyond_cap_rows
        left_out += operator.beyond_cap
    assert left_out > 1000
    assert isinstance(make(LandmarkWindow(1)), CappedOperator)


@pytest.mark.parametrize("block", range(5))
def test_a_late_row_is_in_later_windows_and_changes_none_that_was_told(block: int) -> None:
    late = 0
    for seed in range(100 * block, 100 * block + 100):
        random = Random(seed)
        window = random_window(random)
        operator = make(window)
        arrived: list[Arrival] = []
        ended: set[int] = set()  # slides with a row that came in time
        closed = lates = 0
        low = window.origin
        for _ in range(random.randint(3, 40)):
            if random.random() < 0.4:
                low += random.choice([0, window.slide // 2, window.slide, 5 * window.slide])
                got = rows_of(feed(operator, (0, Punctuation("a", low))))
                now = (low - window.origin) // window.slide
                told = {slide for slide in ended if closed <= slide < now}
                before = [each for each in arrived if (each.ts - window.origin) // window.slide < now]
                ends = {window.origin + (slide + 1) * window.slide for slide in told}
                assert got == dict.fromkeys(definition_of(window, before, told), 1), seed
                assert {row[1] for row in got} == ends
                closed = max(closed, now)
            else:
                rows = [
                    Arrival(low + random.randint(-3 * window.slide, 3 * window.slide), random.randrange(3), 1)
                    for _ in range(random.randint(1, 4))
                ]
                rows = [each for each in rows if each.ts >= window.origin]
                for each in rows:
                    slide = (each.ts - window.origin) // window.slide
                    lates += slide < closed
                    if slide >= closed:
                        ended.add(slide)
                arrived += rows
                feed(operator, (0, partials(window, rows)))
            if random.random() < 0.1:
                restarted = make(window)
                restarted.restore(operator.snapshot())
                restarted.late, restarted.late_rows = operator.late, operator.late_rows
                operator = restarted
        assert operator.late == operator.late_rows == lates
        late += lates
    assert late > 200


def definition_of(window: LandmarkWindow, arrived: list[Arrival], told: set[int]) -> set[tuple]:
    """The windows of some slides, from all rows that have arrived."""
    found = set()
    for slide in told:
        end = window.origin + (slide + 1) * window.slide
        rows = [each for each in arrived if each.ts < end]
        for group in {each.group for each in rows}:
            numbers = [each.number for each in rows if each.group == group]
            found.add((window.origin, end, group, len(numbers), sum(numbers), min(numbers), max(numbers)))
    return found


def test_slides_without_rows_are_not_told_and_a_gap_of_years_costs_nothing() -> None:
    # slide 10, origin 5:   row at 7 is of [5, 15)   rows at 31, 32 of [5, 35)   a row years later
    window = LandmarkWindow(10, 5)
    operator = make(window)
    later = 5 + 10 * 10**12 + 3
    rows = [Arrival(7, 1, 2), Arrival(32, 2, 3), Arrival(31, 1, 4), Arrival(later, 2, 5), Arrival(4, 1, 9)]
    feed(operator, (0, partials(window, rows)))
    assert operator.outside == 1
    assert count(operator.open_windows()) == 3
    assert feed(operator, (0, Punctuation("a", 14))) == []
    items = feed(operator, (0, Punctuation("a", 47)))
    assert rows_of(items) == {(5, 15, 1, 1, 2, 2, 2): 1, (5, 35, 1, 2, 6, 2, 4): 1, (5, 35, 2, 1, 3, 3, 3): 1}
    assert items[-1] == Punctuation("a", 45)
    assert count(operator.take_closed_windows()) == 2
    items = feed(operator, (0, Punctuation("a", END)))
    end = 5 + 10 * (10**12 + 1)
    assert rows_of(items) == {(5, end, 1, 2, 6, 2, 4): 1, (5, end, 2, 2, 8, 3, 5): 1}
    assert (operator.take_closed_windows(), operator.open_windows(), operator.bytes) == ([(10**12, 10**12 + 1)], [], 0)


def test_beyond_the_cap_the_groups_of_later_slides_are_left_out_and_of_one_slide_the_greatest() -> None:
    window = LandmarkWindow(10, cap=2)
    operator = make(window)
    # Slide 1 came first, but slide 0 is closed before it.
    feed(operator, (0, partials(window, [Arrival(11, 9, 1), Arrival(11, 1, 1), Arrival(12, 9, 1), Arrival(3, 5, 1)])))
    items = feed(operator, (0, Punctuation("a", END)))
    assert rows_of(items) == {(0, 10, 5, 1, 1, 1, 1): 1, (0, 20, 5, 1, 1, 1, 1): 1, (0, 20, 1, 1, 1, 1, 1): 1}
    assert beyond_cap(operator) == (2, 2)


ADDRESSES = ["0.0.0.0", "10.0.0.1", "192.168.0.1", "::", "::1", "::ffff:10.0.0.1", "2001:db8::", "2001:db8::1"]
"""In the order of `docs/guide/sql.md`: by version, then value."""


@pytest.mark.parametrize("cap", range(1, len(ADDRESSES) + 1))
def test_the_cap_keeps_addresses_by_version_and_value(cap: int, tmp_path: Path) -> None:
    order = Random(cap).sample(ADDRESSES, len(ADDRESSES))
    frames = [(1, small_captures.ip(address, address, 59, b"", 60)) for address in order]
    path = small_captures.write(tmp_path / "M.pcap", frames)
    sql = f"SELECT srcIP, len, count(*) FROM M [RANGE ALL, SLIDE 1 s, CAP {cap}] GROUP BY srcIP, len"
    (batch,) = (batch for _, batch in InlineRun([compile_query(sql)], [Input("M", path)]).results())
    packed = [ip_address(address).packed for address in ADDRESSES]
    assert sorted(batch["srcIP"].to_pylist(), key=packed.index) == packed[:cap]


def test_a_slide_is_merged_as_it_grows() -> None:
    window = LandmarkWindow(1_000_000)
    operator = make(window)
    most = 0
    for _ in range(60):
        feed(operator, (0, partials(window, [Arrival(ts, ts % 10, 1) for ts in range(2000)])))
        most = max(most, operator.bytes)
    assert most < 2 * merge_buffer.MERGE_ROWS * 7 * 8
    assert sum(rows_of(feed(operator, (0, Punctuation("a", END)))).values()) == 10


def test_a_finite_answer_counts_what_is_beyond_the_cap_and_is_made_in_one_partition() -> None:
    plan = compile_query("SELECT len, count(*) AS n FROM M [RANGE ALL, SLIDE 10 s, ORIGIN 0, CAP 2] GROUP BY len")
    assert plan.aggregation.partitioned_by == ()
    names = ["pane", plan.aggregation.group_by[0], plan.leaves[0].low.subaggregates[0].name]
    rows = [(1, 5, 2), (0, 7, 3), (1, 9, 4), (-1, 5, 6), (1, 9, 8), (0, 7, 16)]
    columns = [pa.array(column, pa.int64()) for column in zip(*rows, strict=True)]
    operator = make_operator(plan.root, 1, is_finite=True)
    batch = pa.RecordBatch.from_arrays(columns, names)
    found = [*operator.process_rows(0, batch), *operator.punctuate(0, Punctuation("*", END))]
    second = 10**9
    assert rows_of(found) == {(0, 10 * second, 7, 19): 1, (0, 20 * second, 7, 19): 1, (0, 20 * second, 5, 2): 1}
    assert (operator.received, operator.outside, operator.beyond_cap) == (6, 1, (2, 12))
    assert operator.take_closed_windows() == [(0, 2)]


def test_totals_that_nothing_was_added_to_are_not_written_again() -> None:
    window = LandmarkWindow(10)
    first = make(window)
    feed(first, (0, partials(window, [Arrival(ts, ts, 1) for ts in range(10)])))
    feed(first, (0, Punctuation("M", 10)))
    written = first.snapshot()["totals"]
    second = make(window)
    second.restore(first.snapshot() | {"totals": written})
    feed(second, (0, partials(window, [Arrival(12, 0, 1), Arrival(3, 3, 1)])))
    assert value_addresses(second.snapshot()["totals"]) == value_addresses(written)
    feed(second, (0, Punctuation("M", 20)))
    changed = second.snapshot()["totals"]
    assert value_addresses(changed) != value_addresses(written)
    assert dict(zip(changed["k0"].to_pylist(), changed["s0"].to_pylist(), strict=True)) == {
        group: 2 if group in (0, 3) else 1 for group in range(10)
    }
