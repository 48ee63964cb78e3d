"""Arcs of AUTOMATON: those of the clause, and those of a file that is followed (ARCS FROM).

A name in a condition or a value is a field of the register, or else a column of the rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from capture.lazy_dataclasses import dataclass
from highlevel.patterns.arc_table import ArcForm, ArcRule
from highlevel.patterns.automaton import Arc, Automaton, Field, PatternError, check_deadlines, reachable
from highlevel.patterns.compilation import AutomatonCompiler
from lowlevel.expressions.tree import Column, Expression, Literal
from lowlevel.expressions.types import Type
from lowlevel.punctuation import BEGINNING, END
from lowlevel.watch.contents import LineWarning
from lowlevel.watch.errors import WatchlistError
from lowlevel.watch.watched_file import CACHED_VERSIONS
from queries.binding.binder import Binder, NameResolver
from queries.binding.comparisons import Operand
from queries.binding.watchlists import files_refused
from queries.plans.relations import names_in, rename_columns
from queries.text import tree
from queries.text.errors import QueryError
from queries.text.parser import parse_arcs

_PARTS = re.compile(r"(?:'[^']*'|\"[^\"]*\"|--[^\n]*|/\*.*?\*/|[^;])+;?|;", re.DOTALL)
"""The parts of a text between semicolons, which quoted text and comments may contain."""

MAX_ARCS = 20_000
"""Largest number of arcs in a file: each row is compared with their conditions."""


class _Statement(NamedTuple):
    """A statement of a text: its rule, and the offset of its first state in the text."""

    rule: ArcRule
    position: int


_known_parts: dict[ArcStatements, dict[str, list[_Statement]]] = {}
"""A cache: the parts of the last version of each file with their arcs."""


class ArcBinder:
    """Binds arcs, and values for fields of the register."""

    def __init__(
        self,
        sql: str,
        fields: Mapping[str, Field],
        resolve: NameResolver,
        computing: Callable[[Expression], Expression] = lambda bound: bound,
    ) -> None:
        """`fields` are those of the register by their names in lower case; `resolve` returns a column of the rows.

        `computing` is applied to each bound expression.
        """
        self._sql = sql
        self._fields = fields
        self._resolve_column = resolve
        self._computing = computing

    def arc(self, arc: tree.AutomatonArc, states: Mapping[str, str]) -> Arc:
        """Bind an arc. `states` are the names of states by their names in lower case."""
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
            transfer[field.name] = Literal(None, kind) if is_null else self.value(value, kind, f"SET {field.name}")
        if arc.is_silent:
            parts = [*([arc.condition] if arc.condition is not None else []), *(value for _, value in arc.changes)]
            for bound, part in zip([fence, *transfer.values()][-len(parts) :] if parts else [], parts, strict=True):
                self._check_without_row("SILENT ARC", bound, part)
        begin = BEGINNING if arc.begin is None else self._time("FROM", arc.begin)
        end = END if arc.end is None else self._time("TO", arc.end)
        if arc.end is not None and begin >= end:
            raise QueryError("TO a time that is not after FROM", self._sql, arc.end.start, "a later time")
        return Arc(source, target, fence, tuple(transfer.items()), arc.is_silent, begin, end)

    def _time(self, clause: str, expression: tree.Expression) -> int:
        """Return the constant time of FROM or TO in ns."""
        operand = Operand(self._sql, expression.start, self._bind(clause, expression)).as_time()
        if not isinstance(operand.bound, Literal) or operand.type is not Type.TIME:
            raise QueryError(f"{clause} without a time", self._sql, expression.start, "a time: '2024-05-01T10:00:00Z'")
        return int(operand.bound.value)  # type: ignore[arg-type]

    def _check_without_row(self, clause: str, bound: Expression, part: tree.Expression) -> None:
        fields = {field.name for field in self._fields.values()}
        others = sorted(names_in([bound]) - fields)
        if others:
            expected = "fields of the register only: the arc consumes no row"
            raise QueryError(f"{clause} with the column {others[0]}", self._sql, part.start, expected)

    def value(self, expression: tree.Expression, kind: Type, clause: str) -> Expression:
        """Bind a value for a field of type `kind`."""
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
        return self._computing(Binder(self._sql, clause, expression, self._resolve).bind())

    def _resolve(self, word: tree.Word, table: tree.Word | None) -> Expression | None:
        field = self._fields.get(word.text.lower()) if table is None else None
        return self._resolve_column(word, table) if field is None else field.column


@dataclass(frozen=True)
class ArcStatements(ArcForm):
    """The form of a file with ARC statements: `automaton` with its own arcs, and the `columns` of its rows.

    `names` are the names of these columns in the plan.
    """

    automaton: Automaton
    columns: tuple[Column, ...]
    names: tuple[str, ...]

    def __str__(self) -> str:
        """Return the word for a line of the file."""
        return "arc"

    @property
    def expected(self) -> str:
        """The file that is expected, for messages."""
        return "a file of arcs: ARC idle TO hit WHEN destIP = '203.0.113.9'"

    def read(self, text: str) -> tuple[ArcRule, ...]:
        """Return the arcs of a file. Raises WatchlistError for a wrong statement, and for arcs that contradict others.

        Equal statements are one arc. Parts of the text that the last version had are not parsed again.
        """
        known = _known_parts.get(self, {})
        of_parts: dict[str, list[_Statement]] = {}
        try:
            for part in _PARTS.findall(text):
                if part not in of_parts and not part.isspace():
                    of_parts[part] = known[part] if part in known else self._statements(part)
        except WatchlistError:
            self._statements(text)  # raises the error with its line in the whole text
            raise
        rules = {rule.text: rule for rule in self._with_equal_names(of_parts.values())}
        if len(rules) > MAX_ARCS:
            raise WatchlistError(f"got {len(rules)} arcs in a file, expected at most {MAX_ARCS}")
        self._check_arcs(text, {part: found for part, found in of_parts.items() if part not in known})
        _known_parts.pop(self, None)
        while len(_known_parts) >= CACHED_VERSIONS:
            _known_parts.pop(next(iter(_known_parts)), None)
        _known_parts[self] = of_parts
        return tuple(rules.values())

    def _check_arcs(self, text: str, added: Mapping[str, Sequence[_Statement]]) -> None:
        """Raise WatchlistError with its line for an arc of a part of the text that the automaton cannot have."""
        statements = [statement for of_part in added.values() for statement in of_part]
        try:
            self._compile([statement.rule.arc for statement in statements])
        except PatternError as error:
            problem = str(error)
            for part, of_part in added.items():
                for rule, position in of_part:
                    try:
                        self._compile([rule.arc])
                    except PatternError as error_of_arc:
                        message, _, expected = str(error_of_arc).partition(", expected ")
                        at = text.index(part) + position
                        problem = _first_line(QueryError(message.removeprefix("got "), text, at, expected))
                        raise WatchlistError(problem) from None
            raise WatchlistError(problem) from None

    def _compile(self, arcs: Sequence[Arc]) -> None:
        """Translate arcs of the file. Raises PatternError for one that is not possible in this automaton."""
        check_deadlines((*self.automaton.arcs, *arcs), self.automaton.finals)
        AutomatonCompiler(self.automaton).compile(arcs)

    def find_warnings(self, text: str, rules: Sequence[object]) -> tuple[LineWarning, ...]:
        """Return a warning for each state that an arc of the text leaves, and that no run reaches."""
        arcs = [*self.automaton.arcs, *(rule.arc for rule in rules if isinstance(rule, ArcRule))]
        reached = reached_states(self.automaton.start, {(arc.source, arc.target) for arc in arcs})
        if all(arc.source.lower() in reached for arc in arcs):
            return ()
        known, found = _known_parts.get(self, {}), dict[str, LineWarning]()
        for part in _PARTS.finditer(text):
            for rule, position in known.get(part.group(), ()):
                state = rule.arc.source
                if state.lower() not in reached and state.lower() not in found:
                    warning = f"an arc leaves '{state}', which no run reaches; expected an arc TO {state}"
                    line = text.count("\n", 0, part.start() + position) + 1
                    found[state.lower()] = LineWarning(line, warning)
        return tuple(found.values())

    def rules(self, statements: Sequence[str]) -> list[ArcRule]:
        """Return the rule of each statement."""
        known = {each.rule.text: each for of_part in _known_parts.get(self, {}).values() for each in of_part}
        added = [text for text in statements if text not in known]
        known |= {each.rule.text: each for each in self._statements("\n;\n".join(added))} if added else {}
        return list(self._with_equal_names([[known[text] for text in statements]]))

    def _with_equal_names(self, parts: Iterable[Sequence[_Statement]]) -> Iterator[ArcRule]:
        """Yield the rules of parts that were parsed alone. Names of states are compared without case."""
        states = {name.lower(): name for name in self.automaton.states}
        for statements in parts:
            for rule, _ in statements:
                arc = rule.arc
                source, target = (states.setdefault(name.lower(), name) for name in (arc.source, arc.target))
                is_same = source == arc.source and target == arc.target
                yield rule if is_same else replace(rule, arc=replace(arc, source=source, target=target))

    def _statements(self, text: str) -> list[_Statement]:
        """Parse a text. Raises WatchlistError."""
        fields = {field.name.lower(): field for field in self.automaton.register}
        columns = {column.name.lower(): column for column in self.columns}
        names = dict(zip((column.name for column in self.columns), self.names, strict=True))

        def resolve(word: tree.Word, table: tree.Word | None) -> Expression | None:
            column = columns.get(word.text.lower()) if table is None else None
            if column is None and (not word.quoted or table is not None):
                choices = (*(field.name for field in fields.values()), *(each.name for each in columns.values()))
                expected = "a field of the register, or a column of the rows"
                raise QueryError(f"unknown column '{word.text}'", text, word.start, expected, choices, word.text)
            return column

        binder = ArcBinder(text, fields, resolve)
        states = {name.lower(): name for name in self.automaton.states}
        statements = []
        try:
            with files_refused("is not supported in a file of arcs"):
                for statement, arc in parse_arcs(text):
                    for word in (arc.source, arc.target):
                        states.setdefault(word.text.lower(), word.text)
                    bound = with_names(binder.arc(arc, states), names)
                    begin, end = (None if part is None else time for part, time in _times(arc, bound))
                    rule = ArcRule(statement, replace(bound, begin=BEGINNING, end=END), begin, end)
                    statements.append(_Statement(rule, arc.source.start))
        except QueryError as error:
            raise WatchlistError(_first_line(error)) from None
        return statements


def _first_line(error: QueryError) -> str:
    """Return the position, the problem and the expected text of an error, without the excerpt and the choices."""
    return str(error).partition("\n")[0]


def reached_states(start: str, arcs: Iterable[tuple[str, str]]) -> set[str]:
    """Return the states to which arcs lead from the start, and the start, in lower case."""
    targets: dict[str, set[str]] = {}
    for source, target in arcs:
        targets.setdefault(source.lower(), set()).add(target.lower())
    return reachable(targets, start.lower())


def _times(arc: tree.AutomatonArc, bound: Arc) -> tuple[tuple[tree.Expression | None, int], ...]:
    """Return the clauses FROM and TO of an arc with their times."""
    return (arc.begin, bound.begin), (arc.end, bound.end)


def with_names(arc: Arc, names: Mapping[str, str]) -> Arc:
    """Return an arc that reads columns of rows by other names."""
    transfer = tuple((name, rename_columns(value, names)) for name, value in arc.transfer)
    return replace(arc, fence=rename_columns(arc.fence, names), transfer=transfer)
