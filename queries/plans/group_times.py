"""Choose the time column for the windows of a query with GROUP BY, and the time columns that are ordinary groups.

over links      ts: with a window clause, or with ts/60 in GROUP BY
over tables     the parameter WA (window attribute) of the window clause names the time column if there are several.
                If GROUP BY divides one time column into intervals (ts/60), each interval is a window. Other time
                columns are ordinary groups. They are emitted when the watermark has passed their times
"""

from __future__ import annotations

from collections.abc import Sequence

from highlevel.windows.kind import WHOLE_INPUT
from lowlevel.expressions.tree import Column, Expression
from lowlevel.expressions.types import Type
from queries.binding.binder import Binder, NameResolver
from queries.binding.links import SPREADABLE_KIND, Links
from queries.binding.names import Names
from queries.plans.group_window import TS, GroupWindow, window_of_quotient
from queries.text.errors import QueryError
from queries.text.tree import Name, Query


class GroupTimes:
    """Chooses the time columns; `times` are the time columns of the tables."""

    def __init__(
        self,
        query: Query,
        window: GroupWindow,
        names: Names,
        links: Links | None,
        times: Sequence[Column],
    ) -> None:
        """`window` is the window of the query."""
        self._query = query
        self._window = window
        self._sql = query.sql
        self._names = names
        self._links = links
        self._times = times
        self.time = TS
        """The time column of the windows."""
        self.end: Column | None = None
        """The column with the end of lifetimes, if LIFETIME names one."""
        self.quotient_makes_windows = links is not None
        """True if intervals of a time column in GROUP BY (ts/60) are the windows."""
        self.smallest_intervals: dict[Column, int] = {}
        """Over tables: the time columns in GROUP BY, each with its smallest interval in ns."""

    def check(self) -> None:
        """Raise QueryError if the rows cannot have this window."""
        spread = self._window.spread
        kind = "rows of other queries" if self._links is None else self._links.source.kind
        if spread is not None and kind != SPREADABLE_KIND:
            expected = f"SPREAD over {SPREADABLE_KIND}: a row of {kind} has only one time"
            raise self._error(f"SPREAD over {kind}", spread.start, expected)
        if self._links is None and self._window.kind.in_arrival_order:
            expected = "RANGE of time: rows of joins and of other queries arrive in any order"
            raise self._error("a window that counts rows, over a join or another query", self._start, expected)

    def choose(self, resolve_in_group_by: NameResolver) -> None:
        """Find the time column of the window."""
        attribute, known = self._window.time, [column.name for column in self._times]
        if self._window.lifetime:
            lifetime = self._window.lifetime
            self.time, self.end = (lifetime_column(self._sql, self._names, name) for name in lifetime)
        elif attribute is not None:
            table, name = attribute
            found = self._names.column(name, table)
            if self._links is not None and found != TS:
                raise self._error(
                    f"a window over {name.name_in_messages}",
                    name.start,
                    "ts, because windows over a link always use ts",
                )
            if self._links is None and (found is None or found.name not in known):
                if found is None:
                    raise self._names.unknown_column_error(name, table, ())
                raise self._error(f"a window over {found.name}", name.start, one_of_times(known))
            self.time = found or TS
        elif self._links is None and self._window.kind != WHOLE_INPUT:
            if self._names.time is None or self._names.time.name not in known:
                raise self._error("a window without the name of a time column", self._start, one_of_times(known))
            self.time = self._names.time
        elif self._links is None:
            self._find_times_in_group_by(resolve_in_group_by)

    def _find_times_in_group_by(self, resolve_in_group_by: NameResolver) -> None:
        """Find the time columns in GROUP BY. If only one is divided into intervals, these are the windows."""
        smallest_intervals: dict[Column, int] = {}
        interval_count = 0
        for item in self._query.group_by:
            expression = Binder(self._sql, "GROUP BY", item.expression, resolve_in_group_by).bind()
            for column in self._times:
                interval = interval_of(expression, column)
                if interval is not None:
                    smallest_intervals[column] = min(smallest_intervals.get(column, interval), interval)
                    interval_count += 1
        if interval_count == 1 and 1 not in smallest_intervals.values():
            self.quotient_makes_windows = True
            (self.time,) = smallest_intervals
        self.smallest_intervals = smallest_intervals

    @property
    def _start(self) -> int:
        """Position of the window clause, or of SELECT."""
        return self._query.keyword.start if self._query.window is None else self._query.window.start

    def _error(self, problem: str, start: int, expected: str) -> QueryError:
        return QueryError(problem, self._sql, start, expected)


def lifetime_column(sql: str, names: Names, name: Name) -> Column:
    """Return a column of LIFETIME. Raises QueryError for a column that is not a time."""
    found = names.column(name.word, name.table)
    if found is None:
        raise names.unknown_column_error(name.word, name.table, ())
    if found.type is not Type.TIME:
        expected = "a column of times, for example LIFETIME start_ts TO end_ts"
        raise QueryError(f"LIFETIME of {found.name}, which is {found.type}", sql, name.word.start, expected)
    return found


def interval_of(expression: Expression, time: Column) -> int | None:
    """Return the interval in ns by which an expression divides a time column: 1 for the column itself.

    Return None for other expressions.
    """
    if expression == time:
        return 1
    quotient = window_of_quotient(expression, time)
    return None if quotient is None else quotient[0].range


def one_of_times(times: Sequence[str]) -> str:
    """Return the time columns, for messages."""
    if not times:
        return (
            "rows with a time: an inner query that selects ts, a table whose times contain no NULL, or a join"
            " other than FULL (its times may be NULL)"
        )
    return "WA " + " or WA ".join(times) + ": a column that has a time (ns) in each row"
