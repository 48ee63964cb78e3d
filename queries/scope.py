"""What a name means in each clause.

    clause                        a name means the first of
    WHERE, arguments of aggregates    column of the packets
    GROUP BY                      column of the packets, name given in SELECT
    SELECT                        column of the packets, name given in GROUP BY
    HAVING                        column grouped by, name given in GROUP BY, name of the select list

Names are compared without regard to case. A double-quoted text that names nothing is a string, as papers print them.
"""

from __future__ import annotations

from collections.abc import Callable

from capture.packets.columns import COLUMNS
from lowlevel.expressions import Column, Expression, Type
from queries.errors import QueryError
from queries.tokens import Kind, Token

_BY_KEY = {name.lower(): spec for name, spec in COLUMNS.items()}


class Scope:
    """Resolves names while one query is compiled; the compiler fills the maps, whose keys are names in lower case."""

    def __init__(self, sql: str, streams: tuple[str, ...]) -> None:
        self._sql = sql
        self._streams = streams
        self.given_in_select: dict[str, Callable[[], Expression]] = {}
        """Names behind AS in SELECT, each with the way to bind its item over the packets."""
        self.given_in_group_by: dict[str, Expression] = {}
        self.groups: dict[Expression, Column] = {}
        """Grouping expressions over the packets, each with the column of the partials that holds it."""
        self.selected: dict[str, Expression] = {}
        """The select list by the names of its columns, aggregates as their stand-ins."""

    def in_packet(self, name: Token, stream: Token | None) -> Expression | None:
        """Resolve a name in WHERE and in the arguments of aggregates."""
        return self._found(self.column(name, stream), name, stream, ())

    def in_group_by(self, name: Token, stream: Token | None) -> Expression | None:
        """Resolve a name in GROUP BY."""
        column = self.column(name, stream)
        if column is None and stream is None and name.text.lower() in self.given_in_select:
            return self.given_in_select[name.text.lower()]()
        return self._found(column, name, stream, tuple(self.given_in_select))

    def in_select(self, name: Token, stream: Token | None) -> Expression | None:
        """Resolve a name in SELECT."""
        column = self.column(name, stream)
        if column is None and stream is None and name.text.lower() in self.given_in_group_by:
            return self.given_in_group_by[name.text.lower()]
        return self._found(column, name, stream, tuple(self.given_in_group_by))

    def in_having(self, name: Token, stream: Token | None) -> Expression | None:
        """Resolve a name in HAVING; a column not grouped by is found last, to be refused with the reason."""
        column = self.column(name, stream)
        if stream is None and column not in self.groups:
            for names in (self.given_in_group_by, self.selected):
                if name.text.lower() in names:
                    return names[name.text.lower()]
        return self._found(column, name, stream, (*self.given_in_group_by, *self.selected))

    def column(self, name: Token, stream: Token | None) -> Column | None:
        """Return the column of the packets that a name means, whatever the clause."""
        if stream is not None and [name.lower() for name in self._streams] != [stream.text.lower()]:
            expected = f"the column alone: {' UNION '.join(self._streams)} have the same columns"
            raise QueryError(
                f"got a column of '{stream.text}'", self._sql, stream.start, expected, self._streams, stream.text
            )
        spec = _BY_KEY.get(name.text.lower())
        return Column(spec.name, Type(spec.type), spec.nullable, spec.bits or 64) if spec else None

    def _found(self, column: Column | None, name: Token, stream: Token | None, names: tuple[str, ...]) -> Column | None:
        if column is not None or (name.kind is Kind.QUOTED and stream is None):
            return column
        problem = f"unknown column '{name.text}'"
        raise QueryError(problem, self._sql, name.start, "one of the valid names", (*names, *COLUMNS), name.text)
