"""GSQL text to plan: which part of a query runs next to the packets, and which above.

    SELECT exprs FROM a [UNION b …] [RANGE …, SLIDE …, WA ts] WHERE … GROUP BY … HAVING …

WHERE, the grouping expressions and the arguments of aggregates need the row, so they go low; HAVING and the select
list are computed high, over keys and merged sub-aggregates. `docs/gsql.md` describes the language.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from capture.flows.sampling import HandRates
from capture.packets.fields import INNER
from highlevel.detail import Detail, Folding
from highlevel.plan import LATE, Output, QueryPlan
from highlevel.selection import Selection
from highlevel.windows.session import SessionWindow
from highlevel.windows.sliding import WHOLE_INPUT
from lowlevel.expressions import Column, Expression, Type, bits_of, columns_of
from lowlevel.kinds import OUTER, columns_of_kind
from lowlevel.layers import Layer
from lowlevel.plan import Key, LowLevelPlan
from lowlevel.subaggregates import Kind
from queries.aggregates import Aggregates
from queries.binder import Binder, Resolve
from queries.clauses import Clause, Clauses, read_clauses
from queries.errors import QueryError
from queries.everyday_windows import TS, window_of_quotient
from queries.grammar import ExpressionGrammar, Item
from queries.output_names import BOUNDS, output_names
from queries.scope import Scope
from queries.tokens import Kind as TokenKind
from queries.tokens import Token


def compile_query(
    sql: str, name: str = "query", layer: str = Layer.OUTER, sampling: HandRates | None = None
) -> QueryPlan:
    """Compile one query. Raises `QueryError`, with the position, for anything that is not one.

    `layer` is the IP layer that names without one mean: `outer`, or `inner`, the innermost reached through tunnels,
    where a column has one. ValueError for any other. `sampling` are rates of flow exporters that stand whatever those
    announce; other kinds of rows have no use for them.

    >>> plan = compile_query("SELECT srcIP, count(*) [RANGE 10 minutes, SLIDE 1 minute, WA ts] FROM M GROUP BY srcIP")
    >>> plan.low.pane // 10**9, [out.name for out in plan.select]
    (60, ['srcIP', 'count'])
    """
    if layer not in list(Layer):
        raise ValueError(f"got the layer {layer!r}, expected one of {', '.join(Layer)}")
    return _Compiler(read_clauses(sql), layer, sampling).compile(name)


class _Compiler:
    """One query on its way to a plan."""

    def __init__(self, clauses: Clauses, layer: str, sampling: HandRates | None) -> None:
        self._clauses = clauses
        self._sql = clauses.sql
        self._layer = layer
        self._sampling = sampling if clauses.source.kind == "flows" else None
        self._scope = Scope(clauses.sql, clauses.source, layer)
        self._kind = columns_of_kind(clauses.source.kind)
        self._aggregates = Aggregates(self._kind, clauses.window.spread is not None)
        self._group_names: dict[Expression, str] = {}  # names given in GROUP BY as they are spelled
        self._window = clauses.window.window
        self._of_window: dict[Expression, Expression] = {}  # what GROUP BY says of the window, over its bounds

    def compile(self, name: str) -> QueryPlan:
        """Bind the clauses in the order in which they give names to each other."""
        clauses, scope = self._clauses, self._scope
        items = self._without_bounds(ExpressionGrammar(self._sql, clauses.select).items())
        for item in items:
            if item.alias is not None:
                binder = Binder(self._sql, "GROUP BY", item, scope.in_row)
                scope.given_in_select.setdefault(item.alias.text.lower(), binder.bind)
        where = None
        if clauses.where is not None:
            item = ExpressionGrammar(self._sql, clauses.where).expression()
            where = self._condition(clauses.where, Binder(self._sql, "WHERE", item, scope.in_row).bind())
        keys, partition = self._keys()
        scope.windowed = self._window != WHOLE_INPUT
        select = self._select(items)
        having = None
        selections: tuple[Selection, ...] = ()
        if clauses.having is not None:
            item = ExpressionGrammar(self._sql, clauses.having).expression()
            binder = self._over_groups("HAVING", item, scope.in_having)
            having = self._condition(clauses.having, self._lift(binder.bind(), binder.columns, item))
            selections = tuple(
                replace(each, value=self._lift(each.value, binder.columns, item))
                for each in self._aggregates.selections.asked.values()
            )
        window = self._window
        if isinstance(window, SessionWindow):  # which are of one session is told by their times
            self._aggregates.keep(Kind.MIN, TS)
            self._aggregates.keep(Kind.MAX, TS)
        user_columns = tuple(
            replace(each, parts=tuple((part, self._over_parts(value)) for part, value in each.parts))
            for each in self._aggregates.user_columns.asked.values()
        )
        self._aggregates.selections.check(self._sql, window, clauses.window.emit_late)
        details: tuple[Detail, ...] = ()
        foldings: tuple[Folding, ...] = ()
        if self._aggregates.details:
            self._aggregates.details.check(self._sql, window, clauses.window.emit_late)
            keys, details, foldings = self._aggregates.details.place(
                keys, scope.groups, self._aggregates.count_of_rows()
            )
        low = LowLevelPlan(
            where,
            keys,
            self._aggregates.subaggregates,
            window.pane,
            window.origin,
            clauses.source.kind,
            clauses.window.spread is not None,
            self._sampling,
            window.reduced,
            window.in_arrival_order,
        )
        group_by = tuple(column.name for column in scope.groups.values())
        streams = clauses.source.streams
        return QueryPlan(
            name,
            self._sql,
            streams,
            window,
            low,
            group_by,
            having,
            select,
            self._layer,
            partition,
            clauses.window.emit_late,
            details,
            selections,
            user_columns,
            foldings,
        )

    def _without_bounds(self, items: list[Item]) -> list[Item]:
        """Leave out `window_start` and `window_end` as items: every result of a window begins with them."""
        kept = [
            item
            for item in items
            if item.alias is not None or len(item.tokens) != 1 or item.tokens[0].text.lower() not in BOUNDS
        ]
        return kept or items

    def _condition(self, clause: Clause, condition: Expression) -> Expression:
        if condition.type is not Type.BOOL:
            problem = f"{clause.keyword.keyword} over a value of type {condition.type}"
            raise self._error(problem, clause.tokens[0], "a condition, for example len > 100")
        return condition

    def _keys(self) -> tuple[tuple[Key, ...], tuple[str, ...]]:
        """Bind PA and GROUP BY; returns the keys, and the columns that windows of rows are partitioned by.

        The link is no key: a table serves one link, and every partial names it. Neither is what names a window.
        """
        keys: list[Key] = []
        parts = self._clauses.window.partition
        if parts:
            self._group(
                "PA", Clause(Token(TokenKind.WORD, "PA", parts[0].start, parts[0].start), parts, parts[-1]), keys
            )
        partition = tuple(column.name for column in self._scope.groups.values())
        name = self._clauses.window_name
        if name is not None:
            start = Column(BOUNDS[0], Type.INT)
            self._of_window[start] = start
            self._name_group(name, start)
        if self._clauses.group_by is not None:
            self._group("GROUP BY", self._clauses.group_by, keys)
        return tuple(keys), partition

    def _group(self, name: str, clause: Clause, keys: list[Key]) -> None:
        """Bind the items of a clause, and add to the keys and to the groups."""
        groups = self._scope.groups
        for item in ExpressionGrammar(self._sql, clause).items():
            expression = Binder(self._sql, name, item, self._scope.in_group_by).bind()
            if not any(columns_of(expression)):
                raise self._error(f"{name} over a constant", item.tokens[0], "a column, or an expression over columns")
            self._refuse_bytes(f"{name} over", expression, item)
            if item.alias is not None:
                self._name_group(item.alias, expression)
            quotient = window_of_quotient(expression) if self._window == WHOLE_INPUT else None
            if quotient is not None:
                self._window, self._of_window[expression] = quotient
                continue
            if expression == Column("link", Type.TEXT):
                groups[expression] = expression
            elif expression not in groups:
                key = Key(f"k{len(keys)}", expression)
                keys.append(key)
                groups[expression] = Column(key.name, expression.type, expression.nullable, bits_of(expression))

    def _name_group(self, alias: Token, expression: Expression) -> None:
        """Take a name given in GROUP BY. It may not hide a column: the same name would mean two things in one query."""
        known = self._scope.column(alias, None) or self._scope.given_in_group_by.get(alias.text.lower())
        if known not in (None, expression):
            raise self._error(f"the name '{alias.text}' already means something else", alias, "a name of its own")
        self._scope.given_in_group_by[alias.text.lower()] = expression
        self._group_names.setdefault(expression, alias.text)

    def _select(self, items: list[Item]) -> tuple[Output, ...]:
        binders = [self._over_groups("SELECT", item, self._scope.in_select) for item in items]
        bound = [binder.bind() for binder in binders]
        if not self._scope.groups and not self._aggregates.finished:
            problem = "a selection of rows, without aggregates and GROUP BY, is not supported"
            raise self._error(problem, items[0].tokens[0], "an aggregate like count(*), or GROUP BY")
        reserved = (*BOUNDS, LATE) if self._clauses.window.emit_late else BOUNDS
        names = output_names(self._sql, items, bound, self._group_names, self._shown_name, reserved)
        outputs = []
        for item, binder, expression, name in zip(items, binders, bound, names, strict=True):
            self._refuse_bytes("SELECT of", expression, item)
            self._scope.selected.setdefault(name.lower(), expression)
            outputs.append(Output(name, self._lift(expression, binder.columns, item)))
        return tuple(outputs)

    def _refuse_bytes(self, what: str, expression: Expression, item: Item) -> None:
        if expression.type is Type.BYTES:
            expected = "length(…), byte(…, n), contains(…, 'text') or starts_with(…, x'0a') of them"
            raise self._error(f"{what} bytes", item.tokens[0], expected)

    def _shown_name(self, column: str) -> str | None:
        """Name of a column of the rows as a query spells it under this layer; None for any other name."""
        found = self._kind.find(column)
        if found is None or self._layer == Layer.OUTER or not self._kind.layered:
            return None if found is None else found.name
        if found.name.startswith(INNER):
            return found.name.removeprefix(INNER)
        return OUTER + found.name if self._kind.find(INNER + found.name) else found.name

    def _over_groups(self, clause: str, item: Item, resolve: Resolve) -> Binder:
        """Return a binder for SELECT or HAVING: to names over packets, and stand-ins for aggregates."""
        return Binder(self._sql, clause, item, resolve, self._aggregates, self._scope.in_row)

    def _lift(self, expression: Expression, places: dict[Column, Token], item: Item) -> Expression:
        """Put columns of partials in place of grouping expressions, largest first, and of stand-ins."""
        if expression in self._of_window:
            return self._of_window[expression]
        if expression in self._scope.groups:
            return self._scope.groups[expression]
        if isinstance(expression, Column) and expression.name in BOUNDS:
            return expression
        if isinstance(expression, Column):
            if expression.name in self._aggregates.finished:
                return self._aggregates.finished[expression.name]
            problem = f"column '{expression.name}' is neither grouped by nor inside an aggregate"
            expected = f"GROUP BY {expression.name}, or an aggregate of it"
            raise self._error(problem, places.get(expression, item.tokens[0]), expected)
        children = {field.name: getattr(expression, field.name) for field in fields(expression)}
        lifted: dict[str, Any] = {
            name: self._lift(child, places, item) for name, child in children.items() if isinstance(child, Expression)
        }
        return replace(expression, **lifted) if lifted else expression

    def _over_parts(self, expression: Expression) -> Expression:
        """Put what the high level has in place of the stand-ins in a part of a user's aggregate."""
        return self._lift(expression, {}, Item((), None))

    def _error(self, problem: str, token: Token, expected: str) -> QueryError:
        return QueryError(problem, self._sql, token.start, expected)
