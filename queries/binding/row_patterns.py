"""Expressions of MATCH_RECOGNIZE: names, navigation and aggregates as fields of an automaton's register.

    DEFINE   B AS sum(B.len) > 2 * A.len      a field for sum(B.len), whose update reads the row: field + len
                                              a field for A.len, the value in the last row of A
    PREV     prev(len), next(len, 2)          a column of the row: the value in another row of the partition

A field changes with the rows of some variables: of one, of a union in SUBSET, or of all. In DEFINE, the tested row is
included in the fields: in the condition of B, each field that B changes is replaced by its new value. MEASURES read the
fields after the last row. With ALL ROWS PER MATCH they read the fields after each row, and FINAL those after the last
row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import Any

from capture.lazy_dataclasses import dataclass
from highlevel.patterns.automaton import Field, Transfer
from highlevel.plan.pattern_nodes import FINAL, MATCH_NUMBER, ROW_NUMBER, Neighbour
from lowlevel.expressions.tree import (
    Binary,
    Column,
    Conditional,
    Extreme,
    IsNull,
    Literal,
    Mean,
    Present,
    WideSum,
    transform,
    width_of,
)
from lowlevel.expressions.tree import Expression as Bound
from lowlevel.expressions.types import INTEGERS, NUMBERS, Op, Type
from queries.binding.aggregates import NARROW_BITS
from queries.binding.binder import Binder
from queries.text import tree
from queries.text.errors import QueryError
from queries.text.lexer import Kind
from queries.text.printer import expression_text
from queries.text.tree import Call, Name, Star, Word

AGGREGATES = ("count", "sum", "avg", "min", "max")
NAVIGATION = ("first", "last", "prev", "next", "classifier", "match_number")

MAX_OFFSET = 100
"""Largest offset of navigation: LAST(x, n) keeps the values of n + 1 rows, and so does PREV(x, n)."""

OPPOSITES = {"prev": "NEXT", "next": "PREV"}
"""Functions with the opposite direction, by name."""

ONE = Literal(1, Type.INT)

NameResolver = Callable[[Word, Word | None], Bound | None]


@dataclass(frozen=True)
class Update:
    """A field of the register, and its new value after a row of `variable`, or after any row if `variable` is None.

    If `value` is None, the new value is the name of the variable to which the row belongs. Names of fields have
    parentheses, so they differ from those of columns.
    """

    field: Field
    variable: str | None
    value: Bound | None


class RowPatternBinder:
    """Binds the expressions of one MATCH_RECOGNIZE, and collects the fields that they need."""

    def __init__(
        self,
        sql: str,
        variables: Mapping[str, str],
        subsets: Mapping[str, frozenset[str]],
        resolve: NameResolver,
        move_byte_functions_down: Callable[[Bound], Bound],
        *,
        has_all_rows: bool,
        has_final_measures: bool = False,
    ) -> None:
        """`variables`: the names by their form in lower case. `subsets`: the variables of each union of SUBSET.

        `resolve` finds the columns of the rows.
        """
        self._sql = sql
        self._variables = {name.lower(): name for name in (*variables.values(), *subsets)}
        self._members = {name: frozenset([name]) for name in variables.values()} | dict(subsets)
        self._resolve = resolve
        self.move_byte_functions_down = move_byte_functions_down
        """Returns an expression over a row whose values the low level can return: functions of bytes are moved down."""
        self._updates: dict[str, Update] = {}
        self.neighbours: dict[str, Neighbour] = {}
        """Columns with the values of other rows of the partition, by their names."""
        self._has_all_rows = has_all_rows
        self._has_final_measures = has_final_measures
        self.final_fields: dict[str, None] = {}
        """Fields whose values after the last row of the match are read by FINAL."""
        self.reads_match_number = False
        """True if an expression reads MATCH_NUMBER()."""

    @property
    def register(self) -> tuple[Field, ...]:
        """The fields."""
        return tuple(update.field for update in self._updates.values())

    def transfer(self, variable: str) -> Transfer:
        """Return the new values of fields after a row of a variable."""
        name_of_row = Literal(variable, Type.TEXT)
        return tuple(
            (name, name_of_row if update.value is None else update.value)
            for name, update in self._updates.items()
            if update.variable is None or variable in self._members[update.variable]
        )

    def condition(self, variable: str, condition: tree.Expression) -> Bound:
        """Bind the condition of a variable in DEFINE, over the fields before the row. Fields may be added."""
        bound = self._bind("DEFINE", condition)
        if bound.type is not Type.BOOL:
            problem = f"{expression_text(bound)} in DEFINE is {bound.type}"
            raise QueryError(problem, self._sql, condition.start, "a condition: len > 1000, srcIP = A.destIP, …")
        return bound

    def measure(self, expression: tree.Expression) -> Bound:
        """Bind a measure, over the fields after a row."""
        bound = self._bind("MEASURES", expression)
        return self._after_last_row(bound) if self._has_final_measures else bound

    def row_of(self, variable: str, *, first: bool) -> str:
        """Return the field with the number of the first or last row of a variable."""
        number = Column(ROW_NUMBER, Type.INT)
        column = self._first_value_field(variable, number, 0) if first else self._last_value_field(variable, number, 0)
        return column.name

    def variable(self, word: Word, problem: str) -> str:
        """Return the variable or union with a name. Raises QueryError with `problem` if there is none."""
        variable = self._variables.get(word.text.lower())
        if variable is None:
            choices = tuple(self._variables.values())
            expected = "a variable of PATTERN or a name of SUBSET"
            raise QueryError(problem, self._sql, word.start, expected, choices, word.text)
        return variable

    def _bind(self, clause: str, expression: tree.Expression) -> Bound:
        meanings: dict[str, Bound] = {}

        def meaning(bound: Bound, start: int) -> Name:
            key = f"part {len(meanings)} of the expression"
            meanings[key] = bound
            return Name(Word(key, start, quoted=True))

        def replaced(node: Any) -> Any:
            if isinstance(node, Call):
                bound = self._call(clause, node)
                if bound is not None:
                    return meaning(bound, node.start)
            return None

        def resolve(word: Word, table: Word | None) -> Bound | None:
            if word.text in meanings:
                return meanings[word.text]
            column = self._row_column(word, table)
            return (
                None
                if column is None
                else self._last_value_field(self._variable(table), self.move_byte_functions_down(column), 0)
            )

        return Binder(self._sql, clause, _replace_parts(expression, replaced), resolve).bind()

    def _row_column(self, word: Word, table: Word | None) -> Bound | None:
        """Return the column of a name such as `B.len`.

        The variable must exist, but all variables have the same columns.
        """
        self._variable(table)
        return self._resolve(word, None)

    def _variable(self, word: Word | None) -> str | None:
        return None if word is None else self.variable(word, f"got a column of '{word.text}'")

    def _call(self, clause: str, call: Call) -> Bound | None:
        """Bind a call of an aggregate or of navigation; None for other functions."""
        name = call.function.text.lower()
        if call.is_final:
            return self._final(clause, name, call)
        if name == "match_number":
            if clause != "MEASURES":
                raise self._error("MATCH_NUMBER in DEFINE", call, "MATCH_NUMBER() in MEASURES")
            self.reads_match_number = True
            return Column(MATCH_NUMBER, Type.INT)
        if name == "classifier":
            return self._bind_classifier(call)
        if name not in (*AGGREGATES, *NAVIGATION):
            if not call.arguments:
                choices = (*AGGREGATES, *NAVIGATION)
                raise self._error(
                    f"{call.function.text}() in {clause}", call, f"a function of rows: {', '.join(choices)}"
                )
            return None
        if call.where is not None:
            raise self._error(f"FILTER in {clause}", call, "a variable with this condition in DEFINE")
        return (
            self._bind_aggregate(clause, name, call)
            if name in AGGREGATES
            else self._bind_navigation(clause, name, call)
        )

    def _final(self, clause: str, name: str, call: Call) -> Bound | None:
        """Bind a call after FINAL."""
        if name not in (*AGGREGATES, "first", "last", "classifier"):
            raise self._error(f"FINAL {name.upper()}", call, "FINAL before an aggregate, FIRST, LAST or CLASSIFIER")
        bound = self._call(clause, replace(call, is_final=False))
        return None if bound is None else self._after_all_rows(clause, call, bound)

    def _after_all_rows(self, clause: str, call: Call, bound: Bound) -> Bound:
        """Return the value of a call after FINAL."""
        if clause != "MEASURES":
            raise self._error(f"FINAL in {clause}", call, "no FINAL: rows after the tested row are not known")
        return self._after_last_row(bound) if self._has_all_rows and not self._has_final_measures else bound

    def _after_last_row(self, bound: Bound) -> Bound:
        """Return an expression over the fields after the last row."""

        def final(part: Bound) -> Bound | None:
            if not isinstance(part, Column) or part.name == MATCH_NUMBER:
                return None
            self.final_fields[part.name] = None
            return replace(part, name=FINAL + part.name)

        return transform(bound, final)

    def _error(self, problem: str, call: Call, expected: str) -> QueryError:
        return QueryError(problem, self._sql, call.start, expected)

    def _bind_classifier(self, call: Call) -> Bound:
        """Return the variable of the last row, or of the last row of a variable or union."""
        variable = None
        if call.arguments:
            match call.arguments:
                case (Name(word, None),):
                    variable = self.variable(word, f"CLASSIFIER({word.text})")
                case _:
                    raise self._error("CLASSIFIER of an expression", call, "CLASSIFIER(), or CLASSIFIER(U)")
        name = f"classifier({variable or ''})"
        self._updates.setdefault(name, Update(Field(name, Literal(None, Type.TEXT)), variable, None))
        return Column(name, Type.TEXT, nullable=True)

    def _bind_navigation(self, clause: str, name: str, call: Call) -> Bound:
        if name in ("first", "last"):
            return self._bind_first_or_last(name, call, 0)
        distance = self._offset(name, call) * (-1 if name == "prev" else 1)
        match call.arguments[0]:
            case Call(tree.Word(text), is_final=is_final) as inner if text.lower() in ("first", "last"):
                bound = self._bind_first_or_last(text.lower(), inner, distance)
                return self._after_all_rows(clause, inner, bound) if is_final else bound
            case argument:
                return self._bind_first_or_last("last", replace(call, arguments=(argument,)), distance)

    def _bind_first_or_last(self, name: str, call: Call, distance: int) -> Bound:
        """Bind FIRST or LAST: the value in a row of the match, or in the row at a distance from it."""
        offset = self._offset(name, call)
        variable, value = self._argument(call, call.arguments[0])
        if distance:
            value = transform(value, partial(self._neighbour_column, distance))
        return (
            self._first_value_field(variable, value, offset)
            if name == "first"
            else self._last_value_field(variable, value, offset)
        )

    def _neighbour_column(self, distance: int, part: Bound) -> Bound | None:
        """Return a column of another row of the partition in place of a column."""
        if not isinstance(part, Column):
            return None
        steps = f", {abs(distance)}" if abs(distance) > 1 else ""
        name = f"{'prev' if distance < 0 else 'next'}({part.name}{steps})"
        self.neighbours[name] = Neighbour(name, part.name, distance)
        return replace(part, name=name, nullable=True)

    def _offset(self, name: str, call: Call) -> int:
        """Return the second argument of navigation, by default 1 for PREV and NEXT, and 0 for FIRST and LAST."""
        if not 1 <= len(call.arguments) <= 2:
            raise self._error(f"{name.upper()} with {len(call.arguments)} arguments", call, f"{name.upper()}(A.len, 1)")
        if len(call.arguments) == 1:
            return 1 if name in ("prev", "next") else 0
        offset = call.arguments[1]
        expected = f"an integer from 0 to {MAX_OFFSET}"
        if not isinstance(offset, tree.Constant):
            raise QueryError(f"the offset of {name.upper()} is no constant", self._sql, offset.start, expected)
        is_integer = offset.kind is Kind.NUMBER and offset.text.isdecimal()
        if offset.negative or not is_integer or int(offset.text) > MAX_OFFSET:
            if offset.negative and name in OPPOSITES:
                expected += f", or {OPPOSITES[name]}"
            text = f"{'-' if offset.negative else ''}{offset.text}"
            raise QueryError(f"the offset {text} of {name.upper()}", self._sql, offset.start, expected)
        return int(offset.text)

    def _argument(self, call: Call, argument: tree.Expression) -> tuple[str | None, Bound]:
        """Return the variable of an argument, and its value for a row. All names have the same variable."""
        name = call.function.text.lower()
        words: dict[str | None, Word] = {}

        def resolve(word: Word, table: Word | None) -> Bound | None:
            column = self._row_column(word, table)
            if column is not None:
                words.setdefault(self._variable(table), word)
            return column

        for inner in tree.calls_in(argument):
            if inner.function.text.lower() in (*AGGREGATES, *NAVIGATION):
                raise self._error(f"{inner.function.text} within {name}", inner, "one of them around columns")
        bound = Binder(self._sql, name, argument, resolve).bind()
        if len(words) > 1:
            raise self._error(f"{name} of columns of several variables", call, "columns of one variable")
        return next(iter(words), None), self.move_byte_functions_down(bound)

    def _bind_aggregate(self, clause: str, name: str, call: Call) -> Bound:
        if len(call.arguments) != 1:
            raise self._error(f"{name} with {len(call.arguments)} arguments", call, f"one argument: {name}(A.len)")
        argument = call.arguments[0]
        if isinstance(argument, Star):
            if name != "count":
                raise self._error(f"{name}(*)", call, "count(*), or a column")
            return self._row_count_field(self._variable(argument.table))
        variable, value = self._argument(call, argument)
        if name == "count":
            return self._value_count_field(variable, value)
        if value.type not in NUMBERS or (value.type is Type.TIME and name in ("sum", "avg")):
            raise self._error(f"{name} of {value.type} in {clause}", call, "a number")
        if name == "avg":
            return Mean(self._sum(variable, value, Type.FLOAT), self._value_count_field(variable, value))
        if name == "sum":
            return Present(self._sum(variable, value, value.type), self._value_count_field(variable, value))
        return self._add_field(
            f"{name}({_text(variable, value)})",
            Literal(None, value.type),
            variable,
            lambda field: Extreme(field, value, largest=name == "max"),
        )

    # --- fields ---

    def _add_field(self, name: str, initial: Literal, variable: str | None, value: Callable[[Column], Bound]) -> Column:
        """Return the column of a field, which is added if it is new."""
        if name not in self._updates:
            field = Field(name, initial)
            self._updates[name] = Update(field, variable, value(field.column))
        column = self._updates[name].field.column
        return replace(column, nullable=initial.value is None)

    def _row_count_field(self, variable: str | None) -> Column:
        """Return the field with the number of rows of a variable."""
        name = f"count({'' if variable is None else f'{variable}.'}*)"
        return self._add_field(name, Literal(0, Type.INT), variable, lambda field: Binary(Op.ADD, field, ONE))

    def _value_count_field(self, variable: str | None, value: Bound) -> Column:
        """Return the field with the number of values that are not NULL."""
        if not value.nullable:
            return self._row_count_field(variable)
        name = f"count({_text(variable, value)})"
        return self._add_field(
            name,
            Literal(0, Type.INT),
            variable,
            lambda field: Conditional(IsNull(value), field, Binary(Op.ADD, field, ONE)),
        )

    def _sum(self, variable: str | None, value: Bound, kind: Type) -> Bound:
        """Return the sum of values, 0 of no values. The sum of wide integers has the type `kind`."""
        if value.type not in INTEGERS or width_of(value) <= NARROW_BITS:
            return self._total_field("sum", variable, value, value)
        high = Binary(Op.SHIFT_RIGHT, value, Literal(32, Type.INT))
        low = Binary(Op.BIT_AND, value, Literal(0xFFFFFFFF, Type.INT))
        return WideSum(
            self._total_field("upper sum", variable, value, high),
            self._total_field("lower sum", variable, value, low),
            kind,
        )

    def _total_field(self, name: str, variable: str | None, value: Bound, part: Bound) -> Column:
        """Return the field with the sum of `part` over the rows in which `value` is not NULL."""

        def update(field: Column) -> Bound:
            added = Binary(Op.ADD, field, part)
            return Conditional(IsNull(value), field, added) if value.nullable else added

        zero = Literal(0.0 if part.type is Type.FLOAT else 0, part.type)
        return self._add_field(f"{name}({_text(variable, value)})", zero, variable, update)

    def _last_value_field(self, variable: str | None, value: Bound, offset: int) -> Column:
        """Return the field with the value in the last row of a variable, or `offset` rows before it."""
        before = self._last_value_field(variable, value, offset - 1) if offset else None
        suffix = f", {offset}" if offset else ""
        name = f"last({_text(variable, value)}{suffix})"
        return self._add_field(name, Literal(None, value.type), variable, lambda _: value if before is None else before)

    def _first_value_field(self, variable: str | None, value: Bound, offset: int) -> Column:
        """Return the field with the value in a row of a variable, counted from its first row."""
        rows = self._row_count_field(variable)
        suffix = f", {offset}" if offset else ""
        is_row = Binary(Op.EQ, rows, Literal(offset, Type.INT))
        return self._add_field(
            f"first({_text(variable, value)}{suffix})",
            Literal(None, value.type),
            variable,
            lambda field: Conditional(is_row, value, field),
        )


def _text(variable: str | None, value: Bound) -> str:
    """Return a unique name for the values of a variable."""
    text = expression_text(value)
    if variable is None:
        return text
    return f"{variable}.{text}" if isinstance(value, Column) else f"{variable}: {text}"


def _replace_parts(node: Any, change: Callable[[Any], Any]) -> Any:
    """Return a copy of a syntax tree in which `change` has replaced parts. If it returns None, the part stays."""
    if isinstance(node, tuple):
        return tuple(_replace_parts(part, change) for part in node)
    if not is_dataclass(node) or isinstance(node, type):
        return node
    replacement = change(node)
    if replacement is not None:
        return replacement
    return replace(node, **{part.name: _replace_parts(getattr(node, part.name), change) for part in fields(node)})
