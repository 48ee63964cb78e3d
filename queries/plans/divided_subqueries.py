"""Divide a correlated sub-query for a join: into keys, conditions, a window, and the query that the join reads.

    (SELECT max(q.len) FROM packets q [RANGE 1 minute] WHERE q.srcIP = p.destIP AND q.ttl > 9 AND p.len > 99)

    q.srcIP = p.destIP      an equality of both queries: a key of the join
    q.ttl > 9               a condition on only the sub-query: it stays in it
    p.len > 99              a condition on only the outer query: a part of ON
    [RANGE 1 minute]        the window of the join

Rows of both queries can match only within one window, so that the state of the join is limited. This is a tumbling
window that both queries state, or it follows from an equality of times: `q.window_end = p.window_end` is a window of
length 0, `q.time/60 = p.time/60` is a tumbling window of a minute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field, replace

from capture.lazy_dataclasses import dataclass
from capture.units import SECOND
from highlevel.operators.window_operator import WINDOW_START
from highlevel.windows.kind import AnyWindow, SlidingWindow
from lowlevel.expressions.types import Op
from queries.binding.binder import has_groups
from queries.plans.group_window import GroupWindow, bind_group_window
from queries.plans.outer_columns import is_correlated, item_names, names_of, parts_of
from queries.plans.relations import LinkRelation, Relation
from queries.plans.subqueries import TS
from queries.text import tree
from queries.text.errors import QueryError
from queries.text.lexer import Kind
from queries.text.tree import Expression, FromItem, Query, SelectItem, Window, Word

ROW_TIME = "row time"
"""The name of a sub-query's time column in the join. It contains a blank, so it differs from all unquoted names."""

OTHER_JOINS_ADVICE = "a SEMI, ANTI or LEFT JOIN, which may have any window and condition"

RelationFinder = Callable[[tree.Table], Relation]


@dataclass(frozen=True)
class JoinWindow:
    """The tumbling window of a join: `length` ns from `origin`; equal times if `length` is 0.

    `outer_time` is the time column of the outer query.
    """

    length: int
    origin: int
    outer_time: str

    def clause(self, time: str, start: int) -> Window:
        """Return the window clause of an item whose time column is `time`."""
        number = str(self.length)
        length = tree.Length(number, "ns", start, start, tumbling=self.length > 0)
        parameters = [tree.Parameter("RANGE", Word("RANGE", start), length, start), time_parameter(time, start)]
        if self.origin:
            origin = tree.Constant(Kind.NUMBER, str(self.origin), start)
            parameters.append(tree.Parameter("ORIGIN", Word("ORIGIN", start), origin, start))
        return Window(tuple(parameters), start, start)


@dataclass(frozen=True)
class Equality:
    """An equality between an expression over the sub-query and an expression over the outer query."""

    inner: Expression
    outer: Expression
    start: int


@dataclass
class SubQuery:
    """The parts of a sub-query.

    `equalities`: equalities with the outer query, except `time_equality`, the equality that makes the window.
    `inner_conditions`: conditions on the rows of the sub-query. `outer_conditions`: conditions on only the outer
    query. `time`: the time column of the sub-query; `time_equality` compares it in units of `unit` ns. `window`: the
    window of the join.
    """

    query: Query
    start: int
    relation: Relation
    equalities: list[Equality] = field(default_factory=list)
    inner_conditions: list[Expression] = field(default_factory=list)
    outer_conditions: list[Expression] = field(default_factory=list)
    time_equality: Equality | None = None
    time: str = TS
    unit: int = 1
    window: JoinWindow | None = None

    @property
    def needs_time_equality(self) -> bool:
        """True if the sub-query has no window clause, so that an equality of times makes the window of the join."""
        return self.query.window is None and self.query.call is None

    @property
    def where(self) -> tree.Condition | None:
        """The condition on the rows of the sub-query."""
        if not self.inner_conditions:
            return None
        assert self.query.where is not None
        return tree.Condition(self.query.where.keyword, conjoin(self.inner_conditions))

    @property
    def window_of_rows(self) -> Window | None:
        """The window clause of `row_query`, if a nested correlated sub-query has a window too; otherwise None."""
        names = item_names(self.query)
        nested = (node for node in parts_of(tuple(self.inner_conditions), skip=Query) if isinstance(node, Query))
        correlated = any(node.window is not None and is_correlated(node, names) for node in nested)
        return self.query.window if correlated else None

    def join_input(self, values: tuple[Expression, ...]) -> Query:
        """Return the query that becomes an item of the join."""
        return self._group_query(values) if has_groups(self.query) else self.row_query(values)

    def row_query(self, values: tuple[Expression, ...]) -> Query:
        """Return the rows of a sub-query."""
        query, start = self.query, self.start
        select = (named_item(tree.Name(Word(self.time, start)), ROW_TIME, start), *self._select_items(values))
        return Query(query.sql, query.keyword, select, query.tables, self.window_of_rows, self.where)

    def _group_query(self, values: tuple[Expression, ...]) -> Query:
        """Return the groups of a sub-query for each key and time.

        The items of its select list remain first, because GROUP BY and HAVING may refer to them.
        """
        query, start = self.query, self.start
        window, call, group_by = query.window, query.call, list(query.group_by)
        group_by += [SelectItem(equality.inner) for equality in self.equalities]
        items = [] if is_one_row(query) else list(query.select)
        items += self._select_items(values)
        time = tree.Name(Word(WINDOW_START, start))
        if self.time_equality is not None:
            if self.unit == 1 and not isinstance(self.relation, LinkRelation):
                time = tree.Name(Word(self.time, start, quoted=True))
                group_by.append(SelectItem(time))
                items.append(SelectItem(time, Word(ROW_TIME, start, quoted=True)))
                time = tree.Name(Word(ROW_TIME, start, quoted=True))
            else:
                length = tree.Length(str(self.unit), "ns", start, start)
                parameter = tree.Parameter("RANGE", Word("RANGE", start), length, start)
                window = Window((parameter, time_parameter(self.time, start)), start, start)
        groups = replace(
            query,
            select=tuple(items),
            where=self.where,
            group_by=tuple(group_by),
            window=window,
            call=call,
            order=None,
        )
        passed = [each.alias.text for each in self._select_items(values) if each.alias is not None]
        select = (
            named_item(time, ROW_TIME, start),
            *(named_item(quoted_column(each, start), each, start) for each in passed),
        )
        return Query(query.sql, query.keyword, select, (FromItem(tree.Subquery(groups), start),))

    def _select_items(self, values: tuple[Expression, ...]) -> list[SelectItem]:
        """Return items of SELECT for the keys and the values."""
        keys = [named_item(each.inner, f"key {number}", each.start) for number, each in enumerate(self.equalities, 1)]
        return keys + [named_item(each, f"value {number}", each.start) for number, each in enumerate(values, 1)]


class SubQueryDivider:
    """Divides the correlated sub-queries of one query."""

    def __init__(self, outer: Query, names: frozenset[str], relation_of: RelationFinder) -> None:
        """`names`: the names of the items in FROM of the outer query."""
        self._outer = outer
        self._sql = outer.sql
        self._names = names
        self._relation_of = relation_of
        self.outer_relation = relation_of(outer.tables[0].table)

    def divide(self, query: Query, start: int) -> SubQuery:
        """Divide the WHERE of a sub-query, and find the window of the join."""
        self._check_inner(query, start)
        names = self._names - item_names(query)
        subquery = SubQuery(query, start, self._relation_of(query.tables[0].table))
        assert query.where is not None
        for each in conjuncts(query.where.expression):
            outer, inner = _sides(each, names)
            if not outer:
                subquery.inner_conditions.append(each)
            elif not inner:
                subquery.outer_conditions.append(each)
            else:
                subquery.equalities.append(self._equality(each, names))
        subquery.window = (
            self._window_of_times(subquery) if subquery.needs_time_equality else self._window_of_clauses(subquery)
        )
        return subquery

    def _check_inner(self, query: Query, start: int) -> None:
        """Raise QueryError for clauses that need all rows of the sub-query."""
        if len(query.tables) > 1:
            raise self._error(
                "a correlated sub-query over a join",
                start,
                "a join in a query of WITH; the sub-query then reads that query",
            )
        clauses = {
            "SUPERGROUP": query.supergroups,
            "GROUPING SETS": query.grouping_sets,
            "CLOSING WHEN": query.closing,
            "FILL": query.fill,
            "OVER": next(
                (node for item in query.select for node in parts_of(item) if isinstance(node, tree.Over)), None
            ),
        }
        for name, clause in clauses.items():
            if clause is not None:
                expected = f"{name} in a query of WITH; the sub-query then reads that query"
                raise self._error(f"a correlated sub-query with {name}", start, expected)
        if query.queries:
            raise self._error("WITH in a correlated sub-query", start, "WITH before the whole query")

    def _equality(self, condition: Expression, names: frozenset[str]) -> Equality:
        if isinstance(condition, tree.Operation) and condition.op is Op.EQ:
            for one, other in (condition.operands, condition.operands[::-1]):
                if _sides(one, names) == (False, True) and _sides(other, names) == (True, False):
                    return Equality(one, other, condition.start)
        expected = (
            "an equality of an expression over the sub-query and one over the outer query, such as q.srcIP = p.srcIP; "
            f"or {OTHER_JOINS_ADVICE}"
        )
        start = min(name.start for name in names_of(condition, names))
        raise self._error(
            "a condition over both a sub-query and the outer query that is not an equality", start, expected
        )

    def _window_of_clauses(self, subquery: SubQuery) -> JoinWindow:
        inner = bind_group_window(subquery.query, isinstance(subquery.relation, LinkRelation))
        outer = bind_group_window(self._outer, isinstance(self.outer_relation, LinkRelation))
        at = subquery.start if inner.start is None else inner.start
        kind = outer.kind if self._outer.window is not None or self._outer.call is not None else None
        if kind is None:
            expected = "the same window after the item of the outer query: both sides of a match are in one window"
            raise self._error("a correlated sub-query with a window in a query without a window", at, expected)
        if _with_smallest_origin(inner.kind) != _with_smallest_origin(kind):
            expected = f"the window of the outer query; or {OTHER_JOINS_ADVICE}"
            raise self._error("a correlated sub-query with another window than the outer query", at, expected)
        if not isinstance(kind, SlidingWindow) or kind.slide != kind.range or inner.spread or inner.emit_late:
            expected = "windows of a RANGE that do not overlap; or an equality of times, q.window_end = p.window_end"
            raise self._error("a correlated sub-query with windows that are not tumbling", at, expected)
        subquery.time = self._time_of(inner, subquery.relation, at)
        return JoinWindow(kind.range, kind.origin % kind.range, self._time_of(outer, self.outer_relation, at))

    def _time_of(self, window: GroupWindow, relation: Relation, start: int) -> str:
        """Return the time column of a window of groups."""
        if not relation.times:
            expected = "rows with a time: an inner query must select ts, or have windows"
            raise self._error("a correlated sub-query over rows without a time", start, expected)
        return relation.times[0] if window.time is None else window.time[1].text

    def _window_of_times(self, subquery: SubQuery) -> JoinWindow:
        for equality in subquery.equalities:
            inner = _time_in_units(equality.inner, subquery.relation)
            outer = _time_in_units(equality.outer, self.outer_relation)
            if inner is not None and outer is not None and inner[1] == outer[1]:
                subquery.equalities.remove(equality)
                subquery.time_equality, (subquery.time, subquery.unit) = equality, inner
                return JoinWindow(0 if subquery.unit == 1 else subquery.unit, 0, outer[0])
        expected = (
            "the window of the outer query, [RANGE n], after the item of FROM; or an equality of times, "
            "such as q.window_end = p.window_end: without a window all rows would be stored until the end"
        )
        raise self._error("a correlated sub-query without a window", subquery.query.tables[0].start, expected)

    def _error(self, problem: str, start: int, expected: str) -> QueryError:
        return QueryError(problem, self._sql, start, expected)


def is_one_row(query: Query) -> bool:
    """Return whether a sub-query has aggregates without GROUP BY. Then it always returns one row."""
    return has_groups(query) and not query.group_by and query.call is None and query.grouping_sets is None


def _with_smallest_origin(kind: AnyWindow) -> AnyWindow:
    """Return the same windows with the smallest possible origin."""
    return replace(kind, origin=kind.origin % kind.slide) if isinstance(kind, SlidingWindow) else kind


def _sides(expression: Expression, names: frozenset[str]) -> tuple[bool, bool]:
    """Return whether an expression contains columns of the outer query, and whether it contains others."""
    outer = {id(name) for name in names_of(expression, names)}
    parts = parts_of(expression, skip=Query)
    return bool(outer), any(isinstance(node, tree.Name | Query) and id(node) not in outer for node in parts)


def _time_in_units(expression: Expression, relation: Relation) -> tuple[str, int] | None:
    """Return the time column in `ts`, `time`, `ts/n` or `time/n`, and the unit in ns; None for other expressions."""
    match expression:
        case tree.Name(word=word):
            column = next((time for time in relation.times if time.lower() == word.text.lower()), None)
            if column is not None:
                return column, 1
            seconds = word.text.lower() == "time" and relation.column("time") is None and TS in relation.times
            return (TS, SECOND) if seconds else None
        case tree.Operation(op=Op.DIV, operands=(tree.Name() as time, tree.Constant(kind=Kind.NUMBER) as divisor)):
            found = _time_in_units(time, relation)
            if found is None or divisor.negative or not divisor.text.isdecimal() or int(divisor.text) == 0:
                return None
            return found[0], found[1] * int(divisor.text)
    return None


def conjuncts(expression: Expression) -> Iterator[Expression]:
    """Yield the operands of AND, from left to right."""
    if isinstance(expression, tree.Operation) and expression.op is Op.AND:
        for operand in expression.operands:
            yield from conjuncts(operand)
    else:
        yield expression


def conjoin(conditions: list[Expression]) -> Expression:
    """Return the conjunction of the conditions."""
    return conditions[0] if len(conditions) == 1 else tree.Operation(Op.AND, tuple(conditions), conditions[0].start)


def quoted_column(name: str, start: int, table: str | None = None) -> tree.Name:
    """Return an expression that names a column, whose name may contain blanks."""
    return tree.Name(Word(name, start, quoted=True), None if table is None else Word(table, start, quoted=True))


def named_item(expression: Expression, name: str, start: int) -> SelectItem:
    """Return an item of SELECT with a name, which may contain blanks."""
    return SelectItem(expression, Word(name, start, quoted=True))


def time_parameter(time: str, start: int) -> tree.Parameter:
    """Return the window parameter `WA time`, which names the time column of the window."""
    attribute = tree.Attribute(time.lower(), Word(time, start, quoted=True))
    return tree.Parameter("WA", Word("WA", start), attribute, start)
