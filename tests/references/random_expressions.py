"""Seeded random expressions of every type over given columns, as whoever builds trees would: types fit, shifts are in
0..63."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from lowlevel.expressions.address_constants import Address, Prefix
from lowlevel.expressions.tree import (
    Binary,
    Call,
    Column,
    Conditional,
    Expression,
    Extreme,
    InList,
    InPrefix,
    IsNull,
    Literal,
    Masked,
    ScalarCall,
    Unary,
)
from lowlevel.expressions.types import COMPARISON, Function, Op, Scalar, Type

NUMERIC = [Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.MOD]
BITS = [Op.BIT_AND, Op.BIT_OR, Op.BIT_XOR]
ADDRESSES = [
    Address(4, 0),
    Address(4, 0x0A000001),
    Address(4, 2**32 - 1),
    Address(6, 0),
    Address(6, 0xFFFF0A000001),
    Address(6, 0x20010DB8 << 96 | 1),
    Address(6, 2**128 - 1),
]


PATTERNS = ["", "G", "^GET", "[a-c]{2}$", "a.*c", r"^[^\x00]*$", "(ab|b )c*", "main[13]", "^$"]
"""Regular expressions that mean the same in RE2 and in Python."""


def literal(random: Random, type_: Type) -> Literal:
    """A constant: small, on an edge, or (seldom) NULL."""
    match type_:
        case Type.INT:
            return Literal(random.choice([-7, -2, -1, 0, 1, 2, 3, 6, 17, 80, 443, 65535, 2**40]), type_)
        case Type.FLOAT:
            return Literal(random.choice([-2.25, -1.0, 0.0, 0.5, 1.0, 3.75, 1e6]), type_)
        case Type.BOOL:
            return Literal(random.random() < 0.5, type_)
        case Type.ADDRESS:
            return Literal(random.choice(ADDRESSES), type_)
        case Type.MAC:
            return Literal(random.choice([0, 1, 0x001122334455, 0x02000000000A, 2**48 - 1]), type_)
        case Type.BYTES:
            return Literal(random.choice([b"", b"G", b"GET ", b"\x00\x00", b"abcab", b"aab"]), type_)
    return Literal(random.choice(["main1", "main2", ""]), type_)


def prefix(random: Random) -> Prefix:
    """A network around one of the addresses, of any length, without host bits."""
    address = random.choice(ADDRESSES)
    width = 32 if address.version == 4 else 128
    length = random.choice([0, 1, 8, width // 2 - 1, width // 2, width // 2 + 1, width - 1, width])
    return Prefix(address.version, address.value >> (width - length) << (width - length), length)


def expression(random: Random, columns: list[Column], type_: Type, depth: int) -> Expression:
    """A tree of at most `depth` levels above its leaves."""

    def below(kind: Type) -> Expression:
        return expression(random, columns, kind, depth - 1)

    if depth and type_ is not Type.BYTES and random.random() < 0.15:
        return conditional(random, columns, type_, depth)
    if depth and type_ in (Type.INT, Type.FLOAT, Type.TEXT) and random.random() < 0.08:
        return scalar_call(random, type_, below)
    leaves = [column for column in columns if column.type is type_]
    if type_ is Type.BYTES:
        return random.choice(leaves)
    if depth == 0 or type_ in (Type.ADDRESS, Type.TEXT, Type.MAC):
        if random.random() < 0.05:
            return Literal(None, type_)
        return random.choice(leaves) if leaves and random.random() < 0.7 else literal(random, type_)
    if type_ is Type.INT:
        strings = [column for column in columns if column.type in (Type.TEXT, Type.BYTES)]
        match random.randrange(6):
            case 3 if strings:
                return function(random, random.choice(strings), below)
            case 0:
                return Unary(random.choice([Op.NEG, Op.BIT_NOT]), below(type_))
            case 1:
                return Binary(random.choice(BITS), below(type_), below(type_))
            case 2:
                shift = Literal(random.randrange(64), Type.INT)
                return Binary(random.choice([Op.SHIFT_LEFT, Op.SHIFT_RIGHT]), below(type_), shift)
        return Binary(random.choice(NUMERIC), below(type_), below(type_))
    if type_ is Type.FLOAT:
        if random.random() < 0.2:
            return Unary(Op.NEG, below(type_))
        other = random.choice([Type.INT, Type.FLOAT])
        operands = [below(type_), below(other)]
        random.shuffle(operands)
        return Binary(random.choice(NUMERIC), *operands)
    return condition(random, columns, depth)


def conditional(random: Random, columns: list[Column], type_: Type, depth: int) -> Expression:
    """A choice between two values, or the larger or smaller of two numbers. Texts are of one column, and constants."""

    def below(kind: Type) -> Expression:
        return expression(random, columns, kind, depth - 1)

    if type_ is Type.TEXT:
        source = random.choice([column for column in columns if column.type is Type.TEXT] or [literal(random, type_)])
        results = [random.choice([source, literal(random, type_)]) for _ in range(2)]
    else:
        results = [below(type_), below(random.choice([Type.INT, Type.FLOAT]) if type_ is Type.FLOAT else type_)]
    random.shuffle(results)
    if type_ is Type.ADDRESS and random.random() < 0.3:
        return Masked(results[0], random.randrange(33), random.randrange(129))
    if random.random() < 0.1:
        results[0] = Literal(None, type_)
    if type_ in (Type.INT, Type.FLOAT) and random.random() < 0.3:
        return Extreme(*results, random.random() < 0.5)
    test = random.choice([below(Type.BOOL), Unary(Op.NOT, IsNull(results[0]))])
    return Conditional(test, *results)


def scalar_call(random: Random, type_: Type, below: Callable[[Type], Expression]) -> ScalarCall:
    """A function of a number or a text with exact results."""
    if type_ is Type.TEXT:
        arguments = {
            Scalar.UPPER: [],
            Scalar.TRIM: [],
            Scalar.SUBSTRING: [random.randrange(-6, 7), random.randrange(6)],
            Scalar.REPLACE: [random.choice(["main", "1", ""]), random.choice(["", "m", "2"])],
            Scalar.SPLIT_PART: [random.choice(["n", "ai"]), random.choice([-2, -1, 1, 2, 3])],
            Scalar.CONCAT: [random.choice(["", "a"]), random.choice(["", " b"])],
        }
        name = random.choice(sorted(arguments))
        constants = (Literal(each, Type.TEXT if isinstance(each, str) else Type.INT) for each in arguments[name])
        return ScalarCall(name, below(type_), None, tuple(constants))
    if type_ is Type.INT:
        kind = random.choice([Type.INT, Type.FLOAT])
        whole = [Scalar.ABS, Scalar.ROUND, Scalar.CEIL, Scalar.SIGN]
        return ScalarCall(random.choice(whole if kind is Type.INT else [Scalar.INTEGER, Scalar.SIGN]), below(kind))
    if random.random() < 0.3:
        return ScalarCall(Scalar.DOUBLE, below(Type.INT))
    return ScalarCall(random.choice([Scalar.ABS, Scalar.FLOOR, Scalar.CEIL, Scalar.ROUND]), below(type_))


def function(random: Random, operand: Column, below: Callable[[Type], Expression]) -> Call:
    """A call that is an integer."""
    if operand.type is Type.TEXT or random.random() < 0.3:
        return Call(Function.LENGTH, operand)
    return Call(Function.BYTE, operand, random.choice([Literal(random.randrange(8), Type.INT), below(Type.INT)]))


def condition(random: Random, columns: list[Column], depth: int) -> Expression:
    """A BOOL tree with something above its leaves."""

    def below(kind: Type) -> Expression:
        return expression(random, columns, kind, depth - 1)

    kind = random.choice([Type.INT, Type.FLOAT, Type.ADDRESS, Type.TEXT, Type.MAC])
    comparison = [Op.EQ, Op.NE] if kind is Type.TEXT else sorted(COMPARISON)
    strings = [column for column in columns if column.type in (Type.TEXT, Type.BYTES)]
    match random.randrange(9):
        case 6 if strings and random.random() < 0.4:
            return Call(Function.MATCHES, random.choice(strings), Literal(random.choice(PATTERNS), Type.TEXT))
        case 6 if strings:
            operand = random.choice(strings)
            return Call(
                random.choice([Function.CONTAINS, Function.STARTS_WITH]), operand, literal(random, operand.type)
            )
        case 0 | 1:
            return Binary(random.choice([Op.AND, Op.OR]), below(Type.BOOL), below(Type.BOOL))
        case 2:
            return Unary(Op.NOT, below(Type.BOOL))
        case 3:
            return IsNull(below(kind))
        case 4:
            return InList(below(kind), tuple(literal(random, kind) for _ in range(random.randrange(1, 5))))
        case 5:
            return InPrefix(below(Type.ADDRESS), tuple(prefix(random) for _ in range(random.randrange(1, 4))))
    other = random.choice([Type.INT, Type.FLOAT]) if kind in (Type.INT, Type.FLOAT) else kind
    return Binary(random.choice(comparison), below(kind), below(other))
