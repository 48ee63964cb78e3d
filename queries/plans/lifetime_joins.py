"""Joins of items with lifetimes: `flows [LIFETIME start_ts TO end_ts] a JOIN leases [LIFETIME since TO until] b ON …`.

    item 1 ─┐
    item 2 ─┴─► OverlapJoin ─┐
    item 3 ──────────────────┴─► OverlapJoin ► [Filter] ► Apply, or Snapshots

A result is true while the rows of all items are true. The columns `window_start` and `window_end` are the bounds of
this time. GROUP BY over the join groups the results that are true at each instant, as if the query had `[LIFETIME
window_start TO window_end]`.

LEFT, RIGHT and FULL joins also return rows for the parts of their lifetimes without a match. ANTI joins return only
the parts without a match, and SEMI joins only the parts with a match. If all joins are inner joins, a condition in ON
means the same as in WHERE. It is evaluated as early as possible: on the rows of one item, as a key, or on the results
of a join. In other queries a condition in ON is a key, or decides which rows match. It is evaluated on the rows of
its item if it only reads this item, and if the result has no part of this item without a match. WHERE is evaluated on
the results of all joins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace

from capture.lazy_dataclasses import dataclass
from highlevel.joins.spec import JoinKind, Port
from highlevel.operators.window_operator import WINDOW_END, WINDOW_START
from highlevel.plan.lifetime_nodes import JoinedSide, Lifetime, OverlapJoin
from highlevel.plan.nodes import Filter, Node
from highlevel.windows.kind import LifetimeWindow
from lowlevel.expressions.tree import Column, Expression
from lowlevel.expressions.types import Type
from queries.plans.conjuncts import conjuncts, equality_sides
from queries.plans.group_times import lifetime_column
from queries.plans.group_window import bind_window_clause
from queries.plans.relations import (
    LinkRelation,
    NamedTable,
    Relation,
    TableNames,
    conjunction,
    names_in,
    rename_columns,
)
from queries.text.errors import QueryError
from queries.text.tree import FromItem, Name, Parameter, Query, Table, Window, Word

BOUNDS = (WINDOW_START, WINDOW_END)
"""The columns of a join that contain the bounds of a result's lifetime."""

EXPECTED_LIFETIMES = "[LIFETIME start TO end] or [LIFETIME 5 minutes] after each item"


@dataclass
class LifetimeItem:
    """An item of FROM. `start` and `end` are columns of its table; `length` is in ns."""

    item: FromItem
    table: NamedTable
    start: str
    end: str | None
    length: int | None
    filters: list[Expression] = field(default_factory=list)
    """Conditions on rows of the item."""
    conditions: list[Expression] = field(default_factory=list)
    """Conditions on the results of the join of the items up to this one. They decide which rows match."""

    @property
    def kind(self) -> JoinKind:
        """The kind of its join with the items before it."""
        return JoinKind.INNER if self.item.join is None else JoinKind(self.item.join.kind)

    @property
    def prefix(self) -> str:
        """The prefix of the names of its columns."""
        return f"{self.table.name}."

    def own_names(self, names: set[str]) -> set[str]:
        """Return the names that are columns of this item."""
        own = (name for name in names if name.startswith(self.prefix))
        return {name for name in own if self.table.relation.column(self.plain_name(name)) is not None}

    def plain_name(self, name: str) -> str:
        """Return the name of a column without the name of the item."""
        return name.removeprefix(self.prefix)


class LifetimeNames(TableNames):
    """The columns of the items, and the bounds of the results. A bound hides columns with the same unqualified name."""

    @property
    def _bounds(self) -> dict[str, Column]:
        return {name: Column(name, Type.TIME, nullable=name == WINDOW_END) for name in BOUNDS}

    @property
    def times(self) -> list[Column]:
        """The bounds."""
        return list(self._bounds.values())

    @property
    def time(self) -> Column | None:
        """The start of the results."""
        return self._bounds[WINDOW_START]

    @property
    def star_columns(self) -> Iterator[tuple[str, Column]]:
        """The bounds, and the columns of the items."""
        yield from self._bounds.items()
        yield from super().star_columns

    def column(self, name: Word, stream: Word | None) -> Column | None:
        """Return the column of a name."""
        bound = self._bounds.get(name.text.lower()) if stream is None else None
        return bound or super().column(name, stream)

    def unknown_column_error(self, name: Word, stream: Word | None, others: tuple[str, ...]) -> QueryError:
        """Return an error that lists the columns of the table `stream`, or of all tables and the bounds."""
        return super().unknown_column_error(name, stream, others if stream is not None else (*others, *BOUNDS))

    def result_name(self, name: str) -> str | None:
        """Return the name of a column without its table; None for other names."""
        return name if name in BOUNDS else super().result_name(name)


class LifetimeJoins:
    """The items of one FROM and their conditions. `make_node` creates the nodes of the plan."""

    def __init__(self, sql: str, items: Sequence[LifetimeItem]) -> None:
        """All conditions must be added before `make_node` is called."""
        self._sql = sql
        self._items = list(items)
        self._where: list[Expression] = []
        """Conditions on the results of all joins."""

    @property
    def _is_inner(self) -> bool:
        return all(item.kind is JoinKind.INNER for item in self._items)

    def names(self, last: int | None = None) -> LifetimeNames:
        """Return the columns in ON of the item number `last`, by default those of the results."""
        end = len(self._items) if last is None else last + 1
        tables, semi_join_tables = [], []
        for number, item in enumerate(self._items[:end]):
            if item.kind.is_left_only and number != last:
                semi_join_tables.append(item.table.name)
                continue
            # In ON both rows of a pair are present. Only rows of earlier joins can lack one.
            later = [each.kind for each in self._items[number + 1 : end if last is None else last]]
            lacks = item.kind.keeps(Port.LEFT) and number != last
            nullable = lacks or any(kind.keeps(Port.RIGHT) for kind in later)
            tables.append(replace(item.table, nullable=nullable))
        return LifetimeNames(self._sql, tables, qualify=True, semi_join_tables=semi_join_tables)

    def set_first_uses(self, positions: Mapping[str, Word]) -> None:
        """Set the position of the first use of each column, by qualified name, for messages about columns of links."""
        for item in self._items:
            if isinstance(item.table.relation, LinkRelation):
                own = item.own_names(set(positions))
                item.table.relation.first_uses.update({item.plain_name(name): positions[name] for name in own})

    def add_on(self, number: int, condition: Expression) -> None:
        """Add the condition in ON of an item."""
        if self._is_inner:
            self.add_where(condition)
            return
        item = self._items[number]
        for conjunct in conjuncts(condition):
            names = names_in([conjunct])
            is_own = bool(names) and item.own_names(names) == names
            if is_own and not item.kind.keeps(Port.RIGHT):
                item.filters.append(conjunct)
            else:
                item.conditions.append(conjunct)

    def add_where(self, condition: Expression) -> None:
        """Add a condition of WHERE, or of ON if all joins are inner joins."""
        if not self._is_inner:
            self._where.append(condition)
            return
        for conjunct in conjuncts(condition):
            names = names_in([conjunct])
            of_items = [number for number, item in enumerate(self._items) if item.own_names(names)]
            if len(of_items) == 1 and not names & set(BOUNDS):
                self._items[of_items[0]].filters.append(conjunct)
            else:
                last = len(self._items) - 1 if names & set(BOUNDS) else max(of_items, default=1)
                self._items[last].conditions.append(conjunct)

    def make_node(self, needed: set[str], time: str) -> Node:
        """Return the node of the last join, with the `needed` columns and watermarks for the bound `time`."""
        residuals = [condition for item in self._items for condition in self._split(item)[1]]
        node = self._join_node(len(self._items) - 1, needed | names_in([*residuals, *self._where]), time)
        where = conjunction(self._where)
        return node if where is None else Filter(node, where)

    def _split(self, item: LifetimeItem) -> tuple[list[tuple[Expression, Expression]], list[Expression]]:
        """Divide the conditions of an item into keys of its join and residual conditions."""
        keys, residuals = [], []
        for condition in item.conditions:
            names = names_in([condition])
            own = item.own_names(names)
            pair = equality_sides(condition, names - own - set(BOUNDS), own)
            if pair is None:
                residuals.append(condition)
            else:
                keys.append(pair)
        return keys, residuals

    def _join_node(self, index: int, columns: set[str], time: str) -> Node:
        """Return the join of the items up to `index`."""
        keys, residuals = self._split(self._items[index])
        of_keys = names_in([key for pair in keys for key in pair])
        left, left_side, left_names = self._left_node(index - 1, columns, of_keys)
        right, right_side, right_names = self._item_node(index, columns, of_keys)
        pairs = tuple((rename_columns(one, left_names), rename_columns(other, right_names)) for one, other in keys)
        kind, residual = self._items[index].kind, conjunction(residuals)
        if kind is JoinKind.INNER:
            node: Node = OverlapJoin(left, right, (left_side, right_side), pairs, time)
            return node if residual is None else Filter(node, residual)
        return OverlapJoin(left, right, (left_side, right_side), pairs, time, kind, residual)

    def _left_node(
        self, index: int, columns: set[str], key_columns: set[str]
    ) -> tuple[Node, JoinedSide, dict[str, str]]:
        if index == 0:
            return self._item_node(0, columns, key_columns)
        node = self._join_node(index, columns | key_columns, WINDOW_START)
        names = {column.name: column.name for column in node.columns if column.name not in BOUNDS}
        kept = tuple((name, name) for name in names if name in columns)
        return node, JoinedSide(Lifetime(WINDOW_START, WINDOW_END), kept), names

    def _item_node(
        self, index: int, columns: set[str], key_columns: set[str]
    ) -> tuple[Node, JoinedSide, dict[str, str]]:
        """Return the node of an item, its lifetime and result columns, and its columns by their qualified names."""
        item = self._items[index]
        relation = item.table.relation
        bounds = {item.start} | ({item.end} if item.end is not None else set())
        plain_names = {item.plain_name(name) for name in item.own_names(columns | key_columns)} | bounds
        filters = [
            rename_columns(each, {name: item.plain_name(name) for name in names_in([each])}) for each in item.filters
        ]
        time = item.start if item.start in relation.times else next(iter(relation.times), None)
        made = relation.make_node(plain_names | ({time} if time is not None else set()), time, filters)
        start = made.names[item.start]
        late_by = 0 if start in made.node.time_columns else None
        lifetime = Lifetime(start, None if item.end is None else made.names[item.end], item.length, late_by)
        names = {item.prefix + name: column for name, column in made.names.items()}
        kept = tuple((column, name) for name, column in sorted(names.items()) if name in columns)
        return made.node, JoinedSide(lifetime, kept), names


def lifetime_items(sql: str, items: Sequence[FromItem], relation_of: Callable[[Table], Relation]) -> LifetimeJoins:
    """Return the items of a join with lifetimes. Raises QueryError for windows, names or joins that do not fit."""
    made: list[LifetimeItem] = []
    for item in items:
        name = item.name
        if name is None or "." in name:
            problem = "an item of a join without a name" if name is None else f"an item of a join called {name}"
            expected = "AS and a name without a dot after it, which its columns can be qualified with"
            raise QueryError(problem, sql, (item.alias or item).start, expected)
        if name.lower() in (other.table.name.lower() for other in made):
            expected = "AS and another name after one of them"
            raise QueryError(f"two items of FROM are called {name}", sql, (item.alias or item).start, expected)
        if item.join is not None and item.join.kind != JoinKind.INNER and item.join.on is None:
            problem = f"{item.join.kind} JOIN without ON"
            raise QueryError(problem, sql, item.join.word.start, "ON and a condition after the item")
        if item.window is None or not item.window.has_lifetime:
            start = item.start if item.window is None else item.window.start
            raise QueryError(f"a join with lifetimes and {name}, which has none", sql, start, EXPECTED_LIFETIMES)
        made.append(_item(sql, item, NamedTable(name, relation_of(item.table))))
    return LifetimeJoins(sql, made)


def _item(sql: str, item: FromItem, table: NamedTable) -> LifetimeItem:
    assert item.window is not None
    relation = table.relation
    window = bind_window_clause(sql, item.window)
    if not isinstance(window.kind, LifetimeWindow):
        keyword = next(each.keyword for each in item.window.parameters if each.name == "SLIDE")
        expected = (
            "SLIDE in the query with groups: SELECT count(*) [LIFETIME window_start TO window_end, SLIDE 1 minute]"
        )
        raise QueryError("SLIDE in an item of a join", sql, keyword.start, expected)
    names = TableNames(sql, [table], qualify=False)
    if window.lifetime:
        start, end = (lifetime_column(sql, names, name).name for name in window.lifetime)
        return LifetimeItem(item, table, start, end, None)
    if not relation.times:
        expected = "LIFETIME start TO end, or rows with a time: an inner query must select ts"
        raise QueryError(f"LIFETIME of {table.name}, whose rows have no time", sql, item.start, expected)
    if window.time is None:
        return LifetimeItem(item, table, relation.times[0], None, window.length)
    word = window.time[1]
    wanted = "ts" if word.text.lower() == "time" else word.text.lower()
    found = next((time for time in relation.times if time.lower() == wanted), None)
    if found is None:
        problem = f"LIFETIME of {table.name} over {word.name_in_messages}"
        raise QueryError(problem, sql, word.start, "a time of its rows, in ns", relation.times, word.text)
    return LifetimeItem(item, table, found, None, window.length)


def with_bounds_as_lifetime(query: Query) -> Query:
    """Add the clause `[LIFETIME window_start TO window_end]` to a query with groups over a join of lifetimes."""
    if query.window is not None or query.call is not None:
        return query
    at = query.keyword.start
    start, end = (Name(Word(name, at)) for name in BOUNDS)
    window = Window((Parameter("LIFETIME", Word("LIFETIME", at), (start, end), at),), at, at)
    return replace(query, window=window)
