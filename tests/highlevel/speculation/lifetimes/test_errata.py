"""The errata of the printed algorithms (digest §8): each counterexample fails as printed, and is right here."""

import pytest

from highlevel.speculation.lifetimes.aggregates import Aggregate
from highlevel.speculation.lifetimes.align import Align, Release
from highlevel.speculation.lifetimes.alter_lifetime import AlterLifetime, NewLifetime, Window
from highlevel.speculation.lifetimes.equi_join import LifetimeJoin
from highlevel.speculation.lifetimes.finalize import Count, FinalizeByValue
from highlevel.speculation.lifetimes.kernels.endpoints import CTI, INSERT
from highlevel.speculation.lifetimes.model import LifetimeError, concat
from highlevel.speculation.lifetimes.snapshot import SnapshotOperator, Variant
from tests.references.lifetimes import (
    C,
    I,
    R,
    at_each_instant,
    canon,
    denote,
    from_time,
    inf,
    is_ordered,
    to_batch,
    to_events,
)
from tests.references.printed_lifetimes import AlignTwin, FinalizeTwin, JoinTwin, altered
from tests.references.snapshot_twin import SnapshotTwin

W4 = [I(0, 10, 1), I(0, 10, 2), I(12, 20, 4), I(3, 5, 3), C(inf)]
W7 = [I(1, 3, 1), I(2, 3, 2), R(2, 3, 2, 2), R(1, 3, 2, 1), C(9)]


def count(values: list) -> list:
    return [len(values)]


def ours(events: list, variant: Variant = Variant.PERFECT) -> list:
    operator = SnapshotOperator(to_batch([]).schema, [Aggregate("n", "count")], (), variant)
    return to_events(operator.process(to_batch(events)))


def printed(events: list, defect: str) -> list:
    twin = SnapshotTwin(count, defects=[defect])
    return [change for event in events for change in twin.process(event)]


def is_right(out: list, events: list) -> bool:
    """Whether changes are valid, and have the result of the definition."""
    try:
        return canon(out) == denote(canon(events), count)
    except AssertionError:
        return False


@pytest.mark.parametrize(
    "erratum, events",
    [
        ("A1 end", W4),
        ("A1 removal", [I(0, 5, 1), I(10, 15, 2), C(inf)]),
        ("A2", [I(0, 5, 1), I(0, 5, 2), I(3, 7, 4), C(9)]),
        ("A3", [I(0, 4, 1), I(0, 9, 2), I(2, 6, 3), I(20, 30, 4), R(2, 6, 2, 3), C(40)]),
        ("A4", [I(0, 10, 1), R(0, 10, 6, 1), C(9)]),
        ("A5", [I(0, 10, 1), I(2, 8, 2), I(12, 20, 4), R(2, 8, 5, 2), C(30)]),
        ("A6", [I(0, 2, 1), C(1), R(0, 2, 1, 1), C(inf)]),
        ("A7", W7),
        ("A8", [I(0, 10, 1), I(4, 8, 2), I(12, 20, 4), R(4, 8, 4, 2), C(30)]),
        ("A9", [I(0, 10, 1), I(4, 8, 2), I(12, 20, 4), C(3), R(4, 8, 4, 2), C(30)]),
        ("A11", [I(2, 5, 1), C(9)]),
    ],
)
def test_the_printed_snapshot_operator_is_wrong_and_this_one_is_right(erratum: str, events: list) -> None:
    try:
        found = printed(events, erratum)
    except (IndexError, KeyError, ValueError):
        found = [C(inf), C(0)]  # it does not end
    assert not is_right(found, events)
    assert is_right(ours(events), events)


def test_a_row_that_ends_at_a_cti_is_returned_with_it() -> None:
    """A12: the text takes ends before the CTI, the algorithm also those at it. The text is not progressive."""
    events = [I(0, 5, 1), C(5)]
    assert printed(events, "A12") == [C(0)]
    assert ours(events) == [I(0, 5, 1), C(5)]


def test_lower_latency_can_have_less_output() -> None:
    """A10: the theorem that lower latency needs at least as much output does not hold for OP and ML."""
    events = [I(1, inf, 1), C(1), R(1, inf, 10, 1), R(1, 10, 5, 1), I(4, 9, 2), C(10)]
    sizes = [sum(change[0] != "C" for change in ours(events, variant)) for variant in Variant]
    assert sizes == [3, 5, 6]

    def newest_end(variant: Variant, count: int) -> float:
        """The output watermark after `count` changes: the latest end of the output (D20)."""
        return max((change[2] for change in ours(events[:count], variant) if change[0] != "C"), default=-inf)

    for count in range(len(events) + 1):
        assert newest_end(Variant.ORDERED, count) >= newest_end(Variant.EARLIEST, count)


def joined(events: list) -> list:
    schema = to_batch([]).schema
    join = LifetimeJoin(schema, schema, [("x", "x")])
    parts = [join.process(side, to_batch([event])) for side, event in events]
    return to_events(concat(parts, join.schema))


def test_lifetimes_that_meet_have_no_pair() -> None:
    events = [(1, I(7, 18, 1)), (0, I(5, 7, 1))]
    twin = JoinTwin(defects=["B2"])
    assert [change for side, event in events for change in twin.process(side, event)] == [I(7, 7, 1)]
    assert joined(events) == []


def test_the_lifetimes_of_the_printed_join_are_those_of_its_events() -> None:
    """B1: the printed table has the row A0 as [0, 1), and its event as [0, 2)."""
    side = [I(0, 2, 0), C(1), I(2, 6, 1), R(2, 6, 4, 1)]
    assert canon(side) == {(0, 2, 0): 1, (2, 4, 1): 1}
    assert I(0, 1, 0)[1:] not in canon(side)
    assert joined([*((0, event) for event in side), (1, I(1, 3, 0))]) == [I(1, 2, 0)]


def test_a_cti_of_a_join_is_returned_once_and_rows_that_end_at_it_are_not_stored() -> None:
    events = [(0, C(3)), (1, C(3)), (1, C(4)), (0, C(3)), (0, C(5))]
    twin = JoinTwin(defects=["B3"])
    assert [change for side, event in events for change in twin.process(side, event)] == [C(3), C(3), C(3), C(4)]
    assert joined(events) == [C(3), C(4)]
    twin.process(1, C(9))
    twin.process(0, I(5, 9, 1))
    assert twin.stored[0] == [(5, 9, 1)], "no row of the other side can meet this row any more"
    join = LifetimeJoin(to_batch([]).schema, to_batch([]).schema, [("x", "x")])
    join.process(1, to_batch([C(9)]))
    join.process(0, to_batch([I(5, 9, 1)]))
    assert join.stored == 0


def test_a_retraction_in_a_constant_window_is_dropped() -> None:
    events = [I(5, 20, 1), R(5, 20, 9, 1), C(7), R(5, 9, 7, 1)]
    as_printed = altered(events, lambda vs, ve: vs, lambda vs, ve: 5, defects=["B4"])
    with pytest.raises(AssertionError, match="does not shorten"):
        canon(as_printed)
    assert to_events(AlterLifetime(NewLifetime(Window.LAST, 5)).process(to_batch(events))) == [I(5, 10, 1), C(7)]


def test_a_start_that_is_rounded_keeps_ctis() -> None:
    events = [I(5, inf, 1), C(16), R(5, inf, 16, 1)]
    as_printed = altered(events, lambda vs, ve: vs // 4 * 4, lambda vs, ve: ve - vs)
    with pytest.raises(AssertionError, match=r"is below C\(16\)"):
        canon(as_printed)
    out = to_events(AlterLifetime(NewLifetime(Window.WIDENED, unit=4)).process(to_batch(events)))
    assert out == [I(4, inf, 1), C(16), R(4, inf, 16, 1)]
    canon(out)


def test_deletes_are_not_a_window_with_a_start() -> None:
    """B5: with the end of a row as its start, a retraction does not move the row."""
    events = [I(5, 9, 1), R(5, 9, 7, 1), C(7)]
    as_printed = altered(events, lambda vs, ve: ve, lambda vs, ve: inf)
    assert canon(as_printed) == {(9, inf, 1): 1}
    out = to_events(AlterLifetime(NewLifetime(Window.DELETES)).process(to_batch(events)))
    assert canon(out) == {(7, inf, 1): 1}


def aligned(events: list, release: Release) -> list:
    align = Align(to_batch([]).schema, None, release)
    return to_events(concat([align.process(to_batch([event])) for event in events], align.schema))


def test_a_row_that_is_withdrawn_while_it_waits_is_deleted() -> None:
    events = [I(9, 10, 1), R(9, 10, 9, 1), C(20)]
    twin = AlignTwin(defects=["B6"])
    with pytest.raises(AssertionError, match="is empty"):
        canon([change for event in events for change in twin.process(event)])
    for release in Release:
        assert aligned(events, release) == [C(20)]


AL1 = [I(0, 100, 1), I(10, 20, 2), R(10, 20, 15, 2), C(30), C(100)]


def test_a_release_by_ends_is_not_ordered() -> None:
    twin = AlignTwin()
    as_printed = [change for event in AL1 for change in twin.process(event)]
    assert not is_ordered(as_printed)
    assert as_printed == aligned(AL1, Release.ENDS)
    assert is_ordered(aligned(AL1, Release.SYNC))
    assert is_ordered(aligned(AL1, Release.PERFECT))


@pytest.mark.parametrize("reading", ["B8 field", "B8 guard"])
def test_the_printed_release_cannot_be_read_literally(reading: str) -> None:
    """B8: one line reads the field Ve of a CTI, which has only Vs; the guards mix `and` and `or`."""
    twin = AlignTwin(defects=[reading])
    as_printed = [change for event in AL1 for change in twin.process(event)]
    assert [change for change in as_printed if change[0] != "C"] == []
    assert canon(aligned(AL1, Release.ENDS)) == canon(AL1)


def finalized(events: list, remember: int | None = None) -> list:
    finalize = FinalizeByValue(remember, 0)
    out: list = []
    for event in events:
        if event[0] == "X":
            finalize.ctis.count(Count(*event[1:]))
        elif event[0] == "I":
            out += finalize.insert(*event[1:])
        else:
            out += finalize.retract(*event[1:])
        out += finalize.advance()
    changes = []
    for kind, vs, ve, vnew, row in out:
        end = from_time(ve)
        changes.append(C(vs) if kind == CTI else I(vs, end, row) if kind == INSERT else R(vs, end, vnew, row))
    return changes


def X(a, b, n):
    return ("X", a, b, n)


MERGED = [R(0, 10, 8, 0), R(0, 6, 4, 0), R(0, 8, 6, 0), I(0, 10, 0)]
"""Three retractions before their row (F1)."""


@pytest.mark.parametrize(
    "erratum, events, expected",
    [
        ("B9", [X(0, 8, 1), X(8, 16, 1), I(8, 9, 1), I(3, 5, 2)], [I(8, 9, 1), I(3, 5, 2), C(16)]),
        ("B10", [X(0, 9, 1), X(9, 10, 1), I(8, 14, 1), R(8, 14, 9, 1)], [I(8, 14, 1), C(9), R(8, 14, 9, 1), C(10)]),
        ("B11", [X(0, 1, 2), R(0, 1, 0, 1), X(1, 2, 1), I(0, 2, 1), R(0, 2, 1, 1)], None),
        ("B12", [I(9, 12, 1), X(8, 16, 1), I(2, 5, 2), X(0, 8, 1)], [I(9, 12, 1), I(2, 5, 2), C(16)]),
        ("B13", [I(1, 4, 1), X(1, 2, 1), X(0, 1, 0)], [I(1, 4, 1), C(2)]),
        ("B14", [*MERGED, X(0, 5, 3), I(1, 5, 1)], [I(0, 4, 0), I(1, 5, 1), C(5)]),
    ],
)
def test_the_printed_finalize_is_wrong_and_this_one_is_right(erratum: str, events: list, expected: list | None) -> None:
    def final(out: list) -> dict:
        return dict(canon([event for event in out if event[0] != "C"]))

    twin = FinalizeTwin(defects=[erratum])
    as_printed = [change for event in events for change in twin.process(event)]
    out = finalized(events)
    canon(out)
    assert final(out) == {} if expected is None else out == expected
    if erratum == "B13":
        assert as_printed == [I(1, 4, 1)], "the CTI never comes"
    else:
        assert final(as_printed) != final(out), "a change is lost"


def test_f1_with_counts_of_half_open_ranges() -> None:
    """F1: the printed count of 5 is that of a closed range (B9)."""
    assert finalized([*MERGED, X(0, 8, 4), I(1, 5, 1)]) == [I(0, 4, 0), I(1, 5, 1), C(8)]
    closed = [*MERGED, X(0, 8, 5), I(1, 5, 1)]
    twin = FinalizeTwin(defects=["B9"])
    assert [change for event in closed for change in twin.process(event)][-1] == C(8)
    assert C(8) not in finalized(closed)


def test_late_rows_complete_a_count() -> None:
    """B15: a row below the last CTI is dropped, and still counts."""
    events = [I(12, 20, 0), I(2, 14, 1), X(0, 13, 3), I(8, 9, 2)]
    twin = FinalizeTwin(5, defects=["B15"])
    assert [change for event in events for change in twin.process(event)] == [I(12, 20, 0), C(7), I(8, 9, 2)]
    assert finalized(events, 5) == [I(12, 20, 0), C(7), I(8, 9, 2), C(13)]


def test_a_count_of_nothing_is_refused() -> None:
    with pytest.raises(LifetimeError, match=r"a count of 3 changes in \[5, 5\)"):
        Count(5, 5, 3)


def test_without_exact_results_instants_are_equal_and_ctis_are_not_held_back() -> None:
    events = [I(0, 10, 1), I(4, 8, 2), I(12, 20, 4), C(3), R(4, 8, 4, 2), C(30)]
    operator = SnapshotOperator(to_batch([]).schema, [Aggregate("n", "count")], exact=False)
    out = to_events(operator.process(to_batch(events)))
    assert C(3) in out
    assert at_each_instant(canon(out)) == at_each_instant(denote(canon(events), count))
    assert C(0) in ours(events)
    assert C(3) not in ours(events)
