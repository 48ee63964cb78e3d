"""Types, operators and functions of expressions."""

from enum import StrEnum


class Type(StrEnum):
    """The types of GSQL values. TIME: int64 ns since the epoch. MAC: 48 bits. BYTES: only in predicates."""

    INT = "integer"
    TIME = "time"
    FLOAT = "float"
    BOOL = "boolean"
    ADDRESS = "address"
    TEXT = "text"
    MAC = "mac"
    BYTES = "bytes"


INTEGERS = (Type.INT, Type.TIME)
"""Types with int64 values, so that equal values have equal bits."""

NUMBERS = (Type.INT, Type.FLOAT, Type.TIME)
"""Types that arithmetic accepts. Their values can be compared with each other."""


def same_values(left: Type, right: Type) -> bool:
    """Return whether values of two types are equal if and only if their bits are equal."""
    return left is right or (left in INTEGERS and right in INTEGERS)


def key_type(left: Type, right: Type) -> Type | None:
    """Return the type in which two keys of a join are compared; None if they cannot be.

    >>> key_type(Type.TIME, Type.INT), key_type(Type.INT, Type.FLOAT), key_type(Type.TEXT, Type.INT)
    (<Type.INT: 'integer'>, <Type.FLOAT: 'float'>, None)
    """
    if left is right:
        return left
    if left in INTEGERS and right in INTEGERS:
        return Type.INT
    return Type.FLOAT if left in NUMBERS and right in NUMBERS else None


class Op(StrEnum):
    """Operators with their SQL spelling. `/` rounds a quotient of integers towards zero; x / 0 is NULL."""

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
    """Functions of bytes and texts with their SQL names."""

    LENGTH = "length"
    CONTAINS = "contains"
    STARTS_WITH = "starts_with"
    BYTE = "byte"
    MATCHES = "matches"
    TEXT = "text"
    HEX = "hex"
    DNS_NAME = "dns_name"
    TLS_SERVER_NAME = "tls_server_name"
    HTTP_HOST = "http_host"


FUNCTION_TYPES: dict[Function, Type] = {
    Function.LENGTH: Type.INT,
    Function.CONTAINS: Type.BOOL,
    Function.STARTS_WITH: Type.BOOL,
    Function.BYTE: Type.INT,
    Function.MATCHES: Type.BOOL,
    Function.TEXT: Type.TEXT,
    Function.HEX: Type.TEXT,
    Function.DNS_NAME: Type.TEXT,
    Function.TLS_SERVER_NAME: Type.TEXT,
    Function.HTTP_HOST: Type.TEXT,
}

PAYLOAD_NAMES = frozenset({Function.DNS_NAME, Function.TLS_SERVER_NAME, Function.HTTP_HOST})
"""Functions that find a name in bytes, NULL if there is none."""

BYTE_TEXT_FUNCTIONS = frozenset({Function.TEXT, Function.HEX, *PAYLOAD_NAMES})
"""Functions that write bytes as text. Their texts have other IDs in each batch, so they cannot be keys of tables."""


class Scalar(StrEnum):
    """Functions of one number or text, with their SQL names; `power` has two numbers. Casts have names of types."""

    ABS = "abs"
    SIGN = "sign"
    ROUND = "round"
    FLOOR = "floor"
    CEIL = "ceil"
    SQRT = "sqrt"
    EXP = "exp"
    LN = "ln"
    LOG2 = "log2"
    LOG10 = "log10"
    POWER = "power"
    INTEGER = "integer"
    DOUBLE = "double"
    LOWER = "lower"
    UPPER = "upper"
    TRIM = "trim"
    SUBSTRING = "substring"
    REPLACE = "replace"
    SPLIT_PART = "split_part"
    CONCAT = "||"
    PROTOCOL_NAME = "protocol_name"
    PORT_NAME = "port_name"


SAME_TYPE_FUNCTIONS = frozenset({Scalar.ABS, Scalar.ROUND, Scalar.FLOOR, Scalar.CEIL})
"""Functions whose result has the type of the argument."""

INTEGER_FUNCTIONS = frozenset({Scalar.SIGN, Scalar.INTEGER})
"""Functions whose result is an integer."""

NAME_FUNCTIONS = frozenset({Scalar.PROTOCOL_NAME, Scalar.PORT_NAME})
"""Functions that return the name of a number."""

TEXT_FUNCTIONS = NAME_FUNCTIONS | {
    Scalar.LOWER, Scalar.UPPER, Scalar.TRIM, Scalar.SUBSTRING, Scalar.REPLACE, Scalar.SPLIT_PART, Scalar.CONCAT,
}  # fmt: skip
"""Functions whose result is a text."""

NULLABLE_FUNCTIONS = NAME_FUNCTIONS | {Scalar.SQRT, Scalar.LN, Scalar.LOG2, Scalar.LOG10, Scalar.POWER, Scalar.INTEGER}
"""Functions that are not defined for some arguments: then the result is NULL."""

ARITHMETIC = frozenset({Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.MOD})
BITWISE = frozenset({Op.BIT_AND, Op.BIT_OR, Op.BIT_XOR, Op.SHIFT_LEFT, Op.SHIFT_RIGHT})
COMPARISON = frozenset({Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE})
LOGICAL = frozenset({Op.AND, Op.OR})
