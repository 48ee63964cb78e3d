"""Translation of an automaton into arrays: arcs, instructions, and the words that a row needs.

    fence    change < -0.25 AND (r2 < 1 OR r1 > 1)
             ├─────────────┤    ├───────────────┤
             bit of the row     instructions over the register (`expression_kernels`)

A condition that reads only the row is a bit of its first words, computed for a whole batch. Other parts that read only
the row are words of the row. Texts and addresses are numbers of known values (`ValueNumbers`), so they can be compared
for equality only.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from capture.lazy_dataclasses import dataclass
from highlevel.patterns import expression_kernels as code
from highlevel.patterns.automaton import Arc, Automaton, PatternError
from highlevel.patterns.expression_kernels import NULL, STACK_EFFECTS, Machine
from lowlevel.expressions.tree import (
    Binary,
    Call,
    Column,
    Conditional,
    Expression,
    Extreme,
    IsNull,
    Literal,
    Mean,
    Membership,
    Present,
    ScalarCall,
    Unary,
    WideSum,
    columns_of,
)
from lowlevel.expressions.types import Op, Scalar, Type

Words = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

BITS = 62
"""Conditions in a word of a row."""

NONE = -1

NEVER, ALWAYS, AT_END = range(3)
"""When a state is final: after any row, or after the last row of the partition only."""

TARGET, BEGIN, END_TIME, CONDITION, FENCE, FENCE_END, TRANSFER, TRANSFER_END, ARC_WORDS = range(9)
"""Words of an arc: its target, its lifetime, its condition or NONE, and its instructions."""

INTEGER_OPERATIONS = {
    Op.ADD: code.ADD_I, Op.SUB: code.SUB_I, Op.MUL: code.MUL_I, Op.DIV: code.DIV_I, Op.MOD: code.MOD_I,
    Op.LT: code.LT_I, Op.LE: code.LE_I, Op.EQ: code.EQ_I, Op.NE: code.NE_I, Op.AND: code.AND, Op.OR: code.OR,
}  # fmt: skip
FLOAT_OPERATIONS = {
    Op.ADD: code.ADD_F, Op.SUB: code.SUB_F, Op.MUL: code.MUL_F, Op.DIV: code.DIV_F,
    Op.LT: code.LT_F, Op.LE: code.LE_F, Op.EQ: code.EQ_F, Op.NE: code.NE_F,
}  # fmt: skip
SWAPPED = {Op.GT: Op.LT, Op.GE: Op.LE}

NUMBERED = (Type.TEXT, Type.ADDRESS, Type.BYTES)
"""Types whose values are replaced by numbers. Equal values have equal numbers."""


@dataclass(frozen=True)
class CompiledAutomaton:
    """An automaton as arrays. `integers` and `floats` are the fields of the register, fields of fences first.

    * `compared`: how many of these fields decide which arcs apply, directly or through transfers.
    * `conditions`: expressions over a row, whose values are bits.
    * `row_integers`, `row_floats`: expressions over a row, whose values are words after those with the bits.
    * `is_final`: NEVER, ALWAYS or AT_END for each state.
    * `empty_condition`: the condition of a run without rows, or NONE.
    * `arcs`: ARC_WORDS per arc, ordered by source; those of a state begin at `first_arcs[state]`. Silent arcs follow
      in the same form, from `first_silent[state]` on, and arcs with a deadline from `first_deadlines[state]` on. The
      fence of the latter computes the deadline.
    """

    automaton: Automaton
    integers: tuple[str, ...]
    floats: tuple[str, ...]
    compared: tuple[int, int]
    conditions: tuple[Expression, ...]
    row_integers: tuple[Expression, ...]
    row_floats: tuple[Expression, ...]
    arcs: Words
    first_arcs: Words
    first_silent: Words
    first_deadlines: Words
    is_final: Words
    empty_condition: int
    machine: Machine

    @property
    def bit_words(self) -> int:
        """Number of words with bits."""
        return -(-len(self.conditions) // BITS)

    @property
    def row_layout(self) -> tuple[tuple[Expression, ...], ...]:
        """The words of a row: conditions, integers and floats."""
        return self.conditions, self.row_integers, self.row_floats

    @property
    def can_ignore(self) -> Words:
        """1 for each state in which a run may ignore rows, 0 for the others.

        An ignorable arc leads from the state to itself and changes no field. The state is not final, because each row
        is another result; and no silent arc leaves it, because the lifetime of a silent arc may contain some rows only.
        """
        count = len(self.states)
        sources = np.repeat(np.arange(count), np.diff(self.first_arcs))
        arcs = self.arcs[self.first_arcs[0] : self.first_arcs[-1]]
        is_ignorable = (arcs[:, TARGET] == sources) & (arcs[:, TRANSFER] == arcs[:, TRANSFER_END])
        can_ignore = (self.is_final == NEVER) & (np.diff(self.first_silent) == 0)
        can_ignore &= np.bincount(sources[is_ignorable], minlength=count) > 0
        return can_ignore.astype(np.int64)

    @property
    def states(self) -> tuple[str, ...]:
        """The names of the states by their number."""
        return self.automaton.states


class _Compiler:
    def __init__(self, automaton: Automaton) -> None:
        self._automaton = automaton
        types = {field.name: field.initial.type for field in automaton.register}
        read = _fields_of_fences(automaton)
        ordered = sorted(types, key=lambda name: name not in read)
        self.integers = tuple(name for name in ordered if types[name] is not Type.FLOAT)
        self.floats = tuple(name for name in ordered if types[name] is Type.FLOAT)
        self.compared = (len(read.intersection(self.integers)), len(read.intersection(self.floats)))
        self._types = types
        self.conditions: dict[Expression, int] = {}
        self.row_integers: dict[Expression, int] = {}
        self.row_floats: dict[Expression, int] = {}
        """Expressions over a row, each with its place."""
        self._code: list[int] = []
        self._constants: list[int] = []
        self._float_constants: list[float] = []
        self._depths = [0, 0]
        self._most = [1, 1]
        """Number of values on the two stacks, at this instruction and at most."""
        self._instructions: dict[tuple[int, int], list[int]] = {}
        """Cache: the words of arcs after the lifetime, by the identities of fence and transfer, which many arcs
        share."""

    def compile(self) -> CompiledAutomaton:
        automaton = self._automaton
        numbers = {name: number for number, name in enumerate(automaton.states)}
        words: list[list[int]] = []
        firsts = []
        kinds = [
            [arc for arc in automaton.arcs if arc.deadline is None and not arc.is_silent],
            [arc for arc in automaton.arcs if arc.is_silent],
            [arc for arc in automaton.arcs if arc.deadline is not None],
        ]
        for of_kind in kinds:
            first = []
            arcs: dict[str, list[Arc]] = {state: [] for state in automaton.states}
            for arc in of_kind:
                arcs[arc.source].append(arc)
            for of_state in arcs.values():
                first.append(len(words))
                words += [self._arc(arc, numbers[arc.target]) for arc in of_state]
            firsts.append(np.array([*first, len(words)], np.int64))
        is_always_empty = automaton.empty_fence == Literal(True, Type.BOOL)
        empty_condition = NONE if is_always_empty else _place(self.conditions, automaton.empty_fence)
        bits = -(-len(self.conditions) // BITS)
        instructions = np.array(self._code, np.int64).reshape(-1, 2)
        instructions[instructions[:, 0] == code.ROW_I, 1] += bits
        machine = Machine(
            _not_empty(instructions.reshape(-1)),
            _not_empty(np.array(self._constants, np.int64)),
            _not_empty(np.array(self._float_constants, np.float64)),
            np.zeros(self._most[0], np.int64),
            np.zeros(self._most[1], np.float64),
        )
        is_final = np.array([_finality(automaton, name) for name in automaton.states], np.int64)
        arcs_array = np.array(words or [[NONE] * ARC_WORDS], np.int64).reshape(-1, ARC_WORDS)
        return CompiledAutomaton(
            automaton,
            self.integers,
            self.floats,
            self.compared,
            tuple(self.conditions),
            tuple(self.row_integers),
            tuple(self.row_floats),
            arcs_array,
            firsts[0],
            firsts[1],
            firsts[2],
            is_final,
            empty_condition,
            machine,
        )

    def _arc(self, arc: Arc, target: int) -> list[int]:
        if arc.deadline is not None:
            return [target, arc.begin, arc.end, *self._deadline(arc.deadline)]
        key = id(arc.fence), id(arc.transfer)
        if key not in self._instructions:
            self._instructions[key] = self._fence_and_transfer(arc)
        return [target, arc.begin, arc.end, *self._instructions[key]]

    def _fence_and_transfer(self, arc: Arc) -> list[int]:
        of_row, of_both = list[Expression](), list[Expression]()
        for part in _conjuncts(arc.fence):
            if part == Literal(True, Type.BOOL):
                continue
            (of_both if self._reads_register(part) or not any(columns_of(part)) else of_row).append(part)
        condition = NONE if not of_row else _place(self.conditions, _join(of_row))
        fence = self._position
        if of_both:
            self._add(_join(of_both), Type.BOOL)
            self._depths = [0, 0]
        transfer = self._position
        # All values are computed before the first is stored, because a transfer reads the register before the arc.
        transfer_values = [(name, value) for name, value in arc.transfer if not _is_field(value, name)]
        for name, value in transfer_values:
            self._add(value, self._types[name])
        for name, _ in reversed(transfer_values):
            self._store(name)
        return [condition, fence, transfer, transfer, self._position]

    def _deadline(self, deadline: Expression) -> list[int]:
        begin = self._position
        self._add(deadline)
        self._depths = [0, 0]
        return [NONE, begin, self._position, self._position, self._position]

    @property
    def _position(self) -> int:
        return len(self._code) // 2

    def _store(self, name: str) -> None:
        if name in self.floats:
            self._emit(code.STORE_F, self.floats.index(name))
        else:
            self._emit(code.STORE_I, self.integers.index(name))

    def _emit(self, operation: int, operand: int = 0) -> None:
        self._code += [operation, operand]
        for stack, change in enumerate(STACK_EFFECTS.get(operation, (-1, 0))):
            self._depths[stack] += change
            self._most[stack] = max(self._most[stack], self._depths[stack])

    def _reads_register(self, expression: Expression) -> bool:
        return any(column.name in self._types for column in columns_of(expression))

    def _add(self, expression: Expression, wanted: Type | None = None) -> None:
        """Add instructions that push a value; a FLOAT if `wanted` is FLOAT, or the expression is."""
        is_float = expression.type is Type.FLOAT
        if isinstance(expression, Literal) and expression.type not in NUMBERED:
            self._constant(expression, as_float=is_float)
        elif not self._reads_register(expression):
            if is_float:
                self._emit(code.ROW_F, _place(self.row_floats, expression))
            else:
                self._emit(code.ROW_I, _place(self.row_integers, expression))
        else:
            self._operation(expression)
        if wanted is Type.FLOAT and not is_float:
            self._emit(code.TO_FLOAT)

    def _constant(self, literal: Literal, *, as_float: bool) -> None:
        value = literal.value
        if as_float:
            number = code.NULL_FLOAT if value is None else float(value)  # type: ignore[arg-type]
            self._float_constants.append(number)
            self._emit(code.CONSTANT_F, len(self._float_constants) - 1)
        else:
            self._constants.append(NULL if value is None else int(value))  # type: ignore[arg-type]
            self._emit(code.CONSTANT_I, len(self._constants) - 1)

    def _operation(self, expression: Expression) -> None:
        match expression:
            case Column(name=name) if name in self.floats:
                self._emit(code.FIELD_F, self.floats.index(name))
            case Column(name=name):
                self._emit(code.FIELD_I, self.integers.index(name))
            case Unary(Op.NOT, operand):
                self._add(operand)
                self._emit(code.NOT)
            case Unary(Op.NEG, operand):
                self._add(operand)
                self._emit(code.NEG_F if operand.type is Type.FLOAT else code.NEG_I)
            case Binary(op, left, right) if op in SWAPPED:
                self._operation(Binary(SWAPPED[op], right, left))
            case Binary(op, left, right):
                self._binary(op, left, right)
            case IsNull(operand):
                self._add(operand)
                self._emit(code.IS_NULL_F if operand.type is Type.FLOAT else code.IS_NULL_I)
            case Conditional(condition, value, otherwise):
                self._add(condition)
                for part in (value, otherwise):
                    self._add(part, expression.type)
                self._emit(code.CHOOSE_F if expression.type is Type.FLOAT else code.CHOOSE_I)
            case Extreme(left, right, largest):
                for part in (left, right):
                    self._add(part, expression.type)
                if expression.type is Type.FLOAT:
                    self._emit(code.MAX_F if largest else code.MIN_F)
                else:
                    self._emit(code.MAX_I if largest else code.MIN_I)
            case WideSum(high, low, kind):
                self._add(high)
                self._add(low)
                self._emit(code.WIDE_SUM_F if kind is Type.FLOAT else code.WIDE_SUM_I)
            case Mean(total, count):
                self._add(total, Type.FLOAT)
                self._add(count, Type.FLOAT)
                self._emit(code.DIV_F)
            case ScalarCall(Scalar.ABS, operand):
                negative = Binary(Op.LT, operand, Literal(0, Type.INT))
                self._operation(Conditional(negative, Unary(Op.NEG, operand), operand))
            case ScalarCall(Scalar.DOUBLE, operand):
                self._add(operand, Type.FLOAT)
            case Present(value, count):
                is_positive = Binary(Op.GT, count, Literal(0, Type.INT))
                self._operation(Conditional(is_positive, value, Literal(None, value.type)))
            case _:
                expected = "arithmetic, abs, comparisons, AND, OR, NOT, IS NULL, CASE; or the function of one row"
                raise PatternError(f"got {_word_of(expression)} over earlier rows, expected {expected}")

    def _binary(self, op: Op, left: Expression, right: Expression) -> None:
        if NUMBERED_TYPES.intersection((left.type, right.type)) and op not in (Op.EQ, Op.NE):
            raise PatternError(f"got {op} between values of type {left.type} of different rows, expected = or <>")
        as_float = Type.FLOAT in (left.type, right.type)
        operations = FLOAT_OPERATIONS if as_float else INTEGER_OPERATIONS
        if op not in operations:
            of = "FLOAT" if as_float else "integers"
            expected = " ".join(str(each) for each in operations)
            raise PatternError(f"got {op} of {of} over earlier rows, expected one of {expected}")
        for part in (left, right):
            self._add(part, Type.FLOAT if as_float else None)
        self._emit(operations[op])


NUMBERED_TYPES = frozenset(NUMBERED)


def compile_automaton(automaton: Automaton) -> CompiledAutomaton:
    """Translate an automaton. Raises PatternError for an expression that needs a function of the register."""
    return _Compiler(automaton).compile()


def _finality(automaton: Automaton, state: str) -> int:
    if state in automaton.finals:
        return ALWAYS
    return AT_END if state in automaton.last_finals else NEVER


def _fields_of_fences(automaton: Automaton) -> set[str]:
    """Return the fields that decide which arcs apply: those of fences, and those from which they are computed."""
    names = {field.name for field in automaton.register}
    read = {column.name for arc in automaton.arcs for column in columns_of(arc.fence)} & names
    while True:
        added = {
            column.name
            for arc in automaton.arcs
            for name, value in arc.transfer
            if name in read
            for column in columns_of(value)
        } & names - read
        if not added:
            return read
        read |= added


def _word_of(expression: Expression) -> str:
    """Return the word of SQL for an expression, for messages."""
    if isinstance(expression, ScalarCall | Call):
        return str(expression.function)
    return "IN" if isinstance(expression, Membership) else f"a function with a value of type {expression.type}"


def _conjuncts(expression: Expression) -> list[Expression]:
    match expression:
        case Binary(Op.AND, left, right):
            return _conjuncts(left) + _conjuncts(right)
        case _:
            return [expression]


def _is_field(value: Expression, name: str) -> bool:
    """Return whether a transfer keeps the value of a field."""
    return isinstance(value, Column) and value.name == name


def _join(parts: Sequence[Expression]) -> Expression:
    first, *others = parts
    for part in others:
        first = Binary(Op.AND, first, part)
    return first


def _place(places: dict[Expression, int], expression: Expression) -> int:
    """Return the place of an expression. A new expression has the next place."""
    return places.setdefault(expression, len(places))


def _not_empty(array: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    """Return an array with at least one value, because an empty array has no address."""
    return array if len(array) else np.zeros(1, array.dtype)
