"""What a name means in each clause.

    clause                        a name means the first of
    WHERE, arguments of aggregates    column of the rows
    GROUP BY                      column of the rows, name given in SELECT
    SELECT                        column of the rows, name given in GROUP BY
    HAVING                        column grouped by, name given in GROUP BY, name of the select list

Papers say `length` for `len`, `flag` for `tcp_flags` and `SYN` for their value, and Gigascope `time` for the seconds of
`ts`. In SELECT and HAVING `window_start` and `window_end` are the bounds of a window.

Which columns there are is for `queries.names` to say. Before a name may stand its stream, or the layer it is of:
`outer.` or `inner.`. Names are compared without regard to case. A double-quoted text that names nothing is a string, as
papers print them.
"""

from __future__ import annotations

from collections.abc import Callable

from capture.units import SECOND
from highlevel.aggregation import BOUNDS
from lowlevel.expressions.tree import Binary, Column, Expression, Literal
from lowlevel.expressions.types import Op, Type
from queries.names import Names
from queries.tcp_flags import FLAG, flag_set, six_flags
from queries.tokens import Kind, Token

SYNONYMS = {"length": "len", "time": "ts", FLAG: "tcp_flags"}


class Scope:
    """Resolves names while one query is compiled; the compiler fills the maps, whose keys are names in lower case."""

    def __init__(self, names: Names) -> None:
        """`names` are the columns of what the query reads."""
        self._names = names
        self.given_in_select: dict[str, Callable[[], Expression]] = {}
        """Names behind AS in SELECT, each with the way to bind its item over the rows."""
        self.given_in_group_by: dict[str, Expression] = {}
        self.groups: dict[Expression, Column] = {}
        """Grouping expressions over the rows, each with the column of the partials that holds it."""
        self.selected: dict[str, Expression] = {}
        """The select list by the names of its columns, aggregates as their stand-ins."""
        self.bound_type: Type | None = None
        """Type of the bounds of windows; None if groups are not of windows."""

    def in_row(self, name: Token, stream: Token | None) -> Expression | None:
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
        return self._bound(name, stream) or self._found(column, name, stream, tuple(self.given_in_group_by))

    def in_having(self, name: Token, stream: Token | None) -> Expression | None:
        """Resolve a name in HAVING; a column not grouped by is found last, to be refused with the reason."""
        column = self.column(name, stream)
        if stream is None and column not in self.groups:
            for names in (self.given_in_group_by, self.selected):
                if name.text.lower() in names:
                    return names[name.text.lower()]
        return self._bound(name, stream) or self._found(column, name, stream, (*self.given_in_group_by, *self.selected))

    def column(self, name: Token, stream: Token | None) -> Column | None:
        """Return the column of the rows that a name means, whatever the clause."""
        return self._names.column(name, stream)

    def _bound(self, name: Token, stream: Token | None) -> Column | None:
        """Return the bound of a window that a name means."""
        if self.bound_type is None or stream is not None or name.text.lower() not in BOUNDS:
            return None
        return Column(name.text.lower(), self.bound_type)

    def _synonym(self, name: Token, stream: Token | None) -> Expression | None:
        """Return what a name means that papers and Gigascope have and the rows have not."""
        if name.text.lower() not in SYNONYMS:
            return None
        column = self.column(Token(name.kind, SYNONYMS[name.text.lower()], name.start, name.end), stream)
        if column is None or name.text.lower() == "length":
            return column
        return six_flags(column) if name.text.lower() == FLAG else Binary(Op.DIV, column, Literal(SECOND, Type.INT))

    def _found(
        self, column: Column | None, name: Token, stream: Token | None, names: tuple[str, ...]
    ) -> Expression | None:
        synonym = self._synonym(name, stream) if column is None else None
        if synonym is not None or column is not None or (name.kind is Kind.QUOTED and stream is None):
            return synonym or column
        constant = flag_set(name.text) if stream is None else None
        if constant is not None:
            return constant
        raise self._names.unknown(name, stream, names)
