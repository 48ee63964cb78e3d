"""Sub-queries that refer to columns of the query around them, as joins of FROM.

    FROM packets p [RANGE 1 minute]                       FROM packets p SEMI JOIN
    WHERE EXISTS (SELECT 1 FROM packets q                   (SELECT ts, srcIP FROM packets q WHERE q.len > 99) s
      [RANGE 1 minute]                                      ON s.srcIP = p.destIP
      WHERE q.srcIP = p.destIP AND q.len > 99)            in the same tumbling window of 1 minute

    EXISTS, IN             SEMI JOIN
    NOT EXISTS             ANTI JOIN
    NOT IN                 up to three ANTI JOINs: with an equal value, with a NULL, and with any row if x is NULL
    (SELECT max(x) …)      LEFT JOIN with groups: an outer row meets at most one of them
    EXISTS, IN elsewhere   comparisons of such values: (SELECT count(*) …) > 0

WHERE of the sub-query is divided. An equality of both queries is a key of the join. Conditions on only the sub-query
stay in it, and conditions on only the outer query are part of ON.

Rows of both queries can meet only in one window, so that the state of the join is bounded. The window is a tumbling
window that both queries name, or it follows from an equality of times: `q.window_end = p.window_end` is a window of
length 0, `q.time/60 = p.time/60` is a tumbling window of a minute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, fields, is_dataclass, replace
from typing import Any

from capture.lazy_dataclasses import dataclass
from capture.units import SECOND
from highlevel.operators.window_operator import WINDOW_START
from highlevel.windows.kind import AnyWindow, SlidingWindow
from lowlevel.expressions.types import Op
from queries.binding.binder import Binder, has_groups, known_aggregates
from queries.binding.names import Scope
from queries.plans.group_window import GroupWindow, bind_group_window
from queries.plans.outer_columns import is_correlated, item_names, names_of, parts_of
from queries.plans.relations import SUB_QUERY, LinkRelation, NamedTable, Relation, TableNames
from queries.plans.subqueries import TS, ReadableQuery
from queries.text import tree
from queries.text.errors import QueryError
from queries.text.lexer import Kind
from queries.text.tree import Expression, FromItem, Query, SelectItem, Window, Word

ROW_TIME = "row time"
"""The time column of a sub-query in the join. Names with a blank cannot be names that a user writes without quotes."""

MAX_LEVELS = 4
"""Largest depth of nested sub-queries. NOT IN becomes several joins, and each contains the nested sub-queries."""

ONE = "number one"
"""A column of a sub-query that is 1 (`_as_key`)."""

COUNTS = ("count", "count_distinct", "approx_count_distinct")
"""Aggregates that are 0 over no row; others are NULL."""

JOINS = "a SEMI, ANTI or LEFT JOIN, which may have any window and condition"

RelationOf = Callable[[tree.Table], Relation]
Compile = Callable[[Query], ReadableQuery]


def without_correlation(
    query: Query, nested: Sequence[tree.ScalarQuery | tree.Exists], relation_of: RelationOf, compile_query: Compile
) -> Query:
    """Return a query with joins in place of the correlated ones of its sub-queries, `nested`.

    Raises QueryError for those without a join.
    """
    deepest = max(nested, key=lambda node: _depth(node.query))
    if _depth(deepest.query) > MAX_LEVELS:
        problem = f"more than {MAX_LEVELS} sub-queries within each other"
        raise QueryError(problem, query.sql, deepest.start, "queries of WITH that read each other")
    names = item_names(query)
    correlated = {id(node.query) for node in nested if is_correlated(node.query, names)}
    return _Decorrelation(query, names, correlated, relation_of, compile_query).rewritten() if correlated else query


@dataclass(frozen=True)
class _JoinWindow:
    """The window of a join: `length` ns from `origin`, tumbling, or equal times if `length` is 0.

    `outer_time` is the time column of the outer query.
    """

    length: int
    origin: int
    outer_time: str

    def clause(self, time: str, start: int) -> Window:
        """Return the clause of an item with this time column."""
        number = str(self.length)
        length = tree.Length(number, "ns", start, start, tumbling=self.length > 0)
        parameters = [tree.Parameter("RANGE", Word("RANGE", start), length, start), _over(time, start)]
        if self.origin:
            origin = tree.Constant(Kind.NUMBER, str(self.origin), start)
            parameters.append(tree.Parameter("ORIGIN", Word("ORIGIN", start), origin, start))
        return Window(tuple(parameters), start, start)


@dataclass(frozen=True)
class _Equality:
    """An equality of an expression over the sub-query and one over the outer query."""

    inner: Expression
    outer: Expression
    start: int


@dataclass
class _SubQuery:
    """The parts of a sub-query.

    `equalities`: equalities with the outer query, without the equality `times`, which is the window. `own`: conditions
    on its rows. `about_outer`: conditions on the outer query. `time`: its time column, in units of `unit` ns in
    `times`.
    """

    query: Query
    start: int
    relation: Relation
    equalities: list[_Equality] = field(default_factory=list)
    own: list[Expression] = field(default_factory=list)
    about_outer: list[Expression] = field(default_factory=list)
    times: _Equality | None = None
    time: str = TS
    unit: int = 1

    @property
    def where(self) -> tree.Condition | None:
        """The condition on its rows."""
        if not self.own:
            return None
        assert self.query.where is not None
        return tree.Condition(self.query.where.keyword, _conjunction(self.own))

    @property
    def window_of_rows(self) -> Window | None:
        """The window of its rows, if a sub-query within it has one too. Other rows have no window."""
        names = item_names(self.query)
        nested = (node for node in parts_of(tuple(self.own), skip=Query) if isinstance(node, Query))
        correlated = any(node.window is not None and is_correlated(node, names) for node in nested)
        return self.query.window if correlated else None


class _Decorrelation:
    """Turns the correlated sub-queries of one query into items of FROM."""

    def __init__(
        self, query: Query, names: frozenset[str], correlated: set[int], relation_of: RelationOf, compile_query: Compile
    ) -> None:
        """`correlated` are the identities of the sub-queries."""
        self._query = query
        self._sql = query.sql
        self._names = names
        self._correlated = correlated
        self._relation_of = relation_of
        self._compile = compile_query
        self._items: list[FromItem] = []
        self._window: _JoinWindow | None = None
        self._uses_clause = False
        self._values: dict[Query, list[Expression]] = {}

    def rewritten(self) -> Query:
        """Return the query with joins."""
        query = self._query
        self._check_outer()
        item = query.tables[0]
        self._outer_relation = self._relation_of(item.table)
        name = item.name
        assert name is not None
        self._outer_name = name
        conditions = () if query.where is None else _conjuncts(query.where.expression)
        others = [condition for condition in conditions if not self._reduce(condition)]
        kept = [self._part(other) for other in others]
        select = tuple(self._selected(position, each) for position, each in enumerate(query.select, 1))
        if query.selects_all and any(each.join and each.join.kind == "LEFT" for each in self._items):
            select = (SelectItem(tree.Star(select[0].start, Word(name, select[0].start))),)
        assert self._window is not None
        grouped = has_groups(query) or query.distinct is not None
        window = query.window if grouped or not self._uses_clause else None
        if window is not None and not any(parameter.name in ("WA", "RATTR") for parameter in window.parameters):
            default = _over(self._outer_relation.times[0], window.start)
            window = replace(window, parameters=(*window.parameters, default))
        where = tree.Condition(query.where.keyword, _conjunction(kept)) if query.where is not None and kept else None
        first = replace(item, window=self._window.clause(self._window.outer_time, item.start))
        return replace(query, select=select, tables=(first, *self._items), window=window, where=where)

    # --- the outer query ---

    def _check_outer(self) -> None:
        """Raise QueryError for an outer query whose sub-queries cannot be joins."""
        query = self._query
        groups = " of a query with groups" if has_groups(query) else ""
        clauses: dict[str, object] = {
            "FROM": query.tables,
            "SELECT": query.select if groups else (),
            "GROUP BY": query.group_by,
            "HAVING": query.having,
            "ORDER BY": query.order,
        }
        for clause, part in clauses.items():
            node = next(self._subqueries(part), None)
            if node is not None:
                expected = "the sub-query in WHERE, or in SELECT of a query without groups: one may read the other"
                raise self._error(f"a correlated sub-query in {clause}{groups}", node.start, expected)
        node = next(self._subqueries(query))
        unsupported = query.supergroups or query.closing
        if unsupported is not None:
            word = unsupported.keyword.text.upper()
            expected = f"a query in FROM without {word}"
            raise self._error(f"a correlated sub-query in a query with {word}", node.start, expected)
        if len(query.tables) > 1:
            expected = "a query of WITH that joins, and a query with the sub-query that reads it"
            raise self._error("a correlated sub-query in a query over a join", node.start, expected)
        if query.tables[0].name is None:
            expected = "AS and a name after the last one"
            raise self._error("a correlated sub-query in a query over several streams", node.start, expected)

    def _subqueries(self, part: object) -> Iterator[tree.ScalarQuery | tree.Exists]:
        """Yield the correlated sub-queries in a part of the query."""
        for node in parts_of(part, skip=Query):
            if isinstance(node, tree.ScalarQuery | tree.Exists) and id(node.query) in self._correlated:
                yield node

    def _reduce(self, condition: Expression) -> bool:
        """Add joins for a condition of WHERE, an operand of AND, if it is EXISTS or IN. Return False for others."""
        negated = isinstance(condition, tree.Unary) and condition.op is Op.NOT
        node = condition.operand if isinstance(condition, tree.Unary) and negated else condition
        match node:
            case tree.Exists(query=query, start=start) if id(query) in self._correlated:
                self._exists(self._divided(query, start), negated)
            case tree.In(operand=operand, values=(tree.ScalarQuery(query=query, start=start),)) if id(
                query
            ) in self._correlated and not _is_one_row(query):
                self._member(operand, self._divided(query, start), negated)
            case _:
                return False
        return True

    def _selected(self, position: int, item: SelectItem) -> SelectItem:
        """Return an item of SELECT with values of joins. The item keeps its name."""
        expression = self._part(item.expression)
        if expression is not item.expression and item.alias is None and isinstance(expression, tree.Name):
            return SelectItem(expression, Word(f"column_{position}", item.start))
        return replace(item, expression=expression)

    def _part(self, node: Any) -> Any:
        """Return a part of an expression with values of joins."""
        match node:
            case tree.ScalarQuery(query=query) if id(query) in self._correlated:
                return self._value(query, node.start)
            case tree.Exists(query=query) if id(query) in self._correlated:
                return self._exists_as_value(query, node.start)
            case tree.In(operand=operand, values=(tree.ScalarQuery(query=query, start=start),), start=at) if (
                id(query) in self._correlated
            ):
                if _is_one_row(query):
                    return tree.Operation(Op.EQ, (self._part(operand), self._value(query, start)), at)
                return self._member_as_value(operand, query, start)
        return _mapped(node, self._part)

    # --- dividing a sub-query ---

    def _divided(self, query: Query, start: int) -> _SubQuery:
        """Divide WHERE of a sub-query, and find the window of the join."""
        self._check_inner(query, start)
        names = self._names - item_names(query)
        subquery = _SubQuery(query, start, self._relation_of(query.tables[0].table))
        assert query.where is not None
        for each in _conjuncts(query.where.expression):
            outer, inner = _sides(each, names)
            if not outer:
                subquery.own.append(each)
            elif not inner:
                subquery.about_outer.append(each)
            else:
                subquery.equalities.append(self._equality(each, names))
        self._bind_window(subquery)
        if has_groups(query):
            self._check_names(self._rows(subquery, ()))
            self._check_names(query)
        return subquery

    def _check_names(self, query: Query) -> None:
        """Raise QueryError for wrong names outside WHERE now, because later messages would list columns of joins."""
        window = query.window if has_groups(query) else None
        self._compile(replace(query, where=None, order=None, window=window))

    def _check_inner(self, query: Query, start: int) -> None:
        """Raise QueryError for clauses of a sub-query that need all its rows."""
        if len(query.tables) > 1:
            raise self._error(
                "a correlated sub-query over a join", start, "a query of WITH that joins, which the sub-query reads"
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
                expected = f"a query of WITH with {name}, which the sub-query reads"
                raise self._error(f"a correlated sub-query with {name}", start, expected)
        if query.queries:
            raise self._error("WITH in a correlated sub-query", start, "WITH before the whole query")

    def _check_limit(self, query: Query, *, exists: bool = False) -> None:
        order = query.order
        if order is not None and (order.offset or (order.limit is not None and not (exists and order.limit > 0))):
            expected = "an aggregate such as max(x), or no LIMIT: it would be for each row of the query around"
            raise self._error("a correlated sub-query with LIMIT or OFFSET", order.keyword.start, expected)

    def _equality(self, condition: Expression, names: frozenset[str]) -> _Equality:
        if isinstance(condition, tree.Operation) and condition.op is Op.EQ:
            for one, other in (condition.operands, condition.operands[::-1]):
                if _sides(one, names) == (False, True) and _sides(other, names) == (True, False):
                    return _Equality(one, other, condition.start)
        expected = f"an equality of one side of each, such as q.srcIP = p.srcIP; or {JOINS}"
        start = min(name.start for name in names_of(condition, names))
        raise self._error(
            "a condition over both a sub-query and the query around it that is no equality", start, expected
        )

    def _bind_window(self, subquery: _SubQuery) -> None:
        """Find the window that both queries have, or the equality of times."""
        query = subquery.query
        if query.window is not None or query.call is not None:
            found = self._window_of_clauses(subquery)
            self._uses_clause = True
        else:
            found = self._window_of_times(subquery)
        if self._window is not None and found != self._window:
            expected = f"the same window or times in all of them; or {JOINS}"
            raise self._error("two correlated sub-queries over different windows", subquery.start, expected)
        self._window = found

    def _window_of_clauses(self, subquery: _SubQuery) -> _JoinWindow:
        inner = bind_group_window(subquery.query, isinstance(subquery.relation, LinkRelation))
        outer = bind_group_window(self._query, isinstance(self._outer_relation, LinkRelation))
        at = subquery.start if inner.start is None else inner.start
        kind = outer.kind if self._query.window is not None or self._query.call is not None else None
        if kind is None:
            expected = "the same window after the item of the query around it: both sides of a match are in one window"
            raise self._error("a correlated sub-query with a window in a query without a window", at, expected)
        if _same_origin(inner.kind) != _same_origin(kind):
            expected = f"the window of the query around it; or {JOINS}"
            raise self._error("a correlated sub-query with another window than the query around it", at, expected)
        if not isinstance(kind, SlidingWindow) or kind.slide != kind.range or inner.spread or inner.emit_late:
            expected = "windows of a RANGE that do not overlap; or an equality of times, q.window_end = p.window_end"
            raise self._error("a correlated sub-query with windows that are not tumbling", at, expected)
        subquery.time = self._time_of(inner, subquery.relation, at)
        return _JoinWindow(kind.range, kind.origin % kind.range, self._time_of(outer, self._outer_relation, at))

    def _time_of(self, window: GroupWindow, relation: Relation, start: int) -> str:
        """Return the time column of a window of groups."""
        if not relation.times:
            expected = "rows with a time: an inner query must select ts, or have windows"
            raise self._error("a correlated sub-query over rows without a time", start, expected)
        return relation.times[0] if window.time is None else window.time[1].text

    def _window_of_times(self, subquery: _SubQuery) -> _JoinWindow:
        for equality in subquery.equalities:
            inner = _time_in_units(equality.inner, subquery.relation)
            outer = _time_in_units(equality.outer, self._outer_relation)
            if inner is not None and outer is not None and inner[1] == outer[1]:
                subquery.equalities.remove(equality)
                subquery.times, (subquery.time, subquery.unit) = equality, inner
                return _JoinWindow(0 if subquery.unit == 1 else subquery.unit, 0, outer[0])
        expected = (
            "the window of the query around it, [RANGE n], after the item of FROM; or an equality of times, "
            "such as q.window_end = p.window_end: without a window all rows would be stored until the end"
        )
        raise self._error("a correlated sub-query without a window", subquery.query.tables[0].start, expected)

    # --- joins ---

    @property
    def _next_name(self) -> str:
        """The name of the next item of FROM."""
        return f"{SUB_QUERY}{len(self._items) + 1}"

    def _exists(self, subquery: _SubQuery, negated: bool) -> None:
        """Keep the outer rows for which the sub-query has a row; if `negated`, those for which it has none."""
        query = subquery.query
        self._check_limit(query, exists=True)
        if _is_one_row(query):
            expected = "GROUP BY, or a comparison such as (SELECT count(*) FROM …) > 0"
            raise self._error(
                "EXISTS of an aggregate without GROUP BY, which always has a row", subquery.start, expected
            )
        if not has_groups(query):  # the join needs no column of SELECT
            self._check_names(query)
        self._join(subquery, "ANTI" if negated else "SEMI", ())

    def _member(self, operand: Expression, subquery: _SubQuery, negated: bool) -> None:
        """Keep the outer rows whose value is in the results of the sub-query, or is not if `negated` (NOT IN)."""
        query, start = subquery.query, subquery.start
        self._check_limit(query)
        value, changed = self._only_item(query), self._part(operand)
        name = self._next_name
        equal = tree.Operation(Op.EQ, (changed, _column("value 1", start, name)), operand.start)
        self._join(subquery, "ANTI" if negated else "SEMI", (value,), equal)
        if not negated:
            return
        column = self._compile(self._read(replace(subquery, own=[]), (value,))).by_name["value 1"]
        if column.nullable:
            name = self._next_name
            self._join(subquery, "ANTI", (value,), tree.IsNull(_column("value 1", start, name), start))
        if changed is not operand or self._can_be_null(operand):
            self._join(subquery, "ANTI", (), outer=tree.IsNull(changed, operand.start))

    def _can_be_null(self, operand: Expression) -> bool:
        table = NamedTable(self._outer_name, self._outer_relation)
        names = TableNames(self._sql, [table], qualify=True)
        return Binder(self._sql, "WHERE", operand, Scope(names).in_row).bind().nullable

    def _only_item(self, query: Query) -> Expression:
        items = query.select
        if len(items) > 1 or isinstance(items[0].expression, tree.Star):
            problem = "a correlated sub-query after IN with other than one named column"
            raise self._error(problem, items[-1].start, "one column: IN compares one value")
        return items[0].expression

    def _exists_as_value(self, query: Query, start: int) -> Expression:
        """Return EXISTS as a comparison of the number of rows."""
        self._check_limit(query, exists=True)
        if has_groups(query):
            expected = "EXISTS as an operand of AND in WHERE, or a sub-query without groups"
            raise self._error("EXISTS of groups within OR, CASE or another expression", start, expected)
        return _is_positive(self._value(_counting(query, start), start))

    def _member_as_value(self, operand: Expression, query: Query, start: int) -> Expression:
        """Return IN as a comparison of numbers of rows: those with an equal value, all, and those with a value."""
        self._check_limit(query)
        if has_groups(query):
            expected = "IN as an operand of AND in WHERE, or a sub-query without groups"
            raise self._error("IN with groups within OR, CASE or another expression", start, expected)
        subquery, compared = self._divided(_counting(query, start), start), self._part(operand)
        value = self._only_item(query)
        self._check_names(self._rows(subquery, (value,)))
        equal = replace(subquery, equalities=[*subquery.equalities, _Equality(value, compared, start)])
        (matches,) = self._columns(equal, (_count(tree.Star(start), start),))
        rows, values = self._columns(subquery, (_count(tree.Star(start), start), _count(value, start)))
        unknown = tree.Operation(
            Op.OR, (tree.IsNull(compared, start), tree.Operation(Op.GT, (rows, values), start)), start
        )
        true, false = (tree.Constant(Kind.WORD, text, start) for text in ("TRUE", "FALSE"))
        null_if_unknown = tree.Operation(Op.AND, (_is_positive(rows), unknown), start)
        return tree.Case(None, ((_is_positive(matches), true), (null_if_unknown, tree.Null(start))), false, start)

    def _columns(self, subquery: _SubQuery, aggregates: tuple[tree.Call, ...]) -> list[Expression]:
        """Join the groups of a sub-query. Return the values of their aggregates."""
        name = self._next_name
        self._join(subquery, "LEFT", aggregates)
        return [
            _or_zero(call, _column(f"value {number}", call.start, name)) for number, call in enumerate(aggregates, 1)
        ]

    def _value(self, query: Query, start: int) -> Expression:
        """Join the groups of a sub-query with one value. Return the value as an expression over the join."""
        self._check_limit(query)
        if not _is_one_row(query) or query.having is not None or len(query.select) > 1:
            expected = (
                "one aggregate such as max(x), without GROUP BY and HAVING, so that there is one value for each row"
            )
            raise self._error("a correlated sub-query as a value that may have no row or several", start, expected)
        expression = query.select[0].expression
        names = {name.lower() for name in known_aggregates()}
        calls = [node for node in parts_of(expression) if isinstance(node, tree.Call)]
        aggregates = [call for call in calls if call.function.text.lower() in names]
        aggregates.sort(key=lambda call: call.start)
        if query not in self._values:
            self._check_value(expression, aggregates)
            self._values[query] = self._columns(self._divided(query, start), tuple(aggregates))
        values = dict(zip(map(id, aggregates), self._values[query], strict=True))

        def part(node: Any) -> Any:
            return values[id(node)] if id(node) in values else _mapped(node, part)

        result: Expression = part(expression)
        return result

    def _check_value(self, expression: Expression, aggregates: list[tree.Call]) -> None:
        """Raise QueryError for a column outside the aggregates."""
        inside = {id(node) for call in aggregates for node in parts_of(call)}
        for node in parts_of(expression):
            if isinstance(node, tree.Name) and id(node) not in inside:
                expected = "columns in aggregates only, for example max(q.len)"
                raise self._error(
                    f"{node.word.name_in_messages}, a column outside the aggregates of a sub-query",
                    node.start,
                    expected,
                )

    def _join(
        self,
        subquery: _SubQuery,
        kind: str,
        values: tuple[Expression, ...],
        condition: Expression | None = None,
        outer: Expression | None = None,
    ) -> None:
        """Add a join with a sub-query, whose columns are its time, the keys and the values.

        ON contains `condition`, and the condition `outer` on the outer query.
        """
        assert self._window is not None
        start, name = subquery.start, self._next_name
        conditions: list[Expression] = [
            tree.Operation(Op.EQ, (_column(f"key {number}", each.start, name), each.outer), each.start)
            for number, each in enumerate(subquery.equalities, 1)
        ]
        if subquery.times is not None:
            times = subquery.times
            inner: Expression = _column(ROW_TIME, times.start, name)
            other: Expression = _column(self._window.outer_time, times.start, self._outer_name)
            if subquery.unit > 1:
                unit = tree.Constant(Kind.NUMBER, str(subquery.unit), times.start)
                inner, other = (tree.Operation(Op.DIV, (side, unit), times.start) for side in (inner, other))
            conditions.append(tree.Operation(Op.EQ, (inner, other), times.start))
        outer_only = [*subquery.about_outer, *([] if outer is None else [outer])]
        if kind != "SEMI":  # which evaluates them on rows of the outer query before the join
            outer_only = [_as_key(each, name) for each in outer_only]
        conditions += [*outer_only, *([] if condition is None else [condition])]
        query = self._read(subquery, values)
        if outer_only and kind != "SEMI":
            query = replace(query, select=(*query.select, _item(_one(start), ONE, start)))
        on = tree.Condition(Word("ON", start), _conjunction(conditions))
        item = FromItem(
            tree.Subquery(query),
            start,
            Word(name, start, quoted=True),
            self._window.clause(ROW_TIME, start),
            tree.Join(kind, Word("JOIN", start), on),
        )
        self._items.append(item)

    def _read(self, subquery: _SubQuery, values: tuple[Expression, ...]) -> Query:
        """Return the query that the join reads."""
        return self._grouped(subquery, values) if has_groups(subquery.query) else self._rows(subquery, values)

    def _rows(self, subquery: _SubQuery, values: tuple[Expression, ...]) -> Query:
        """Return the rows of a sub-query."""
        query, start = subquery.query, subquery.start
        select = (_item(tree.Name(Word(subquery.time, start)), ROW_TIME, start), *_items(subquery, values))
        return Query(self._sql, query.keyword, select, query.tables, subquery.window_of_rows, subquery.where)

    def _grouped(self, subquery: _SubQuery, values: tuple[Expression, ...]) -> Query:
        """Return the groups of a sub-query for each key and time.

        The items of its select list stay before them, because GROUP BY and HAVING may name them.
        """
        query, start = subquery.query, subquery.start
        window, call, group_by = query.window, query.call, list(query.group_by)
        group_by += [SelectItem(equality.inner) for equality in subquery.equalities]
        items = [] if _is_one_row(query) else list(query.select)
        items += _items(subquery, values)
        time = tree.Name(Word(WINDOW_START, start))
        if subquery.times is not None:
            if subquery.unit == 1 and not isinstance(subquery.relation, LinkRelation):
                time = tree.Name(Word(subquery.time, start, quoted=True))
                group_by.append(SelectItem(time))
                items.append(SelectItem(time, Word(ROW_TIME, start, quoted=True)))
                time = tree.Name(Word(ROW_TIME, start, quoted=True))
            else:
                length = tree.Length(str(subquery.unit), "ns", start, start)
                parameter = tree.Parameter("RANGE", Word("RANGE", start), length, start)
                window = Window((parameter, _over(subquery.time, start)), start, start)
        groups = replace(
            query,
            select=tuple(items),
            where=subquery.where,
            group_by=tuple(group_by),
            window=window,
            call=call,
            order=None,
        )
        passed = [each.alias.text for each in _items(subquery, values) if each.alias is not None]
        select = (_item(time, ROW_TIME, start), *(_item(_column(each, start), each, start) for each in passed))
        return Query(self._sql, query.keyword, select, (FromItem(tree.Subquery(groups), start),))

    def _error(self, problem: str, start: int, expected: str) -> QueryError:
        return QueryError(problem, self._sql, start, expected)


def _depth(query: Query) -> int:
    """Return the depth of nested sub-queries: 1 for a query without sub-queries in its expressions."""
    nodes = (node for node in parts_of(query, skip=Query) if isinstance(node, tree.ScalarQuery | tree.Exists))
    return 1 + max((_depth(node.query) for node in nodes), default=0)


def _same_origin(kind: AnyWindow) -> AnyWindow:
    """Return a window with the smallest origin that makes the same windows."""
    return replace(kind, origin=kind.origin % kind.slide) if isinstance(kind, SlidingWindow) else kind


def _sides(expression: Expression, names: frozenset[str]) -> tuple[bool, bool]:
    """Return whether an expression has columns of the outer query, and whether it has others."""
    outer = {id(name) for name in names_of(expression, names)}
    parts = parts_of(expression, skip=Query)
    return bool(outer), any(isinstance(node, tree.Name | Query) and id(node) not in outer for node in parts)


def _time_in_units(expression: Expression, relation: Relation) -> tuple[str, int] | None:
    """Return the time column of `ts`, `time`, `ts/n` or `time/n`, and the unit in ns; None for other expressions."""
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


def _is_one_row(query: Query) -> bool:
    """Return whether a sub-query has aggregates without GROUP BY: one row, also over no rows."""
    return has_groups(query) and not query.group_by and query.call is None and query.grouping_sets is None


def _as_key(condition: Expression, name: str) -> Expression:
    """Return a condition on the outer query as an equality, a key of the join with the sub-query `name`.

    Rows that fail have the key NULL and meet no row. ANTI and LEFT joins would test another condition for all pairs.
    """
    start = condition.start
    case = tree.Case(None, ((condition, _one(start)),), tree.Null(start), start)
    return tree.Operation(Op.EQ, (case, _column(ONE, start, name)), start)


def _counting(query: Query, start: int) -> Query:
    """Return a sub-query without groups that counts its rows."""
    return replace(query, select=(SelectItem(_count(tree.Star(start), start)),), order=None, distinct=None)


def _count(argument: Expression, start: int) -> tree.Call:
    return tree.Call(Word("count", start), (argument,))


def _is_positive(number: Expression) -> Expression:
    return tree.Operation(Op.GT, (number, tree.Constant(Kind.NUMBER, "0", number.start)), number.start)


def _one(start: int) -> tree.Constant:
    return tree.Constant(Kind.NUMBER, "1", start)


def _or_zero(call: tree.Call, column: Expression) -> Expression:
    """Return the value of an aggregate from its column, which is NULL if there is no group."""
    if call.function.text.lower() not in COUNTS:
        return column
    zero = tree.Constant(Kind.NUMBER, "0", call.start)
    return tree.Call(Word("coalesce", call.start), (column, zero))


def _mapped(node: Any, change: Callable[[Any], Any]) -> Any:
    """Return a node of an expression, or a tuple of nodes, with changed parts; the node itself if no part changes."""
    if isinstance(node, tuple):
        changed = tuple(map(change, node))
        return changed if any(one is not other for one, other in zip(changed, node, strict=True)) else node
    if not is_dataclass(node) or isinstance(node, type | Query):
        return node
    parts = {part.name: change(getattr(node, part.name)) for part in fields(node)}
    return replace(node, **parts) if any(value is not getattr(node, name) for name, value in parts.items()) else node


def _conjuncts(expression: Expression) -> Iterator[Expression]:
    """Yield the operands of AND, from left to right."""
    if isinstance(expression, tree.Operation) and expression.op is Op.AND:
        for operand in expression.operands:
            yield from _conjuncts(operand)
    else:
        yield expression


def _conjunction(conditions: list[Expression]) -> Expression:
    return conditions[0] if len(conditions) == 1 else tree.Operation(Op.AND, tuple(conditions), conditions[0].start)


def _column(name: str, start: int, table: str | None = None) -> tree.Name:
    return tree.Name(Word(name, start, quoted=True), None if table is None else Word(table, start, quoted=True))


def _item(expression: Expression, name: str, start: int) -> SelectItem:
    return SelectItem(expression, Word(name, start, quoted=True))


def _items(subquery: _SubQuery, values: tuple[Expression, ...]) -> list[SelectItem]:
    """Return the keys and values of a sub-query as items of SELECT."""
    keys = [_item(each.inner, f"key {number}", each.start) for number, each in enumerate(subquery.equalities, 1)]
    return keys + [_item(each, f"value {number}", each.start) for number, each in enumerate(values, 1)]


def _over(time: str, start: int) -> tree.Parameter:
    """Return the parameter WA of a window."""
    attribute = tree.Attribute(time.lower(), Word(time, start, quoted=True))
    return tree.Parameter("WA", Word("WA", start), attribute, start)
