"""Kernels for fences and transfers: a stack machine over the fields of a register and the words of a row.

A compiled kernel for each arc would need seconds of compilation for each query, and again for each arc that is added to
a running query. So arcs are data: `highlevel.patterns.compilation` translates an expression into instructions of two
words, an operation and its operand. Parts that read only the row are not instructions: they are evaluated before, for a
batch of rows at once, and are words of the row.

There are two stacks, of integers and of floats. NULL is the smallest integer, and among floats a NaN with bits of its
own (`NULL_FLOAT`), so that other NaN are numbers.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np

from capture.native import Floats, Integers, helper, outlined

NULL = -(2**63)
"""NULL among integers. The integer -2**63 itself is read as NULL."""

NULL_BITS = 0x7FF8_0000_4E55_4C4C
"""The bits of NULL among floats."""

NULL_FLOAT = struct.unpack("<d", struct.pack("<Q", NULL_BITS))[0]


(
    FIELD_I, CONSTANT_I, ROW_I, STORE_I, ADD_I, SUB_I, LT_I, LE_I, EQ_I, NE_I, AND, OR, NOT, FIELD_F, CONSTANT_F, ROW_F,
    STORE_F, ADD_F, SUB_F, LT_F, LE_F, EQ_F, NE_F, MUL_I, DIV_I, MOD_I, NEG_I, MUL_F, DIV_F, NEG_F, TO_FLOAT,
    IS_NULL_I, IS_NULL_F, CHOOSE_I, CHOOSE_F, MIN_I, MAX_I, WIDE_SUM_I, WIDE_SUM_F, MIN_F, MAX_F,
) = range(41)  # fmt: skip
"""Operations. The suffix is the type of the operands: I for integers, F for floats. `run` depends on their order."""

STACK_EFFECTS = {
    **dict.fromkeys((FIELD_I, CONSTANT_I, ROW_I), (1, 0)),
    **dict.fromkeys((FIELD_F, CONSTANT_F, ROW_F), (0, 1)),
    **dict.fromkeys((NOT, NEG_I, NEG_F, IS_NULL_I), (0, 0)),
    **dict.fromkeys((LT_F, LE_F, EQ_F, NE_F), (1, -2)),
    **dict.fromkeys((ADD_F, SUB_F, MUL_F, DIV_F, MIN_F, MAX_F, STORE_F), (0, -1)),
    TO_FLOAT: (-1, 1),
    IS_NULL_F: (1, -1),
    CHOOSE_I: (-2, 0),
    CHOOSE_F: (-1, -1),
    WIDE_SUM_F: (-2, 1),
}
"""By how many values an operation changes the integer stack and the float stack. Other operations reduce the integer
stack by one."""


class Machine(NamedTuple):
    """Instructions, constants, and the two stacks."""

    code: Integers
    integers: Integers
    floats: Floats
    stack: Integers
    float_stack: Floats


@helper
def is_null_float(value):  # type: ignore[no-untyped-def]
    """Return whether a float is NULL. Other NaN are numbers."""
    return value != value and np.float64(value).view(np.int64) == NULL_BITS


@helper
def are_equal_floats(one, other):  # type: ignore[no-untyped-def]
    """Return whether two floats are the same value. NULL is equal to NULL, and NaN to NaN."""
    return one == other or (one != one and other != other and is_null_float(one) == is_null_float(other))


@outlined
def run(  # type: ignore[no-untyped-def]
    machine: Machine, begin, end, fields, field, float_fields, float_field, row, at, float_row, float_at, to, float_to
):  # fmt: skip
    """Run the instructions `[begin, end)`. The result of a condition is the first word of the stack.

    The register is in `fields` from `field` on and in `float_fields` from `float_field` on, the row in `row` from `at`
    on and in `float_row` from `float_at` on. STORE writes to the register at `to` and `float_to`.
    """
    code, stack, float_stack = machine.code, machine.stack, machine.float_stack
    top, float_top = 0, 0
    for instruction in range(begin, end):
        operation, operand = code[2 * instruction], code[2 * instruction + 1]
        if operation == FIELD_I:
            stack[top] = fields[field + operand]
            top += 1
        elif operation == CONSTANT_I:
            stack[top] = machine.integers[operand]
            top += 1
        elif operation == ROW_I:
            stack[top] = row[at + operand]
            top += 1
        elif operation == STORE_I:
            top -= 1
            fields[to + operand] = stack[top]
        elif operation <= OR:  # two integers give an integer
            top -= 1
            left, right = stack[top - 1], stack[top]
            result = left
            if operation == AND:
                if left == 0 or right == 0:
                    result = 0
                elif left == NULL or right == NULL:
                    result = NULL
            elif operation == OR:
                if (left != 0 and left != NULL) or (right != 0 and right != NULL):
                    result = 1
                elif left == NULL or right == NULL:
                    result = NULL
            elif left == NULL or right == NULL:
                result = NULL
            elif operation == ADD_I:
                result = left + right
            elif operation == SUB_I:
                result = left - right
            elif operation == LT_I:
                result = 1 if left < right else 0
            elif operation == LE_I:
                result = 1 if left <= right else 0
            elif operation == EQ_I:
                result = 1 if left == right else 0
            else:
                result = 1 if left != right else 0
            stack[top - 1] = result
        elif operation == NOT:
            if stack[top - 1] != NULL:
                stack[top - 1] = 1 - stack[top - 1]
        elif operation == FIELD_F:
            float_stack[float_top] = float_fields[float_field + operand]
            float_top += 1
        elif operation == CONSTANT_F:
            float_stack[float_top] = machine.floats[operand]
            float_top += 1
        elif operation == ROW_F:
            float_stack[float_top] = float_row[float_at + operand]
            float_top += 1
        elif operation == STORE_F:
            float_top -= 1
            float_fields[float_to + operand] = float_stack[float_top]
        elif operation in (ADD_F, SUB_F, MUL_F, DIV_F):
            float_top -= 1
            one, other = float_stack[float_top - 1], float_stack[float_top]
            if is_null_float(one) or is_null_float(other) or (operation == DIV_F and other == 0.0):
                float_stack[float_top - 1] = NULL_FLOAT
            elif operation == ADD_F:
                float_stack[float_top - 1] = one + other
            elif operation == SUB_F:
                float_stack[float_top - 1] = one - other
            elif operation == MUL_F:
                float_stack[float_top - 1] = one * other
            else:
                float_stack[float_top - 1] = one / other
        elif operation <= NE_F:  # two floats give a condition
            float_top -= 2
            one, other = float_stack[float_top], float_stack[float_top + 1]
            result = 0
            if is_null_float(one) or is_null_float(other):
                result = NULL
            elif operation == LT_F:
                result = 1 if one < other else 0
            elif operation == LE_F:
                result = 1 if one <= other else 0
            elif operation == EQ_F:
                result = 1 if one == other else 0
            else:
                result = 1 if one != other else 0
            stack[top] = result
            top += 1
        elif operation <= MOD_I:
            top -= 1
            left, right = stack[top - 1], stack[top]
            if left == NULL or right == NULL or (operation != MUL_I and right == 0):
                stack[top - 1] = NULL
            elif operation == MUL_I:
                stack[top - 1] = left * right
            else:  # a quotient is rounded towards zero
                quotient = left // right
                if quotient < 0 and quotient * right != left:
                    quotient += 1
                stack[top - 1] = quotient if operation == DIV_I else left - quotient * right
        elif operation == NEG_I:
            if stack[top - 1] != NULL:
                stack[top - 1] = -stack[top - 1]
        elif operation == NEG_F:
            if not is_null_float(float_stack[float_top - 1]):
                float_stack[float_top - 1] = -float_stack[float_top - 1]
        elif operation == TO_FLOAT:
            top -= 1
            float_stack[float_top] = NULL_FLOAT if stack[top] == NULL else float(stack[top])
            float_top += 1
        elif operation == IS_NULL_I:
            stack[top - 1] = 1 if stack[top - 1] == NULL else 0
        elif operation == IS_NULL_F:
            float_top -= 1
            stack[top] = 1 if is_null_float(float_stack[float_top]) else 0
            top += 1
        elif operation == CHOOSE_I:  # condition, value, otherwise
            top -= 2
            if stack[top - 1] != 0 and stack[top - 1] != NULL:
                stack[top - 1] = stack[top]
            else:
                stack[top - 1] = stack[top + 1]
        elif operation == CHOOSE_F:
            top -= 1
            float_top -= 1
            if stack[top] == 0 or stack[top] == NULL:
                float_stack[float_top - 1] = float_stack[float_top]
        elif operation in (MIN_I, MAX_I):
            top -= 1
            left, right = stack[top - 1], stack[top]
            if left == NULL or (right != NULL and (right < left) == (operation == MIN_I)):
                stack[top - 1] = right
        elif operation in (WIDE_SUM_I, WIDE_SUM_F):  # `lowlevel.expressions.evaluate.sum_halves`
            top -= 2
            high, low = stack[top], stack[top + 1]
            upper = high + (low >> 32)
            fits = upper >= -(2**31) and upper < 2**31
            result = (upper << 32) | (low & 0xFFFFFFFF)
            if operation == WIDE_SUM_I:
                stack[top] = result if fits else NULL
                top += 1
            else:
                float_stack[float_top] = float(result) if fits else float(high) * 2.0**32 + float(low)
                float_top += 1
        else:  # MIN_F or MAX_F
            float_top -= 1
            one, other = float_stack[float_top - 1], float_stack[float_top]
            is_nearer = one != one or (other == other and (other < one) == (operation == MIN_F))
            if is_null_float(one) or (is_nearer and not is_null_float(other)):
                float_stack[float_top - 1] = other
    return 0
