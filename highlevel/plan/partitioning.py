"""The partition keys of rows, and how each node type keeps, needs or changes them.

Rows with equal values of a key are in one partition. Each node type needs its input partitioned in some way: a join by
the sides' keys, an aggregation by the group. It also states the keys of its output rows, given the keys of its input.
`highlevel.plan.fragments` divides a plan at each edge without a usable key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from capture.lazy_dataclasses import dataclass
from highlevel.aggregation import LINK, Output
from highlevel.joins.spec import JoinKind, Port, Side
from highlevel.operators.window_operator import WINDOW_END, WINDOW_START
from highlevel.plan.lifetime_nodes import InstantRanks, JoinedSide, OverlapJoin
from highlevel.plan.nodes import Distinct, Join, Node, TimeGroups, Windowed
from lowlevel.expressions.tree import Binary, Column, Expression, Literal, columns_of, transform
from lowlevel.expressions.types import INTEGERS, Op, Type

PartitionKey = tuple[Expression, ...]
"""Expressions over the columns of a node, with names and types only. Rows with equal values are in one partition.
Without expressions all rows are in one partition. None instead of a key: any partitioning."""


class Partitioning(Protocol):
    """The partitioning of one node type."""

    @property
    def exact(self) -> bool:
        """True if inputs must be partitioned by exactly the required keys, False if some of the expressions suffice."""
        ...

    def required(self, node: Any, wanted: PartitionKey | None) -> Sequence[PartitionKey | None]:
        """Return the key that each input needs. `wanted`: the key that a reader of the node needs."""
        ...

    def provided(
        self, node: Any, inputs: Sequence[Sequence[PartitionKey]], wanted: PartitionKey | None
    ) -> Sequence[PartitionKey]:
        """Return the keys of the node's rows, given the keys of each input. The first is preferred."""
        ...


@dataclass(frozen=True)
class SameRows:
    """Rows of the inputs, unchanged: the keys that all inputs have."""

    exact: bool = False

    def required(self, node: Node, wanted: PartitionKey | None) -> Sequence[PartitionKey | None]:
        """Return the wanted key for each input."""
        return [wanted] * len(node.inputs)

    def provided(
        self, node: Node, inputs: Sequence[Sequence[PartitionKey]], wanted: PartitionKey | None
    ) -> Sequence[PartitionKey]:
        """Return the keys that all inputs have, or only the wanted key if it is among them."""
        first, *others = inputs
        common = tuple(key for key in first if all(key in keys for keys in others))
        return (wanted,) if others and wanted is not None and wanted in common else common


@dataclass(frozen=True)
class ByJoinKeys:
    """Two inputs that are matched by keys: both must be partitioned by exactly these keys."""

    exact: bool = True

    def required(self, node: Join, wanted: PartitionKey | None) -> Sequence[PartitionKey | None]:
        """Return the join keys of the left and right side."""
        return _keys_of_sides(node.spec.keys)

    def provided(
        self, node: Join, inputs: Sequence[Sequence[PartitionKey]], wanted: PartitionKey | None
    ) -> Sequence[PartitionKey]:
        """Return the keys of each side whose rows are never missing: a NULL key does not determine the partition."""
        spec = node.spec
        (left, right), keys = self.required(node, wanted), []
        if left is not None and spec.kind not in (JoinKind.RIGHT, JoinKind.FULL):
            keys.append(key_over_join(left, spec.left))
        if right is not None and spec.kind not in (JoinKind.LEFT, JoinKind.FULL) and not spec.kind.is_left_only:
            keys.append(key_over_join(right, spec.right))
        return tuple(key for key in keys if key is not None)


@dataclass(frozen=True)
class ByOverlapKeys:
    """Two inputs with lifetimes that are matched by keys: both must be partitioned by exactly these keys."""

    exact: bool = True

    def required(self, node: OverlapJoin, wanted: PartitionKey | None) -> Sequence[PartitionKey | None]:
        """Return the join keys of the left and right side."""
        return _keys_of_sides(node.keys)

    def provided(
        self, node: OverlapJoin, inputs: Sequence[Sequence[PartitionKey]], wanted: PartitionKey | None
    ) -> Sequence[PartitionKey]:
        """Return the keys of each side whose rows are never missing."""
        sides = zip(Port, _keys_of_sides(node.keys), node.sides, strict=True)
        keys = [
            key_over_join(key, side)
            for port, key, side in sides
            if not node.kind.keeps(Port(1 - port)) and not (node.kind.is_left_only and port is Port.RIGHT)
        ]
        return tuple(key for key in keys if key is not None)


def _keys_of_sides(keys: Sequence[tuple[Expression, Expression]]) -> list[PartitionKey]:
    return [
        plain_expressions(comparable(left, right) for left, right in keys),
        plain_expressions(comparable(right, left) for left, right in keys),
    ]


@dataclass(frozen=True)
class ByGroups:
    """Rows of one group must be in one partition."""

    exact: bool = False

    def required(self, node: Windowed | TimeGroups, wanted: PartitionKey | None) -> Sequence[PartitionKey | None]:
        """Return the groups as expressions over the input's columns."""
        return [tuple(self._names_by_key(node))]

    def provided(
        self, node: Windowed | TimeGroups, inputs: Sequence[Sequence[PartitionKey]], wanted: PartitionKey | None
    ) -> Sequence[PartitionKey]:
        """Return the keys of the input that are groups, if the select list contains them."""
        names = self._names_by_key(node)
        provided = []
        for key in inputs[0]:
            columns = tuple(Column(names[part], part.type) for part in key if part in names)
            outputs = key_over_outputs(columns, node.aggregation.select) if len(columns) == len(key) else None
            if outputs is not None:
                provided.append(outputs)
        return tuple(provided)

    def _names_by_key(self, node: Windowed | TimeGroups) -> dict[Expression, str]:
        """Return the expressions of the partition key, each with the name of its group."""
        aggregation = node.aggregation
        if isinstance(node, Windowed):
            names, of_partials = aggregation.partitioned_by, node.merges_partials
        else:  # selections compare groups of the same times
            times = tuple(name for _, _, name in node.times)
            names, of_partials = times if aggregation.selections else aggregation.group_by, False
        keys: dict[str, Expression] = {LINK: Column(LINK, Type.TEXT)}
        for key in aggregation.low.keys:
            (keys[key.name],) = plain_expressions(
                [Column(key.name, key.expression.type) if of_partials else key.expression]
            )
        return {keys[name]: name for name in names}


def is_sufficient(actual: PartitionKey, wanted: PartitionKey) -> bool:
    """Return True if rows with equal `wanted` are in one partition: they are equal in all expressions of `actual`."""
    return set(actual) <= set(wanted)


def key_over_outputs(key: PartitionKey, outputs: Sequence[Output]) -> PartitionKey | None:
    """Return a key over the outputs' names, or None if the outputs do not contain it."""
    names = dict(zip(plain_expressions(out.expression for out in outputs), outputs, strict=True))
    parts = [names.get(part) for part in key]
    if None in parts:
        return None
    return tuple(Column(out.name, out.expression.type) for out in parts if out is not None)


def key_over_join(key: PartitionKey, side: Side | JoinedSide) -> PartitionKey | None:
    """Return a key of a join's side over the join's columns, or None if the join does not return a column."""
    names = dict(side.columns)
    if any(column.name not in names for part in key for column in columns_of(part)):
        return None
    return tuple(
        substitute_columns(part, {column.name: Column(names[column.name], column.type) for column in columns_of(part)})
        for part in key
    )


def comparable(expression: Expression, other: Expression) -> Expression:
    """Return a join key with the type of the other side's key: an INT that is compared with a FLOAT becomes a FLOAT."""
    if expression.type in INTEGERS and other.type is Type.FLOAT:
        return Binary(Op.ADD, expression, Literal(0.0, Type.FLOAT))
    return expression


def plain_expressions(expressions: Iterable[Expression]) -> PartitionKey:
    """Return expressions whose columns have only a name and a type, so that equal expressions compare equal.

    >>> plain_expressions([Column("a", Type.INT, nullable=True)]) == plain_expressions([Column("a", Type.INT, bits=8)])
    True
    """
    return tuple(
        substitute_columns(
            expression, {column.name: Column(column.name, column.type) for column in columns_of(expression)}
        )
        for expression in expressions
    )


def substitute_columns(expression: Expression, by_name: Mapping[str, Expression]) -> Expression:
    """Return an expression whose columns are replaced by the expressions in `by_name`.

    >>> substitute_columns(Column("a", Type.INT), {"a": Column("b", Type.INT)}).name
    'b'
    """
    return transform(expression, lambda part: by_name[part.name] if isinstance(part, Column) else None)


@dataclass(frozen=True)
class ByDistinctKeys:
    """Rows that are compared by some columns."""

    exact: bool = False

    def required(self, node: Distinct, wanted: PartitionKey | None) -> Sequence[PartitionKey | None]:
        """Return the compared columns."""
        return [plain_expressions(column for column in node.columns if column.name in node.keys)]

    def provided(
        self, node: Distinct, inputs: Sequence[Sequence[PartitionKey]], wanted: PartitionKey | None
    ) -> Sequence[PartitionKey]:
        """Return the keys of the input."""
        return inputs[0]


@dataclass(frozen=True)
class ByRankPartition:
    """Rows that are ranked together: those with equal values of some columns, or all rows."""

    exact: bool = False

    def required(self, node: InstantRanks, wanted: PartitionKey | None) -> Sequence[PartitionKey | None]:
        """Return the columns of the ranks' partition."""
        return [plain_expressions(column for column in node.input.columns if column.name in node.ranks.partition)]

    def provided(
        self, node: InstantRanks, inputs: Sequence[Sequence[PartitionKey]], wanted: PartitionKey | None
    ) -> Sequence[PartitionKey]:
        """Return the keys of the input that consist of unchanged columns of the result."""
        names = {column.name for column in node.columns} - {WINDOW_START, WINDOW_END}
        return [key for key in inputs[0] if all(column.name in names for part in key for column in columns_of(part))]


@dataclass(frozen=True)
class InOnePartition:
    """All rows must be in one partition, because they are compared with each other."""

    exact: bool = False

    def required(self, node: Node, wanted: PartitionKey | None) -> Sequence[PartitionKey | None]:
        """Return the empty key."""
        return [()]

    def provided(
        self, node: Node, inputs: Sequence[Sequence[PartitionKey]], wanted: PartitionKey | None
    ) -> Sequence[PartitionKey]:
        """Return the empty key."""
        return [()]
