"""What names mean in a query of several tables: `S.ts`, and `ts` where one table alone has it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from lowlevel.expressions.tree import Column
from queries.errors import QueryError
from queries.relations import LinkRelation, Relation
from queries.tokens import Token


@dataclass(frozen=True)
class NamedTable:
    """A relation and the name it has in this query; `nullable` where rows may lack it, as those of outer joins do.

    `time` is the one that it is joined by: joins promise nothing of its others.
    """

    name: str
    relation: Relation
    nullable: bool = False
    time: str | None = None

    @property
    def times(self) -> tuple[str, ...]:
        """The times that somebody may be promised."""
        return self.relation.times if self.time is None else (self.time,)


class TableNames:
    """The columns of tables, as `table.column` where they `qualify`, as those of joins do, else as they are."""

    def __init__(self, sql: str, tables: Sequence[NamedTable], *, qualify: bool, tested: Sequence[str] = ()) -> None:
        """`tables` are those that may be named, under different names; `tested` those that SEMI and ANTI joins ask."""
        self._sql = sql
        self._qualify = qualify
        self.tables = tables
        self._tested = {name.lower() for name in tested}
        self.places: dict[str, Token] = {}
        """The first use of each column."""

    def qualified(self, table: NamedTable, name: str) -> str:
        """Return what a column of a table is called."""
        return f"{table.name}.{name}" if self._qualify else name

    @property
    def times(self) -> list[Column]:
        """The times that every row has, and that promises may be of."""
        return [
            found
            for table in self.tables
            if not table.nullable
            for name in table.times
            if (found := self._of(table, name)) is not None
        ]

    @property
    def lacking(self) -> list[Column]:
        """The other times: those that rows of outer joins may lack, and those that an item is not joined by."""
        found = (self._of(table, name) for table in self.tables for name in table.relation.times)
        return [column for column in found if column is not None and column not in self.times]

    @property
    def time(self) -> Column | None:
        """The time of the one table, or of the one that has some."""
        timed = [table for table in self.tables if table.relation.times]
        if len(timed) != 1 or timed[0].nullable:
            return None
        return self._of(timed[0], timed[0].times[0])

    @property
    def all(self) -> Iterator[tuple[str, Column]]:
        """What `*` means: names of columns, each with the column."""
        for table in self.tables:
            for name in table.relation.shown:
                column = self._of(table, name)
                assert column is not None
                yield (column.name if len(self.tables) > 1 else name), column

    def column(self, name: Token, stream: Token | None) -> Column | None:
        """Return the column that a name means; QueryError for a table that is not read, and a name of two tables."""
        if stream is not None:
            table = self._table(stream)
            if table is None:
                layered = next((self._of(each, f"{stream.text}.{name.text}") for each in self.tables), None)
                if len(self.tables) == 1 and layered is not None:
                    return self._used(layered, name)
                expected = "the name of a table in FROM"
                if stream.text.lower() in self._tested:
                    expected += " that leaves the join; of the right of a SEMI or ANTI join no column does"
                choices = [each.name for each in self.tables]
                problem = f"got a column of '{stream.text}'"
                raise QueryError(problem, self._sql, stream.start, expected, choices, stream.text)
            return self._used(self._of(table, name.text), name)
        found = [(table, column) for table in self.tables if (column := self._of(table, name.text)) is not None]
        if len(found) > 1:
            whose = " and ".join(table.name for table, _ in found)
            which = " or ".join(f"{table.name}.{name.text}" for table, _ in found)
            raise QueryError(f"'{name.text}' is a column of {whose}", self._sql, name.start, which)
        return self._used(found[0][1], name) if found else None

    def unknown(self, name: Token, stream: Token | None, others: tuple[str, ...]) -> QueryError:
        """List the columns of the table that is named, or of all."""
        named = self._table(stream) if stream is not None else None
        tables = [named] if named is not None else list(self.tables)
        shown = [column for table in tables for column in table.relation.shown]
        whose = f" of {' and '.join(table.name for table in tables)}"
        problem = f"unknown column '{name.text}'{whose}"
        return QueryError(problem, self._sql, name.start, "one of the valid names", (*others, *shown), name.text)

    def shown(self, name: str) -> str | None:
        """Name of a column without its table; None for what is no column."""
        for table in self.tables:
            own = self._plain(table, name)
            if self.qualified(table, own) == name and table.relation.column(own) is not None:
                plain = table.relation.names(None).shown(own) if isinstance(table.relation, LinkRelation) else own
                return plain or own
        return None

    def _plain(self, table: NamedTable, name: str) -> str:
        return name.removeprefix(f"{table.name}.") if self._qualify else name

    def _table(self, stream: Token) -> NamedTable | None:
        return next((table for table in self.tables if table.name.lower() == stream.text.lower()), None)

    def _of(self, table: NamedTable, name: str) -> Column | None:
        column = table.relation.column(name)
        if column is None:
            return None
        return replace(column, name=self.qualified(table, column.name), nullable=column.nullable or table.nullable)

    def _used(self, column: Column | None, place: Token) -> Column | None:
        if column is not None:
            self.places.setdefault(column.name, place)
        return column
