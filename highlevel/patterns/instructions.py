"""Instructions: translation of fences, transfers and deadlines into instructions, and into words of a row.

A condition that reads only the row is a bit of its first words, computed for a whole batch. Other parts that read only
the row are words of the row. The remaining parts are instructions over the register (`kernels.expressions`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from highlevel.patterns.automaton import PatternError, Transfer, keeps_field
from highlevel.patterns.compiled_automaton import CONDITIONS_PER_WORD, NO_INDEX, NUMBERED
from highlevel.patterns.kernels import expressions as code
from highlevel.patterns.kernels.expressions import NULL, STACK_EFFECTS, Machine
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

Scalars = TypeVar("Scalars", bound=np.generic)

INTEGER_OPERATIONS = {
    Op.ADD: code.ADD_I, Op.SUB: code.SUB_I, Op.MUL: code.MUL_I, Op.DIV: code.DIV_I, Op.MOD: code.MOD_I,
    Op.LT: code.LT_I, Op.LE: code.LE_I, Op.EQ: code.EQ_I, Op.NE: code.NE_I, Op.AND: code.AND, Op.OR: code.OR,
}  # fmt: skip
FLOAT_OPERATIONS = {
    Op.ADD: code.ADD_F, Op.SUB: code.SUB_F, Op.MUL: code.MUL_F, Op.DIV: code.DIV_F,
    Op.LT: code.LT_F, Op.LE: code.LE_F, Op.EQ: code.EQ_F, Op.NE: code.NE_F,
}  # fmt: skip
SWAPPED = {Op.GT: Op.LT, Op.GE: Op.LE}


class Instructions:
    """The instructions of an automaton, and the expressions over a row that they read. Not thread safe."""

    def __init__(self, types: Mapping[str, Type], integers: Sequence[str], floats: Sequence[str]) -> None:
        """Begin without instructions. `types`: those of the register; `integers` and `floats`: its fields in order."""
        self._types = types
        self._integers, self._floats = integers, floats
        self.conditions: dict[Expression, int] = {}
        self.row_integers: dict[Expression, int] = {}
        self.row_floats: dict[Expression, int] = {}
        """Expressions over a row, each with its place."""
        self.row_words = 0
        self._bits = 0
        """The place of the next condition; a multiple of CONDITIONS_PER_WORD if it needs another word."""
        self._code: list[int] = []
        self._constants: list[int] = []
        self._float_constants: list[float] = []
        self._depths = [0, 0]
        self._most = [1, 1]
        """Number of values on the two stacks, at this instruction and at most."""
        self._machine: Machine | None = None
        """The instructions as arrays, None if some were added."""

    def machine(self) -> Machine:
        """Return the instructions with their stacks. The stacks are shared by all calls."""
        if self._machine is None:
            self._machine = Machine(
                _not_empty(np.array(self._code, np.int64)),
                _not_empty(np.array(self._constants, np.int64)),
                _not_empty(np.array(self._float_constants, np.float64)),
                np.zeros(self._most[0], np.int64),
                np.zeros(self._most[1], np.float64),
            )
        return self._machine

    def add_arc(self, conditions: Sequence[Expression], values: Transfer) -> tuple[int, ...]:
        """Translate a fence, of which all `conditions` must be true, and a transfer.

        Return the words of an arc from CONDITION to TRANSFER_END.
        """
        of_row, of_both = list[Expression](), list[Expression]()
        for part in conditions:
            if part == Literal(True, Type.BOOL):
                continue
            (of_both if self.reads_register(part) or not any(columns_of(part)) else of_row).append(part)
        condition = NO_INDEX if not of_row else self.condition(_join(of_row))
        fence = self._position
        if of_both:
            self._add(_join(of_both), Type.BOOL)
            self._depths = [0, 0]
        transfer = self._position
        # All values are computed before the first is stored, because a transfer reads the register before the arc.
        changed = [(name, value) for name, value in values if not keeps_field(value, name)]
        for name, value in changed:
            self._add(value, self._types[name])
        for name, _ in reversed(changed):
            self._store(name)
        return condition, fence, transfer, transfer, self._position

    def add_deadline(self, deadline: Expression) -> tuple[int, ...]:
        """Translate a deadline. Return the words of an arc from CONDITION to TRANSFER_END."""
        begin = self._position
        self._add(deadline)
        self._depths = [0, 0]
        return NO_INDEX, begin, self._position, self._position, self._position

    def condition(self, condition: Expression) -> int:
        """Return the place of a condition over a row."""
        if condition not in self.conditions:
            if self._bits % CONDITIONS_PER_WORD == 0:
                self._bits = self.row_words * CONDITIONS_PER_WORD
                self.row_words += 1
            self.conditions[condition] = self._bits
            self._bits += 1
        return self.conditions[condition]

    def row_integer(self, expression: Expression) -> int:
        """Return the word of a row with the value of an expression."""
        if expression not in self.row_integers:
            self.row_integers[expression] = self.row_words
            self.row_words += 1
        return self.row_integers[expression]

    @property
    def _position(self) -> int:
        return len(self._code) // 2

    def _store(self, name: str) -> None:
        if name in self._floats:
            self._emit(code.STORE_F, self._floats.index(name))
        else:
            self._emit(code.STORE_I, self._integers.index(name))

    def _emit(self, operation: int, operand: int = 0) -> None:
        self._code += [operation, operand]
        self._machine = None
        for stack, change in enumerate(STACK_EFFECTS.get(operation, (-1, 0))):
            self._depths[stack] += change
            self._most[stack] = max(self._most[stack], self._depths[stack])

    def reads_register(self, expression: Expression) -> bool:
        """Return whether an expression reads a field of the register."""
        return any(column.name in self._types for column in columns_of(expression))

    def _add(self, expression: Expression, wanted: Type | None = None) -> None:
        """Add instructions that push a value; a FLOAT if `wanted` is FLOAT, or the expression is."""
        is_float = expression.type is Type.FLOAT
        if isinstance(expression, Literal) and expression.type not in NUMBERED:
            self._constant(expression, as_float=is_float)
        elif not self.reads_register(expression):
            if is_float:
                self._emit(code.ROW_F, self.row_floats.setdefault(expression, len(self.row_floats)))
            else:
                self._emit(code.ROW_I, self.row_integer(expression))
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
            case Column(name=name) if name in self._floats:
                self._emit(code.FIELD_F, self._floats.index(name))
            case Column(name=name):
                self._emit(code.FIELD_I, self._integers.index(name))
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
        if set(NUMBERED).intersection((left.type, right.type)) and op not in (Op.EQ, Op.NE):
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


def _word_of(expression: Expression) -> str:
    """Return the word of SQL for an expression, for messages."""
    if isinstance(expression, ScalarCall | Call):
        return str(expression.function)
    return "IN" if isinstance(expression, Membership) else f"a function with a value of type {expression.type}"


def _join(parts: Sequence[Expression]) -> Expression:
    """Return a balanced tree of AND, so that the depth of many parts is small."""
    middle = len(parts) // 2
    return Binary(Op.AND, _join(parts[:middle]), _join(parts[middle:])) if middle else parts[0]


def _not_empty(array: npt.NDArray[Scalars]) -> npt.NDArray[Scalars]:
    """Return an array with at least one value, because an empty array has no address."""
    return array if len(array) else np.zeros(1, array.dtype)
