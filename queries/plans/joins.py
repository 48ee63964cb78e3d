"""The joins in FROM: their windows, keys, conditions and nodes, one join after the other.

Rows match only if any two of them are within each other's windows. A join uses one time on each side. On the right this
is the time of its item. On the left this is the time of an item whose row is present in every result. The windows of
the other items become conditions.

As in SQL, a condition in ON determines which rows match, and a condition in WHERE filters results. For inner joins both
are equivalent. A condition is evaluated as early as possible, in this order of choices: on rows of one side before they
are stored, as a key of a join, for each pair, on the results of the join.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field, replace

import pyarrow as pa

from capture.lazy_dataclasses import dataclass
from highlevel.joins.spec import Band, Boundary, JoinKind, JoinSpec, Side, Tumbling, WatermarkForm
from highlevel.plan.nodes import Filter, Join, Node
from lowlevel.expressions.tree import Binary, Column, Expression, IsNull, Literal
from lowlevel.expressions.types import Op, Type
from lowlevel.plan import ARROW_TYPES
from queries.plans.conjuncts import conjuncts, equality_sides, implied_condition
from queries.plans.join_window import ItemWindow, bind_item_window
from queries.plans.relations import NamedTable, Relation, RelationNode, conjunction, names_in, rename_columns
from queries.plans.time_distances import narrow
from queries.text.errors import QueryError
from queries.text.tree import FromItem, Table

LEFT_KEEPING_JOINS = (JoinKind.INNER, JoinKind.LEFT, JoinKind.SEMI, JoinKind.ANTI)
"""Joins whose results always contain a row of the left side."""

RIGHT_KEEPING_JOINS = (JoinKind.INNER, JoinKind.RIGHT)
"""Joins whose results always contain a row of the right side."""

RIGHT_NARROWING_JOINS = (JoinKind.INNER, JoinKind.LEFT, JoinKind.SEMI, JoinKind.ANTI)
"""Joins that ignore rows of the right side without a match."""

LEFT_NARROWING_JOINS = (JoinKind.INNER, JoinKind.RIGHT, JoinKind.SEMI)
"""Joins that ignore rows of the left side without a match."""


@dataclass
class JoinStep:
    """An item and its join with the items before it; the first item has no join."""

    item: FromItem
    table: NamedTable
    window: ItemWindow
    time: str
    kind: JoinKind = JoinKind.INNER
    filters: list[Expression] = field(default_factory=list)
    """Conditions on rows of the item."""
    conditions: list[Expression] = field(default_factory=list)
    """Conditions on pairs."""
    result_conditions: list[Expression] = field(default_factory=list)
    """Conditions on results of the join."""

    def owns(self, name: str) -> bool:
        """Return whether `name` is a column of this item, written with the name of the item."""
        return name.startswith(f"{self.table.name}.") and self.table.relation.column(self.plain_name(name)) is not None

    def plain_name(self, name: str) -> str:
        """Return the name of a column of this item without the name of the item."""
        return name.removeprefix(f"{self.table.name}.")

    def own_names(self, names: Iterable[str]) -> set[str]:
        """Return the names that are columns of this item."""
        return {name for name in names if self.owns(name)}

    @property
    def time_column(self) -> Column:
        """The time column of the item, with its qualified name."""
        return Column(f"{self.table.name}.{self.time}", Type.TIME)


class JoinTree:
    """The items of one FROM and their conditions. `make_node` creates the nodes of the plan."""

    def __init__(self, sql: str, steps: Sequence[JoinStep]) -> None:
        """`steps` are the items with their windows. All conditions must be added before `make_node` is called."""
        self._sql = sql
        self.steps = list(steps)

    def where(self, condition: Expression) -> None:
        """Add the conditions of WHERE."""
        for conjunct in conjuncts(condition):
            self._push_down(conjunct, len(self.steps) - 1)

    def on(self, index: int, condition: Expression) -> None:
        """Add the conditions of ON, or of WHERE for a join in Gigascope's syntax."""
        for conjunct in conjuncts(condition):
            self._add_match_condition(conjunct, index)

    def _push_down(self, condition: Expression, index: int) -> None:
        """Add a filter on the join of the items up to `index`, at the earliest possible place in the tree."""
        step, names = self.steps[index], names_in([condition])
        if index == 0:
            step.filters.append(condition)
        elif not any(step.owns(name) for name in names) and step.kind in LEFT_KEEPING_JOINS:
            self._push_down(condition, index - 1)
        elif names and all(step.owns(name) for name in names) and step.kind in RIGHT_KEEPING_JOINS:
            step.filters.append(condition)
        elif step.kind is JoinKind.INNER:
            self._add_match_condition(condition, index)
        else:
            step.result_conditions.append(condition)

    def _add_match_condition(self, condition: Expression, index: int) -> None:
        """Add a condition on pairs, or a filter on one side if the join drops rows of this side without a match."""
        step, names = self.steps[index], names_in([condition])
        if names and all(step.owns(name) for name in names) and step.kind in RIGHT_NARROWING_JOINS:
            step.filters.append(condition)
            return
        if not any(step.owns(name) for name in names) and step.kind in LEFT_NARROWING_JOINS:
            self._push_down(condition, index - 1)
            return
        step.conditions.append(condition)
        implication = implied_condition(condition, step.own_names(names))
        if implication is not None and step.kind in RIGHT_NARROWING_JOINS:
            step.filters.append(implication)
        for earlier in self.steps[:index] if step.kind in LEFT_NARROWING_JOINS else []:
            implication = implied_condition(condition, earlier.own_names(names))
            if implication is not None:
                self._push_down(implication, index - 1)

    def make_node(self, needed: Iterable[str], times: Sequence[str]) -> Node:
        """Return the node of the last join, with the `needed` columns and watermarks for the one or two `times`."""
        columns = set(needed) | {step.time_column.name for step in self.steps}
        for step in self.steps:
            columns |= names_in([*step.conditions, *step.result_conditions])
        return self._join_node(len(self.steps) - 1, columns, list(times))

    def _join_node(self, index: int, columns: set[str], times: list[str]) -> Node:
        """Return the join of the items up to `index`."""
        step = self.steps[index]
        right_time = step.time_column.name
        left_times = [name for name in times if name != right_time]
        if index == 1:
            left_time = self.steps[0].time_column.name
        else:
            left_time = left_times[0] if left_times else self._default_time(index - 1)
        form = (
            WatermarkForm.JOINT
            if len(times) == 2
            else WatermarkForm.LEFT
            if left_times or not times
            else WatermarkForm.RIGHT
        )
        keys, residuals = self._split_conditions(index, left_time)
        window, residuals = self._window(index, left_time, residuals)
        key_columns = names_in(left for left, _ in keys)
        if index == 1:
            left, left_names = self._item_node(0, columns | key_columns)
        else:
            inner = self._join_node(index - 1, columns | key_columns, [left_time])
            left, left_names = inner, {column.name: column.name for column in inner.columns}
        right, right_names = self._item_node(index, columns | names_in(right_key for _, right_key in keys))
        spec = JoinSpec(
            _side(left, left_names, left_time, columns),
            _side(right, right_names, right_time, columns),
            window,
            tuple(
                (rename_columns(left_key, left_names), rename_columns(right_key, right_names))
                for left_key, right_key in keys
            ),
            conjunction(residuals),
            step.kind,
        )
        node: Node = Join(left, right, spec, form)
        condition = conjunction(step.result_conditions)
        return node if condition is None else Filter(node, condition)

    def _item_node(self, index: int, columns: set[str]) -> tuple[Node, dict[str, str]]:
        """Return the node of an item, and its columns by their qualified names."""
        step = self.steps[index]
        plain_names = {step.plain_name(name) for name in step.own_names(columns)} | {step.time}
        filters = [
            rename_columns(condition, {name: step.plain_name(name) for name in names_in([condition])})
            for condition in step.filters
        ]
        relation_node: RelationNode = step.table.relation.make_node(plain_names, step.time, filters)
        return relation_node.node, {f"{step.table.name}.{name}": column for name, column in relation_node.names.items()}

    def _split_conditions(
        self, index: int, left_time: str
    ) -> tuple[list[tuple[Expression, Expression]], list[Expression]]:
        """Divide the conditions on pairs into keys (equalities between both sides) and residual conditions.

        The windows of items whose time is not used as the time of the left side become residual conditions.
        """
        step = self.steps[index]
        keys: list[tuple[Expression, Expression]] = []
        residuals: list[Expression] = []
        for condition in step.conditions:
            names = names_in([condition])
            right = step.own_names(names)
            pair = equality_sides(condition, names - right, right)
            if pair is None:
                residuals.append(condition)
            else:
                keys.append(pair)
        if not step.window.is_tumbling:
            others = [other for other in self.steps[:index] if not other.kind.is_left_only]
            residuals += [self._band_condition(other, index) for other in others if other.time_column.name != left_time]
        return keys, residuals

    def _band_condition(self, other: JoinStep, index: int) -> Expression:
        """Convert the window between the items `other` and `index` to a condition on their times."""
        step, can_be_null = self.steps[index], self.lacks(other, index - 1)
        band = Band(other.window.range, step.window.range, step.window.boundary or Boundary.CLOSED)
        time = replace(other.time_column, nullable=can_be_null)
        difference = Binary(Op.SUB, step.time_column, time)
        low = Binary(Op.GE, difference, Literal(band.low, Type.INT))
        high = Binary(Op.LE, difference, Literal(band.high, Type.INT))
        within = Binary(Op.AND, low, high)
        return Binary(Op.OR, IsNull(time), within) if can_be_null else within

    def _window(
        self, index: int, left_time: str, residuals: list[Expression]
    ) -> tuple[Band | Tumbling, list[Expression]]:
        """Return the window of a join, narrowed by residual conditions, and the other residual conditions."""
        step = self.steps[index]
        if step.window.is_tumbling:
            return Tumbling(step.window.range, step.window.origin), residuals
        left = next(candidate for candidate in self.steps[:index] if candidate.time_column.name == left_time)
        band = Band(left.window.range, step.window.range, step.window.boundary or Boundary.CLOSED)
        return narrow(band, residuals, left_time, step.time_column.name)

    def _default_time(self, index: int) -> str:
        """Return a time column that is never NULL in the join of the items up to `index`."""
        for step in self.steps[: index + 1]:
            if not step.kind.is_left_only and not self.lacks(step, index):
                return step.time_column.name
        start = self.steps[index + 1].item.start
        expected = "the FULL join last: each of its times can be missing"
        raise QueryError("a join with the results of a FULL join", self._sql, start, expected)

    def lacks(self, step: JoinStep, last: int | None = None) -> bool:
        """Return whether results of the join of the items up to `last` (default: all) may lack the row of an item."""
        index = self.steps.index(step)
        later = self.steps[index + 1 : None if last is None else last + 1]
        is_outer = step.kind in (JoinKind.LEFT, JoinKind.FULL)
        return is_outer or any(later_step.kind in (JoinKind.RIGHT, JoinKind.FULL) for later_step in later)


def _side(node: Node, names: dict[str, str], time: str, needed: set[str]) -> Side:
    schema = pa.schema([pa.field(column.name, ARROW_TYPES[column.type]) for column in node.columns])
    columns = tuple((column, name) for name, column in names.items() if name in needed)
    return Side(schema, names[time], columns)


def join_steps(sql: str, items: Sequence[FromItem], relation_of: Callable[[Table], Relation]) -> list[JoinStep]:
    """Return a step for each item of a join, in order. Raises QueryError for wrong windows or names."""
    steps: list[JoinStep] = []
    windows = [None if item.window is None else bind_item_window(sql, item.window) for item in items]
    shared = windows[-1] if windows[-1] is not None and windows[-1].is_tumbling else None
    for item, own_window in zip(items, windows, strict=True):
        name = item.name
        if name is None:
            expected = "AS and a name after it, which its columns can be qualified with"
            raise QueryError("an item of a join without a name", sql, item.start, expected)
        if name.lower() in (step.table.name.lower() for step in steps):
            expected = "AS and another name after one of them"
            name_position = item.alias or item
            raise QueryError(f"two items of FROM are called {name}", sql, name_position.start, expected)
        if "." in name:
            name_position = item.alias or item
            raise QueryError(
                f"an item of a join called {name}", sql, name_position.start, "AS and a name without a dot"
            )
        window = own_window or shared
        if window is None:
            join = item.join or items[1].join
            start = item.start if join is None else join.word.start
            expected = (
                "[RANGE n, WA ts] after each item, or [RANGE TUMBLING n, WA ts] after the last: "
                "without a window every row would be stored until the end"
            )
            raise QueryError(f"a join without a window for {name}", sql, start, expected)
        first_window = next((item_window for item_window in windows if item_window is not None), window)
        if (window.is_tumbling, window.is_tumbling and (window.range, window.origin)) != (
            first_window.is_tumbling,
            first_window.is_tumbling and (first_window.range, first_window.origin),
        ):
            expected = "RANGE of each item, or one RANGE TUMBLING for all"
            raise QueryError("a join of windows of two kinds", sql, window.start, expected)
        relation = relation_of(item.table)
        kind = JoinKind.INNER if item.join is None else JoinKind(item.join.kind)
        time = _time_of(sql, item, name, relation, window)
        steps.append(JoinStep(item, NamedTable(name, relation), window, time, kind))
    bounded = [window for window in windows if window is not None and window.boundary is not None]
    for window in bounded[1:]:
        if window.boundary is not bounded[0].boundary:
            expected = "BOUNDARY once: it is a property of the whole join"
            raise QueryError("a join with two boundaries", sql, window.start, expected)
    if bounded:
        return [replace(step, window=replace(step.window, boundary=bounded[0].boundary)) for step in steps]
    return steps


def _time_of(sql: str, item: FromItem, name: str, relation: Relation, window: ItemWindow) -> str:
    """Find the time column of the window of an item."""
    if not relation.times:
        expected = "rows with a time: an inner query must select ts, or have windows"
        raise QueryError(f"a join with {name}, whose rows have no time", sql, item.start, expected)
    if window.time is None:
        return relation.times[0]
    table, column = window.time
    if table is not None and table.text.lower() != name.lower() and not window.is_tumbling:
        raise QueryError(f"the window of {name} over {table.text}", sql, table.start, f"WA {name}.{column.text}")
    time_name = "ts" if column.text.lower() == "time" else column.text.lower()
    found = next((time for time in relation.times if time.lower() == time_name), None)
    if found is None:
        problem = f"the window of {name} over {column.name_in_messages}"
        raise QueryError(problem, sql, column.start, "a time of its rows, in ns", relation.times, column.text)
    return found
