"""The counters of node operators: per query, and per operator for queries with several operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

from capture.metrics import Samples
from capture.units import SECOND
from highlevel.metrics import (
    COPIES_REMOVED,
    DEADLINES_OUTSIDE,
    FILL_GROUPS_FORGOTTEN,
    FILL_ROWS_LEFT_OUT,
    FLOW_RECORDS_MERGED,
    JOIN_PAIRS,
    JOIN_ROWS_STORED,
    LATE_PARTIALS,
    LATE_ROWS,
    OLDEST_PARTIAL_MATCH,
    OPERATOR_LATE_ROWS,
    OPERATOR_RESULT_ROWS,
    OPERATOR_ROWS_HELD,
    OPERATOR_ROWS_RECEIVED,
    OPERATOR_STATE_BYTES,
    OUTSIDE_WINDOWS,
    PARTIAL_MATCHES,
    PARTIALS_BEYOND_CAP,
    ROWS_BEYOND_CAP,
    ROWS_FORGOTTEN,
    ROWS_REMOVED_EARLY,
    RUNS_REMOVED_EARLY,
    SKIP_ERRORS,
    STATE_BYTES,
    SUMS_OVERFLOWED,
    UNCLOSED_GROUPS_ENDED,
    WINDOWS_OPEN,
    WITHDRAWALS_UNMATCHED,
)
from lowlevel.integer_ranges import Ranges, count
from lowlevel.punctuation import END

AddCounters = Callable[[Samples, Any, str, str | None], None]
"""Add the counters of an operator to samples. The labels are the query and the operator's name.

The name is None if the query has only one operator.
"""


class PartialMatchCounts(NamedTuple):
    """The number of partial matches, and the time of the oldest first row in ns; END without partial matches."""

    number: int
    oldest: int


class StoreCounters(Protocol):
    """The counters of an operator that stores rows or groups of rows."""

    @property
    def received(self) -> int:
        """Rows received."""
        ...

    @property
    def results(self) -> int:
        """Rows returned."""
        ...

    @property
    def late(self) -> int:
        """Rows dropped because they were below the watermark."""
        ...

    @property
    def rows_held(self) -> int:
        """Rows or groups stored for later rows."""
        ...

    @property
    def bytes(self) -> int:
        """Bytes of the state."""
        ...


class SumCounters(StoreCounters, Protocol):
    """The counters of an operator that returns sums of integers."""

    @property
    def overflowed_sums(self) -> int:
        """Sums in results that are NULL, because they exceed 64 bits."""
        ...


@runtime_checkable
class SkipCounters(Protocol):
    """The counters of an operator with AFTER MATCH SKIP TO."""

    @property
    def skip_errors(self) -> int:
        """Matches without a row to which AFTER MATCH SKIP TO can go."""
        ...


class MatchCounters(SumCounters, SkipCounters, Protocol):
    """The counters of an operator that matches a row pattern."""

    @property
    def partial_matches(self) -> PartialMatchCounts:
        """The partial matches."""
        ...


class FillCounters(StoreCounters, Protocol):
    """The counters of an operator that adds rows."""

    @property
    def left_out(self) -> int:
        """Rows that were not added, because a gap had too many rows."""
        ...

    @property
    def forgotten(self) -> int:
        """Number of groups that were removed because too many were known."""
        ...


class ClosingCounters(StoreCounters, Protocol):
    """The counters of an operator whose groups live over several windows."""

    @property
    def cut(self) -> int:
        """Groups that ended because a gap had too many rows."""
        ...


class JoinCounters(StoreCounters, Protocol):
    """The counters of an operator that stores only some of its rows."""

    @property
    def stored(self) -> int:
        """Rows that were stored because a later row could match them."""
        ...

    @property
    def pairs(self) -> int:
        """Pairs of rows in each other's windows with equal keys."""
        ...


class RevisionCounters(StoreCounters, Protocol):
    """The counters of an operator that combines several rows to one row."""

    @property
    def absorbed(self) -> int:
        """Rows that are not in the result: copies, merged records, or unmatched withdrawals."""
        ...

    @property
    def forgotten(self) -> int:
        """Rows and open flows that were removed too early, because too many rows were stored."""
        ...

    @property
    def overflowed_sums(self) -> int:
        """Sums in final results that are NULL, because they exceed 64 bits."""
        ...


class WindowOperatorCounters(Protocol):
    """The counters of an operator of windows."""

    @property
    def received(self) -> int:
        """Rows or partials received."""
        ...

    @property
    def results(self) -> int:
        """Rows returned, after HAVING."""
        ...

    @property
    def outside(self) -> int:
        """Rows or partials that are in no window."""
        ...

    @property
    def late(self) -> int:
        """Number of pairs of a row or partial and a final window that it missed."""
        ...

    @property
    def late_rows(self) -> int:
        """Rows of the partials in `late`, each once, if a sub-aggregate counts rows."""
        ...

    @property
    def overflowed_sums(self) -> int:
        """Sums in results that are NULL, because they exceed 64 bits."""
        ...

    @property
    def beyond_cap(self) -> tuple[int, int]:
        """Partials of groups that are not stored, and their rows."""
        ...

    @property
    def bytes(self) -> int:
        """Bytes of the state."""
        ...

    def open_windows(self) -> Ranges | int:
        """Windows that contain rows and are not final."""
        ...


class LifetimeCounters(StoreCounters, Protocol):
    """The counters of an operator of rows with lifetimes."""

    @property
    def outside(self) -> int:
        """Rows without a lifetime."""
        ...


class AcceptedRunCounters(LifetimeCounters, Protocol):
    """The counters of an operator that runs an automaton."""

    @property
    def partial_matches(self) -> PartialMatchCounts:
        """The partial matches."""
        ...

    @property
    def removed_early(self) -> tuple[int, int]:
        """Rows and runs that were removed before the watermark, because no later row needs them."""
        ...

    @property
    def deadlines_outside(self) -> int:
        """Deadlines without effect, because the lifetime of the run ended before."""
        ...


class SnapshotCounters(LifetimeCounters, SumCounters, Protocol):
    """The counters of an operator that aggregates rows with lifetimes."""


class LifetimeJoinCounters(LifetimeCounters, JoinCounters, Protocol):
    """The counters of a join of rows with lifetimes."""


def count_nothing(samples: Samples, operator: object, query: str, name: str | None) -> None:
    """Add no counters."""


def count_rows_held(samples: Samples, operator: StoreCounters, query: str, name: str | None) -> None:
    """Add the counters of an operator that stores rows or groups."""
    samples.add(LATE_PARTIALS, operator.late, query)
    samples.add(LATE_ROWS, operator.late, query)
    _count_operator(samples, operator, query, name, operator.late)
    if name is not None:
        samples.set(OPERATOR_ROWS_HELD, operator.rows_held, query, name)


def count_sums(samples: Samples, operator: SumCounters, query: str, name: str | None) -> None:
    """Add the counters of an operator that stores rows or groups and returns sums."""
    count_rows_held(samples, operator, query, name)
    samples.add(SUMS_OVERFLOWED, operator.overflowed_sums, query)


def count_matches(samples: Samples, operator: MatchCounters, query: str, name: str | None) -> None:
    """Add the counters of an operator that matches a row pattern."""
    count_sums(samples, operator, query, name)
    _count_partial_matches(samples, operator.partial_matches, query)
    samples.add(SKIP_ERRORS, operator.skip_errors, query)


def count_changing_results(samples: Samples, operator: SumCounters, query: str, name: str | None) -> None:
    """Add the counters of an operator that computes a node again."""
    count_sums(samples, operator, query, name)
    if isinstance(operator, SkipCounters) and operator.skip_errors:
        samples.add(SKIP_ERRORS, operator.skip_errors, query)


def count_accepted_runs(samples: Samples, operator: AcceptedRunCounters, query: str, name: str | None) -> None:
    """Add the counters of an operator that runs an automaton."""
    count_lifetimes(samples, operator, query, name)
    _count_partial_matches(samples, operator.partial_matches, query)
    rows, runs = operator.removed_early
    samples.add(ROWS_REMOVED_EARLY, rows, query)
    samples.add(RUNS_REMOVED_EARLY, runs, query)
    samples.add(DEADLINES_OUTSIDE, operator.deadlines_outside, query)


def _count_partial_matches(samples: Samples, partial: PartialMatchCounts, query: str) -> None:
    samples.add(PARTIAL_MATCHES, partial.number, query)
    oldest = 0 if partial.oldest == END else partial.oldest / SECOND
    samples.set(
        OLDEST_PARTIAL_MATCH, earlier_time(samples.get((OLDEST_PARTIAL_MATCH.name, (query,)), 0), oldest), query
    )


def earlier_time(one: float, other: float) -> float:
    """Return the smaller of two times of partial matches. 0 means no time."""
    return min(one, other) if one and other else one or other


def count_fill(samples: Samples, operator: FillCounters, query: str, name: str | None) -> None:
    """Add the counters of FILL."""
    count_rows_held(samples, operator, query, name)
    samples.add(FILL_ROWS_LEFT_OUT, operator.left_out, query)
    samples.add(FILL_GROUPS_FORGOTTEN, operator.forgotten, query)


def count_running(samples: Samples, operator: ClosingCounters, query: str, name: str | None) -> None:
    """Add the counters of CLOSING WHEN."""
    count_rows_held(samples, operator, query, name)
    samples.add(UNCLOSED_GROUPS_ENDED, operator.cut, query)


def count_outside(samples: Samples, operator: LifetimeCounters, query: str, name: str | None) -> None:
    """Add the counters of an operator that stores no rows, and drops rows that are in no window."""
    samples.add(OUTSIDE_WINDOWS, operator.outside, query)
    _count_operator(samples, operator, query, name, operator.late)


def count_lifetimes(samples: Samples, operator: LifetimeCounters, query: str, name: str | None) -> None:
    """Add the counters of an operator that stores rows with lifetimes."""
    count_rows_held(samples, operator, query, name)
    samples.add(OUTSIDE_WINDOWS, operator.outside, query)


def count_snapshots(samples: Samples, operator: SnapshotCounters, query: str, name: str | None) -> None:
    """Add the counters of snapshots."""
    count_sums(samples, operator, query, name)
    samples.add(OUTSIDE_WINDOWS, operator.outside, query)


def count_join(samples: Samples, operator: JoinCounters, query: str, name: str | None) -> None:
    """Add the counters of a join."""
    count_rows_held(samples, operator, query, name)
    if name is not None:
        samples.add(JOIN_ROWS_STORED, operator.stored, query, name)
        samples.add(JOIN_PAIRS, operator.pairs, query, name)


def count_overlaps(samples: Samples, operator: LifetimeJoinCounters, query: str, name: str | None) -> None:
    """Add the counters of a join of lifetimes."""
    count_join(samples, operator, query, name)
    samples.add(OUTSIDE_WINDOWS, operator.outside, query)


def count_copies(samples: Samples, operator: RevisionCounters, query: str, name: str | None) -> None:
    """Add the counters of DISTINCT ON."""
    count_rows_held(samples, operator, query, name)
    samples.add(COPIES_REMOVED, operator.absorbed, query)
    samples.add(ROWS_FORGOTTEN, operator.forgotten, query)


def count_flows(samples: Samples, operator: RevisionCounters, query: str, name: str | None) -> None:
    """Add the counters of MERGE."""
    count_rows_held(samples, operator, query, name)
    samples.add(FLOW_RECORDS_MERGED, operator.absorbed, query)
    samples.add(SUMS_OVERFLOWED, operator.overflowed_sums, query)
    samples.add(ROWS_FORGOTTEN, operator.forgotten, query)


def count_net_rows(samples: Samples, operator: RevisionCounters, query: str, name: str | None) -> None:
    """Add the counters of CHANGES BY."""
    count_rows_held(samples, operator, query, name)
    samples.add(WITHDRAWALS_UNMATCHED, operator.absorbed, query)


def count_windows(samples: Samples, operator: WindowOperatorCounters, query: str, name: str | None) -> None:
    """Add the counters of windows. Open windows add up over all nodes of a query."""
    samples.add(OUTSIDE_WINDOWS, operator.outside, query)
    samples.add(LATE_PARTIALS, operator.late, query)
    samples.add(LATE_ROWS, operator.late_rows, query)
    partials, rows = operator.beyond_cap
    samples.add(PARTIALS_BEYOND_CAP, partials, query)
    samples.add(ROWS_BEYOND_CAP, rows, query)
    samples.add(SUMS_OVERFLOWED, operator.overflowed_sums, query)
    samples.add(WINDOWS_OPEN, window_count(operator.open_windows()), query)
    _count_operator(samples, operator, query, name, operator.late_rows)


def _count_operator(
    samples: Samples, operator: StoreCounters | WindowOperatorCounters, query: str, name: str | None, late: int
) -> None:
    samples.add(STATE_BYTES, operator.bytes, query)
    if name is not None:
        samples.add(OPERATOR_ROWS_RECEIVED, operator.received, query, name)
        samples.add(OPERATOR_RESULT_ROWS, operator.results, query, name)
        samples.add(OPERATOR_LATE_ROWS, late, query, name)
        samples.set(OPERATOR_STATE_BYTES, operator.bytes, query, name)


def window_count(windows: Ranges | int) -> int:
    """Return the number of windows, given as ranges of IDs or as a number."""
    return windows if isinstance(windows, int) else count(windows)
