"""OA-Join by hand: the worked examples of Li 2008, and what single rows show.

Bands are drawn as (left, right) times. The tests detect ranges or ends that are exchanged, and watermarks and purges
that are a step early or late. They detect batches without a bound, and state that is not freed.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from capture.native import Kernel, flatten
from highlevel.joins import side_state, time_lists
from highlevel.joins.oa_join import OAJoin
from highlevel.joins.side_state import MAX_PAIRS
from highlevel.joins.spec import Band, Boundary, JoinKind, JoinSpec, Port, Side, Tumbling, WatermarkForm
from lowlevel.expressions.tree import Binary, Column, Expression, Literal
from lowlevel.expressions.types import Op, Type
from lowlevel.punctuation import END, GraphItem, JointPunctuation, Punctuation
from tests.harness.plain_kernels import plain
from tests.references.join_streams import feed, random_run, random_window, spec_of
from tests.references.joins_oracle import meet

TIMES = pa.schema([("ts", pa.int64()), ("n", pa.int64())])
SECOND, MINUTE = 1, 60


def rows(*times: int) -> pa.RecordBatch:
    """Rows at some times, numbered."""
    return pa.record_batch([pa.array(times, pa.int64()), pa.array(range(len(times)), pa.int64())], schema=TIMES)


def pairs(items: list[GraphItem]) -> list[tuple[int | None, int | None]]:
    """The times of the rows of results."""
    batches = [item for item in items if isinstance(item, pa.RecordBatch)]
    return [(row.get("l_ts"), row.get("r_ts")) for batch in batches for row in batch.to_pylist()]


def promises(items: list[GraphItem]) -> list[int | tuple[int, int]]:
    return [
        item.bounds if isinstance(item, JointPunctuation) else item.watermark
        for item in items
        if not isinstance(item, pa.RecordBatch)
    ]


def times_held(join: OAJoin, port: Port) -> list[int]:
    return sorted(join.sides[port].state.unexpired_rows()[0].tolist())


def joined(
    window: Band | Tumbling, kind: JoinKind = JoinKind.INNER, progress: WatermarkForm = WatermarkForm.LEFT
) -> OAJoin:
    return OAJoin(spec_of(window, kind, plain=True), progress)


def test_a_row_meets_what_the_window_names_say() -> None:
    """W8: RANGE 3 minutes on Main1, 2 minutes on Main2; a row of Main1 at 10:05:00."""
    at, second_of_main2 = 10 * 3600 + 5 * MINUTE, range(10 * 3600, 10 * 3600 + 10 * MINUTE)
    for boundary, first, last in (
        (Boundary.CLOSED, at - 2 * MINUTE, at + 3 * MINUTE),
        (Boundary.HALF_OPEN, at - 2 * MINUTE, at + 3 * MINUTE - 1),
        (Boundary.OPEN, at - 2 * MINUTE + 1, at + 3 * MINUTE - 1),
    ):
        join = joined(Band(3 * MINUTE, 2 * MINUTE, boundary))
        list(join.process_rows(Port.LEFT, rows(at)))
        found = [right for _, right in pairs(list(join.process_rows(Port.RIGHT, rows(*second_of_main2))))]
        assert found == list(range(first, last + 1))


def test_inputs_that_are_not_in_step_are_paired_by_their_times() -> None:
    """W9: Main1 is five minutes late.

    Rows of both sides that are held at the same time do not match: there is no pair.
    """
    window, hour = Band(3 * MINUTE, 2 * MINUTE), 10 * 3600
    main1 = rows(*range(hour + 3 * MINUTE, hour + 6 * MINUTE))
    main2 = rows(*range(hour + 9 * MINUTE, hour + 11 * MINUTE))
    join = joined(window)
    list(join.process_rows(Port.LEFT, main1))
    assert pairs(list(join.process_rows(Port.RIGHT, main2))) == []


def test_a_side_that_is_late_loses_no_pair() -> None:
    """W9, milder: Main2 is a minute late, and each side sends its own watermark.

    By arrival a minute of pairs is lost.
    """
    window, length = Band(3 * MINUTE, 2 * MINUTE), 12 * MINUTE
    join = joined(window)
    found = []
    for now in range(0, length, 10):
        late = now - MINUTE
        for port, first in ((Port.LEFT, now), (Port.RIGHT, late)):
            found += pairs(list(join.process_rows(port, rows(*range(max(first, 0), first + 10)))))
            found += pairs(list(join.punctuate(port, Punctuation("link", first + 10))))
    right = range(length - MINUTE)
    expected = {(one, other) for one in range(length) for other in right if meet(window, one, other)}
    assert len(found) == len(expected)
    assert set(found) == expected


TRACE = [
    # ports with rows or watermarks, results, watermarks of S0.ts, of S1.ts, joint watermarks, rows held of S0 and of S1
    ([(0, 5), (1, 3)], [(5, 3)], [], [], [], [5], [3]),
    ([(1, 8), (1, 9)], [(5, 8)], [], [], [], [5], [3, 8, 9]),
    ([(0, "6")], [], [], [], [], [5], [8, 9]),
    ([(1, "8")], [], [5], [4], [(6, 8)], [5], [8, 9]),
    ([(0, 6), (1, 8)], [(5, 8), (6, 8), (6, 8), (6, 9)], [], [], [], [5, 6], [8, 8, 9]),
    ([(0, "10")], [], [], [8], [(10, 8)], [5, 6], [8, 8, 9]),
    ([(1, "9")], [], [6], [], [(10, 9)], [6], [8, 8, 9]),
    ([(0, 12), (1, "16")], [], [10], [], [(10, 13)], [], [8, 8, 9]),
]


def test_the_trace_of_the_thesis() -> None:
    """W10: R0 = 3, R1 = 2, closed; a text is a promise."""
    operators = {progress: joined(Band(3, 2), progress=progress) for progress in WatermarkForm}
    for events, results, of_left, of_right, box, left, right in TRACE:
        said: dict[WatermarkForm, list[GraphItem]] = {progress: [] for progress in WatermarkForm}
        for port, value in events:
            for progress, join in operators.items():
                promise = isinstance(value, str)
                came = (
                    join.punctuate(port, Punctuation("s", int(value)))
                    if promise
                    else join.process_rows(port, rows(int(value)))
                )
                said[progress] += came
        for progress, join in operators.items():
            assert sorted(pairs(said[progress])) == results
            assert (times_held(join, Port.LEFT), times_held(join, Port.RIGHT)) == (left, right)
        assert promises(said[WatermarkForm.LEFT]) == of_left
        assert promises(said[WatermarkForm.RIGHT]) == of_right
        assert promises(said[WatermarkForm.JOINT]) == box


def test_a_box_says_sooner_that_a_pair_of_times_is_over() -> None:
    """W11:

    R0 = R1 = 2. The joint watermark excludes pairs of times 1, 0 after the third watermark, individual watermarks after
    the fifth.
    """
    marks = [(0, 1), (1, 1), (0, 2), (1, 2), (0, 3)]
    said = {}
    for progress in (WatermarkForm.JOINT, WatermarkForm.RIGHT):
        join = joined(Band(2, 2), progress=progress)
        said[progress] = [promises(list(join.punctuate(port, Punctuation("s", low)))) for port, low in marks]
    assert said[WatermarkForm.JOINT] == [[], [(1, 1)], [(2, 1)], [(2, 2)], [(3, 2)]]
    assert said[WatermarkForm.RIGHT] == [[], [-1], [0], [], [1]]


def test_a_side_that_is_late_is_not_held_for_longer() -> None:
    """W15: RANGE 2 minutes of both, left rows up to 5 minutes late: 2 minutes of the left, 7 of the right are held."""
    join = joined(Band(2 * MINUTE, 2 * MINUTE))
    random = Random(15)
    spans: tuple[list[float], list[float]] = ([], [])
    for now in range(0, 30 * MINUTE, 5):
        left = [now + each - (random.randint(0, 5 * MINUTE) if random.random() < 0.02 else 0) for each in range(5)]
        list(join.process_rows(Port.LEFT, rows(*left)))
        list(join.process_rows(Port.RIGHT, rows(*range(now, now + 5))))
        list(join.punctuate(Port.LEFT, Punctuation("s", now + 5 - 5 * MINUTE)))
        list(join.punctuate(Port.RIGHT, Punctuation("s", now + 5)))
        if now > 10 * MINUTE:
            for port in Port:
                spans[port].append((now + 5 - times_held(join, port)[0]) / MINUTE)
    assert join.late == 0
    assert 1.9 <= min(spans[0]) <= max(spans[0]) <= 2.3
    assert 7.0 <= min(spans[1]) <= max(spans[1]) <= 7.3


def test_a_box_is_never_later_than_a_promise_of_one_time() -> None:
    """For each pair of times that results hold: when the promises of each form say that there is no other."""
    random = Random("boxes")
    for form in [*Boundary, None] * 25:
        run = random_run(random, random_window(random, form), plain=True)
        if run.spec.kind is not JoinKind.INNER:
            continue
        items: dict[WatermarkForm, list[list[GraphItem]]] = {}
        for progress in (WatermarkForm.LEFT, WatermarkForm.RIGHT, WatermarkForm.JOINT):
            join = OAJoin(run.spec, progress)
            items[progress] = [feed(join, run, event) for event in run.events]
        for one, other in set(pairs([item for step in items[WatermarkForm.LEFT] for item in step])):
            assert one is not None
            assert other is not None
            steps = [
                next((at for at, step in enumerate(steps) if any(over(low, one, other) for low in promises(step))), END)
                for steps, over in (
                    (items[WatermarkForm.JOINT], lambda low, one, other: one < low[0] and other < low[1]),
                    (items[WatermarkForm.LEFT], lambda low, one, other: one < low),
                    (items[WatermarkForm.RIGHT], lambda low, one, other: other < low),
                )
            ]
            assert steps[0] <= min(steps[1:])


def test_rows_below_their_own_promise_are_late() -> None:
    join = joined(Band(5, 5), JoinKind.FULL)
    list(join.punctuate(Port.LEFT, Punctuation("s", 10)))
    assert list(join.process_rows(Port.LEFT, rows(9, 8))) == []
    list(join.process_rows(Port.LEFT, rows(10)))
    assert (join.received, join.late, join.stored) == (3, 2, 1)
    list(join.punctuate(Port.LEFT, Punctuation("s", END)))
    list(join.process_rows(Port.LEFT, rows(11)))
    assert join.late == 3


def test_the_end_of_a_side_empties_the_other() -> None:
    join = joined(Band(5, 5), JoinKind.FULL)
    list(join.process_rows(Port.LEFT, rows(1, 2)))
    assert pairs(list(join.punctuate(Port.RIGHT, Punctuation("s", END)))) == [(1, None), (2, None)]
    assert join.rows_held == 0
    assert pairs(list(join.process_rows(Port.LEFT, rows(3)))) == [(3, None)]  # passes through
    assert (join.stored, join.purged, join.results) == (2, 2, 3)


def test_a_side_that_never_speaks_lets_nothing_go() -> None:
    join = joined(Band(5, 5), JoinKind.LEFT)
    list(join.process_rows(Port.LEFT, rows(1)))
    assert list(join.punctuate(Port.LEFT, Punctuation("s", END))) == []
    assert join.rows_held == 1


def test_a_gap_of_years_costs_nothing() -> None:
    join = joined(Band(5, 5))
    year = 365 * 24 * 3600 * 10**9
    list(join.process_rows(Port.LEFT, rows(0, 50 * year, -50 * year)))
    assert pairs(list(join.process_rows(Port.RIGHT, rows(50 * year + 5, 6)))) == [(50 * year, 50 * year + 5)]
    list(join.punctuate(Port.RIGHT, Punctuation("s", 50 * year)))
    assert join.rows_held == 3
    assert join.bytes < 10_000


HOT = 400


@pytest.mark.parametrize("kind", JoinKind)
def test_a_hot_key_makes_many_batches_of_bounded_size(kind: JoinKind) -> None:
    join = joined(Band(5 * HOT, 5 * HOT), kind)
    list(join.process_rows(Port.LEFT, rows(*range(HOT))))
    items = list(join.process_rows(Port.RIGHT, rows(*range(HOT))))
    batches = [item.num_rows for item in items if isinstance(item, pa.RecordBatch)]
    assert max(batches, default=0) <= MAX_PAIRS
    if kind.is_left_only:
        assert sum(batches) == (HOT if kind is JoinKind.SEMI else 0)
        assert join.rows_held == HOT  # the right's; the left's are done
    else:
        assert len(batches) > 1
        assert sum(batches) == HOT * HOT


def typed(kind: pa.DataType, values: list[object]) -> pa.RecordBatch:
    return pa.record_batch([pa.array([5] * len(values), pa.int64()), pa.array(values, kind)], names=["ts", "k"])


def matches(left: tuple[pa.RecordBatch, Expression], right: tuple[pa.RecordBatch, Expression]) -> list[tuple]:
    """Values of the keys of the pairs."""
    sides = [Side(batch.schema, "ts", (("k", name),)) for (batch, _), name in zip((left, right), "ab", strict=True)]
    spec = JoinSpec(sides[0], sides[1], Band(0, 0), ((left[1], right[1]),))
    with pytest.raises(ValueError, match="must return those times"):
        OAJoin(spec)
    sides = [
        Side(each.schema, "ts", (("ts", f"{name}_ts"), *each.columns)) for each, name in zip(sides, "ab", strict=True)
    ]
    join = OAJoin(JoinSpec(sides[0], sides[1], Band(0, 0), ((left[1], right[1]),)))
    list(join.process_rows(Port.LEFT, left[0]))
    found = [item for item in join.process_rows(Port.RIGHT, right[0]) if isinstance(item, pa.RecordBatch)]
    assert join.null_keys == sum(
        each is None or each != each for side in (left, right) for each in side[0]["k"].to_pylist()
    )
    return sorted((row["a"], row["b"]) for batch in found for row in batch.to_pylist())


K_INT, K_FLOAT = Column("k", Type.INT, True), Column("k", Type.FLOAT, True)


def test_an_integer_equals_a_float_of_its_value() -> None:
    left, right = typed(pa.int64(), [1, 2, None, 0]), typed(pa.float64(), [1.0, 2.5, float("nan"), None, -0.0])
    assert matches((left, K_INT), (right, K_FLOAT)) == [(0, 0.0), (1, 1.0)]


def test_keys_may_be_expressions() -> None:
    left, right = typed(pa.int64(), [1, 2, 3]), typed(pa.int64(), [10, 20, 25])
    tenth = Binary(Op.DIV, K_INT, Literal(10, Type.INT))
    assert matches((left, K_INT), (right, tenth)) == [(1, 10), (2, 20), (2, 25)]


def test_equal_bytes_of_two_lengths_are_two_keys() -> None:
    left, right = typed(pa.binary(), [b"abcd", bytes(4), b""]), typed(pa.binary(), [bytes(16), b"abcd", b"", b"abcd\0"])
    address = Column("k", Type.ADDRESS, True)
    assert matches((left, address), (right, address)) == [(b"", b""), (b"abcd", b"abcd")]


def test_a_row_without_a_time_meets_nobody() -> None:
    batch = pa.record_batch([pa.array([None, 3], pa.int64()), pa.array([0, 1])], schema=TIMES)
    join = joined(Band(5, 5), JoinKind.LEFT)
    list(join.punctuate(Port.LEFT, Punctuation("s", 2)))
    assert pairs(list(join.process_rows(Port.LEFT, batch))) == [(None, None)]
    assert (join.null_keys, join.late, join.rows_held) == (1, 0, 1)


def test_memory_stays_that_of_what_is_held_and_is_given_back() -> None:
    """A window slides over a hundred times what it holds, with texts that no two rows have in common."""
    schema = pa.schema([("ts", pa.int64()), ("text", pa.string())])
    sides = [Side(schema, "ts", (("ts", f"{name}_ts"), ("text", f"{name}_text"))) for name in "ab"]
    text = Column("text", Type.TEXT)
    join = OAJoin(JoinSpec(sides[0], sides[1], Band(1000, 1000), ((text, text),)))
    most, found = 0, 0
    for first in range(0, 100_000, 500):
        times = range(first, first + 500)
        for port in Port:
            texts = [f"the text of a row that came at {time} on {port if time % 10 else 'both'}" for time in times]
            items = list(join.process_rows(port, pa.record_batch([pa.array(times), pa.array(texts)], schema=schema)))
            found += sum(item.num_rows for item in items if isinstance(item, pa.RecordBatch))
            list(join.punctuate(port, Punctuation("s", first + 500)))
        most = max(most, join.bytes)
    assert found == 10_000
    assert most < 8_000_000
    for port in Port:
        list(join.punctuate(port, Punctuation("s", END)))
    assert join.rows_held == 0
    assert sum(side.state.bytes for side in join.sides.values()) < 20_000


KERNELS = {
    side_state: ["all_rows", "chain", "gather", "insert", "mark", "probe", "remove"],
    time_lists: ["enlist", "take_before", "take_lists"],
}


def flat(kernel: Kernel) -> Callable[..., int]:
    """A kernel's plain Python, over arrays as the machine sees them: without rows and columns."""
    run = plain(kernel)
    return lambda *values: run(
        *(value.reshape(-1) if isinstance(value, np.ndarray) else value for value in flatten(values))
    )


def test_kernels_are_plain_python_too(monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random("plain")
    runs = [random_run(random, random_window(random, form), form is None) for form in [*Boundary, None] * 8]

    def outcome() -> list[str]:
        """Return the output as text, because NaN is not equal to itself."""
        items = [
            item
            for run in runs
            for join in [OAJoin(run.spec)]
            for event in run.events
            for item in feed(join, run, event)
        ]
        return [str(item.to_pylist() if isinstance(item, pa.RecordBatch) else item) for item in items]

    compiled = outcome()
    for module, names in KERNELS.items():
        for name in names:
            monkeypatch.setattr(module, name, flat(getattr(module, name)))
    assert outcome() == compiled


WRONG: list[tuple[Callable[[], object], str]] = [
    (lambda: Band(-1, 0), "RANGE of a join must be from 0"),
    (lambda: Tumbling(0), "must be from 1"),
    (lambda: Side(TIMES, "time", ()), "no column 'time' in a join's input, which has ts, n"),
    (lambda: Side(pa.schema([("ts", pa.string())]), "ts", ()), "must be int64 ns"),
    (lambda: JoinSpec(side_of("a"), side_of("a"), Band(1, 1)), "have the name a; rename one"),
    (lambda: JoinSpec(side_of("a"), side_of("b"), Band(1, 1), ((K_INT, Column("n", Type.TEXT)),)), "of one type"),
    (lambda: JoinSpec(side_of("a"), side_of("b"), Band(1, 1), residual=Column("c", Type.BOOL)), "condition names c"),
    (lambda: OAJoin(spec_of(Band(1, 1), JoinKind.SEMI), WatermarkForm.JOINT), "join returns left rows"),
    (
        lambda: OAJoin(JoinSpec(side_of("max_ts"), side_of("b"), Band(1, 1)), WatermarkForm.MAX),
        "computed from the times",
    ),
]


def side_of(name: str) -> Side:
    return Side(TIMES, "ts", (("ts", name),))


@pytest.mark.parametrize(("make", "message"), WRONG)
def test_a_join_that_cannot_be_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
