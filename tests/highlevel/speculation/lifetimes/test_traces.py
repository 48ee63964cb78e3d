"""The worked examples of the papers (digest §2.3, §3.3.6, §3.4, §3.5, §6): the whole streams, event by event."""

import pytest

from highlevel.speculation.lifetimes.aggregates import parse_aggregate
from highlevel.speculation.lifetimes.align import Align, Release
from highlevel.speculation.lifetimes.equi_join import LifetimeJoin
from highlevel.speculation.lifetimes.finalize import Count, FinalizeByValue
from highlevel.speculation.lifetimes.kernels.endpoints import CTI
from highlevel.speculation.lifetimes.model import are_equivalent, canonical_history, have_equal_snapshots, sync_times
from highlevel.speculation.lifetimes.snapshot import SnapshotOperator, Variant
from tests.references.lifetimes import C, I, R, from_time, inf, is_ordered, to_batch, to_events

PP, OP, ML = Variant

A, B, D, L = 1, 2, 4, 3
M1 = [I(1, inf, 1), C(1), R(1, inf, 10, 1), R(1, 10, 5, 1), I(4, 9, 2), C(10)]


def steps(text: str, events: list, variant: Variant, exact: bool = True) -> list:
    """The changes that each event causes."""
    operator = SnapshotOperator(to_batch([]).schema, [parse_aggregate("r", text)], (), variant, exact=exact)
    return [to_events(operator.process(to_batch([event]))) for event in events]


def test_m1_is_valid_and_has_two_rows() -> None:
    changes = to_batch(M1)
    assert canonical_history(changes).to_pylist() == [{"vs": 1, "ve": 5, "x": 1}, {"vs": 4, "ve": 9, "x": 2}]
    assert [from_time(time) for time in sync_times(changes).tolist()] == [1, 1, 10, 5, 4, 10]
    assert not is_ordered(M1)
    for other in ([I(4, 9, 2), I(1, 5, 1)], [I(1, 5, 1), I(4, 9, 2), C(10)]):
        assert are_equivalent(changes, to_batch(other))
    divided = to_batch([I(1, 3, 1), I(3, 5, 1), I(4, 9, 2)])
    assert not are_equivalent(changes, divided)
    assert have_equal_snapshots(changes, divided)
    assert not have_equal_snapshots(changes, to_batch([I(1, 3, 1), I(4, 9, 2)]))


TRACES = {
    "W1": (
        M1,
        {
            PP: [[], [C(1)], [], [], [I(1, 4, 1)], [I(4, 5, 2), I(5, 9, 1), C(10)]],
            OP: [
                *([I(1, inf, 1)], [C(1)], [], []),
                [R(1, inf, 4, 1), I(4, inf, 2)],
                [R(4, inf, 5, 2), I(5, 9, 1), C(10)],
            ],
            ML: [
                *([I(1, inf, 1)], [C(1)], [R(1, inf, 10, 1)], [R(1, 10, 5, 1)]),
                [R(1, 5, 4, 1), I(4, 5, 2), I(5, 9, 1)],
                [C(10)],
            ],
        },
    ),
    "W2": (
        [I(0, 10, A), I(2, 6, B), I(12, 15, D), C(13), C(20)],
        {
            PP: [[], [I(0, 2, 1)], [I(2, 6, 2), I(6, 10, 1)], [C(12)], [I(12, 15, 1), C(20)]],
            OP: [
                *([I(0, inf, 1)], [R(0, inf, 2, 1), I(2, inf, 2)]),
                [R(2, inf, 6, 2), I(6, 10, 1), I(12, inf, 1)],
                *([C(12)], [R(12, inf, 15, 1), C(20)]),
            ],
            ML: [
                *([I(0, 10, 1)], [R(0, 10, 2, 1), I(2, 6, 2), I(6, 10, 1)], [I(12, 15, 1)]),
                *([C(12)], [C(20)]),
            ],
        },
    ),
    "W3": (
        [I(0, 10, A), I(12, 20, B), I(4, 14, L), C(30)],
        {
            PP: [
                *([], [I(0, 10, 1)], [R(0, 10, 4, 1), I(4, 10, 2), I(10, 12, 1)]),
                [I(12, 14, 2), I(14, 20, 1), C(30)],
            ],
            OP: [
                *([I(0, inf, 1)], [R(0, inf, 10, 1), I(12, inf, 1)]),
                [R(0, 10, 4, 1), R(12, inf, 12, 1), I(4, 10, 2), I(10, 12, 1), I(12, inf, 2)],
                [R(12, inf, 14, 2), I(14, 20, 1), C(30)],
            ],
            ML: [
                *([I(0, 10, 1)], [I(12, 20, 1)]),
                [R(0, 10, 4, 1), R(12, 20, 12, 1), I(4, 10, 2), I(10, 12, 1), I(12, 14, 2), I(14, 20, 1)],
                [C(30)],
            ],
        },
    ),
    "W4": (
        [I(0, 10, A), I(0, 10, B), I(12, 20, D), I(3, 5, L), C(30)],
        {
            PP: [
                *([], [], [I(0, 10, 2)], [R(0, 10, 3, 2), I(3, 5, 3), I(5, 10, 2)]),
                [I(12, 20, 1), C(30)],
            ],
            OP: [
                *([I(0, inf, 1)], [R(0, inf, 0, 1), I(0, inf, 2)], [R(0, inf, 10, 2), I(12, inf, 1)]),
                *([R(0, 10, 3, 2), I(3, 5, 3), I(5, 10, 2)], [R(12, inf, 20, 1), C(30)]),
            ],
            ML: [
                *([I(0, 10, 1)], [R(0, 10, 0, 1), I(0, 10, 2)], [I(12, 20, 1)]),
                *([R(0, 10, 3, 2), I(3, 5, 3), I(5, 10, 2)], [C(30)]),
            ],
        },
    ),
    "W5": (
        [I(0, 10, A), I(2, 8, B), I(12, 20, D), R(2, 8, 5, B), C(30)],
        {
            PP: [
                *([], [I(0, 2, 1)], [I(2, 8, 2), I(8, 10, 1)]),
                *([R(2, 8, 5, 2), R(8, 10, 8, 1), I(5, 10, 1)], [I(12, 20, 1), C(30)]),
            ],
            OP: [
                *([I(0, inf, 1)], [R(0, inf, 2, 1), I(2, inf, 2)]),
                [R(2, inf, 8, 2), I(8, 10, 1), I(12, inf, 1)],
                *([R(2, 8, 5, 2), R(8, 10, 8, 1), I(5, 10, 1)], [R(12, inf, 20, 1), C(30)]),
            ],
            ML: [
                *([I(0, 10, 1)], [R(0, 10, 2, 1), I(2, 8, 2), I(8, 10, 1)], [I(12, 20, 1)]),
                *([R(2, 8, 5, 2), R(8, 10, 8, 1), I(5, 10, 1)], [C(30)]),
            ],
        },
    ),
    "W6": (
        [I(0, 10, A), I(4, 8, B), I(12, 20, D), C(3), R(4, 8, 4, B), C(30)],
        {
            PP: [
                *([], [I(0, 4, 1)], [I(4, 8, 2), I(8, 10, 1)], [C(0)]),
                *([R(4, 8, 4, 2), R(8, 10, 8, 1), R(0, 4, 0, 1), I(0, 10, 1)], [I(12, 20, 1), C(30)]),
            ],
        },
    ),
    "W7": (
        [I(1, 3, A), I(2, 3, B), R(2, 3, 2, B), R(1, 3, 2, A), C(9)],
        {
            PP: [[], [I(1, 2, 1)], [R(1, 2, 1, 1)], [], [I(1, 2, 1), C(9)]],
            OP: [
                *([I(1, inf, 1)], [R(1, inf, 2, 1), I(2, inf, 2)]),
                *([R(2, inf, 2, 2), R(1, 2, 1, 1), I(1, inf, 1)], [], [R(1, inf, 2, 1), C(9)]),
            ],
            ML: [
                *([I(1, 3, 1)], [R(1, 3, 2, 1), I(2, 3, 2)]),
                *([R(2, 3, 2, 2), R(1, 2, 1, 1), I(1, 3, 1)], [R(1, 3, 2, 1)], [C(9)]),
            ],
        },
    ),
    "W8": (
        [I(0, 10, A), R(0, 10, 6, A), C(9)],
        {
            PP: [[], [], [I(0, 6, 1), C(9)]],
            OP: [[I(0, inf, 1)], [], [R(0, inf, 6, 1), C(9)]],
            ML: [[I(0, 10, 1)], [R(0, 10, 6, 1)], [C(9)]],
        },
    ),
    "W9": (
        [I(0, 5, A), I(0, 5, B), I(3, 7, D), C(9)],
        {
            PP: [[], [], [I(0, 3, 2)], [I(3, 5, 3), I(5, 7, 1), C(9)]],
            OP: [
                *([I(0, inf, 1)], [R(0, inf, 0, 1), I(0, inf, 2)], [R(0, inf, 3, 2), I(3, inf, 3)]),
                [R(3, inf, 5, 3), I(5, 7, 1), C(9)],
            ],
            ML: [
                *([I(0, 5, 1)], [R(0, 5, 0, 1), I(0, 5, 2)], [R(0, 5, 3, 2), I(3, 5, 3), I(5, 7, 1)]),
                [C(9)],
            ],
        },
    ),
}


@pytest.mark.parametrize("name, variant", [(name, variant) for name, (_, found) in TRACES.items() for variant in found])
def test_counts_have_the_worked_trace(name: str, variant: Variant) -> None:
    events, expected = TRACES[name]
    assert steps("count(*)", events, variant) == expected[variant]


def test_w6_without_exact_results_leaves_rows_divided() -> None:
    found = steps("count(*)", TRACES["W6"][0], PP, exact=False)
    assert found[3:5] == [[C(3)], [R(4, 8, 4, 2), R(8, 10, 8, 1), I(4, 10, 1)]]


def test_w10_sums_of_bytes() -> None:
    late, withdrawn = I(5, 30, 1000), R(10, 40, 10, 500)
    events = [I(0, 60, 1500), I(10, 40, 500), I(60, 120, 200), late, withdrawn, C(120)]
    after_late = [R(0, 10, 5, 1500), R(10, 40, 10, 2000), I(5, 10, 2500), I(10, 30, 3000), I(30, 40, 2000)]
    after_withdrawal = [
        *(R(10, 30, 10, 3000), R(30, 40, 30, 2000), R(40, 60, 40, 1500), R(5, 10, 5, 2500)),
        *(I(5, 30, 2500), I(30, 60, 1500)),
    ]
    corrections = [after_late, after_withdrawal]
    assert steps("sum(x)", events, PP) == [
        *([], [I(0, 10, 1500)], [I(10, 40, 2000), I(40, 60, 1500)], *corrections, [I(60, 120, 200), C(120)]),
    ]
    assert steps("sum(x)", events, OP) == [
        *([I(0, inf, 1500)], [R(0, inf, 10, 1500), I(10, inf, 2000)]),
        [R(10, inf, 40, 2000), I(40, 60, 1500), I(60, inf, 200)],
        *corrections,
        [R(60, inf, 120, 200), C(120)],
    ]
    assert steps("sum(x)", events, ML) == [
        *([I(0, 60, 1500)], [R(0, 60, 10, 1500), I(10, 40, 2000), I(40, 60, 1500)], [I(60, 120, 200)]),
        *corrections,
        [C(120)],
    ]


def test_w11_maxima_are_cut_at_every_endpoint() -> None:
    events = [I(0, 10, 5), I(2, 6, 9), I(12, 14, 1), I(4, 8, 7), R(2, 6, 3, 9), C(20)]
    assert steps("max(x)", events, PP) == [
        *([], [I(0, 2, 5)], [I(2, 6, 9), I(6, 10, 5)]),
        [R(2, 6, 4, 9), R(6, 10, 6, 5), I(4, 6, 9), I(6, 8, 7), I(8, 10, 5)],
        [R(2, 4, 3, 9), R(4, 6, 4, 9), R(6, 8, 6, 7), I(3, 4, 5), I(4, 8, 7)],
        [I(12, 14, 1), C(20)],
    ]


def test_w12_ranks() -> None:
    events = [I(0, 10, 5), I(2, 6, 9), I(8, 12, 1), C(20)]
    assert steps("smallest(x, 9)", events, PP) == [
        *([], [I(0, 2, (1, 5))], [I(2, 6, (1, 5)), I(2, 6, (2, 9)), I(6, 8, (1, 5))]),
        [I(8, 10, (1, 1)), I(8, 10, (2, 5)), I(10, 12, (1, 1)), C(20)],
    ]


def test_a_port_scan_is_reported_and_withdrawn() -> None:
    """§6: three ports within ten seconds; the third is late, and one was a duplicate."""
    events = [I(0, 10, 22), I(3, 13, 23), I(12, 22, 25), I(5, 15, 80), R(3, 13, 3, 23), C(30)]

    def alerts(variant: Variant) -> list:
        found = steps("count_distinct(x)", events, variant)
        return [[change for change in step if change[0] == "C" or change[-1] >= 3] for step in found]

    assert alerts(PP) == [[], [], [], [I(5, 10, 3)], [R(5, 10, 5, 3)], [C(30)]]
    assert alerts(OP) == [[], [], [], [I(5, 10, 3), I(12, inf, 3)], [R(5, 10, 5, 3), R(12, inf, 12, 3)], [C(30)]]
    assert alerts(ML) == [[], [], [], [I(5, 10, 3), I(12, 13, 3)], [R(5, 10, 5, 3), R(12, 13, 12, 3)], [C(30)]]


def test_j1() -> None:
    schema = to_batch([]).schema
    join = LifetimeJoin(schema, schema, [("x", "x")])
    events = [(0, I(0, 2, 0)), (0, C(1)), (0, I(2, 6, 1)), (1, I(3, 5, 1)), (1, C(3)), (0, R(2, 6, 4, 1))]
    found = [to_events(join.process(side, to_batch([event]))) for side, event in events]
    assert found == [[], [], [], [I(3, 5, 1)], [C(1)], [R(3, 5, 4, 1)]]


def aligned(events: list, wait: int | None, release: Release) -> list:
    align = Align(to_batch([]).schema, wait, release)
    return [to_events(align.process(to_batch([event]))) for event in events]


def test_al1() -> None:
    events = [I(0, 100, A), I(10, 20, B), R(10, 20, 15, B), C(30), C(100)]
    at_30, at_100 = [I(10, 15, B), C(0)], [I(0, 100, A), C(100)]
    assert aligned(events, None, Release.ENDS) == [[], [], [], at_30, at_100]
    assert aligned(events, None, Release.SYNC) == [[], [], [], [I(0, 100, A), I(10, 15, B), C(30)], [C(100)]]
    both = [I(0, 100, A), I(10, 15, B), C(100)]
    assert aligned(events, None, Release.PERFECT) == [[], [], [], [C(0)], both]


def test_al2() -> None:
    events = [I(4, 9, B), I(1, 12, A), R(4, 9, 7, B), R(1, 12, 10, A), I(8, 11, D), R(4, 7, 5, B), C(12)]
    together = [I(4, 5, B), I(1, 10, A), I(8, 11, D), C(12)]
    assert aligned(events, None, Release.ENDS) == [[], [], [], [], [], [], together]
    assert aligned(events, 3, Release.ENDS) == [
        *([], [I(1, 12, A)], [], [R(1, 12, 10, A)], [I(4, 7, B)], [R(4, 7, 5, B)], [I(8, 11, D), C(12)]),
    ]
    assert aligned(events, 0, Release.ENDS) == [[event] for event in events]


CORNERS = [I(0, 10, A), I(12, 20, B), I(4, 14, L), C(30)]


@pytest.mark.parametrize(
    "wait, release, variant, expected",
    [
        (0, Release.SYNC, ML, TRACES["W3"][1][ML]),
        (0, Release.SYNC, PP, TRACES["W3"][1][PP]),
        (
            *(None, Release.SYNC, OP),
            [
                *([], [], []),
                [
                    *(I(0, inf, 1), R(0, inf, 4, 1), I(4, inf, 2), R(4, inf, 10, 2), I(10, 12, 1), I(12, inf, 2)),
                    *(R(12, inf, 14, 2), I(14, 20, 1), C(30)),
                ],
            ],
        ),
        (
            *(None, Release.PERFECT, PP),
            [[], [], [], [I(0, 4, 1), I(4, 10, 2), I(10, 12, 1), I(12, 14, 2), I(14, 20, 1), C(30)]],
        ),
    ],
    ids=["middle", "middle without future", "strong", "ultra"],
)
def test_the_corners_of_the_triangle(wait, release, variant, expected) -> None:
    align = Align(to_batch([]).schema, wait, release)
    operator = SnapshotOperator(align.schema, [parse_aggregate("n", "count(*)")], (), variant)
    found = [to_events(operator.process(align.process(to_batch([event])))) for event in CORNERS]
    assert found == expected


def remembered(remember: int, wait: int, variant: Variant) -> list:
    """The changes that each event of §3.6.5 causes, behind Finalize and Align; the count is the last event."""
    finalize = FinalizeByValue(remember, 0)
    align = Align(to_batch([]).schema, wait, Release.SYNC)
    counts = [parse_aggregate("n", "count(*)")]
    operator = SnapshotOperator(align.schema, counts, (), variant, without_full_retractions=True)
    found = []
    for row in (*(event[1:] for event in CORNERS[:3]), None):
        if row is None:
            finalize.ctis.count(Count(0, 30, 3))
        changes = [*(finalize.insert(*row) if row else ()), *finalize.advance()]
        events = [C(vs) if kind == CTI else I(vs, ve, p) for kind, vs, ve, _, p in changes]
        events = [event for event in events if event != C(event[1]) or event[1] >= 0]  # the times of the digest
        found.append(to_events(operator.process(align.process(to_batch(events)))))
    return found


def test_the_weak_corner_drops_the_late_row() -> None:
    assert remembered(5, 0, ML) == [[I(0, 10, 1)], [I(12, 20, 1), C(7)], [], []]


def test_the_diagonal_returns_nothing_that_it_corrects() -> None:
    first, second, late, _ = remembered(10, 10, PP)
    assert (first, second, late) == ([], [C(0)], [])
