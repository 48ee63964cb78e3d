"""Where the names of a query lead: to columns of the rows of links, or of the tables that it reads."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Protocol

from capture.packets.fields import INNER
from lowlevel.expressions.tree import Column
from lowlevel.kinds import OUTER, columns_of_kind
from lowlevel.layers import Layer
from queries.errors import QueryError
from queries.streams import PACKETS, From
from queries.tokens import Token


class Names(Protocol):
    """The columns of what a query reads."""

    @property
    def time(self) -> Column | None:
        """The time that is meant where none is named; None where rows have none, or several."""
        ...

    def column(self, name: Token, stream: Token | None) -> Column | None:
        """Return the column that a name means, None for none. QueryError for a stream that is not read."""
        ...

    def unknown(self, name: Token, stream: Token | None, others: tuple[str, ...]) -> QueryError:
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

    def column(self, name: Token, stream: Token | None) -> Column | None:
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

    def unknown(self, name: Token, stream: Token | None, others: tuple[str, ...]) -> QueryError:
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
