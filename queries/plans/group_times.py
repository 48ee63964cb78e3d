"""Which column of time the windows of groups are over, and which columns of time are groups themselves.

over links      ts: a window clause, or ts/60 in GROUP BY
over tables     WA names one of their times, unless there is but one; of GROUP BY one time by intervals makes windows,
and others are groups, which leave once a promise covers them
"""

from __future__ import annotations

from collections.abc import Sequence

from highlevel.windows.kind import WHOLE_INPUT
from lowlevel.expressions.tree import Column, Expression
from queries.binder import Binder, Resolve
from queries.clauses import Clauses
from queries.errors import QueryError
from queries.everyday_windows import TS, window_of_quotient
from queries.grammar import ExpressionGrammar
from queries.names import Names
from queries.query_window import QueryWindow
from queries.streams import SPREADABLE, Links
from queries.tokens import Token


class GroupTimes:
    """Chooses them; over tables `times` are those that there are."""

    def __init__(
        self,
        clauses: Clauses,
        asked: QueryWindow,
        names: Names,
        links: Links | None,
        times: Sequence[Column],
    ) -> None:
        """`asked` is what the query says of its window."""
        self._clauses = clauses
        self._asked = asked
        self._sql = clauses.sql
        self._names = names
        self._links = links
        self._times = times
        self.time = TS
        """The column of time that windows are over."""
        self.by_quotient = links is not None
        """Whether a time by intervals in GROUP BY makes windows."""
        self.counted: dict[Column, int] = {}
        """Columns of time in GROUP BY by their finest interval, over tables."""

    def check(self) -> None:
        """Refuse windows that the rows cannot have."""
        spread = self._asked.clause.spread
        kind = "rows of other queries" if self._links is None else self._links.source.kind
        if spread is not None and kind != SPREADABLE:
            expected = f"it over {SPREADABLE}: a row of {kind} has one time, and is in the window of that"
            raise self._error(f"SPREAD over {kind}", spread, expected)
        if self._links is None and self._asked.clause.window.in_arrival_order:
            expected = "RANGE of time: rows of joins and of other queries come in no order"
            raise self._error("a window of numbers of rows over tables", self._clauses.window[0], expected)

    def choose(self, in_group_by: Resolve) -> None:
        """Find the column of time that the window is over."""
        attribute, known = self._asked.attribute, [column.name for column in self._times]
        if attribute is not None:
            table, name = attribute
            found = self._names.column(name, table)
            if self._links is not None and found != TS:
                raise self._error(f"a window over {name.shown}", name, "ts: windows are over it")
            if self._links is None and (found is None or found.name not in known):
                if found is None:
                    raise self._names.unknown(name, table, ())
                raise self._error(f"a window over {found.name}", name, one_of_times(known))
            self.time = found or TS
        elif self._links is None and self._asked.clause.window != WHOLE_INPUT:
            if self._names.time is None or self._names.time.name not in known:
                place = self._clauses.window[0] if self._clauses.window else self._clauses.select.keyword
                raise self._error("a window that names no column of time", place, one_of_times(known))
            self.time = self._names.time
        elif self._links is None:
            self._of_groups(in_group_by)

    def _of_groups(self, in_group_by: Resolve) -> None:
        """Look for columns of time in GROUP BY: one by intervals makes windows, others are groups themselves."""
        if self._asked.group_by is None:
            return
        counted: dict[Column, int] = {}
        found = 0
        for item in ExpressionGrammar(self._sql, self._asked.group_by).items():
            expression = Binder(self._sql, "GROUP BY", item, in_group_by).bind()
            for column in self._times:
                interval = interval_of(expression, column)
                if interval is not None:
                    counted[column] = min(counted.get(column, interval), interval)
                    found += 1
        if found == 1 and 1 not in counted.values():
            self.by_quotient = True
            (self.time,) = counted
        self.counted = counted

    def _error(self, problem: str, token: Token, expected: str) -> QueryError:
        return QueryError(problem, self._sql, token.start, expected)


def interval_of(expression: Expression, time: Column) -> int | None:
    """Return the interval, ns, that an expression counts a column of time by: 1 for the column; None for others."""
    if expression == time:
        return 1
    quotient = window_of_quotient(expression, time)
    return None if quotient is None else quotient[0].range


def one_of_times(times: Sequence[str]) -> str:
    """Say which columns of time there are."""
    if not times:
        return "rows with a time of their own: a query that is read selects ts, and a FULL join has none"
    return "WA " + " or WA ".join(times) + ": times of all rows, in ns"
