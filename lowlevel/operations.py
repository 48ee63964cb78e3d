"""What expressions compute with: operators and functions, by their SQL names."""

from enum import StrEnum

from lowlevel.types import Type


class Op(StrEnum):
    """Operators by their SQL spelling. `/` on two integers divides towards zero; by zero it is NULL."""

    ADD = "+"
    SUB = "-"
    MUL = "*"
    DIV = "/"
    MOD = "%"
    BIT_AND = "&"
    BIT_OR = "|"
    BIT_XOR = "^"
    SHIFT_LEFT = "<<"
    SHIFT_RIGHT = ">>"
    EQ = "="
    NE = "<>"
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="
    AND = "AND"
    OR = "OR"
    NOT = "NOT"
    NEG = "NEG"
    BIT_NOT = "~"


class Function(StrEnum):
    """Functions of bytes and texts by their SQL names."""

    LENGTH = "length"
    CONTAINS = "contains"
    STARTS_WITH = "starts_with"
    BYTE = "byte"


FUNCTION_TYPES: dict[Function, Type] = {
    Function.LENGTH: Type.INT,
    Function.CONTAINS: Type.BOOL,
    Function.STARTS_WITH: Type.BOOL,
    Function.BYTE: Type.INT,
}

ARITHMETIC = frozenset({Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.MOD})
BITWISE = frozenset({Op.BIT_AND, Op.BIT_OR, Op.BIT_XOR, Op.SHIFT_LEFT, Op.SHIFT_RIGHT})
COMPARISON = frozenset({Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE})
LOGICAL = frozenset({Op.AND, Op.OR})
