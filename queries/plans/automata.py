"""AUTOMATON after a table in FROM: the accepted runs of an automaton, as a table.

    FROM packets AUTOMATON (…)                      Leaf of rows ► Apply ► AcceptedRuns ► Apply
    FROM packets AUTOMATON (… ALL ROWS PER MATCH …) Leaf of rows ► Apply ► RowsOfRuns ► Apply

The arcs of the clause and those of ARCS FROM are bound by `queries.plans.arcs`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from capture.errors import InputError
from capture.lazy_dataclasses import dataclass
from highlevel.aggregation import Output
from highlevel.patterns.arc_table import ArcRule
from highlevel.patterns.automaton import Automaton, Field, PatternError
from highlevel.patterns.compilation import compile_automaton
from highlevel.plan.automaton_nodes import MATCH_UNTIL, RUN_STATE, AcceptedRuns, RowsOfRuns
from highlevel.plan.nodes import Apply, Filter, TimeOutput
from highlevel.plan.pattern_nodes import MATCH_END, MATCH_START
from highlevel.speculation.consistency import WEIGHT
from highlevel.speculation.lifetimes.model import CONTROL
from lowlevel.durations import duration_text
from lowlevel.expressions.tree import Binary, Column, Expression, Literal, computed_column
from lowlevel.expressions.types import Op, Type
from lowlevel.watch.watched_file import WatchedFile
from queries.binding.names import Names, Scope
from queries.binding.watchlists import absolute_path, read_file_or_copy
from queries.plans.arcs import ArcBinder, ArcStatements, reached_states, with_names
from queries.plans.relations import (
    LinkRelation,
    NamedTable,
    Relation,
    RelationNode,
    TableNames,
    conjunction,
    names_in,
)
from queries.text import tree
from queries.text.errors import QueryError
from queries.text.schema import COLUMN_TYPES, type_of_column

RESULT_TIMES = (MATCH_START, MATCH_END, MATCH_UNTIL)
"""Names of the times of a result."""

RESERVED = (*CONTROL, WEIGHT, RUN_STATE)
"""Names of columns of changes with lifetimes, and of the state of a run."""

STATE = "state"
"""Column of a row of a run: the state after it. If another column has this name, the column is `run_state`."""

RESERVED_PREFIX = "row."
"""Prefix of columns of rows that have a reserved name."""


@dataclass(frozen=True)
class AutomatonRelation:
    """The accepted runs of an automaton over the rows of `inner`, or with `has_all_rows` the rows of these runs."""

    inner: Relation
    order: str
    keys: tuple[str, ...]
    automaton: Automaton
    until: str | None
    number: str | None
    rules: str | None
    """The absolute path of a file with arcs."""
    has_all_rows: bool
    added: tuple[str, ...]
    """Columns of `inner` that are returned only. They do not order rows with equal times."""

    @property
    def times(self) -> tuple[str, ...]:
        """The time of the last row of a run, or its deadline."""
        return (MATCH_END,)

    @property
    def visible_names(self) -> tuple[str, ...]:
        """The partition columns, the times, and the fields of the register.

        With all rows also the time of the row, after the partition columns, and at the end the state after the row and
        the other columns.
        """
        until = () if self.until is None else (MATCH_UNTIL,)
        of_run = (MATCH_START, MATCH_END, *until, *(field.name for field in self.automaton.register))
        if not self.has_all_rows:
            return (*self.keys, *of_run)
        return tuple(dict.fromkeys((*self.keys, self.order, *of_run, self._state, *self._shown)))

    @property
    def _shown(self) -> tuple[str, ...]:
        """The columns of the rows that ALL ROWS PER MATCH returns, without those of PARTITION BY."""
        if not self.has_all_rows:
            return ()
        return tuple(
            name for name in self.inner.visible_names if name.lower() not in RESULT_TIMES and name not in self.keys
        )

    @property
    def _state(self) -> str:
        """The name of the column with the state after a row."""
        taken = {name.lower() for name in (*self.inner.visible_names, *(each.name for each in self.automaton.register))}
        name = STATE
        while name in taken:
            name = f"run_{name}"
        return name

    def column(self, name: str) -> Column | None:
        """Return a column of a result."""
        lower = name.lower()
        for key in self.keys:
            if key.lower() == lower:
                return self.inner.column(key)
        until = [] if self.until is None else [Column(MATCH_UNTIL, Type.TIME, nullable=True)]
        columns = [Column(MATCH_START, Type.TIME), Column(MATCH_END, Type.TIME), *until]
        columns += [field.column for field in self.automaton.register]
        columns += [Column(self._state, Type.TEXT)] if self.has_all_rows else []
        found = next((column for column in columns if column.name.lower() == lower), None)
        return self.inner.column(name) if found is None and self.has_all_rows else found

    def make_node(self, needed: Iterable[str], time: str | None, where: Sequence[Expression]) -> RelationNode:
        """Make the node that returns the results. Conditions on partition columns select rows of the input."""
        below = [each for each in where if names_in([each]) <= set(self.keys)]
        above = [each for each in where if each not in below]
        frozen = self.has_all_rows and self.rules is not None
        automaton = self._with_rules() if frozen else self.automaton
        fields = {field.name for field in automaton.register}
        matched = names_in(expression for arc in automaton.arcs for expression in arc.expressions) - fields
        matched |= {name for name in (*self.keys, self.order, self.until, self.number) if name is not None}
        matched |= set() if self.rules is None else set(self.inner.visible_names).difference(self.added)
        of_run = {MATCH_START, MATCH_END, MATCH_UNTIL, self._state, *fields}
        others = {*needed, *names_in(above)} - of_run - {*self.keys, self.order}
        shown = tuple(dict.fromkeys((self.order, *sorted(others)))) if self.has_all_rows else ()
        shown = tuple(name for name in shown if name not in self.keys)
        used = {*matched, *shown}
        placed = self.inner.make_node(used, self.order, below)
        computed = self.inner.computed if isinstance(self.inner, LinkRelation) else {}
        names = {name: f"{RESERVED_PREFIX}{name}" if name.lower() in RESERVED else name for name in used}
        outputs = []
        for name in sorted(used):
            column = computed_column(name, computed[name]) if name in computed else self.inner.column(name)
            assert column is not None, name
            outputs.append(Output(names[name], replace(column, name=placed.names[name])))
        rows = Apply(placed.node, tuple(outputs), (TimeOutput(names[self.order], placed.names[self.order]),))
        arcs = tuple(with_names(arc, names) for arc in automaton.arcs)
        automaton = replace(automaton, arcs=arcs)
        file = None if self.rules is None or frozen else WatchedFile(self.rules, arc_statements(automaton, self.inner))
        keys = tuple(names[key] for key in self.keys)
        until, number = (None if name is None else names[name] for name in (self.until, self.number))
        common = rows, automaton, keys, until, number, file
        runs = AcceptedRuns(*common)
        if self.has_all_rows:
            read = tuple(names[name] for name in sorted(matched))
            runs = RowsOfRuns(*common, tuple(names[name] for name in shown), read, self.rules or "")
        by_name = {column.name: column for column in runs.columns}
        names[self._state] = RUN_STATE
        visible = dict.fromkeys((*self.visible_names, *shown))
        returned = [name for name in visible if names.get(name, name) in by_name]
        outputs = [Output(name, by_name[names.get(name, name)]) for name in returned]
        node = Apply(runs, tuple(outputs), (TimeOutput(MATCH_END, MATCH_END),))
        condition = conjunction(above)
        named = node if condition is None else Filter(node, condition)
        return RelationNode(named, {name: name for name in returned})

    def _with_rules(self) -> Automaton:
        """Return the automaton with the arcs that its file has now."""
        assert self.rules is not None
        read = read_file_or_copy(WatchedFile(self.rules, arc_statements(self.automaton, self.inner))).rules
        arcs = (rule.timed_arc for rule in read if isinstance(rule, ArcRule))
        return replace(self.automaton, arcs=(*self.automaton.arcs, *arcs))


def arc_statements(automaton: Automaton, rows: Relation) -> ArcStatements:
    """Return the form of a file with arcs that may read all columns of the rows."""
    columns = tuple(column for name in rows.visible_names if (column := rows.column(name)) is not None)
    names = tuple(
        f"{RESERVED_PREFIX}{column.name}" if column.name.lower() in RESERVED else column.name for column in columns
    )
    return ArcStatements(automaton, columns, names)


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
        computing = (inner.move_byte_functions_down,) if isinstance(inner, LinkRelation) else ()
        self._binder = ArcBinder(sql, self._fields, self._scope.resolve_in_row, *computing)

    def bind(self) -> AutomatonRelation:
        clause = self._clause
        order = self._order()
        keys = tuple(dict.fromkeys(self._column(word, "PARTITION BY").name for word in clause.partition))
        for word in clause.partition:
            if word.text.lower() in RESULT_TIMES:
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
            if clause.rules is not None:
                states.setdefault(word.text.lower(), word.text)
            elif word.text.lower() not in states:
                expected = "a state of an arc"
                raise QueryError(
                    f"the final state '{word.text}'", self._sql, word.start, expected, tuple(states.values()), word.text
                )
        if clause.rules is None:
            self._check_reached()
        arcs = tuple(self._binder.arc(arc, states) for arc in clause.arcs)
        finals = tuple(dict.fromkeys(states[word.text.lower()] for word in clause.finals))
        register = tuple(self._fields.values())
        others = finals if clause.rules is not None else ()
        start = states[clause.start.text.lower()]
        try:
            automaton = Automaton(start, finals, arcs, register, clause.within, other_states=others)
        except PatternError as error:
            raise self._contradiction(error, clause.keyword) from None
        for word, arc in zip((arc.source for arc in clause.arcs), arcs, strict=True):
            try:
                compile_automaton(replace(automaton, arcs=(arc,), other_states=automaton.states))
            except PatternError as error:
                raise self._contradiction(error, word) from None
        if clause.rules is None:
            self._check_deadlines(automaton, order)
        rules = None if clause.rules is None else self._rules(clause.rules, automaton)
        all_rows = clause.has_all_rows
        return AutomatonRelation(self._inner, order, keys, automaton, until, number, rules, all_rows, clause.added)

    def _contradiction(self, error: PatternError, word: tree.Word) -> QueryError:
        problem, _, expected = str(error).partition(", expected ")
        return QueryError(problem.removeprefix("got "), self._sql, word.start, expected)

    def _check_reached(self) -> None:
        """Raise QueryError for a state with an arc that no run reaches."""
        arcs, start = self._clause.arcs, self._clause.start
        sources = tuple(dict.fromkeys(arc.source.text for arc in arcs))
        if start.text.lower() not in (source.lower() for source in sources):
            problem = f"the start state '{start.text}' without an arc"
            raise QueryError(problem, self._sql, start.start, "a state that an arc leaves", sources, start.text)
        reached = reached_states(start.text.lower(), ((arc.source.text, arc.target.text) for arc in arcs))
        for arc in arcs:
            word = arc.source
            if word.text.lower() not in reached:
                expected = f"a state that arcs reach from START {start.text}"
                targets = tuple(dict.fromkeys([start.text, *(each.target.text for each in arcs)]))
                choices = tuple(name for name in targets if name.lower() in reached)
                raise QueryError(
                    f"an arc from '{word.text}', which no run reaches",
                    self._sql,
                    word.start,
                    expected,
                    choices,
                    word.text,
                )

    def _check_deadlines(self, automaton: Automaton, order: str) -> None:
        """Raise QueryError for a deadline that WITHIN always excludes: a constant time after a row of the run."""
        window = automaton.window
        for arc, written in zip(automaton.arcs, self._clause.arcs, strict=True):
            if window is None or arc.deadline is None or written.deadline is None:
                continue
            match arc.deadline:
                case Column(name):
                    distance = 0
                case Binary(Op.ADD, Column(name), Literal(int(distance))):
                    pass
                case _:
                    continue
            if distance >= window and _is_time_of_row(automaton, name, order):
                problem = f"AT {duration_text(distance)} after {name}, and WITHIN {duration_text(window)}"
                expected = "WITHIN that is longer: a run ends before this time"
                raise QueryError(problem, self._sql, written.deadline.start, expected)

    def _rules(self, file: tree.Word, automaton: Automaton) -> str:
        """Return the absolute path of a file with arcs. Raises QueryError if it cannot be read, or is wrong."""
        clause = tree.Word("ARCS FROM", file.start)
        if isinstance(self._inner, LinkRelation):
            expected = "a query that selects the columns that arcs may read: ON (SELECT ts, srcIP, len FROM packets)"
            raise QueryError("ARCS FROM over a link", self._sql, file.start, expected)
        path = absolute_path(self._sql, clause, file.text)
        form = arc_statements(automaton, self._inner)
        try:
            read_file_or_copy(WatchedFile(path, form))
        except InputError as error:
            problem, *remedy = re.split("[;,] expected ", str(error), maxsplit=1)
            raise QueryError(problem, self._sql, file.start, *(remedy or [form.expected])) from None
        return path

    def _order(self) -> str:
        word, inner = self._clause.order, self._inner
        column = inner.column(word.text)
        if column is None or column.name not in inner.times:
            expected = "the time column of the rows" if inner.times else "rows with a time: a query that selects ts"
            raise QueryError(
                f"ORDER BY {word.text} in AUTOMATON", self._sql, word.start, expected, inner.times, word.text
            )
        if self._clause.has_all_rows and column.name.lower() in RESULT_TIMES:
            expected = "another name: a query in FROM may rename it"
            problem = f"ORDER BY {word.text} and ALL ROWS PER MATCH: it is also a time of the results"
            raise QueryError(problem, self._sql, word.start, expected)
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
        if name.text.lower() in (*self._fields, *RESULT_TIMES, *RESERVED) or self._inner.column(name.text) is not None:
            taken = ", ".join((*RESULT_TIMES, *RESERVED))
            expected = f"a name that no column of the rows and no other field has, and none of {taken}"
            raise QueryError(f"a field '{name.text}'", self._sql, name.start, expected)
        initial = Literal(None, kind)
        if field.initial is not None and not isinstance(field.initial, tree.Null):
            bound = self._binder.value(field.initial, kind, f"DEFAULT of {name.text}")
            if not isinstance(bound, Literal):
                raise QueryError(f"DEFAULT of {name.text} is no constant", self._sql, field.initial.start, "a constant")
            is_number = kind is Type.FLOAT and isinstance(bound.value, int)
            initial = Literal(float(bound.value) if is_number else bound.value, kind)  # type: ignore[arg-type]
        self._fields[name.text.lower()] = Field(name.text, initial)


def _is_time_of_row(automaton: Automaton, name: str, order: str) -> bool:
    """Return whether a field is NULL or the time of a row of the run, which is in the column `order`."""
    initial = next(field.initial for field in automaton.register if field.name == name)
    values = [value for arc in automaton.arcs for field, value in arc.transfer if field == name]
    return initial.value is None and all(isinstance(value, Column) and value.name == order for value in values)
