"""The names of a query: the columns of its rows, and the meaning of a name in each clause.

    clause                            a name means the first of
    WHERE, arguments of aggregates    column of the rows
    GROUP BY                          column of the rows, name given in SELECT
    SELECT                            column of the rows, name given in GROUP BY
    HAVING                            column grouped by, name given in GROUP BY, name of the select list

Papers write `length` for `len`, and Gigascope `time` for the seconds of `ts`. They also write `flag = SYN_ACK`: `flag`
are the six lowest bits of `tcp_flags` (RFC 9293, §3.1), without those of congestion control (ECE and CWR, RFC 3168), so
that a SYN which offers ECN is a SYN. In SELECT and HAVING `window_start` and `window_end` are the bounds of a window.

A stream may precede a name, or the layer it is of: `outer.` or `inner.`. Names are compared without regard to case. A
double-quoted text that names nothing is a string, as papers print them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from difflib import get_close_matches
from typing import Protocol

from capture.packets.fields import INNER
from capture.units import SECOND
from highlevel.aggregation import BOUNDS
from lowlevel.expressions.tree import Binary, Column, Expression, Literal
from lowlevel.expressions.types import Op, Type
from lowlevel.kinds import OUTER, columns_of_kind
from lowlevel.layers import Layer
from queries.binding.links import PACKETS, From
from queries.text.errors import QueryError
from queries.text.tree import Word

FIN, SYN, RST, PSH, ACK, URG = 1, 2, 4, 8, 16, 32
SIX_FLAGS = 63

FLAG_SETS: dict[str, int] = {
    "FIN": FIN,
    "SYN": SYN,
    "RST": RST,
    "PSH": PSH,
    "ACK": ACK,
    "URG": URG,
    "SYN_ACK": SYN | ACK,
    "FIN_ACK": FIN | ACK,
    "RST_ACK": RST | ACK,
    "PSH_ACK": PSH | ACK,
    "FIN_PSH_ACK": FIN | PSH | ACK,
}
"""Names of sets of flags: constants of queries, unless a column has the name."""

FLAG = "flag"

SYNONYMS = {"length": "len", "time": "ts", FLAG: "tcp_flags"}
"""Columns by the names that papers and Gigascope have for them."""


class Names(Protocol):
    """The columns of what a query reads."""

    @property
    def time(self) -> Column | None:
        """The time that is meant where none is named; None where rows have none, or several."""
        ...

    def column(self, name: Word, stream: Word | None) -> Column | None:
        """Return the column that a name means, None for none. QueryError for a stream that is not read."""
        ...

    def unknown(self, name: Word, stream: Word | None, others: tuple[str, ...]) -> QueryError:
        """Return the error for a name that means nothing; `others` are names that are valid at its place too."""
        ...

    def shown(self, name: str) -> str | None:
        """Name of a column as results have it; None for what is no column."""
        ...


class LinkNames:
    """The columns of one kind of rows, under the layer that plain names mean."""

    def __init__(self, sql: str, source: From, layer: str, alias: str | None = None) -> None:
        """`alias` is the name that FROM gives to all streams together."""
        self._sql = sql
        self._source = source
        self._layer = layer
        self._alias = alias
        self._kind = columns_of_kind(source.kind)

    @property
    def time(self) -> Column | None:
        """Every row of a link has a ts."""
        return self._kind.column("ts", Layer.OUTER)

    def column(self, name: Word, stream: Word | None) -> Column | None:
        """Return the column of the rows that a name means, whatever the clause."""
        if stream is None:
            return self._kind.column(name.text, self._layer)
        if self._kind.layered and stream.text.lower() in list(Layer):
            return self._kind.column(f"{stream.text}.{name.text}")
        known = [each.lower() for each in self._source.streams]
        own = self._alias is not None and stream.text.lower() == self._alias.lower()
        if not own and known != [stream.text.lower()] and stream.text.lower() != self._source.kind:
            expected = f"the column alone: {' UNION '.join(self._source.shown)} have the same columns"
            layers = tuple(Layer) if self._kind.layered else ()
            choices = (*(self._source.streams if self._alias is None else (self._alias,)), *layers)
            raise QueryError(
                f"got a column of '{stream.text}'", self._sql, stream.start, expected, choices, stream.text
            )
        return self._kind.column(name.text, self._layer)

    def unknown(self, name: Word, stream: Word | None, others: tuple[str, ...]) -> QueryError:
        """List the columns, and hidden ones that are like the name."""
        whole = f"{stream.text}.{name.text}" if stream and stream.text.lower() in list(Layer) else name.text
        problem = f"unknown column '{whole}'" + (f" of {self._kind.name}" if self._kind.name != PACKETS else "")
        near = get_close_matches(whole.lower(), [each.lower() for each in self._kind.hidden()], n=3, cutoff=0.8)
        hidden = [column.name for each in near if (column := self._kind.column(each))]
        expected = "one of the valid names" + (", or an IPFIX element's name" if self._kind.name == "flows" else "")
        return QueryError(problem, self._sql, name.start, expected, (*others, *self._kind.shown, *hidden), whole)

    def shown(self, name: str) -> str | None:
        """Name of a column of the rows as a query spells it under this layer; None for any other name."""
        found = self._kind.find(name)
        if found is None or self._layer == Layer.OUTER or not self._kind.layered:
            return None if found is None else found.name
        if found.name.startswith(INNER):
            return found.name.removeprefix(INNER)
        return OUTER + found.name if self._kind.find(INNER + found.name) else found.name


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

    def in_row(self, name: Word, stream: Word | None) -> Expression | None:
        """Resolve a name in WHERE and in the arguments of aggregates."""
        return self._found(self.column(name, stream), name, stream, ())

    def in_group_by(self, name: Word, stream: Word | None) -> Expression | None:
        """Resolve a name in GROUP BY."""
        column = self.column(name, stream)
        if column is None and stream is None and name.text.lower() in self.given_in_select:
            return self.given_in_select[name.text.lower()]()
        return self._found(column, name, stream, tuple(self.given_in_select))

    def in_select(self, name: Word, stream: Word | None) -> Expression | None:
        """Resolve a name in SELECT."""
        column = self.column(name, stream)
        if column is None and stream is None and name.text.lower() in self.given_in_group_by:
            return self.given_in_group_by[name.text.lower()]
        return self._bound(name, stream) or self._found(column, name, stream, tuple(self.given_in_group_by))

    def in_having(self, name: Word, stream: Word | None) -> Expression | None:
        """Resolve a name in HAVING; a column not grouped by is found last, to be refused with the reason."""
        column = self.column(name, stream)
        if stream is None and column not in self.groups:
            for names in (self.given_in_group_by, self.selected):
                if name.text.lower() in names:
                    return names[name.text.lower()]
        return self._bound(name, stream) or self._found(column, name, stream, (*self.given_in_group_by, *self.selected))

    def column(self, name: Word, stream: Word | None) -> Column | None:
        """Return the column of the rows that a name means, whatever the clause."""
        return self._names.column(name, stream)

    def _bound(self, name: Word, stream: Word | None) -> Column | None:
        """Return the bound of a window that a name means."""
        if self.bound_type is None or stream is not None or name.text.lower() not in BOUNDS:
            return None
        return Column(name.text.lower(), self.bound_type)

    def _synonym(self, name: Word, stream: Word | None) -> Expression | None:
        """Return what a name means that papers and Gigascope have and the rows have not."""
        if name.text.lower() not in SYNONYMS:
            return None
        column = self.column(replace(name, text=SYNONYMS[name.text.lower()]), stream)
        if column is None or name.text.lower() == "length":
            return column
        if name.text.lower() == FLAG:
            return Binary(Op.BIT_AND, column, Literal(SIX_FLAGS, Type.INT))
        return Binary(Op.DIV, column, Literal(SECOND, Type.INT))

    def _found(
        self, column: Column | None, name: Word, stream: Word | None, names: tuple[str, ...]
    ) -> Expression | None:
        synonym = self._synonym(name, stream) if column is None else None
        if synonym is not None or column is not None or (name.quoted and stream is None):
            return synonym or column
        if stream is None and name.text.upper() in FLAG_SETS:
            return Literal(FLAG_SETS[name.text.upper()], Type.INT)
        raise self._names.unknown(name, stream, names)
