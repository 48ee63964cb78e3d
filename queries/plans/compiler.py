"""Compiler: converts the syntax tree of a query to the nodes of its plan.

    FROM links, with groups                    Leaf of partials ► Windowed
    FROM links, without                        Leaf of rows ► Apply
    FROM a query, a union, a join, with        … ► [Filter] ► Windowed, or TimeGroups
    FROM … [LIFETIME …]                        … ► Snapshots
    FROM … [LIFETIME …] a JOIN … [LIFETIME …]  … ► OverlapJoin ► [Filter] ► Snapshots, or Apply
    FROM a query, a union, a join, without     … ► [Filter] ► Apply
    DISTINCT                                   … ► Distinct
    WHERE EXISTS (correlated query)            … ► Join
    FILL 0                                     … ► Fill
    CLOSING WHEN                               … ► Running
    rank() OVER (…)                            … ► Over
    SUPERGROUP, CLEANING WHEN, CLEANING BY     … ► Apply ► Sample
    UNION, INTERSECT, EXCEPT                   … ► Union ► [Distinct, Windowed or TimeGroups] ► Apply
    ORDER BY, LIMIT                            … ► Sort

A query that reads a join or another query determines which time columns have watermarks (Li 2008, §7.2): the time
column of its window, the times in its groups, or the times of the window of its join.

The modules for joins, set operators, correlated sub-queries, samples and grouping sets are imported only when a query
needs them, because their imports take 2 ms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from capture.flows.sampling import FixedRates
from capture.lazy_dataclasses import dataclass
from highlevel.aggregation import Aggregation, Output
from highlevel.joins.spec import JoinKind
from highlevel.operators.window_operator import WINDOW_END, WINDOW_START
from highlevel.plan.nodes import PANE, Apply, Distinct, Leaf, Node, TimeGroups, TimeOutput, Windowed
from highlevel.plan.plan import Plan
from highlevel.windows.kind import SlidingWindow
from lowlevel.expressions.tree import Expression
from lowlevel.expressions.types import Type
from lowlevel.kinds import KINDS
from lowlevel.subaggregates import TIME_OF
from queries.binding.binder import Binder, has_groups
from queries.binding.names import Names, Scope
from queries.plans.closing import refuse_closing
from queries.plans.conjuncts import conjuncts
from queries.plans.filling import refuse_fill
from queries.plans.group_window import bind_group_window
from queries.plans.grouping import Grouping
from queries.plans.outer_columns import subqueries_of
from queries.plans.relations import (
    LinkRelation,
    NamedTable,
    QueryRelation,
    Relation,
    TableNames,
    names_in,
    rename_columns,
)
from queries.plans.row_selection import SelectList, select_all, select_rows
from queries.plans.sorting import Sorting, bind_order
from queries.plans.subqueries import ReadableQuery, make_pair_query, make_window_query
from queries.plans.table_lookup import KnownQueries, TableLookup
from queries.text import tree
from queries.text.errors import QueryError
from queries.text.parser import parse_query
from queries.text.tree import Condition, Query, SelectItem, SetOperation, SetOperator, Word, calls_in

SourceMaker = Callable[[set[str], Sequence[str]], tuple[Node, dict[str, str]]]
"""A function that returns the node of FROM and the names of its columns. Arguments: the needed columns, and the time
columns that need watermarks.
"""


@dataclass(frozen=True)
class Compiler:
    """Compiles the queries of one text. `name` labels the counters of its nodes."""

    sql: str
    name: str
    layer: str
    sampling: FixedRates | None
    known: KnownQueries

    def compile_query(self, query: Query) -> ReadableQuery:
        """Compile a query and the queries of its WITH."""
        if query.queries:
            return self._with_named_queries(query.queries).compile_query(replace(query, queries=()))
        if nested := subqueries_of(query):
            from queries.plans.correlated import without_correlation

            query = without_correlation(query, nested, self._tables.relation, self.compile_query)
        if query.supergroups is not None:
            from queries.plans.sample import compile_sample

            return compile_sample(query, self.compile_query, self.name, self.layer)
        if query.grouping_sets is not None:
            from queries.plans.grouping_sets import without_grouping_sets

            return self.compile_query(without_grouping_sets(query))
        if query.distinct is not None and has_groups(query):
            expected = "no DISTINCT: the rows of groups always differ"
            raise QueryError("DISTINCT together with groups", self.sql, query.distinct.start, expected)
        if len(query.tables) > 1:
            of_lifetimes = any(each.window is not None and each.window.has_lifetime for each in query.tables)
            return self._compile_lifetime_join(query) if of_lifetimes else self._compile_join(query)
        item = query.tables[0]
        query = _without_name(query, item.name)
        relation = self._tables.relation(item.table)
        if isinstance(relation, LinkRelation):
            names = relation.names(None if item.alias is None else item.alias.text)
            if query.reads_lifetimes:
                return self._compile_one_table(query, NamedTable(item.name or "", relation))
            if has_groups(query):
                window = bind_group_window(query, reads_links=True)
                grouping = Grouping(query, window, names, relation.links)
                aggregation = grouping.compile()
                source = relation.links.source
                leaf = Leaf(self.name, source.streams, aggregation.low, relation.links.layer)
                return self._compile_windows(Windowed(leaf, aggregation, PANE), grouping)
            return self._compile_link_rows(query, relation, names)
        read = self._compile_one_table(query, NamedTable(item.name or "", relation))
        if not isinstance(item.table, SetOperation):
            return read
        from queries.plans.set_operations import window_of

        return replace(read, window=window_of(relation))

    # --- queries that are read by name ---

    @property
    def _tables(self) -> TableLookup:
        return TableLookup(
            self.sql,
            self.name,
            self.layer,
            self.sampling,
            self.known,
            self.compile_query,
            self._compile_named,
            self._compile_set_operation,
        )

    def _compile_named(self, word: Word) -> ReadableQuery:
        """Compile the query with this name. If it reads itself, raise QueryError with the whole path."""
        name, known = word.text.lower(), self.known
        found = known.find(name)
        if found is not None:
            return found
        if name in known.path:
            cycle = [*known.path[known.path.index(name) :], name]
            reads = f"{cycle[0]} reads " + ", which reads ".join(cycle[1:])
            expected = "queries that read each other in one direction"
            raise QueryError(f"a query that reads itself: {reads}", self.sql, word.start, expected)
        query = known.pipeline_queries[name]
        inner = replace(known, with_queries={}, path=(*known.path, name), later_queries=frozenset())
        try:
            return replace(self, sql=query.sql, layer=query.layer, known=inner).compile_query(parse_query(query.sql))
        except QueryError as error:
            if error.message.startswith("in the query "):
                raise
            read_by = f", which {' reads for '.join(reversed(known.path))} reads" if known.path else ""
            problem = f"in the query {word.text}{read_by}: {error.message}"
            raise QueryError(problem, error.sql, error.position, error.expected, error.choices) from error

    def _with_named_queries(self, queries: Sequence[tuple[Word, Query]]) -> Compiler:
        """Compile the queries of WITH; each may read earlier ones. Return a compiler that knows them."""
        known, names = self.known, set[str]()
        for number, (word, query) in enumerate(queries, 1):
            name = word.text.lower()
            if name in names or name in KINDS:
                problem = f"the name '{word.text}' already means {'a kind of rows' if name in KINDS else 'a query'}"
                raise QueryError(problem, self.sql, word.start, "a name of its own")
            names.add(name)
            later = self.known.later_queries.union(other.text.lower() for other, _ in queries[number:])
            compiled = replace(self, known=replace(known, later_queries=later)).compile_query(query)
            known = replace(known, with_queries={**known.with_queries, name: compiled})
        return replace(self, known=known)

    def _compile_set_operation(self, operation: SetOperation) -> Relation:
        """Compile queries with a set operator between them."""
        from queries.plans.set_operations import query_over_rows, repeat_rows, rows_of_queries

        queries = [self._tables.read(query).query for query in operation.queries]
        rows = rows_of_queries(self.sql, operation, queries)
        if operation.operator is SetOperator.UNION_ALL:
            return rows
        query = query_over_rows(self.sql, operation, rows)
        by_time = {
            time: self._compile_one_table(query, NamedTable("", replace(rows, times=() if time is None else (time,))))
            for time in rows.times or (None,)
        }
        if operation.operator in (SetOperator.INTERSECT_ALL, SetOperator.EXCEPT_ALL):
            by_time = {time: repeat_rows(groups) for time, groups in by_time.items()}
        first = next(iter(by_time.values()))

        def node(time: str | None) -> Node:
            return by_time.get(time, first).node(time)

        return QueryRelation(ReadableQuery(first.columns, rows.times, node, first.plan, queries[0].window))

    # --- one item ---

    def _compile_link_rows(self, query: Query, relation: LinkRelation, names: Names) -> ReadableQuery:
        assert names.time is not None
        if query.distinct is not None and query.window is not None:
            return self.compile_query(_as_groups(query))
        if query.selects_all:
            columns = [
                (name, column) for name in relation.visible_names if (column := relation.column(name)) is not None
            ]
            named = [(names.result_name(name) or name, column) for name, column in columns]
            selected = select_all(named, [names.time])
        else:
            selected = select_rows(query, names, [names.time])
        if query.distinct is not None and not selected.sources:
            return self.compile_query(_as_groups(query))
        selected, sorting = self._bind_order(query, names, selected)
        outputs = tuple(Output(out.name, relation.move_byte_functions_down(out.expression)) for out in selected.outputs)
        selected = replace(selected, outputs=outputs)
        where = [] if query.where is None else [self._bind_condition(query.where, names)]

        def make_source(needed: set[str], _times: Sequence[str]) -> tuple[Node, dict[str, str]]:
            return self._relation_node(relation, needed, None, where)

        return self._compile_rows(query, selected, sorting, make_source)

    def _compile_one_table(self, query: Query, table: NamedTable) -> ReadableQuery:
        """Compile a query over one query or union."""
        names = TableNames(self.sql, [table], qualify=False)
        where = [] if query.where is None else [self._bind_condition(query.where, names)]

        def make_source(needed: set[str], times: Sequence[str]) -> tuple[Node, dict[str, str]]:
            return self._relation_node(table.relation, needed, next(iter(times), None), where)

        return self._compile_over_tables(query, names, make_source)

    def _relation_node(
        self, relation: Relation, needed: set[str], time: str | None, where: Sequence[Expression]
    ) -> tuple[Node, dict[str, str]]:
        relation_node = relation.make_node(needed, time, where)
        return relation_node.node, dict(relation_node.names)

    # --- joins ---

    def _compile_join(self, query: Query) -> ReadableQuery:
        from queries.plans.joins import JoinStep, JoinTree, join_steps

        steps = join_steps(self.sql, query.tables, self._tables.relation)
        tree = JoinTree(self.sql, steps)
        by_where: list[tuple[int, JoinStep]] = []
        positions: dict[str, Word] = {}
        for number, step in enumerate(steps):
            join = step.item.join
            if join is not None and join.on is not None:
                seen = [each.table for each in steps[:number] if not each.kind.is_left_only]
                visible = TableNames(self.sql, [*seen, step.table], qualify=True)
                tree.on(number, self._bind_condition(join.on, visible))
                positions |= visible.first_uses
            elif join is not None and step.kind is not JoinKind.INNER:
                if not join.by_where:
                    problem = f"{join.word.text.upper()} JOIN without ON"
                    raise QueryError(problem, self.sql, join.word.start, "ON and a condition after the item")
                by_where.append((number, step))
        tables = [
            replace(step.table, nullable=tree.lacks(step), time=step.time)
            for step in steps
            if not step.kind.is_left_only
        ]
        semi_join_tables = [step.table.name for step in steps if step.kind.is_left_only]
        names = TableNames(self.sql, tables, qualify=True, semi_join_tables=semi_join_tables)
        if query.where is not None:
            kept = []
            for each in conjuncts(self._bind_condition(query.where, names)):
                used = names_in([each])
                joins = [n for n, step in by_where if step.own_names(used) and step.own_names(used) != used]
                if joins:
                    tree.on(joins[-1], each)
                else:
                    kept.append(each)
            for each in kept:
                tree.where(each)

        def make_source(needed: set[str], times: Sequence[str]) -> tuple[Node, dict[str, str]]:
            positions.update(names.first_uses)
            for step in steps:
                if isinstance(step.table.relation, LinkRelation):
                    step.table.relation.first_uses.update(
                        {step.plain_name(name): token for name, token in positions.items() if step.owns(name)}
                    )
            last = steps[-1].time_column.name
            times = [name for name in times if name != last][:1] + [name for name in times if name == last]
            return tree.make_node(needed, times), {}

        return self._compile_over_tables(replace(query, where=None), names, make_source)

    def _compile_lifetime_join(self, query: Query) -> ReadableQuery:
        """Compile a join of items with lifetimes."""
        from queries.plans.lifetime_joins import lifetime_items, with_bounds_as_lifetime

        joins = lifetime_items(self.sql, query.tables, self._tables.relation)
        positions: dict[str, Word] = {}
        for number, item in enumerate(query.tables):
            if item.join is not None and item.join.on is not None:
                visible = joins.names(number)
                joins.add_on(number, self._bind_condition(item.join.on, visible))
                positions |= visible.first_uses
        names = joins.names()
        if query.where is not None:
            joins.add_where(self._bind_condition(query.where, names))

        def make_source(needed: set[str], times: Sequence[str]) -> tuple[Node, dict[str, str]]:
            joins.set_first_uses(positions | names.first_uses)
            return joins.make_node(needed, next(iter(times), WINDOW_START)), {}

        query = replace(query, where=None)
        return self._compile_over_tables(
            with_bounds_as_lifetime(query) if has_groups(query) else query, names, make_source
        )

    # --- the select list over tables ---

    def _compile_over_tables(self, query: Query, names: TableNames, make_source: SourceMaker) -> ReadableQuery:
        """Compile SELECT over tables. `make_source` evaluates WHERE."""
        if has_groups(query):
            return self._compile_groups(replace(query, where=None), names, make_source)
        query = _with_columns(query, names)
        if query.distinct is not None and query.window is not None:
            return self._compile_groups(replace(_as_groups(query), where=None), names, make_source)
        if query.reads_lifetimes:
            return self._compile_instants(query, names, make_source)
        times = names.times
        selected = (
            select_all(list(names.star_columns), times) if query.selects_all else select_rows(query, names, times)
        )
        if query.distinct is not None and not selected.sources:
            items = tuple(SelectItem(_name_of(name, query.distinct)) for name, _ in names.star_columns)
            listed = replace(query, select=items) if query.selects_all else query
            return self._compile_groups(replace(_as_groups(listed), where=None), names, make_source)
        windowed = False
        if isinstance(query.tables[0].table, SetOperation):
            from queries.plans.set_operations import window_of

            windowed = window_of(names.tables[0].relation) is not None and WINDOW_END in selected.sources
        return self._compile_rows(query, *self._bind_order(query, names, selected), make_source, is_windowed=windowed)

    def _compile_groups(self, query: Query, names: TableNames, make_source: SourceMaker) -> ReadableQuery:
        grouping = Grouping(
            query, bind_group_window(query, reads_links=False), names, None, names.times, names.times_without_watermark
        )
        aggregation = grouping.compile()
        needed = names_in(aggregation.low.trees)
        if query.reads_lifetimes:
            return self._compile_lifetime_groups(query, make_source, aggregation, grouping, names)
        required = [column for column, _, _ in grouping.ordinary_times]
        if aggregation.windowed:
            required = [grouping.time.name]
        node, _ = make_source(needed | set(required), required)
        pairs = tuple(pair for pair in grouping.ordinary_times if pair[0] in node.time_columns)
        if pairs and not aggregation.windowed:
            grouped = TimeGroups(node, aggregation, pairs)
            return make_pair_query(grouped, self._plan_above(grouped, grouping))
        time = grouping.time.name if aggregation.windowed else next(iter(node.time_columns), "")
        if not time:
            self._check_order(query, aggregation)
        return self._compile_windows(Windowed(node, aggregation, time), grouping)

    def _compile_lifetime_groups(
        self, query: Query, make_source: SourceMaker, aggregation: Aggregation, grouping: Grouping, names: TableNames
    ) -> ReadableQuery:
        start, end = grouping.time.name, None if grouping.end is None else grouping.end.name
        times = [column.name for column in names.times]
        required = [start] if start in times else times[:1]
        needed = names_in(aggregation.low.trees) | {start} | ({end} if end is not None else set())
        node, local = make_source(needed, required)
        from queries.plans.lifetimes import make_snapshots, make_windows, rank_snapshots  # few queries have lifetimes

        if isinstance(aggregation.window, SlidingWindow):
            windowed = make_windows(node, local, aggregation, start, end, grouping.length)
            return self._compile_windows(windowed, grouping)
        bounds = (local.get(start, start), None if end is None else local.get(end, end))
        snapshots = make_snapshots(query, node, aggregation, *bounds)
        root = rank_snapshots(query, snapshots, grouping.over, grouping.sorting)
        return make_window_query(aggregation, Plan(self.name, self.sql, root, self.layer))

    def _compile_instants(self, query: Query, names: TableNames, make_source: SourceMaker) -> ReadableQuery:
        """Compile a query over rows with LIFETIME without groups: ranks, or the first rows at each instant."""
        from queries.plans.lifetimes import bind_lifetime, check_functions, rank_rows, selected_values

        refuse_fill(query)
        refuse_closing(query)
        start, end, length = bind_lifetime(query, names)
        plain = replace(query, window=None)
        times = names.times
        selected = (
            select_all(list(names.star_columns), times) if query.selects_all else select_rows(plain, names, times)
        )
        selected, sorting = self._bind_order(plain, names, selected_values(self.sql, query, selected))
        check_functions(self.sql, selected.functions.uses.values())
        if selected.over is None and (sorting is None or not sorting.limits):
            expected = "an aggregate like count(*), ORDER BY with LIMIT, rank() OVER, or the query without a window"
            raise QueryError("a window over rows without an aggregate", self.sql, query.keyword.start, expected)
        known = [column.name for column in times]
        needed = names_in(out.expression for out in selected.outputs) | {start} | ({end} if end is not None else set())
        node, local = make_source(needed, [start] if start in known else known[:1])
        outputs = [Output(out.name, rename_columns(out.expression, local)) for out in selected.outputs]
        lifetime = (local.get(start, start), None if end is None else local.get(end, end), length)
        root = rank_rows(query, node, outputs, lifetime, selected.over, sorting)
        plan = Plan(self.name, self.sql, root, self.layer)
        return ReadableQuery(root.columns, root.time_columns, lambda _time: root, plan)

    def _compile_windows(self, node: Windowed, grouping: Grouping) -> ReadableQuery:
        return make_window_query(node.aggregation, self._plan_above(node, grouping))

    def _plan_above(self, node: Windowed | TimeGroups, grouping: Grouping) -> Plan:
        """Return the plan with FILL, CLOSING WHEN, OVER and ORDER BY above the groups."""
        windowed = isinstance(node, Windowed) and node.aggregation.windowed
        root: Node = node if grouping.filling is None else grouping.filling.add_node(node)
        root = root if grouping.closing is None else grouping.closing.add_node(root, node.aggregation.window)
        root = root if grouping.over is None else grouping.over.add_node(root, windowed=windowed)
        root = root if grouping.sorting is None else grouping.sorting.add_node(root, windowed=windowed)
        return Plan(self.name, self.sql, root, self.layer)

    def _check_order(self, query: Query, aggregation: Aggregation) -> None:
        """Raise QueryError for aggregates that need the times of rows, if the rows have no time."""
        if any(sub.kind in TIME_OF.values() for sub in aggregation.low.subaggregates):
            expressions = [item.expression for item in query.select]
            expressions += [] if query.having is None else [query.having.expression]
            functions = (call.function for expression in expressions for call in calls_in(expression))
            word = next((word for word in functions if word.text.lower() in TIME_OF), query.keyword)
            expected = "min or max, or rows with a time: the inner query must select ts"
            raise QueryError(f"{word.text} of rows without a time", self.sql, word.start, expected)

    def _bind_order(self, query: Query, names: Names, selected: SelectList) -> tuple[SelectList, Sorting | None]:
        """Bind ORDER BY of a query without groups.

        Return the select list, with hidden columns that only the sort keys need, and with the window functions in
        `over`.
        """
        order, functions = query.order, selected.functions
        if order is None:
            return self._split_over(query, selected), None

        def bind(expression: tree.Expression) -> Expression:
            return Binder(self.sql, "ORDER BY", expression, Scope(names).resolve_in_row, functions=functions).bind()

        sorting = bind_order(self.sql, order, selected.outputs, bind)
        if sorting.hidden and query.distinct is not None:
            expected = "columns of the select list, as DISTINCT returns one row for many"
            raise QueryError(
                "ORDER BY of another column than DISTINCT", self.sql, order.items[0].expression.start, expected
            )
        return self._split_over(query, replace(selected, outputs=(*selected.outputs, *sorting.hidden))), sorting

    def _split_over(self, query: Query, selected: SelectList) -> SelectList:
        """Move the window functions of a select list to its `over`."""
        split = selected.split()
        if split.over is not None and query.distinct is not None:
            expected = "DISTINCT in a query that reads the one with OVER"
            raise QueryError("DISTINCT together with OVER", self.sql, query.distinct.start, expected)
        return split

    def _compile_rows(
        self,
        query: Query,
        selected: SelectList,
        sorting: Sorting | None,
        make_source: SourceMaker,
        *,
        is_windowed: bool = False,
    ) -> ReadableQuery:
        """Compile a query without groups.

        `is_windowed`: its rows are results of windows, and are sorted window by window.
        """
        refuse_fill(query)
        refuse_closing(query)
        needed = names_in(out.expression for out in selected.outputs)
        times = selected.times
        distinct = query.distinct

        def node(time: str | None) -> Node:
            default = WINDOW_END if is_windowed else next(iter(selected.sources), None)
            required = times[time] if time is not None else default
            below, local = make_source(needed | ({required} if required else set()), [required] if required else [])
            outputs = tuple(Output(out.name, rename_columns(out.expression, local)) for out in selected.outputs)
            time_outputs: list[TimeOutput] = []
            if required is not None:
                candidates = [each for each in selected.outputs_of_time(required) if time in (None, each.name)]
                time_outputs = [
                    replace(candidate, source=local.get(required, required)) for candidate in candidates[:1]
                ]
            applied = Apply(below, outputs, tuple(time_outputs))
            rows: Node = applied if distinct is None else Distinct(applied, tuple(out.name for out in outputs))
            if selected.over is not None:
                rows = selected.over.add_node(rows)
            return rows if sorting is None else sorting.add_node(rows, windowed=is_windowed)

        root = node(None)
        if sorting is not None or selected.over is not None:  # the watermark of `ts` may be lost
            times = {name: of for name, of in times.items() if node(name).time_columns == (name,)}
        return ReadableQuery(root.columns, tuple(times), node, Plan(self.name, self.sql, root, self.layer))

    def _bind_condition(self, condition: Condition, names: Names) -> Expression:
        clause = condition.keyword.text.upper()
        bound = Binder(self.sql, clause, condition.expression, Scope(names).resolve_in_row).bind()
        if bound.type is not Type.BOOL:
            problem = f"{clause} over a value of type {bound.type}"
            raise QueryError(problem, self.sql, condition.expression.start, "a condition, for example len > 100")
        return bound


def _as_groups(query: Query) -> Query:
    """Convert SELECT DISTINCT to GROUP BY all its items: each group is one row.

    DISTINCT is planned in this way in windows, and for rows without a time column. Without windows, the groups are
    complete at the end of the input. Rows with a time column need no groups, because `Distinct` deletes a key below the
    watermark.
    """
    items = tuple(SelectItem(item.expression) for item in query.select if tree.has_names(item.expression))
    if not items:
        assert query.distinct is not None
        expected = "the names of columns after DISTINCT"
        raise QueryError("DISTINCT without a column", query.sql, query.distinct.start, expected)
    return replace(query, distinct=None, group_by=items)


def _without_name(query: Query, name: str | None) -> Query:
    """Replace `SELECT S.*` by `SELECT *` if S is the only item of FROM."""
    match query.select:
        case (SelectItem(expression=tree.Star(table=Word(text=text))) as only,) if text.lower() == (name or "").lower():
            return replace(query, select=(replace(only, expression=tree.Star(only.start)),))
    return query


def _with_columns(query: Query, names: TableNames) -> Query:
    """Replace `S.*` by the columns of the table."""
    items: list[SelectItem] = []
    for item in query.select:
        star = item.expression
        if not isinstance(star, tree.Star) or star.table is None:
            items.append(item)
            continue
        table = names.table(star.table)
        columns = (Word(column, star.start, quoted=True) for column in table.relation.visible_names)
        items += [SelectItem(tree.Name(column, star.table)) for column in columns]
    return replace(query, select=tuple(items))


def _name_of(column: str, at: Word) -> tree.Name:
    """Return the name of a column of tables, `a.b` or `b`, as if it were written at `at`."""
    table, _, name = column.rpartition(".")
    return tree.Name(Word(name, at.start, quoted=True), Word(table, at.start, quoted=True) if table else None)
