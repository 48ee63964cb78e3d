"""Names in a query: the columns of its rows, and the meaning of a name in each clause.

    clause                            a name means the first of
    WHERE, arguments of aggregates    column of the rows
    GROUP BY                          column of the rows, name given in SELECT
    SELECT                            column of the rows, name given in GROUP BY
    HAVING                            column grouped by, name given in GROUP BY, name of the select list

In papers `length` means `len`. In Gigascope `time` means the seconds of `ts`. Papers and Gigascope write `flag =
SYN_ACK`. `flag` is the six lowest bits of `tcp_flags` (RFC 9293, §3.1), without the two bits of explicit congestion
notification (ECE and CWR, RFC 3168). So a SYN with these two bits is also a SYN. In SELECT and HAVING `window_start`
and `window_end` are the bounds of a window.

A name may have a prefix: its stream, or its layer (`outer.` or `inner.`). Names are compared without regard to case. A
text in double quotes that is not a name is a string, because papers print strings in this way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from capture.packets.fields import INNER_PREFIX
from capture.units import SECOND
from highlevel.aggregation import BOUNDS
from lowlevel.expressions.tree import Binary, Column, Expression, Literal
from lowlevel.expressions.types import Op, Type
from lowlevel.kinds import OUTER, row_kind_of
from lowlevel.layers import Layer
from queries.binding.links import PACKETS, LinkUnion
from queries.text import dialects
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
"""TCP flags by name. In queries these names are constants, unless a column has the same name."""

FLAG = "flag"

SYNONYMS = {"length": "len", "time": "ts", FLAG: "tcp_flags"}
"""The columns that names in papers and in Gigascope mean."""


class Names(Protocol):
    """The columns of the rows that a query reads."""

    @property
    def time(self) -> Column | None:
        """The default time column. None if the rows have no time column or several."""
        ...

    def column(self, name: Word, stream: Word | None) -> Column | None:
        """Return the column with a name, or None. Raises QueryError for a stream that the query does not read."""
        ...

    def unknown_column_error(self, name: Word, stream: Word | None, others: tuple[str, ...]) -> QueryError:
        """Return the error for an unknown name. `others` are further valid names of the clause."""
        ...

    def result_name(self, name: str) -> str | None:
        """Return the name of a column in results; None if `name` is not a column."""
        ...


class LinkNames:
    """The columns of one kind of rows. Names without a layer mean `layer`."""

    def __init__(self, sql: str, source: LinkUnion, layer: str, alias: str | None = None) -> None:
        """`alias` is the name that AS in FROM gives to the union of the streams."""
        self._sql = sql
        self._source = source
        self._layer = layer
        self._alias = alias
        self._kind = row_kind_of(source.kind)

    @property
    def time(self) -> Column | None:
        """The column ts, because every row of a link has it."""
        return self._kind.column("ts", Layer.OUTER)

    def column(self, name: Word, stream: Word | None) -> Column | None:
        """Return the column of the rows with a name, or None."""
        if stream is None:
            return self._kind.column(name.text, self._layer)
        if self._kind.is_layered and stream.text.lower() in list(Layer):
            return self._kind.column(f"{stream.text}.{name.text}")
        known = [name.lower() for name in self._source.streams]
        is_alias = self._alias is not None and stream.text.lower() == self._alias.lower()
        if not is_alias and known != [stream.text.lower()] and stream.text.lower() != self._source.kind:
            expected = (
                f"the column without the stream: {' UNION '.join(self._source.stream_names)} have the same columns"
            )
            layers = tuple(Layer) if self._kind.is_layered else ()
            choices = (*(self._source.streams if self._alias is None else (self._alias,)), *layers)
            raise QueryError(
                f"got a column of '{stream.text}'", self._sql, stream.start, expected, choices, stream.text
            )
        return self._kind.column(name.text, self._layer)

    def unknown_column_error(self, name: Word, stream: Word | None, others: tuple[str, ...]) -> QueryError:
        """Return the error that lists the columns, including hidden columns with a similar name."""
        from difflib import get_close_matches

        whole = f"{stream.text}.{name.text}" if stream and stream.text.lower() in list(Layer) else name.text
        problem = f"unknown column '{whole}'" + (f" of {self._kind.name}" if self._kind.name != PACKETS else "")
        unlisted = [column.lower() for column in self._kind.unlisted_names()]
        similar = get_close_matches(whole.lower(), unlisted, n=3, cutoff=0.8)
        hidden = [column.name for match in similar if (column := self._kind.column(match))]
        expected = "one of the valid names" + (", or an IPFIX element's name" if self._kind.name == "flows" else "")
        flags = get_close_matches(whole.upper(), FLAG_SETS, cutoff=0.8) if self._kind.find("tcp_flags") else []
        choices = (*others, *self._kind.listed_names, *hidden, *flags)
        key = whole.lower()
        if key in dialects.CLOCKS:
            expected = dialects.FUNCTIONS[key]
        return QueryError(problem, self._sql, name.start, expected, choices, dialects.COLUMNS.get(key, whole))

    def result_name(self, name: str) -> str | None:
        """Return the name of a column as queries with this layer write it. Return None if `name` is not a column."""
        column = self._kind.find(name)
        if column is None or self._layer == Layer.OUTER or not self._kind.is_layered:
            return None if column is None else column.name
        if column.name.startswith(INNER_PREFIX):
            return column.name.removeprefix(INNER_PREFIX)
        return OUTER + column.name if self._kind.find(INNER_PREFIX + column.name) else column.name


class Scope:
    """Resolves the names of one query. The compiler fills the dictionaries, whose keys are names in lower case."""

    def __init__(self, names: Names) -> None:
        """`names` are the columns of the rows that the query reads."""
        self._names = names
        self.select_aliases: dict[str, Callable[[], Expression]] = {}
        """Names given by AS in SELECT, each with a function that binds its item over the rows."""
        self.group_by_aliases: dict[str, Expression] = {}
        self.groups: dict[Expression, Column] = {}
        """Expressions of GROUP BY over rows, each with its column in partials."""
        self.select_items: dict[str, Expression] = {}
        """The select list by the names of its columns, with placeholders for aggregates."""
        self.window_bound_type: Type | None = None
        """Type of the bounds of windows; None if the query has no window."""

    def resolve_in_row(self, name: Word, stream: Word | None) -> Expression | None:
        """Resolve a name in WHERE and in the arguments of aggregates."""
        return self._meaning(self.column(name, stream), name, stream, ())

    def resolve_in_group_by(self, name: Word, stream: Word | None) -> Expression | None:
        """Resolve a name in GROUP BY."""
        column = self.column(name, stream)
        if column is None and stream is None and name.text.lower() in self.select_aliases:
            return self.select_aliases[name.text.lower()]()
        return self._meaning(column, name, stream, tuple(self.select_aliases))

    def resolve_in_select(self, name: Word, stream: Word | None) -> Expression | None:
        """Resolve a name in SELECT."""
        column = self.column(name, stream)
        if column is None and stream is None and name.text.lower() in self.group_by_aliases:
            return self.group_by_aliases[name.text.lower()]
        return self._window_bound(name, stream) or self._meaning(column, name, stream, tuple(self.group_by_aliases))

    def resolve_in_having(self, name: Word, stream: Word | None) -> Expression | None:
        """Resolve a name in HAVING.

        A column that is not in GROUP BY is tried last, and the caller raises an error for it.
        """
        column = self.column(name, stream)
        if stream is None and column not in self.groups:
            for names in (self.group_by_aliases, self.select_items):
                if name.text.lower() in names:
                    return names[name.text.lower()]
        return self._window_bound(name, stream) or self._meaning(
            column, name, stream, (*self.group_by_aliases, *self.select_items)
        )

    def column(self, name: Word, stream: Word | None) -> Column | None:
        """Return the column of the rows with a name, or None."""
        return self._names.column(name, stream)

    def _window_bound(self, name: Word, stream: Word | None) -> Column | None:
        """Return the bound of a window with this name, or None."""
        if self.window_bound_type is None or stream is not None or name.text.lower() not in BOUNDS:
            return None
        return Column(name.text.lower(), self.window_bound_type)

    def _synonym(self, name: Word, stream: Word | None) -> Expression | None:
        """Return the meaning of a name in SYNONYMS that is not a column of the rows."""
        if name.text.lower() not in SYNONYMS:
            return None
        column = self.column(replace(name, text=SYNONYMS[name.text.lower()]), stream)
        if column is None or name.text.lower() == "length":
            return column
        if name.text.lower() == FLAG:
            return Binary(Op.BIT_AND, column, Literal(SIX_FLAGS, Type.INT))
        return Binary(Op.DIV, column, Literal(SECOND, Type.INT))

    def _meaning(
        self, column: Column | None, name: Word, stream: Word | None, names: tuple[str, ...]
    ) -> Expression | None:
        synonym = self._synonym(name, stream) if column is None else None
        if synonym is not None or column is not None or (name.quoted and stream is None):
            return synonym or column
        if stream is None and name.text.upper() in FLAG_SETS:
            return Literal(FLAG_SETS[name.text.upper()], Type.INT)
        raise self._names.unknown_column_error(name, stream, names)
