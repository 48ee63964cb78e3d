"""Aggregations: divide a query with groups into a part for the low level and a part for the high level.

WHERE, the grouping expressions and the arguments of aggregates need rows, so the low level computes them. The high
level computes HAVING and the select list from keys and merged sub-aggregates. Rows of links and rows of other operators
are grouped in the same way: `Grouping` receives the names of their columns and the time column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from highlevel.aggregation import BOUNDS, LATE, Aggregation, Detail, Folding, Output, Selection, SelectionKind
from highlevel.windows.kind import WHOLE_INPUT, LifetimeWindow, SessionWindow, TupleWindow
from lowlevel.expressions.computed_texts import find_computed_text, spelled_values
from lowlevel.expressions.tree import (
    Binary,
    Call,
    Column,
    Expression,
    Literal,
    columns_of,
    computed_column,
    transform,
)
from lowlevel.expressions.types import Op, Type
from lowlevel.plan import Key, LowLevelPlan
from lowlevel.subaggregates import Kind
from queries.binding.aggregates import Aggregates
from queries.binding.binder import Binder, NameResolver, compares_groups
from queries.binding.links import PACKETS, SPREADABLE_KIND, Links
from queries.binding.names import Names, Scope
from queries.binding.window_functions import WindowFunctions
from queries.plans.closing import ClosingStep, check_closing
from queries.plans.filling import FillStep, bind_fill
from queries.plans.group_times import GroupTimes, interval_of
from queries.plans.group_window import GroupWindow, window_of_quotient
from queries.plans.output_names import (
    ColumnNamer,
    check_missing_commas,
    find_given_names,
    name_without_table,
    output_names,
)
from queries.plans.over import OverStep, split_select
from queries.plans.sorting import Sorting, bind_order
from queries.text import tree
from queries.text.errors import QueryError
from queries.text.lexer import Kind as TokenKind
from queries.text.printer import expression_text
from queries.text.tree import Condition, Constant, Name, Order, OrderItem, Query, SelectItem, Star, Word

TOP = SelectionKind.TOP.value


class Grouping:
    """Compiles one query with groups.

    If the query reads `links`, the aggregation contains all its parts. If it reads tables, `where`, `time` and
    `ordinary_times` contain further parts.
    """

    def __init__(
        self,
        query: Query,
        window: GroupWindow,
        names: Names,
        links: Links | None,
        times: Sequence[Column] = (),
        times_without_watermark: Sequence[Column] = (),
    ) -> None:
        """`times`: the time columns of tables. `times_without_watermark`: time columns without a watermark."""
        query = _without_positions(query)
        self._query = query
        self._clause = window
        self._sql = query.sql
        self._names = names
        self._links = links
        self._group_times = GroupTimes(query, window, names, links, times)
        self._scope = Scope(names)
        self._aggregates = Aggregates(window.spread is not None, running=query.closing is not None)
        self._functions = WindowFunctions()
        self._group_names: dict[Expression, str] = {}  # names that GROUP BY gives with AS, as written
        self._window = window.kind
        self._window_expressions: dict[
            Expression, Expression
        ] = {}  # expressions of GROUP BY over the bounds of the window
        self.where: Expression | None = None
        """WHERE over tables."""
        self.ordinary_times: tuple[tuple[str, int, str], ...] = ()
        """Time columns that are ordinary groups, each with its interval in ns and its key."""
        self.over: OverStep | None = None
        """The window functions (OVER) of the select list and of ORDER BY."""
        self.closing: ClosingStep | None = None if query.closing is None else ClosingStep()
        """CLOSING WHEN."""
        self.filling: FillStep | None = None
        """FILL."""
        self.sorting: Sorting | None = None
        """ORDER BY and LIMIT. Its hidden outputs are at the end of the select list."""

    @property
    def time(self) -> Column:
        """The time column of the windows."""
        return self._group_times.time

    @property
    def end(self) -> Column | None:
        """The column with the end of lifetimes, if LIFETIME names one."""
        return self._group_times.end

    @property
    def length(self) -> int | None:
        """The length of lifetimes in ns, if LIFETIME states it."""
        return self._clause.length

    def compile(self) -> Aggregation:
        """Bind the clauses, in an order in which each clause uses only names of clauses that are already bound."""
        query, scope = self._query, self._scope
        self._group_times.check()
        items = query.select
        check_missing_commas(self._sql, items, self._names)
        for item in items:
            if item.alias is not None:
                binder = Binder(self._sql, "GROUP BY", item.expression, scope.resolve_in_row)
                scope.select_aliases.setdefault(item.alias.text.lower(), binder.bind)
        where = None
        if query.where is not None:
            binder = Binder(self._sql, "WHERE", query.where.expression, scope.resolve_in_row)
            where = self._check_condition(query.where, binder.bind())
        self._group_times.choose(scope.resolve_in_group_by)
        keys, partition = self._bind_keys()
        if self._window != WHOLE_INPUT:
            scope.window_bound_type = Type.TIME if self._window.timed else Type.INT
        select = self._bind_select(items if self._has_own_bounds else self._without_bounds(items))
        having = None
        selections: tuple[Selection, ...] = ()
        if query.having is not None:
            start = query.having.expression.start
            binder = self._group_binder("HAVING", query.having.expression, scope.resolve_in_having)
            having = self._check_condition(query.having, self._replace_by_columns(binder.bind(), binder.columns, start))
            selections = tuple(
                replace(use, value=self._replace_by_columns(use.value, binder.columns, start))
                for use in self._aggregates.selections.uses.values()
            )
        select += self._bind_order(select)
        if self.closing is not None:
            select, having = self._bind_closing(self.closing, select, having), None
        if self._functions.uses:
            self.over = self._split_over(select)
            select = self.over.below
        window = self._window
        if query.fill is not None:
            groups = [group for group in scope.groups.values() if isinstance(group, Column)]
            self.filling = bind_fill(self._sql, query.fill, window, select, groups, self._clause.emit_late)
            select = self.filling.below
        if isinstance(window, SessionWindow):  # the times of rows determine their session
            self._aggregates.add_subaggregate(Kind.MIN, self.time)
            self._aggregates.add_subaggregate(Kind.MAX, self.time)
        user_columns = tuple(
            replace(use, parts=tuple((part, self._replace_in_part(value)) for part, value in use.parts))
            for use in self._aggregates.user_columns.uses.values()
        )
        self._aggregates.selections.check(self._sql, window, self._clause.emit_late)
        details: tuple[Detail, ...] = ()
        foldings: tuple[Folding, ...] = ()
        if self._aggregates.holistic:
            self._aggregates.holistic.check(self._sql, window, self._clause.emit_late)
            keys, details, foldings = self._aggregates.holistic.plan_value_keys(
                keys, scope.groups, self._aggregates.count_of_rows()
            )
        links = self._links
        if links is None:
            self.where, where = where, None
        low = LowLevelPlan(
            where,
            keys,
            self._aggregates.subaggregates,
            window.pane,
            origin=window.origin,
            kind=PACKETS if links is None else links.source.kind,
            spread=self._clause.spread is not None,
            sampling=links.sampling if links is not None and links.source.kind == SPREADABLE_KIND else None,
            reduced=window.reduced,
            in_arrival_order=window.in_arrival_order,
        )
        group_by = tuple(column.name for column in scope.groups.values())
        return Aggregation(
            window,
            low,
            group_by,
            having,
            select,
            partition=partition,
            emit_late=self._clause.emit_late,
            details=details,
            selections=selections,
            user_columns=user_columns,
            foldings=foldings,
        )

    @property
    def _has_own_bounds(self) -> bool:
        """Return whether `window_start` is an ordinary column, because the query has no windows."""
        return self._links is None and self._scope.window_bound_type is None

    def _without_bounds(self, items: Sequence[SelectItem]) -> Sequence[SelectItem]:
        """Remove the items `window_start` and `window_end`: every result of windows begins with these columns."""
        kept = [
            item
            for item in items
            if item.alias is not None
            or not isinstance(item.expression, Name)
            or item.expression.table is not None
            or item.expression.word.text.lower() not in BOUNDS
        ]
        return kept or items

    def _check_condition(self, condition: Condition, bound: Expression) -> Expression:
        if bound.type is not Type.BOOL:
            problem = f"{condition.keyword.text.upper()} over a value of type {bound.type}"
            raise self._error(problem, condition.expression.start, "a condition, for example len > 100")
        return bound

    def _bind_keys(self) -> tuple[tuple[Key, ...], tuple[str, ...]]:
        """Bind PA and GROUP BY. Return the keys, and the partitioning columns of windows of rows.

        The link is not a key, because each link has separate tables. Expressions over the window are not keys either.
        """
        keys: list[Key] = []
        self._bind_group_items("PA", self._clause.partition, keys)
        partition = tuple(column.name for column in self._scope.groups.values())
        name = self._clause.name
        if name is not None:
            start = Column(BOUNDS[0], Type.TIME)
            self._window_expressions[start] = start
            self._name_group(name, start)
        self._bind_group_items("GROUP BY", self._query.group_by, keys)
        if not self._group_times.quotient_makes_windows:
            expressions = {key.name: key.expression for key in keys}
            self.ordinary_times = tuple(
                (column.name, interval, key)
                for column, interval in self._group_times.smallest_intervals.items()
                for key, expression in expressions.items()
                if interval_of(expression, column) == interval
            )
        return tuple(keys), partition

    def _bind_group_items(self, name: str, items: Sequence[SelectItem], keys: list[Key]) -> None:
        """Bind the items of a clause, and add them to the keys and to the groups.

        The low level has no keys for texts that are computed from values. So such a group is a group by these values.
        """
        for item in items:
            expression = Binder(self._sql, name, item.expression, self._scope.resolve_in_group_by).bind()
            if not any(columns_of(expression)):
                raise self._error(f"{name} over a constant", item.start, "a column, or an expression over columns")
            values = spelled_values(expression) if self._links is not None else None
            if values is None:
                self._refuse_bytes(f"{name} over", expression, item)
            if item.alias is not None:
                self._name_group(item.alias, expression)
            if values is not None:
                for value in values:
                    self._add_group(value, keys)
                continue
            quotient = (
                window_of_quotient(expression, self.time)
                if self._group_times.quotient_makes_windows and self._window == WHOLE_INPUT
                else None
            )
            if quotient is not None:
                self._window, self._window_expressions[expression] = quotient
                continue
            self._add_group(expression, keys)

    def _add_group(self, expression: Expression, keys: list[Key]) -> None:
        groups = self._scope.groups
        if self._links is not None and expression == Column("link", Type.TEXT):
            groups[expression] = expression
        elif expression not in groups:
            key = Key(f"k{len(keys)}", self._in_nanoseconds(expression))
            keys.append(key)
            groups[expression] = computed_column(key.name, expression)

    def _in_nanoseconds(self, expression: Expression) -> Expression:
        """Convert a group by time to nanoseconds: `ts/60` means minutes, but `/` divides nanoseconds."""
        times = (each for each in columns_of(expression) if each.type is Type.TIME)
        for column in times:
            interval = interval_of(expression, column)
            if interval is not None and interval > 1:
                return Binary(Op.DIV, column, Literal(interval, Type.INT))
        return expression

    def _name_group(self, alias: Word, expression: Expression) -> None:
        """Add a name that GROUP BY gives. It must not be the name of a column, because it would have two meanings."""
        known = self._scope.column(alias, None) or self._scope.group_by_aliases.get(alias.text.lower())
        if known not in (None, expression):
            raise self._error(f"the name '{alias.text}' already means something else", alias.start, "a name of its own")
        self._scope.group_by_aliases[alias.text.lower()] = expression
        self._group_names.setdefault(expression, alias.text)

    def _bind_select(self, items: Sequence[SelectItem]) -> tuple[Output, ...]:
        binders = [self._group_binder("SELECT", item.expression, self._scope.resolve_in_select) for item in items]
        bound = [binder.bind() for binder in binders]
        reserved = () if self._has_own_bounds else (*BOUNDS, LATE) if self._clause.emit_late else BOUNDS
        given, shown_name = self._group_names, cast(ColumnNamer, self._names.result_name)
        if self._links is None:
            given, shown_name = find_given_names(items, bound) | given, name_without_table(bound, shown_name)
        names = output_names(self._sql, items, bound, given, shown_name, reserved)
        outputs = []
        for item, binder, expression, name in zip(items, binders, bound, names, strict=True):
            self._refuse_bytes("SELECT of", expression, item)
            self._scope.select_items.setdefault(name.lower(), expression)
            outputs.append(Output(name, self._replace_by_columns(expression, binder.columns, item.start)))
        return tuple(outputs)

    def _bind_order(self, select: tuple[Output, ...]) -> tuple[Output, ...]:
        """Bind ORDER BY. Return the outputs that only its keys need."""
        order = self._query.order or self._order_of_top()
        if order is None:
            return ()
        if self._clause.emit_late:
            clause = "ORDER BY" if order.items else order.keyword.text.upper()
            problem = f"{clause} together with LATE EMIT"
            expected = "a query without LATE EMIT: late rows arrive when their window is already sorted"
            raise self._error(problem, order.keyword.start, expected)

        def bind(expression: tree.Expression) -> Expression:
            binder = self._group_binder("ORDER BY", expression, self._scope.resolve_in_having)
            return self._replace_by_columns(binder.bind(), binder.columns, expression.start)

        windowed = self._window != WHOLE_INPUT
        self.sorting = bind_order(self._sql, order, select, bind, is_windowed=windowed)
        return self.sorting.hidden

    def _order_of_top(self) -> Order | None:
        """Return the order for `HAVING top(n, value)`: by the value, descending."""
        having = self._query.having
        over_times = bool(self.ordinary_times) and self._window == WHOLE_INPUT
        if having is None or self._clause.emit_late or over_times:
            return None
        ranked = [
            call
            for call in tree.calls_in(having.expression)
            if call.function.text.lower() == TOP and compares_groups(call)
        ]
        if len(ranked) != 1:
            return None
        return Order(ranked[0].function, (OrderItem(ranked[0].arguments[1], descending=True),))

    def _bind_closing(
        self, step: ClosingStep, select: tuple[Output, ...], having: Expression | None
    ) -> tuple[Output, ...]:
        """Bind CLOSING WHEN. Return the select list of the windows below the node `Running`."""
        closing, running = self._query.closing, self._aggregates.running
        assert closing is not None
        assert running is not None
        compares = bool(self._aggregates.selections.uses)
        check_closing(self._query, self._window, emits_late=self._clause.emit_late, compares_groups=compares)
        if self._functions.uses:
            start = next(iter(self._functions.uses.values())).start
            raise self._error("OVER together with CLOSING WHEN", start, "OVER in a query that reads this one")
        binder = self._group_binder("CLOSING WHEN", closing.expression, self._scope.resolve_in_having)
        condition = self._check_condition(
            closing, self._replace_by_columns(binder.bind(), binder.columns, closing.expression.start)
        )
        functions = [(use, self._replace_by_columns(use.total, {}, 0)) for use in running.uses.values()]
        groups = [group for group in self._scope.groups.values() if isinstance(group, Column)]
        return step.complete(groups, functions, select, condition, having)

    def _split_over(self, select: tuple[Output, ...]) -> OverStep:
        """Divide the select list into the columns below and above the window functions."""
        functions = list(self._functions.uses.values())
        if self._clause.emit_late:
            expected = "a query without LATE EMIT: late rows arrive when their window is already returned"
            raise self._error("OVER together with LATE EMIT", functions[0].start, expected)
        if isinstance(self._window, LifetimeWindow):
            from queries.plans.lifetimes import check_functions  # most queries have no lifetimes

            check_functions(self._sql, functions)
        if isinstance(self._window, SessionWindow) or (
            isinstance(self._window, TupleWindow) and self._window.partitioned
        ):
            expected = "OVER in a query that reads this one: its windows differ between groups"
            raise self._error("OVER in a query with sessions or PA", functions[0].start, expected)
        return split_select(
            select, functions, lambda expression, start: self._replace_by_columns(expression, {}, start)
        )

    def _refuse_bytes(self, what: str, expression: Expression, item: SelectItem) -> None:
        spelling = find_computed_text(expression)
        of_groups = what.startswith("SELECT") and not isinstance(spelling, Call)
        if spelling is not None and self._links is not None and not of_groups:
            expected = f"a query over the rows: FROM (SELECT ts, {expression_text(spelling)} AS t FROM …)"
            made_of = "the text of bytes" if isinstance(spelling, Call) else "a text made of values"
            raise self._error(f"{what} {made_of}", item.start, expected)
        if expression.type is Type.BYTES:
            expected = "length(…), byte(…, n), contains(…, 'text') or starts_with(…, x'0a') of them"
            raise self._error(f"{what} bytes", item.start, expected)

    def _group_binder(self, clause: str, expression: tree.Expression, resolve: NameResolver) -> Binder:
        """Return a binder for SELECT, HAVING or ORDER BY, with placeholders for aggregates and window functions."""
        functions = None if clause in ("HAVING", "CLOSING WHEN") else self._functions
        return Binder(self._sql, clause, expression, resolve, self._aggregates, self._scope.resolve_in_row, functions)

    def _replace_by_columns(
        self, expression: Expression, words: dict[Column, Word], start: int, *, above: bool = True
    ) -> Expression:
        """Replace grouping expressions (largest first) and placeholders by columns of partials.

        With CLOSING WHEN and `above`, they become columns of the windows that the node `Running` reads.
        """

        def replace_part(part: Expression) -> Expression | None:
            group = self._window_expressions.get(part) or self._scope.groups.get(part)
            step = self.closing if above else None
            if isinstance(group, Column) and step is not None and group.name not in BOUNDS:
                return step.group(group)
            if group is not None or not isinstance(part, Column):
                return group
            if part.name in self._functions.uses or (part.name in BOUNDS and not self._has_own_bounds):
                return part
            if self._aggregates.running is not None and part.name in self._aggregates.running.uses:
                return part
            if part.name in self._aggregates.high_level_expressions:
                finished = self._aggregates.high_level_expressions[part.name]
                return finished if step is None else step.aggregate(part, finished)
            problem = f"column '{part.name}' is neither grouped by nor inside an aggregate"
            expected = f"GROUP BY {part.name}, or an aggregate of it"
            raise self._error(problem, words[part].start if part in words else start, expected)

        return transform(expression, replace_part)

    def _replace_in_part(self, expression: Expression) -> Expression:
        """Replace the placeholders in a part of a user-defined aggregate by columns of the high level."""
        return self._replace_by_columns(expression, {}, 0, above=False)

    def _error(self, problem: str, start: int, expected: str) -> QueryError:
        return QueryError(problem, self._sql, start, expected)


def _without_positions(query: Query) -> Query:
    """Replace positions in GROUP BY (`GROUP BY 1, 2`) by the items of the select list."""

    def item_at(item: SelectItem) -> SelectItem:
        position = item.expression
        if not isinstance(position, Constant) or position.kind is not TokenKind.NUMBER or position.negative:
            return item
        count = len(query.select)
        if not position.text.isdecimal() or not 1 <= int(position.text[:20]) <= count:
            shown_count = "1 item" if count == 1 else f"{count} items"
            problem = f"GROUP BY {position.text}, but the select list has {shown_count}"
            raise QueryError(problem, query.sql, position.start, f"a position from 1 to {count}, or a column")
        selected = query.select[int(position.text) - 1]
        if isinstance(selected.expression, Star):
            raise QueryError("GROUP BY a position of *", query.sql, position.start, "the name of a column")
        return SelectItem(selected.expression, item.alias)

    return replace(query, group_by=tuple(item_at(item) for item in query.group_by))
