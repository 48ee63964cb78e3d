"""What one item of FROM gives: columns by name, the times among them, and the node of its rows.

Only columns that are asked for go up from links, and only rows that a condition keeps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from highlevel.aggregation import LINK, Output
from highlevel.plan.nodes import PANE, Apply, Leaf, Node, Progressing, Select, Union
from lowlevel.expressions.tree import Binary, Call, Column, Expression, IsNull, columns_of, computed_column
from lowlevel.expressions.types import Op, Type, same_values
from lowlevel.kinds import columns_of_kind
from lowlevel.plan import Key, LowLevelPlan
from queries.blocks import TS, Block
from queries.errors import QueryError
from queries.expression_text import expression_text
from queries.names import LinkNames
from queries.streams import Links
from queries.tokens import Token


@dataclass(frozen=True)
class Placed:
    """A node, and the columns of it by the names that the relation has for them."""

    node: Node
    names: Mapping[str, str]


class Relation(Protocol):
    """One item of FROM."""

    @property
    def times(self) -> tuple[str, ...]:
        """The columns that windows may be over, the first by default."""
        ...

    @property
    def shown(self) -> tuple[str, ...]:
        """The columns that `*` means."""
        ...

    def column(self, name: str) -> Column | None:
        """Find a column, without regard to case."""
        ...

    def place(self, needed: Iterable[str], time: str | None, where: Sequence[Expression]) -> Placed:
        """Return the rows that satisfy all of `where`, with the columns needed; promises are of `time`."""
        ...


@dataclass(frozen=True)
class LinkRelation:
    """Rows of links. `name` is the query's, `places` are the first uses of columns, for messages.

    `computed` is what the low level computes of bytes, which do not leave it, by the names that it leaves under.
    """

    sql: str
    name: str
    links: Links
    places: dict[str, Token] = field(default_factory=dict, compare=False)
    computed: dict[str, Expression] = field(default_factory=dict, compare=False)

    @property
    def times(self) -> tuple[str, ...]:
        """The ts."""
        return (TS,)

    @property
    def shown(self) -> tuple[str, ...]:
        """The columns that are listed, without payloads."""
        kind = columns_of_kind(self.links.source.kind)
        found = (kind.column(name, self.links.layer) for name in kind.shown)
        return tuple(dict.fromkeys(each.name for each in found if each is not None and each.type is not Type.BYTES))

    def column(self, name: str) -> Column | None:
        """Find a column of the kind under the layer."""
        return columns_of_kind(self.links.source.kind).column(name, self.links.layer)

    def place(self, needed: Iterable[str], time: str | None, where: Sequence[Expression]) -> Placed:
        """Return a leaf of single rows."""
        keys = []
        for name in sorted(set(needed) - {TS, LINK}):
            column = self.computed.get(name) or columns_of_kind(self.links.source.kind).column(name)
            assert column is not None, name
            if column.type is Type.BYTES:
                at = self.places[name].start if name in self.places else 0
                expected = "a condition of this stream alone: bytes do not leave the low level"
                raise QueryError(f"{name} above the low level", self.sql, at, expected)
            keys.append(Key(name, column))
        source = self.links.source
        sampling = self.links.sampling if source.kind == "flows" else None
        low = LowLevelPlan(conjunction(where), tuple(keys), (), 1, 0, source.kind, False, sampling, reduced=False)
        names = {TS: PANE, LINK: LINK} | {key.name: key.name for key in keys}
        return Placed(Leaf(self.name, source.streams, low, self.links.layer), names)

    def computing(self, expression: Expression) -> Expression:
        """Return an expression in which functions of bytes are columns that the low level computes."""
        if isinstance(expression, Call) and expression.operand.type is Type.BYTES:
            name = expression_text(expression)
            self.computed[name] = expression
            return computed_column(name, expression)
        if isinstance(expression, IsNull) and expression.operand.type is Type.BYTES:
            name = expression_text(expression)
            self.computed[name] = expression
            return Column(name, Type.BOOL)
        children: dict[str, Any] = {}
        for part in expression.__dataclass_fields__:
            child = getattr(expression, part)
            if isinstance(child, Expression):
                children[part] = self.computing(child)
        return replace(expression, **children) if children else expression

    def names(self, alias: str | None) -> LinkNames:
        """Return what names mean where nothing else is read."""
        return LinkNames(self.sql, self.links.source, self.links.layer, alias)


@dataclass(frozen=True)
class BlockRelation:
    """Rows of another query."""

    block: Block

    @property
    def times(self) -> tuple[str, ...]:
        """Those of the query."""
        return self.block.times

    @property
    def shown(self) -> tuple[str, ...]:
        """Its columns."""
        return tuple(column.name for column in self.block.columns)

    def column(self, name: str) -> Column | None:
        """Find a column of its results."""
        return self.block.by_name.get(name.lower())

    def place(self, needed: Iterable[str], time: str | None, where: Sequence[Expression]) -> Placed:
        """Return all its columns, so that whoever else reads it by this time reads the same node."""
        node, condition = self.block.node(time), conjunction(where)
        node = node if condition is None else Select(node, condition)
        return Placed(node, {column.name: column.name for column in self.block.columns})


@dataclass(frozen=True)
class UnionRelation:
    """Rows of several relations with the same columns, which are those of the first query among them."""

    parts: tuple[Relation, ...]
    columns: tuple[Column, ...]
    common_times: tuple[str, ...]

    @property
    def times(self) -> tuple[str, ...]:
        """Those that are times of every part."""
        return self.common_times

    @property
    def shown(self) -> tuple[str, ...]:
        """The columns of all."""
        return tuple(column.name for column in self.columns)

    def column(self, name: str) -> Column | None:
        """Find a column."""
        return next((column for column in self.columns if column.name.lower() == name.lower()), None)

    def place(self, needed: Iterable[str], time: str | None, where: Sequence[Expression]) -> Placed:
        """Return a union of the parts, each brought to the same columns in the same order."""
        time = time or next(iter(self.common_times), None)
        nodes: list[Node] = []
        for part in self.parts:
            own = {column.name: found for column in self.columns if (found := part.column(column.name)) is not None}
            names = {name: column.name for name, column in own.items()}
            placed = part.place(names.values(), names.get(time or ""), [renamed(each, names) for each in where])
            outputs = tuple(
                Output(column.name, replace(column, name=placed.names[names[column.name]])) for column in self.columns
            )
            progressing = () if time is None else (Progressing(time, placed.names[names[time]]),)
            nodes.append(Apply(placed.node, outputs, progressing))
        return Placed(Union(tuple(nodes)), {column.name: column.name for column in self.columns})


def union_of(sql: str, parts: Sequence[Relation], places: Sequence[Token]) -> UnionRelation:
    """Return the union of relations, one a query at least; QueryError where one lacks a column of the others."""
    model = next(part for part in parts if not isinstance(part, LinkRelation))
    columns = []
    for name in model.shown:
        found = [part.column(name) for part in parts]
        for column, place in zip(found, places, strict=True):
            first = found[0]
            if column is None or first is None or not same_values(column.type, first.type):
                problem = f"a union with {place.shown}, which has no column '{name}'"
                if column is not None and first is not None:
                    problem = f"a union where '{name}' is {column.type} and {first.type}"
                raise QueryError(problem, sql, place.start, "the same columns in all that is united")
        known = [column for column in found if column is not None]
        kind = known[0].type if all(column.type is known[0].type for column in known) else Type.INT
        nullable = any(column.nullable for column in known)
        columns.append(Column(name, kind, nullable))
    known_times = [{time.lower() for time in part.times} for part in parts]
    times = [name for name in model.times if all(name.lower() in each for each in known_times)]
    return UnionRelation(tuple(parts), tuple(columns), tuple(times))


def conjunction(conditions: Sequence[Expression]) -> Expression | None:
    """Return all conditions joined by AND; None of none."""
    whole: Expression | None = None
    for each in conditions:
        whole = each if whole is None else Binary(Op.AND, whole, each)
    return whole


def renamed(expression: Expression, names: Mapping[str, str]) -> Expression:
    """Return an expression over other names; columns without one keep theirs."""
    if isinstance(expression, Column):
        return replace(expression, name=names.get(expression.name, expression.name))
    children: dict[str, Any] = {}
    for name in expression.__dataclass_fields__:
        child = getattr(expression, name)
        if isinstance(child, Expression):
            children[name] = renamed(child, names)
    return replace(expression, **children) if children else expression


def names_in(expressions: Iterable[Expression]) -> set[str]:
    """Return the names of all columns of expressions."""
    return {column.name for expression in expressions for column in columns_of(expression)}
