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
        ("A2", [I(0, 5, 1), I(0, 5, 2), I(3, 7, 4), C(9)]),
        ("A3", [I(0, 4, 1), I(0, 9, 2), I(2, 6, 3), I(20, 30, 4), R(2, 6, 2, 3), C(40)]),
        ("A4", [I(0, 10, 1), R(0, 10, 6, 1), C(9)]),
        ("A6", [I(0, 2, 1), C(1), R(0, 2, 1, 1), C(inf)]),
        ("A7", W7),
        ("A8", [I(0, 10, 1), I(4, 8, 2), I(12, 20, 4), R(4, 8, 4, 2), C(30)]),
        ("A9", [I(0, 10, 1), I(4, 8, 2), I(12, 20, 4), C(3), R(4, 8, 4, 2), C(30)]),
    ],
)
def test_the_printed_snapshot_operator_is_wrong_and_this_one_is_right(erratum: str, events: list) -> None:
    try:
        found = printed(events, erratum)
    except (IndexError, KeyError, ValueError):
        found = [C(inf), C(0)]  # it does not end
    assert not is_right(found, events)
    assert is_right(ours(events), events)


def test_an_endpoint_without_rows_is_an_entry() -> None:
    assert ours([I(0, 5, 1), I(10, 15, 2), C(inf)]) == [I(0, 5, 1), I(10, 15, 1), C(inf)]


def test_lower_latency_can_have_less_output() -> None:
    """A10: OP is out earlier than ML by the definition, and returns fewer changes."""
    events = [I(1, inf, 1), C(1), R(1, inf, 10, 1), R(1, 10, 5, 1), I(4, 9, 2), C(10)]
    sizes = [sum(change[0] != "C" for change in ours(events, variant)) for variant in Variant]
    assert sizes == [3, 5, 6]


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


def test_a_cti_of_a_join_is_returned_once() -> None:
    events = [(0, C(3)), (1, C(3)), (1, C(4)), (0, C(3)), (0, C(5))]
    assert joined(events) == [C(3), C(4)]


def test_a_retraction_in_a_constant_window_is_dropped() -> None:
    events = [I(5, 20, 1), R(5, 20, 9, 1), C(7), R(5, 9, 7, 1)]
    as_printed = altered(events, lambda vs: vs, lambda vs, ve: 5, defects=["B4"])
    with pytest.raises(AssertionError, match="does not shorten"):
        canon(as_printed)
    assert to_events(AlterLifetime(NewLifetime(Window.LAST, 5)).process(to_batch(events))) == [I(5, 10, 1), C(7)]


def test_a_start_that_is_rounded_keeps_ctis() -> None:
    events = [I(5, inf, 1), C(16), R(5, inf, 16, 1)]
    as_printed = altered(events, lambda vs: vs // 4 * 4, lambda vs, ve: ve - vs)
    with pytest.raises(AssertionError, match=r"is below C\(16\)"):
        canon(as_printed)
    out = to_events(AlterLifetime(NewLifetime(Window.WIDENED, unit=4)).process(to_batch(events)))
    assert out == [I(4, inf, 1), C(16), R(4, inf, 16, 1)]
    canon(out)


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


def finalized(events: list) -> list:
    finalize = FinalizeByValue(None, 0)
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


@pytest.mark.parametrize(
    "erratum, events, expected",
    [
        ("B10", [X(0, 9, 1), X(9, 10, 1), I(8, 14, 1), R(8, 14, 9, 1)], [I(8, 14, 1), C(9), R(8, 14, 9, 1), C(10)]),
        ("B11", [X(0, 1, 2), R(0, 1, 0, 1), X(1, 2, 1), I(0, 2, 1), R(0, 2, 1, 1)], None),
        ("B13", [I(1, 4, 1), X(1, 2, 1), X(0, 1, 0)], [I(1, 4, 1), C(2)]),
    ],
)
def test_the_printed_finalize_is_wrong_and_this_one_is_right(erratum: str, events: list, expected: list | None) -> None:
    def final(out: list) -> dict:
        return dict(canon([event for event in out if event[0] != "C"]))

    twin = FinalizeTwin(defects=[erratum])
    as_printed = [change for event in events for change in twin.process(event)]
    out = finalized(events)
    canon(out)
    if expected is None:
        assert final(out) == {}
        assert final(as_printed) != {}
    else:
        assert out == expected
        assert as_printed != expected


def test_a_gap_between_counts_holds_ctis_back() -> None:
    """B12: a count of [8, 16) is complete before that of [0, 8) is known."""
    assert finalized([I(9, 12, 1), X(8, 16, 1), I(2, 5, 2), X(0, 8, 1)]) == [I(9, 12, 1), I(2, 5, 2), C(16)]


def test_a_merged_retraction_counts_at_its_own_time() -> None:
    """B14 and F1: three retractions before their row, with half-open counts (B9)."""
    events = [R(0, 10, 8, 0), R(0, 6, 4, 0), R(0, 8, 6, 0), I(0, 10, 0), X(0, 8, 4), I(1, 5, 1)]
    assert finalized(events) == [I(0, 4, 0), I(1, 5, 1), C(8)]
    closed = [*events[:4], X(0, 8, 5), events[5]]
    assert C(8) not in finalized(closed)


def test_late_rows_complete_a_count() -> None:
    """B15: a row below the last CTI is dropped, and still counts."""
    finalize = FinalizeByValue(5, 0)
    out = [*finalize.insert(12, 20, 0), *finalize.advance(), *finalize.insert(2, 14, 1), *finalize.advance()]
    assert [change[:2] for change in out] == [(INSERT, 12), (CTI, 7)]
    assert finalize.late == 1
    finalize.ctis.count(Count(0, 13, 3))
    assert list(finalize.advance()) == []
    assert [change[:2] for change in (*finalize.insert(8, 9, 2), *finalize.advance())] == [(INSERT, 8), (CTI, 13)]


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
