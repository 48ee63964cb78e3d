"""AUTOMATON after a table in FROM: the accepted runs of an automaton, as a table.

    FROM packets AUTOMATON (…)     Leaf of rows ► Apply ► AcceptedRuns ► Apply

A name in a condition or a value is a field of the register, or else a column of the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from capture.lazy_dataclasses import dataclass
from highlevel.aggregation import Output
from highlevel.patterns.automaton import Arc, Automaton, Field, PatternError
from highlevel.patterns.compilation import compile_automaton
from highlevel.plan.automaton_nodes import MATCH_UNTIL, AcceptedRuns
from highlevel.plan.nodes import Apply, Filter, TimeOutput
from highlevel.plan.pattern_nodes import MATCH_END, MATCH_START
from highlevel.speculation.consistency import WEIGHT
from highlevel.speculation.lifetimes.model import CONTROL
from lowlevel.expressions.tree import Column, Expression, Literal, computed_column
from lowlevel.expressions.types import Type
from queries.binding.binder import Binder
from queries.binding.comparisons import Operand
from queries.binding.names import Names, Scope
from queries.plans.relations import (
    LinkRelation,
    NamedTable,
    Relation,
    RelationNode,
    TableNames,
    conjunction,
    names_in,
    renamed,
)
from queries.text import tree
from queries.text.errors import QueryError
from queries.text.schema import COLUMN_TYPES, type_of_column

TIMES = (MATCH_START, MATCH_END, MATCH_UNTIL)
"""Names of the times of a result."""

RESERVED = (*CONTROL, WEIGHT)
"""Names of columns of changes with lifetimes."""

ROW = "row."
"""Beginning of the names of columns of rows with a reserved name. No column of a query has such a name."""


@dataclass(frozen=True)
class AutomatonRelation:
    """The accepted runs of an automaton over the rows of `inner`."""

    inner: Relation
    order: str
    keys: tuple[str, ...]
    automaton: Automaton
    until: str | None
    number: str | None

    @property
    def times(self) -> tuple[str, ...]:
        """The time of the last row of a run, or its deadline."""
        return (MATCH_END,)

    @property
    def visible_names(self) -> tuple[str, ...]:
        """The partition columns, the times, and the fields of the register."""
        until = () if self.until is None else (MATCH_UNTIL,)
        return (*self.keys, MATCH_START, MATCH_END, *until, *(field.name for field in self.automaton.register))

    def column(self, name: str) -> Column | None:
        """Return a column of a result."""
        lower = name.lower()
        for key in self.keys:
            if key.lower() == lower:
                return self.inner.column(key)
        until = [] if self.until is None else [Column(MATCH_UNTIL, Type.TIME, nullable=True)]
        columns = [Column(MATCH_START, Type.TIME), Column(MATCH_END, Type.TIME), *until]
        columns += [field.column for field in self.automaton.register]
        return next((column for column in columns if column.name.lower() == lower), None)

    def make_node(self, needed: Iterable[str], time: str | None, where: Sequence[Expression]) -> RelationNode:
        """Return the results. Conditions on partition columns select rows."""
        below = [each for each in where if names_in([each]) <= set(self.keys)]
        above = [each for each in where if each not in below]
        fields = {field.name for field in self.automaton.register}
        read = names_in(expression for arc in self.automaton.arcs for expression in arc.expressions) - fields
        extra = {name for name in (self.until, self.number) if name is not None}
        used = {*read, *self.keys, self.order, *extra}
        placed = self.inner.make_node(used, self.order, below)
        computed = self.inner.computed if isinstance(self.inner, LinkRelation) else {}
        names = {name: f"{ROW}{name}" if name.lower() in RESERVED else name for name in used}
        outputs = []
        for name in sorted(used):
            column = computed_column(name, computed[name]) if name in computed else self.inner.column(name)
            assert column is not None, name
            outputs.append(Output(names[name], replace(column, name=placed.names[name])))
        rows = Apply(placed.node, tuple(outputs), (TimeOutput(names[self.order], placed.names[self.order]),))
        arcs = tuple(_with_names(arc, names) for arc in self.automaton.arcs)
        runs = AcceptedRuns(
            rows,
            replace(self.automaton, arcs=arcs),
            tuple(names[key] for key in self.keys),
            None if self.until is None else names[self.until],
            None if self.number is None else names[self.number],
        )
        by_name = {column.name: column for column in runs.columns}
        shown = [Output(name, by_name[names.get(name, name)]) for name in self.visible_names]
        node = Apply(runs, tuple(shown), (TimeOutput(MATCH_END, MATCH_END),))
        condition = conjunction(above)
        named = node if condition is None else Filter(node, condition)
        return RelationNode(named, {name: name for name in self.visible_names})


def accepted_runs(sql: str, clause: tree.AutomatonTable, inner: Relation) -> AutomatonRelation:
    """Bind AUTOMATON. Raises QueryError for wrong names, types and automata."""
    return _AutomatonBinder(sql, clause, inner).bind()


class _AutomatonBinder:
    """Binds the parts of one AUTOMATON."""

    def __init__(self, sql: str, clause: tree.AutomatonTable, inner: Relation) -> None:
        self._sql = sql
        self._clause = clause
        self._inner = inner
        names: Names = (
            inner.names(None)
            if isinstance(inner, LinkRelation)
            else TableNames(sql, [NamedTable("", inner)], qualify=False)
        )
        self._scope = Scope(names)
        self._fields: dict[str, Field] = {}

    def bind(self) -> AutomatonRelation:
        clause = self._clause
        order = self._order()
        keys = tuple(dict.fromkeys(self._column(word, "PARTITION BY").name for word in clause.partition))
        for word in clause.partition:
            if word.text.lower() in TIMES:
                expected = "another name: a query in FROM may rename it"
                raise QueryError(f"PARTITION BY {word.text}, a time of results", self._sql, word.start, expected)
        until = self._typed(clause.until, "LIFETIME TO", Type.TIME, "a time: the end of the row")
        number = self._typed(clause.number, "NUMBERED BY", Type.INT, "an integer that is one more in each row")
        for field in clause.register:
            self._add_field(field, keys)
        states: dict[str, str] = {}
        for word in (clause.start, *(word for arc in clause.arcs for word in (arc.source, arc.target))):
            states.setdefault(word.text.lower(), word.text)
        for word in clause.finals:
            if word.text.lower() not in states:
                expected = "a state of an arc"
                raise QueryError(
                    f"the final state '{word.text}'", self._sql, word.start, expected, tuple(states.values()), word.text
                )
        arcs = tuple(self._arc(arc, states) for arc in clause.arcs)
        finals = tuple(dict.fromkeys(states[word.text.lower()] for word in clause.finals))
        register = tuple(self._fields.values())
        try:
            automaton = Automaton(states[clause.start.text.lower()], finals, arcs, register, clause.within)
            compile_automaton(automaton)
        except PatternError as error:
            problem, _, expected = str(error).partition(", expected ")
            raise QueryError(problem.removeprefix("got "), self._sql, clause.keyword.start, expected) from None
        return AutomatonRelation(self._inner, order, keys, automaton, until, number)

    def _order(self) -> str:
        word, inner = self._clause.order, self._inner
        column = inner.column(word.text)
        if column is None or column.name not in inner.times:
            expected = "the time column of the rows" if inner.times else "rows with a time: a query that selects ts"
            raise QueryError(
                f"ORDER BY {word.text} in AUTOMATON", self._sql, word.start, expected, inner.times, word.text
            )
        return column.name

    def _column(self, word: tree.Word, clause: str) -> Column:
        column = self._inner.column(word.text)
        if column is None:
            raise QueryError(
                f"unknown column '{word.text}' in {clause}",
                self._sql,
                word.start,
                "a column of the rows",
                self._inner.visible_names,
                word.text,
            )
        if column.type is Type.BYTES:
            raise QueryError(f"{clause} with bytes", self._sql, word.start, "columns of other types")
        return column

    def _typed(self, word: tree.Word | None, clause: str, kind: Type, expected: str) -> str | None:
        if word is None:
            return None
        column = self._column(word, clause)
        if column.type is not kind:
            raise QueryError(f"{clause} {column.name} of type {column.type}", self._sql, word.start, expected)
        return column.name

    # --- the register ---

    def _add_field(self, field: tree.RegisterField, keys: Sequence[str]) -> None:
        name, kind = field.name, type_of_column(field.type.text)
        if kind is None:
            problem = f"got '{field.type.text}' as the type of {name.text}"
            raise QueryError(problem, self._sql, field.type.start, "a type", COLUMN_TYPES, field.type.text)
        if name.text.lower() in (*self._fields, *TIMES, *RESERVED) or self._inner.column(name.text) is not None:
            taken = ", ".join((*TIMES, *RESERVED))
            expected = f"a name that no column of the rows and no other field has, and none of {taken}"
            raise QueryError(f"a field '{name.text}'", self._sql, name.start, expected)
        initial = Literal(None, kind)
        if field.initial is not None and not isinstance(field.initial, tree.Null):
            bound = self._value(field.initial, kind, f"DEFAULT of {name.text}")
            if not isinstance(bound, Literal):
                raise QueryError(f"DEFAULT of {name.text} is no constant", self._sql, field.initial.start, "a constant")
            is_number = kind is Type.FLOAT and isinstance(bound.value, int)
            initial = Literal(float(bound.value) if is_number else bound.value, kind)  # type: ignore[arg-type]
        self._fields[name.text.lower()] = Field(name.text, initial)

    # --- arcs ---

    def _arc(self, arc: tree.AutomatonArc, states: dict[str, str]) -> Arc:
        source, target = states[arc.source.text.lower()], states[arc.target.text.lower()]
        if arc.deadline is not None:
            deadline = self._bind("AT", arc.deadline)
            if deadline.type is not Type.TIME:
                expected = "a time: AT asked + INTERVAL '3 seconds'"
                raise QueryError(f"AT a value of type {deadline.type}", self._sql, arc.deadline.start, expected)
            self._check_without_row("AT", deadline, arc.deadline)
            return Arc(source, target, deadline=deadline)
        fence: Expression = Literal(True, Type.BOOL)
        if arc.condition is not None:
            fence = self._bind("WHEN", arc.condition)
            if fence.type is not Type.BOOL:
                expected = "a condition: len > 1000, destIP = target, …"
                raise QueryError(f"WHEN with a value of type {fence.type}", self._sql, arc.condition.start, expected)
        transfer: dict[str, Expression] = {}
        for word, value in arc.changes:
            field = self._fields.get(word.text.lower())
            if field is None:
                names = tuple(each.name for each in self._fields.values())
                expected = "a field of REGISTER" if names else "REGISTER with this field before START"
                raise QueryError(f"SET {word.text}", self._sql, word.start, expected, names, word.text)
            if field.name in transfer:
                raise QueryError(f"{field.name} is set twice", self._sql, word.start, "one value for each field")
            kind = field.initial.type
            is_null = isinstance(value, tree.Null)
            transfer[field.name] = Literal(None, kind) if is_null else self._value(value, kind, f"SET {field.name}")
        if arc.is_silent:
            parts = [*([arc.condition] if arc.condition is not None else []), *(value for _, value in arc.changes)]
            for bound, part in zip([fence, *transfer.values()][-len(parts) :] if parts else [], parts, strict=True):
                self._check_without_row("SILENT ARC", bound, part)
        return Arc(source, target, fence, tuple(transfer.items()), arc.is_silent)

    def _check_without_row(self, clause: str, bound: Expression, part: tree.Expression) -> None:
        fields = {field.name for field in self._fields.values()}
        others = sorted(names_in([bound]) - fields)
        if others:
            expected = "fields of the register only: the arc consumes no row"
            raise QueryError(f"{clause} with the column {others[0]}", self._sql, part.start, expected)

    def _value(self, expression: tree.Expression, kind: Type, clause: str) -> Expression:
        """Bind a value for a field."""
        bound = self._bind(clause.split()[0], expression)
        operand = Operand(self._sql, expression.start, bound)
        if kind is Type.ADDRESS:
            operand = operand.as_address()
        elif kind is Type.MAC:
            operand = operand.as_mac()
        elif kind is Type.TIME:
            operand = operand.as_time()
        if operand.type is not kind and not (kind is Type.FLOAT and operand.type is Type.INT):
            raise QueryError(f"{clause} to a value of type {operand.type}", self._sql, expression.start, f"{kind}")
        return operand.bound

    def _bind(self, clause: str, expression: tree.Expression) -> Expression:
        bound = Binder(self._sql, clause, expression, self._resolve).bind()
        return self._inner.computing(bound) if isinstance(self._inner, LinkRelation) else bound

    def _resolve(self, word: tree.Word, table: tree.Word | None) -> Expression | None:
        field = self._fields.get(word.text.lower()) if table is None else None
        return self._scope.in_row(word, table) if field is None else field.column


def _with_names(arc: Arc, names: dict[str, str]) -> Arc:
    """Return an arc that reads columns of rows by other names."""
    transfer = tuple((name, renamed(value, names)) for name, value in arc.transfer)
    return replace(arc, fence=renamed(arc.fence, names), transfer=transfer)
