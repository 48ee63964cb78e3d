"""Windows that slide by rows, against the definition, and against the bins of the thesis.

* The trace of bins and the two traps of the digest are run step by step. They run on the reference, to show that it is
  the algorithm of the thesis with its errata, and on the operator.
* Random streams of all three forms (disorder, ties, gaps of years, groups, watermarks that jump) detect windows that
  are missed or emitted twice. They detect extents that are off by one, totals that outlive a row, and ranks that depend
  on the order of ties.
* The same with bounds so small that all memory is moved, cut and labelled anew, and results leave a few at a time.
* Rows older than the watermark detect windows that are re-opened, and rows that open windows lose. They detect counters
  that report only one of the two.
"""

from random import Random

import numpy as np
import pyarrow as pa
import pytest

from highlevel.operators.window_operator import WINDOW_END
from highlevel.slide_by_tuple import extent, runs
from highlevel.slide_by_tuple import rows as held_rows
from highlevel.slide_by_tuple.operator import SlideByTupleAggregate, whole_windows
from highlevel.windows.kind import SlideByTuple
from lowlevel.punctuation import END, Punctuation
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
from tests.references.slide_by_tuple_twin import FORMS, Bins, by_definition, fold, random_window
from tests.references.windows_oracle import Arrival, random_stream

KINDS = (Kind.COUNT, Kind.SUM, Kind.MIN, Kind.MAX)
SUBS = [SubAggregate(f"s{number}", kind) for number, kind in enumerate(KINDS)]
SCHEMA = pa.schema([(name, pa.int64()) for name in ("pane", "k0", "s0", "s1", "s2", "s3")])


def make(window: SlideByTuple) -> SlideByTupleAggregate:
    return SlideByTupleAggregate(window, ["k0"], SUBS)


def partials(arrivals: list[Arrival]) -> pa.RecordBatch:
    rows = [(each.ts, each.group, 1, *[each.number] * 3) for each in arrivals]
    return pa.RecordBatch.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], schema=SCHEMA)


def contract(window: SlideByTuple) -> Contract:
    return Contract(
        make=lambda: make(window),
        ports=1,
        progress=lambda rows: min(rows[WINDOW_END].to_pylist()) - 1,
        watermark=lambda lows: lows[0],
        held=lambda tables: sum(table.num_rows for name, table in tables.items() if name != "progress"),
    )


def by_bins(window: SlideByTuple, order: list[Arrival | int]) -> set[tuple]:
    twin = Bins(window)
    found = set()
    for each in order:
        if isinstance(each, Arrival):
            twin.row(each.ts, each)
            continue
        for wid, members in twin.punctuate(each):
            for group in {member.group for member in members}:
                mine = [member for member in members if member.group == group]
                found.add((*window.bounds(wid), group, *fold(mine)))
    return found


def bounds(random: Random, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every bound on memory be tiny, or as it is."""
    for module, name in (
        (extent, "OUTPUT_ROWS"),
        (extent, "MIN_ROWS"),
        (runs, "MAX_SMALL_ROWS"),
        (held_rows, "MAX_EMPTY_GROUPS"),
    ):
        monkeypatch.setattr(module, name, random.choice([1, 3, getattr(module, name)]))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("block", range(10))
def test_windows_are_those_of_the_definition_and_of_the_bins(
    form: str, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(block * 100, block * 100 + 100):
        random = Random(f"{form} {seed}")
        with monkeypatch.context() as patched:
            bounds(random, patched)
            compare(form, seed, random)


def compare(form: str, seed: int, random: Random) -> None:
    window, stream = random_window(random, form), random_stream(random, 30)
    if not window.in_arrival_order and random.random() < 0.5:
        stream = reordered(random, stream)
    events = batched(random, [(0, each) for each in stream], partials)
    trace = check(contract(window), events)
    want, twin = by_definition(window, stream)
    assert set(all_rows(trace)) == want == by_bins(window, stream), seed
    assert all(times == 1 for times in all_rows(trace).values())
    if seed % 3 == 0:
        check_restart(contract(window), events, trace, random.randrange(len(events)), ipc=True)
    assert not twin.late


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("block", range(4))
def test_rows_below_the_promise_are_counted_and_are_in_the_windows_that_are_open(
    form: str, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = 0
    for seed in range(block * 100, block * 100 + 100):
        random = Random(f"late {form} {seed}")
        bounds(random, monkeypatch)
        window, stream = random_window(random, form), random_stream(random, 30)
        order: list[Arrival | int] = []
        for each in stream:
            order.append(each)
            if isinstance(each, int) and each != END:
                some = range(random.choice([0, 0, 1, 3]))
                order += [Arrival(each - random.randint(1, 120), random.choice([None, 0, 7]), 1) for _ in some]
        order += [*(Arrival(random.randint(0, 200), 0, 1) for _ in range(random.choice([0, 4]))), END]
        operator = make(window)
        found = []
        for event in batched(random, [(0, each) for each in order], partials):
            if random.random() < 0.1:
                restarted = make(window)
                restarted.restore(operator.snapshot())
                for name in ("received", "late", "late_rows", "_closed", "_outside"):
                    setattr(restarted, name, getattr(operator, name))
                restarted._outside = operator.outside
                operator = restarted
            found += feed(operator, event)
        want, twin = by_definition(window, order)
        assert set(rows_of(found)) == want, seed
        assert all(times == 1 for times in rows_of(found).values())
        assert operator.received == len(twin.arrivals)
        assert (operator.late, operator.late_rows) == (len(twin.late), len(twin.late)), seed
        assert operator.outside == twin.outside, seed
        assert operator.take_closed_windows() == twin.closed
        assert contract(window).held(operator.snapshot()) == 0
        told += len(twin.late)
    assert told > 50


def test_bins_are_those_of_the_figure_step_by_step() -> None:
    twin = Bins(SlideByTuple(10))
    steps = [
        (1, {"S1": 1, "E11": 0}),
        (4, {"S1": 1, "S4": 2, "E11": 1, "E14": 0}),
        (7, {"S1": 1, "S4": 2, "S7": 3, "E11": 2, "E14": 1, "E17": 0}),
        (13, {"S1": 1, "S4": 2, "S7": 3, "E11": 2, "S13": 3, "E14": 2, "E17": 1, "E23": 0}),
        (2, {"S1": 1, "S2": 2, "S4": 3, "S7": 4, "E11": 3, "E12": 2, "S13": 3, "E14": 2, "E17": 1, "E23": 0}),
    ]
    for ts, bins in steps:
        twin.row(ts, ts)
        assert twin.counts() == bins
    assert [(wid, len(seen)) for wid, seen in twin.punctuate(5)] == [(1, 1), (2, 2), (4, 3)]
    assert len(twin.base) == 3
    assert twin.counts() == {"S7": 4, "E11": 3, "E12": 2, "S13": 3, "E14": 2, "E17": 1, "E23": 0}


@pytest.mark.parametrize(
    ("order", "want"),
    [
        # The stream of the figure, its late tuple 2 among them.
        ([1, 4, 7, 13, 2, -5, -END], {1: 1, 2: 2, 4: 3, 7: 4, 13: 3}),
        ([1, 11, -END], {1: 1, 11: 1}),  # an end and a start at one place: printed code says 2
        ([5, 5, -END], {5: 2}),  # equal times are one window: printed code says 2 and 1
        ([1, -3, 4, -END], {1: 1, 4: 2}),  # the purged value is the base of the later ones: the printed code returns 1
    ],
)
def test_worked_examples(order: list[int], want: dict[int, int]) -> None:
    """Negative numbers are promises."""
    window = SlideByTuple(10)
    operator = SlideByTupleAggregate(window, [], SUBS[:1])
    twin = Bins(window)
    found: dict[int, int] = {}
    binned: dict[int, int] = {}
    for each in order:
        if each < 0:
            for batch in feed(operator, (0, Punctuation("M", -each))):
                if isinstance(batch, pa.RecordBatch):
                    found |= {row[WINDOW_END] - 1: row["s0"] for row in batch.to_pylist()}
            binned |= {wid: len(seen) for wid, seen in twin.punctuate(-each)}
        else:
            feed(operator, (0, partials([Arrival(each, 0, 1)])))
            twin.row(each, each)
    assert found == binned == want


def test_each_window_is_open_and_then_closed_once_and_nothing_is_held_after_the_end() -> None:
    operator = make(SlideByTuple(10, every=2))
    feed(operator, (0, partials([Arrival(ts, 0, 1) for ts in (1, 4, 4, 4, 20, 30, 50)])))
    assert operator.open_windows() == 2
    assert operator.take_closed_windows() == 0
    feed(operator, (0, Punctuation("M", 25)))
    assert (operator.take_closed_windows(), operator.take_closed_windows(), operator.open_windows()) == (1, 0, 1)
    assert operator.bytes > 0
    feed(operator, (0, Punctuation("M", END)))
    assert (operator.take_closed_windows(), operator.open_windows(), operator.bytes) == (1, 0, 0)
    # 20 was in no window, because the next row was 10 units later. 50 was in no window, because no row followed.
    assert (operator.received, operator.outside, operator.late, operator.late_rows) == (7, 2, 0, 0)


def test_ranks_are_the_same_however_ties_are_broken() -> None:
    times = [3, 3, 3, 3, 5, 5, 9, 9, 9]
    for seed in range(20):
        random = Random(seed)
        random.shuffle(times)
        operator = make(SlideByTuple(4, every=4, in_time_order=True))
        feed(operator, (0, partials([Arrival(ts, 0, ts) for ts in times])))
        found = rows_of(feed(operator, (0, Punctuation("M", END))))
        assert set(found) == {(0, 4, 0, 4, 12, 3, 3), (6, 10, 0, 3, 27, 9, 9)}, seed


def test_windows_that_come_in_pieces_leave_whole(rounds: Rounds) -> None:
    for seed in rounds(300):
        random = Random(seed)
        wids = np.repeat(np.arange(random.randrange(1, 6)) * 3, random.choice([1, 2, 9]))
        matrix = np.stack([wids, np.arange(len(wids))])
        cuts = sorted(random.randrange(len(wids) + 1) for _ in range(random.randrange(5)))
        found = list(whole_windows(np.split(matrix, cuts, axis=1)))
        assert np.array_equal(np.concatenate(found, axis=1), matrix)
        per_piece = [np.unique(piece[0]).tolist() for piece in found]
        assert sum(map(len, per_piece)) == len(np.unique(wids)), seed
