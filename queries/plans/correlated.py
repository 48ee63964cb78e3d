"""Correlated sub-queries, which refer to columns of the outer query, are converted to joins in FROM.

    FROM packets p [RANGE 1 minute]                       FROM packets p SEMI JOIN
    WHERE EXISTS (SELECT 1 FROM packets q                   (SELECT ts, srcIP FROM packets q WHERE q.len > 99) s
      [RANGE 1 minute]                                      ON s.srcIP = p.destIP
      WHERE q.srcIP = p.destIP AND q.len > 99)            in the same tumbling window of 1 minute

    EXISTS, IN             SEMI JOIN
    NOT EXISTS             ANTI JOIN
    NOT IN                 up to three ANTI JOINs: with an equal value, with a NULL, and with any row if x is NULL
    (SELECT max(x) …)      LEFT JOIN with groups, of which at most one matches an outer row
    EXISTS, IN elsewhere   comparisons of such values: (SELECT count(*) …) > 0

`queries.plans.divided_subqueries` divides the condition of a sub-query, and finds the window of the join.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

from lowlevel.expressions.types import Op
from queries.binding.binder import Binder, has_groups, known_aggregates
from queries.binding.names import Scope
from queries.plans.divided_subqueries import (
    OTHER_JOINS_ADVICE,
    ROW_TIME,
    Equality,
    JoinWindow,
    RelationFinder,
    SubQuery,
    SubQueryDivider,
    conjoin,
    conjuncts,
    is_one_row,
    named_item,
    quoted_column,
    time_parameter,
)
from queries.plans.outer_columns import is_correlated, item_names, parts_of
from queries.plans.relations import SUB_QUERY, NamedTable, TableNames
from queries.plans.subqueries import ReadableQuery
from queries.text import tree
from queries.text.errors import QueryError
from queries.text.lexer import Kind
from queries.text.tree import Expression, FromItem, Query, SelectItem, Word

MAX_LEVELS = 4
"""Largest depth of nested sub-queries. It is small because NOT IN becomes several joins, each with all nested
sub-queries.
"""

ONE_COLUMN = "number one"
"""A column of a sub-query that always contains 1 (`_as_key`)."""

COUNT_FUNCTIONS = ("count", "count_distinct", "approx_count_distinct")
"""Aggregates that are 0 over no rows. Other aggregates are NULL."""

QueryCompiler = Callable[[Query], ReadableQuery]


def without_correlation(
    query: Query,
    nested: Sequence[tree.ScalarQuery | tree.Exists],
    relation_of: RelationFinder,
    compile_query: QueryCompiler,
) -> Query:
    """Replace the correlated sub-queries among `nested` by joins.

    Raises QueryError for a correlated sub-query that cannot become a join.
    """
    deepest = max(nested, key=lambda node: _depth(node.query))
    if _depth(deepest.query) > MAX_LEVELS:
        problem = f"more than {MAX_LEVELS} sub-queries within each other"
        raise QueryError(problem, query.sql, deepest.start, "queries of WITH that read each other")
    names = item_names(query)
    correlated = {id(node.query) for node in nested if is_correlated(node.query, names)}
    return _Decorrelation(query, names, correlated, relation_of, compile_query).rewrite() if correlated else query


class _Decorrelation:
    """Converts the correlated sub-queries of one query to items of FROM."""

    def __init__(
        self,
        query: Query,
        names: frozenset[str],
        correlated: set[int],
        relation_of: RelationFinder,
        compile_query: QueryCompiler,
    ) -> None:
        """`correlated` contains the id() of each correlated sub-query."""
        self._query = query
        self._sql = query.sql
        self._names = names
        self._correlated = correlated
        self._relation_of = relation_of
        self._compile = compile_query
        self._items: list[FromItem] = []
        self._window: JoinWindow | None = None
        self._uses_clause = False
        self._values: dict[Query, list[Expression]] = {}

    def rewrite(self) -> Query:
        """Return the query with joins."""
        query = self._query
        self._check_outer()
        item = query.tables[0]
        self._divider = SubQueryDivider(query, self._names, self._relation_of)
        name = item.name
        assert name is not None
        self._outer_name = name
        conditions = () if query.where is None else conjuncts(query.where.expression)
        others = [condition for condition in conditions if not self._reduce(condition)]
        kept = [self._replace_in_expression(other) for other in others]
        select = tuple(self._replace_in_item(position, each) for position, each in enumerate(query.select, 1))
        if query.selects_all and any(each.join and each.join.kind == "LEFT" for each in self._items):
            select = (SelectItem(tree.Star(select[0].start, Word(name, select[0].start))),)
        assert self._window is not None
        grouped = has_groups(query) or query.distinct is not None
        window = query.window if grouped or not self._uses_clause else None
        if window is not None and not any(parameter.name in ("WA", "RATTR") for parameter in window.parameters):
            default = time_parameter(self._divider.outer_relation.times[0], window.start)
            window = replace(window, parameters=(*window.parameters, default))
        where = tree.Condition(query.where.keyword, conjoin(kept)) if query.where is not None and kept else None
        first = replace(item, window=self._window.clause(self._window.outer_time, item.start))
        return replace(query, select=select, tables=(first, *self._items), window=window, where=where)

    # --- the outer query ---

    def _check_outer(self) -> None:
        """Raise QueryError for an outer query whose sub-queries cannot become joins."""
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
            expected = "a join in a query of WITH; the query with the sub-query then reads that query"
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
        """Add joins for an operand of AND in WHERE if it is EXISTS or IN. Return False for other conditions."""
        negated = isinstance(condition, tree.Unary) and condition.op is Op.NOT
        node = condition.operand if isinstance(condition, tree.Unary) and negated else condition
        match node:
            case tree.Exists(query=query, start=start) if id(query) in self._correlated:
                self._join_exists(self._divide(query, start), negated)
            case tree.In(operand=operand, values=(tree.ScalarQuery(query=query, start=start),)) if id(
                query
            ) in self._correlated and not is_one_row(query):
                self._join_member(operand, self._divide(query, start), negated)
            case _:
                return False
        return True

    def _replace_in_item(self, position: int, item: SelectItem) -> SelectItem:
        """Replace the sub-queries in an item of SELECT by columns of joins. The item keeps its name."""
        expression = self._replace_in_expression(item.expression)
        if expression is not item.expression and item.alias is None and isinstance(expression, tree.Name):
            return SelectItem(expression, Word(f"column_{position}", item.start))
        return replace(item, expression=expression)

    def _replace_in_expression(self, node: Any) -> Any:
        """Replace the sub-queries in a part of an expression by columns of joins."""
        match node:
            case tree.ScalarQuery(query=query) if id(query) in self._correlated:
                return self._join_value(query, node.start)
            case tree.Exists(query=query) if id(query) in self._correlated:
                return self._exists_as_value(query, node.start)
            case tree.In(operand=operand, values=(tree.ScalarQuery(query=query, start=start),), start=at) if (
                id(query) in self._correlated
            ):
                if is_one_row(query):
                    return tree.Operation(
                        Op.EQ, (self._replace_in_expression(operand), self._join_value(query, start)), at
                    )
                return self._member_as_value(operand, query, start)
        return _map_parts(node, self._replace_in_expression)

    # --- joins ---

    def _divide(self, query: Query, start: int) -> SubQuery:
        """Divide WHERE of a sub-query. Raises QueryError if an earlier sub-query has another window."""
        subquery = self._divider.divide(query, start)
        if self._window is not None and subquery.window != self._window:
            expected = f"the same window or times in all of them; or {OTHER_JOINS_ADVICE}"
            raise self._error("two correlated sub-queries over different windows", start, expected)
        self._window = subquery.window
        self._uses_clause |= not subquery.needs_time_equality
        if has_groups(query):
            self._check_names(subquery.row_query(()))
            self._check_names(query)
        return subquery

    def _check_names(self, query: Query) -> None:
        """Raise QueryError for wrong names outside WHERE.

        Later messages would list the columns of the new joins as choices.
        """
        window = query.window if has_groups(query) else None
        self._compile(replace(query, where=None, order=None, window=window))

    def _check_limit(self, query: Query, *, exists: bool = False) -> None:
        order = query.order
        if order is not None and (order.offset or (order.limit is not None and not (exists and order.limit > 0))):
            expected = "an aggregate such as max(x), or no LIMIT: it would apply to each row of the outer query"
            raise self._error("a correlated sub-query with LIMIT or OFFSET", order.keyword.start, expected)

    @property
    def _next_name(self) -> str:
        """The name of the next item of FROM."""
        return f"{SUB_QUERY}{len(self._items) + 1}"

    def _join_exists(self, subquery: SubQuery, is_negated: bool) -> None:
        """Keep the outer rows for which the sub-query returns a row; if `is_negated`, the outer rows without one."""
        query = subquery.query
        self._check_limit(query, exists=True)
        if is_one_row(query):
            expected = "GROUP BY, or a comparison such as (SELECT count(*) FROM …) > 0"
            raise self._error(
                "EXISTS of an aggregate without GROUP BY, which always has a row", subquery.start, expected
            )
        if not has_groups(query):  # the join needs no columns of SELECT
            self._check_names(query)
        self._add_join(subquery, "ANTI" if is_negated else "SEMI", ())

    def _join_member(self, operand: Expression, subquery: SubQuery, is_negated: bool) -> None:
        """Keep the outer rows whose value is among the results of the sub-query; if `is_negated`, the other rows."""
        query, start = subquery.query, subquery.start
        self._check_limit(query)
        value, changed = self._only_item(query), self._replace_in_expression(operand)
        name = self._next_name
        equal = tree.Operation(Op.EQ, (changed, quoted_column("value 1", start, name)), operand.start)
        self._add_join(subquery, "ANTI" if is_negated else "SEMI", (value,), equal)
        if not is_negated:
            return
        column = self._compile(replace(subquery, inner_conditions=[]).join_input((value,))).by_name["value 1"]
        if column.nullable:
            name = self._next_name
            self._add_join(subquery, "ANTI", (value,), tree.IsNull(quoted_column("value 1", start, name), start))
        if changed is not operand or self._can_be_null(operand):
            self._add_join(subquery, "ANTI", (), outer=tree.IsNull(changed, operand.start))

    def _can_be_null(self, operand: Expression) -> bool:
        table = NamedTable(self._outer_name, self._divider.outer_relation)
        names = TableNames(self._sql, [table], qualify=True)
        return Binder(self._sql, "WHERE", operand, Scope(names).resolve_in_row).bind().nullable

    def _only_item(self, query: Query) -> Expression:
        items = query.select
        if len(items) > 1 or isinstance(items[0].expression, tree.Star):
            problem = "a correlated sub-query after IN with other than one named column"
            raise self._error(problem, items[-1].start, "one column: IN compares one value")
        return items[0].expression

    def _exists_as_value(self, query: Query, start: int) -> Expression:
        """Convert EXISTS to a comparison of the number of rows with 0."""
        self._check_limit(query, exists=True)
        if has_groups(query):
            expected = "EXISTS as an operand of AND in WHERE, or a sub-query without groups"
            raise self._error("EXISTS of groups within OR, CASE or another expression", start, expected)
        return _is_positive(self._join_value(_counting_query(query, start), start))

    def _member_as_value(self, operand: Expression, query: Query, start: int) -> Expression:
        """Convert IN to comparisons of three counts: rows with an equal value, all rows, and rows with a value."""
        self._check_limit(query)
        if has_groups(query):
            expected = "IN as an operand of AND in WHERE, or a sub-query without groups"
            raise self._error("IN with groups within OR, CASE or another expression", start, expected)
        subquery, compared = self._divide(_counting_query(query, start), start), self._replace_in_expression(operand)
        value = self._only_item(query)
        self._check_names(subquery.row_query((value,)))
        equal = replace(subquery, equalities=[*subquery.equalities, Equality(value, compared, start)])
        (matches,) = self._join_groups(equal, (_count_call(tree.Star(start), start),))
        rows, values = self._join_groups(subquery, (_count_call(tree.Star(start), start), _count_call(value, start)))
        unknown = tree.Operation(
            Op.OR, (tree.IsNull(compared, start), tree.Operation(Op.GT, (rows, values), start)), start
        )
        true, false = (tree.Constant(Kind.WORD, text, start) for text in ("TRUE", "FALSE"))
        null_if_unknown = tree.Operation(Op.AND, (_is_positive(rows), unknown), start)
        return tree.Case(None, ((_is_positive(matches), true), (null_if_unknown, tree.Null(start))), false, start)

    def _join_groups(self, subquery: SubQuery, aggregates: tuple[tree.Call, ...]) -> list[Expression]:
        """Join the groups of a sub-query. Return the values of their aggregates."""
        name = self._next_name
        self._add_join(subquery, "LEFT", aggregates)
        return [
            _or_zero(call, quoted_column(f"value {number}", call.start, name))
            for number, call in enumerate(aggregates, 1)
        ]

    def _join_value(self, query: Query, start: int) -> Expression:
        """Join the groups of a sub-query with one value. Return the value as an expression over the join."""
        self._check_limit(query)
        if not is_one_row(query) or query.having is not None or len(query.select) > 1:
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
            self._values[query] = self._join_groups(self._divide(query, start), tuple(aggregates))
        values = dict(zip(map(id, aggregates), self._values[query], strict=True))

        def part(node: Any) -> Any:
            return values[id(node)] if id(node) in values else _map_parts(node, part)

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

    def _add_join(
        self,
        subquery: SubQuery,
        kind: str,
        values: tuple[Expression, ...],
        condition: Expression | None = None,
        outer: Expression | None = None,
    ) -> None:
        """Add a join with a sub-query. Its columns are its time, the keys and the values.

        ON contains `condition`, and `outer`, a condition on only the outer query.
        """
        assert self._window is not None
        start, name = subquery.start, self._next_name
        conditions: list[Expression] = [
            tree.Operation(Op.EQ, (quoted_column(f"key {number}", each.start, name), each.outer), each.start)
            for number, each in enumerate(subquery.equalities, 1)
        ]
        if subquery.time_equality is not None:
            times = subquery.time_equality
            inner: Expression = quoted_column(ROW_TIME, times.start, name)
            other: Expression = quoted_column(self._window.outer_time, times.start, self._outer_name)
            if subquery.unit > 1:
                unit = tree.Constant(Kind.NUMBER, str(subquery.unit), times.start)
                inner, other = (tree.Operation(Op.DIV, (side, unit), times.start) for side in (inner, other))
            conditions.append(tree.Operation(Op.EQ, (inner, other), times.start))
        outer_only = [*subquery.outer_conditions, *([] if outer is None else [outer])]
        if kind != "SEMI":  # a SEMI join evaluates them on the rows of the outer query, before the join
            outer_only = [_as_key(each, name) for each in outer_only]
        conditions += [*outer_only, *([] if condition is None else [condition])]
        query = subquery.join_input(values)
        if outer_only and kind != "SEMI":
            query = replace(query, select=(*query.select, named_item(_constant_one(start), ONE_COLUMN, start)))
        on = tree.Condition(Word("ON", start), conjoin(conditions))
        item = FromItem(
            tree.Subquery(query),
            start,
            Word(name, start, quoted=True),
            self._window.clause(ROW_TIME, start),
            tree.Join(kind, Word("JOIN", start), on),
        )
        self._items.append(item)

    def _error(self, problem: str, start: int, expected: str) -> QueryError:
        return QueryError(problem, self._sql, start, expected)


def _depth(query: Query) -> int:
    """Return the depth of nested sub-queries: 1 for a query without sub-queries in its expressions."""
    nodes = (node for node in parts_of(query, skip=Query) if isinstance(node, tree.ScalarQuery | tree.Exists))
    return 1 + max((_depth(node.query) for node in nodes), default=0)


def _as_key(condition: Expression, name: str) -> Expression:
    """Convert a condition on the outer query to an equality, so that it is a key of the join with the sub-query `name`.

    Rows that do not satisfy the condition have the key NULL and match no row. ANTI and LEFT joins would test a
    condition that is not a key for all pairs.
    """
    start = condition.start
    case = tree.Case(None, ((condition, _constant_one(start)),), tree.Null(start), start)
    return tree.Operation(Op.EQ, (case, quoted_column(ONE_COLUMN, start, name)), start)


def _counting_query(query: Query, start: int) -> Query:
    """Return the sub-query as a query without groups that counts the rows."""
    return replace(query, select=(SelectItem(_count_call(tree.Star(start), start)),), order=None, distinct=None)


def _count_call(argument: Expression, start: int) -> tree.Call:
    return tree.Call(Word("count", start), (argument,))


def _is_positive(number: Expression) -> Expression:
    return tree.Operation(Op.GT, (number, tree.Constant(Kind.NUMBER, "0", number.start)), number.start)


def _constant_one(start: int) -> tree.Constant:
    return tree.Constant(Kind.NUMBER, "1", start)


def _or_zero(call: tree.Call, column: Expression) -> Expression:
    """Return the value of an aggregate from its column in the join, which is NULL if there is no group."""
    if call.function.text.lower() not in COUNT_FUNCTIONS:
        return column
    zero = tree.Constant(Kind.NUMBER, "0", call.start)
    return tree.Call(Word("coalesce", call.start), (column, zero))


def _map_parts(node: Any, change: Callable[[Any], Any]) -> Any:
    """Apply `change` to the parts of a node or of a tuple of nodes. Return the node itself if no part changes."""
    if isinstance(node, tuple):
        changed = tuple(map(change, node))
        return changed if any(one is not other for one, other in zip(changed, node, strict=True)) else node
    if not is_dataclass(node) or isinstance(node, type | Query):
        return node
    parts = {part.name: change(getattr(node, part.name)) for part in fields(node)}
    return replace(node, **parts) if any(value is not getattr(node, name) for name, value in parts.items()) else node
