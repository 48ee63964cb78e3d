"""Items of FROM. An item finds its columns by name, lists its time columns, and makes the plan node of its rows.

The low level returns only the needed columns, and only rows that satisfy the conditions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Protocol

from capture.lazy_dataclasses import dataclass
from highlevel.aggregation import LINK, Output
from highlevel.plan.nodes import PANE, Apply, Filter, Leaf, Node, TimeOutput, Union
from lowlevel.expressions.tree import (
    Binary,
    Call,
    Column,
    Expression,
    IsNull,
    UserCall,
    columns_of,
    computed_column,
    transform,
)
from lowlevel.expressions.types import Op, Type, same_values
from lowlevel.kinds import row_kind_of
from lowlevel.plan import Key, LowLevelPlan
from queries.binding.links import Links
from queries.binding.names import LinkNames
from queries.plans.subqueries import TS, ReadableQuery
from queries.text.errors import QueryError
from queries.text.printer import expression_text
from queries.text.tree import Word


@dataclass(frozen=True)
class RelationNode:
    """A node, and for each column of the relation its name in the node."""

    node: Node
    names: Mapping[str, str]


class Relation(Protocol):
    """One item of FROM."""

    @property
    def times(self) -> tuple[str, ...]:
        """The time columns for windows; the first is the default."""
        ...

    @property
    def visible_names(self) -> tuple[str, ...]:
        """The columns that `*` means."""
        ...

    def column(self, name: str) -> Column | None:
        """Return a column by its case-insensitive name."""
        ...

    def make_node(self, needed: Iterable[str], time: str | None, where: Sequence[Expression]) -> RelationNode:
        """Return the node of the rows that satisfy all of `where`, with the needed columns.

        The node returns watermarks of the column `time`.
        """
        ...


@dataclass(frozen=True)
class LinkRelation:
    """Rows of links. `name`: the name of the query.

    `first_uses`: the first use of each column in the text, for messages.

    `computed`: expressions over bytes by their column names. The low level computes them, because it does not return
    bytes.
    """

    sql: str
    name: str
    links: Links
    first_uses: dict[str, Word] = field(default_factory=dict, compare=False)
    computed: dict[str, Expression] = field(default_factory=dict, compare=False)

    @property
    def times(self) -> tuple[str, ...]:
        """The column ts."""
        return (TS,)

    @property
    def visible_names(self) -> tuple[str, ...]:
        """The listed columns, without payloads."""
        kind = row_kind_of(self.links.source.kind)
        columns = (kind.column(name, self.links.layer) for name in kind.listed_names)
        return tuple(
            dict.fromkeys(column.name for column in columns if column is not None and column.type is not Type.BYTES)
        )

    def column(self, name: str) -> Column | None:
        """Return a column of this kind of rows and layer."""
        return row_kind_of(self.links.source.kind).column(name, self.links.layer)

    def make_node(self, needed: Iterable[str], time: str | None, where: Sequence[Expression]) -> RelationNode:
        """Return a leaf that returns single rows."""
        keys = []
        for name in sorted(set(needed) - {TS, LINK}):
            column = self.computed.get(name) or row_kind_of(self.links.source.kind).column(name)
            assert column is not None, name
            if column.type is Type.BYTES:
                at = self.first_uses[name].start if name in self.first_uses else 0
                expected = "a condition on one stream only, because the low level does not return bytes"
                raise QueryError(f"{name} outside of a condition on one stream", self.sql, at, expected)
            keys.append(Key(name, column))
        source = self.links.source
        sampling = self.links.sampling if source.kind == "flows" else None
        low = LowLevelPlan(conjunction(where), tuple(keys), (), 1, 0, source.kind, False, sampling, reduced=False)
        names = {TS: PANE, LINK: LINK} | {key.name: key.name for key in keys}
        return RelationNode(Leaf(self.name, source.streams, low, self.links.layer), names)

    def move_byte_functions_down(self, expression: Expression) -> Expression:
        """Replace functions of bytes in an expression by columns that the low level computes."""

        def replace_byte_function(part: Expression) -> Expression | None:
            if isinstance(part, UserCall):
                of_bytes = any(argument.type is Type.BYTES for argument in part.arguments)
            else:
                of_bytes = isinstance(part, Call | IsNull) and part.operand.type is Type.BYTES
            if not of_bytes:
                return None
            name = expression_text(part)
            self.computed[name] = part
            return Column(name, Type.BOOL) if isinstance(part, IsNull) else computed_column(name, part)

        return transform(expression, replace_byte_function)

    def names(self, alias: str | None) -> LinkNames:
        """Return the name resolution of a query that reads only this relation."""
        return LinkNames(self.sql, self.links.source, self.links.layer, alias)


@dataclass(frozen=True)
class QueryRelation:
    """Rows of another query."""

    query: ReadableQuery

    @property
    def times(self) -> tuple[str, ...]:
        """The time columns of the query."""
        return self.query.times

    @property
    def visible_names(self) -> tuple[str, ...]:
        """The columns of the query."""
        return tuple(column.name for column in self.query.columns)

    def column(self, name: str) -> Column | None:
        """Return a column of the results."""
        return self.query.by_name.get(name.lower())

    def make_node(self, needed: Iterable[str], time: str | None, where: Sequence[Expression]) -> RelationNode:
        """Return a node with all columns, so that all queries that read this time column share it."""
        node, condition = self.query.node(time), conjunction(where)
        node = node if condition is None else Filter(node, condition)
        return RelationNode(node, {column.name: column.name for column in self.query.columns})


@dataclass(frozen=True)
class UnionRelation:
    """The union of relations with the same columns. The columns have the names and order of the first query."""

    parts: tuple[Relation, ...]
    columns: tuple[Column, ...]
    common_times: tuple[str, ...]

    @property
    def times(self) -> tuple[str, ...]:
        """The columns that are time columns in every part."""
        return self.common_times

    @property
    def visible_names(self) -> tuple[str, ...]:
        """The columns of the union."""
        return tuple(column.name for column in self.columns)

    def column(self, name: str) -> Column | None:
        """Find a column."""
        return next((column for column in self.columns if column.name.lower() == name.lower()), None)

    def make_node(self, needed: Iterable[str], time: str | None, where: Sequence[Expression]) -> RelationNode:
        """Return a union of the parts, converted to the same columns in the same order."""
        time = time or next(iter(self.common_times), None)
        nodes: list[Node] = []
        for part in self.parts:
            columns = {column.name: found for column in self.columns if (found := part.column(column.name)) is not None}
            names = {name: column.name for name, column in columns.items()}
            conditions = [rename_columns(condition, names) for condition in where]
            relation_node = part.make_node(names.values(), names.get(time or ""), conditions)
            of_node = {name: relation_node.names[of_part] for name, of_part in names.items()}
            outputs = tuple(Output(column.name, replace(column, name=of_node[column.name])) for column in self.columns)
            time_outputs = () if time is None else (TimeOutput(time, of_node[time]),)
            nodes.append(Apply(relation_node.node, outputs, time_outputs))
        return RelationNode(Union(tuple(nodes)), {column.name: column.name for column in self.columns})


def union_of(sql: str, parts: Sequence[Relation], words: Sequence[Word]) -> UnionRelation:
    """Return the union of relations, of which at least one is a query. Raises QueryError if one lacks a column."""
    model = next(part for part in parts if not isinstance(part, LinkRelation))
    columns = []
    for name in model.visible_names:
        found = [part.column(name) for part in parts]
        for column, word in zip(found, words, strict=True):
            first = found[0]
            if column is None or first is None or not same_values(column.type, first.type):
                problem = f"a union with {word.name_in_messages}, which has no column '{name}'"
                if column is not None and first is not None:
                    problem = f"a union where '{name}' is {column.type} and {first.type}"
                mixed = any(isinstance(part, LinkRelation) for part in parts)
                hint = "; around UNION both queries are in parentheses, or neither" if mixed else ""
                raise QueryError(problem, sql, word.start, f"the same columns in all parts of the union{hint}")
        known = [column for column in found if column is not None]
        kind = known[0].type if all(column.type is known[0].type for column in known) else Type.INT
        nullable = any(column.nullable for column in known)
        columns.append(Column(name, kind, nullable))
    known_times = [{time.lower() for time in part.times} for part in parts]
    times = [name for name in model.times if all(name.lower() in known_time for known_time in known_times)]
    return UnionRelation(tuple(parts), tuple(columns), tuple(times))


def conjunction(conditions: Sequence[Expression]) -> Expression | None:
    """Return all conditions joined by AND; None without a condition."""
    whole: Expression | None = None
    for condition in conditions:
        whole = condition if whole is None else Binary(Op.AND, whole, condition)
    return whole


def rename_columns(expression: Expression, names: Mapping[str, str]) -> Expression:
    """Rename the columns of an expression. Columns that are not in `names` keep their names."""

    def rename(part: Expression) -> Expression | None:
        return replace(part, name=names.get(part.name, part.name)) if isinstance(part, Column) else None

    return transform(expression, rename)


def names_in(expressions: Iterable[Expression]) -> set[str]:
    """Return the names of all columns in expressions."""
    return {column.name for expression in expressions for column in columns_of(expression)}


SUB_QUERY = "sub-query "
"""Prefix of the names of tables that replace correlated sub-queries. Messages omit these tables."""


@dataclass(frozen=True)
class NamedTable:
    """A relation and its name in this query. `nullable`: results can lack its row, as in outer joins.

    `time`: the time column of its join window, the only one for which the join has watermarks.
    """

    name: str
    relation: Relation
    nullable: bool = False
    time: str | None = None

    @property
    def times(self) -> tuple[str, ...]:
        """The time columns that can have watermarks."""
        return self.relation.times if self.time is None else (self.time,)


class TableNames:
    """The columns of tables. Their names are `table.column` with `qualify` (for joins), otherwise `column`."""

    def __init__(
        self, sql: str, tables: Sequence[NamedTable], *, qualify: bool, semi_join_tables: Sequence[str] = ()
    ) -> None:
        """`tables` must have different names.

        `semi_join_tables`: tables of SEMI and ANTI joins, whose columns are not in results.
        """
        self._sql = sql
        self._qualify = qualify
        self.tables = tables
        self._semi_join_tables = {name.lower() for name in semi_join_tables}
        self.first_uses: dict[str, Word] = {}
        """The first use of each column."""

    def qualified(self, table: NamedTable, name: str) -> str:
        """Return the name of a column of a table."""
        return f"{table.name}.{name}" if self._qualify else name

    @property
    def times(self) -> list[Column]:
        """The time columns that are never NULL and can have watermarks."""
        return [
            found
            for table in self.tables
            if not table.nullable
            for name in table.times
            if (found := self._column_of(table, name)) is not None
        ]

    @property
    def times_without_watermark(self) -> list[Column]:
        """The time columns that can be NULL, or that no join window uses."""
        found = (self._column_of(table, name) for table in self.tables for name in table.relation.times)
        return [column for column in found if column is not None and column not in self.times]

    @property
    def time(self) -> Column | None:
        """The time column of the only table that has one."""
        timed = [table for table in self.tables if table.relation.times]
        if len(timed) != 1 or timed[0].nullable:
            return None
        return self._column_of(timed[0], timed[0].times[0])

    @property
    def star_columns(self) -> Iterator[tuple[str, Column]]:
        """The columns that `*` means, each with its name."""
        for table in self.tables:
            for name in table.relation.visible_names:
                column = self._column_of(table, name)
                assert column is not None
                yield (column.name if len(self.tables) > 1 else name), column

    def column(self, name: Word, stream: Word | None) -> Column | None:
        """Return the column of a name. Raises QueryError for an unknown table, and for a name in two tables."""
        if stream is not None:
            table = self._table(stream)
            if table is None:
                layered = next((self._column_of(each, f"{stream.text}.{name.text}") for each in self.tables), None)
                if len(self.tables) == 1 and layered is not None:
                    return self._record_use(layered, name)
                table = self.table(stream)
            return self._record_use(self._column_of(table, name.text), name)
        candidates = [
            (table, column) for table in self.tables if (column := self._column_of(table, name.text)) is not None
        ]
        if len(candidates) > 1:
            whose = " and ".join(table.name for table, _ in candidates)
            which = " or ".join(f"{table.name}.{name.text}" for table, _ in candidates)
            raise QueryError(f"'{name.text}' is a column of {whose}", self._sql, name.start, which)
        return self._record_use(candidates[0][1], name) if candidates else None

    @property
    def _shown_tables(self) -> list[NamedTable]:
        """The tables that messages list."""
        return [table for table in self.tables if not table.name.startswith(SUB_QUERY)]

    def table(self, stream: Word) -> NamedTable:
        """Return a table by its name. Raises QueryError for an unknown name."""
        table = self._table(stream)
        if table is not None:
            return table
        expected = "the name of a table in FROM"
        if stream.text.lower() in self._semi_join_tables:
            expected += " whose columns are results; a SEMI or ANTI join has no columns of its right side"
        choices = [each.name for each in self._shown_tables]
        problem = f"got a column of '{stream.text}'"
        raise QueryError(problem, self._sql, stream.start, expected, choices, stream.text)

    def unknown_column_error(self, name: Word, stream: Word | None, others: tuple[str, ...]) -> QueryError:
        """Return an error that lists the columns of the table `stream`, or of all tables if it is None."""
        named = self._table(stream) if stream is not None else None
        tables = [named] if named is not None else self._shown_tables
        names = [column for table in tables for column in table.relation.visible_names]
        whose = " and ".join(table.name for table in tables)
        problem = f"unknown column '{name.text}'" + (f" of {whose}" if whose else "")
        return QueryError(problem, self._sql, name.start, "one of the valid names", (*others, *names), name.text)

    def result_name(self, name: str) -> str | None:
        """Return the name of a column without its table; None for other names."""
        for table in self.tables:
            plain_name = self._plain_name(table, name)
            if self.qualified(table, plain_name) == name and table.relation.column(plain_name) is not None:
                plain = (
                    table.relation.names(None).result_name(plain_name)
                    if isinstance(table.relation, LinkRelation)
                    else plain_name
                )
                return plain or plain_name
        return None

    def _plain_name(self, table: NamedTable, name: str) -> str:
        return name.removeprefix(f"{table.name}.") if self._qualify else name

    def _table(self, stream: Word) -> NamedTable | None:
        return next((table for table in self.tables if table.name.lower() == stream.text.lower()), None)

    def _column_of(self, table: NamedTable, name: str) -> Column | None:
        column = table.relation.column(name)
        if column is None:
            return None
        return replace(column, name=self.qualified(table, column.name), nullable=column.nullable or table.nullable)

    def _record_use(self, column: Column | None, word: Word) -> Column | None:
        if column is not None:
            self.first_uses.setdefault(column.name, word)
        return column
