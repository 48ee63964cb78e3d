"""The slow, obvious twin of `lowlevel`: expressions over one row at a time with None for NULL, and groups in a
dictionary.

Integers wrap at 64 bits as the product's do; everything else is Python's own arithmetic, `ipaddress` and `dict`.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from ipaddress import IPv4Address, IPv6Address, ip_network
from operator import and_, or_, xor
from typing import Any

import numpy as np

from lowlevel.expressions.address_constants import Address, Prefix
from lowlevel.expressions.assigned_numbers import names_of
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
    Mean,
    Present,
    ScalarCall,
    Unary,
    Variance,
    WideSum,
)
from lowlevel.expressions.types import NAME_FUNCTIONS, Function, Op, Scalar, Type
from lowlevel.plan import LowLevelPlan
from lowlevel.subaggregates import Kind

Row = Mapping[str, Any]
COMPARE: dict[Op, Callable[[Any, Any], bool]] = {
    Op.EQ: operator.eq,
    Op.NE: operator.ne,
    Op.LT: operator.lt,
    Op.LE: operator.le,
    Op.GT: operator.gt,
    Op.GE: operator.ge,
}
INTEGER: dict[Op, Callable[[Any, Any], Any]] = {
    Op.ADD: operator.add,
    Op.SUB: operator.sub,
    Op.MUL: operator.mul,
    Op.BIT_AND: operator.and_,
    Op.BIT_OR: operator.or_,
    Op.BIT_XOR: operator.xor,
    Op.SHIFT_LEFT: operator.lshift,
    Op.SHIFT_RIGHT: operator.rshift,
}


def wrapped(value: int) -> int:
    """The value in 64 bits, two's complement."""
    return (value + 2**63) % 2**64 - 2**63


def ip(address: Address) -> IPv4Address | IPv6Address:
    return IPv4Address(address.value) if address.version == 4 else IPv6Address(address.value)


def inside(address: IPv4Address | IPv6Address, prefix: Prefix) -> bool:
    network = ip_network((prefix.value, prefix.length)) if prefix.version == 4 else None
    network = network or ip_network(f"{IPv6Address(prefix.value)}/{prefix.length}")
    return address.version == network.version and address in network


def value(expression: Expression, row: Row) -> Any:
    """Return the value of an expression for one row. Addresses are objects of `ipaddress`."""
    match expression:
        case Column(name=name):
            return row[name]
        case Literal(value=Address() as address):
            return ip(address)
        case Literal(value=constant):
            return constant
        case Unary(op, operand):
            x = value(operand, row)
            if x is None:
                return None
            return not x if op is Op.NOT else ~x if op is Op.BIT_NOT else wrapped(-x) if isinstance(x, int) else -x
        case Binary(Op.AND | Op.OR as op, left, right):
            both = [value(left, row), value(right, row)]
            decides = op is Op.OR
            return decides if decides in [x for x in both if x is not None] else None if None in both else not decides
        case Binary(op, left, right):
            return binary(op, value(left, row), value(right, row))
        case InList(operand, values):
            x = value(operand, row)
            return None if x is None else any(binary(Op.EQ, x, value(each, row)) for each in values)
        case InPrefix(operand, prefixes):
            x = value(operand, row)
            return None if x is None else any(inside(x, prefix) for prefix in prefixes)
        case IsNull(operand):
            return value(operand, row) is None
        case Call(function, operand, argument):
            return call(function, value(operand, row), None if argument is None else value(argument, row))
        case Conditional(condition, x, otherwise):
            found = value(x if value(condition, row) is True else otherwise, row)
            return float(found) if found is not None and expression.type is Type.FLOAT else found
        case Masked(operand, ipv4, ipv6):
            x = value(operand, row)
            if x is None:
                return None
            return ip_network((x, ipv4 if x.version == 4 else ipv6), strict=False).network_address
        case ScalarCall(function, operand, argument, constants):
            x, y = value(operand, row), 0 if argument is None else value(argument, row)
            return None if x is None or y is None else scalar(function, x, y, [each.value for each in constants])
        case Extreme(left, right, largest):
            both = [x for x in (value(left, row), value(right, row)) if x is not None]
            kind = float if expression.type is Type.FLOAT else int
            return (max if largest else min)(map(kind, both)) if both else None
        case Present(x, count):
            return value(x, row) if value(count, row) > 0 else None
        case WideSum(high, low, kind):
            exact = value(high, row) * 2**32 + value(low, row)
            return float(exact) if kind is Type.FLOAT else exact if -(2**63) <= exact < 2**63 else None
        case Mean(total, count):
            return float(value(total, row)) / value(count, row) if value(count, row) > 0 else None
        case Variance(total, squares, count, sample, root):
            degrees = value(count, row) - sample
            if degrees <= 0:
                return None
            found = max(0.0, value(squares, row) - value(total, row) ** 2 / value(count, row)) / degrees
            return math.sqrt(found) if root else found


def call(function: Function, x: bytes | str | None, y: Any) -> Any:
    if x is None:
        return None
    match function:
        case Function.LENGTH:
            return len(x)
        case Function.CONTAINS:
            return y in x
        case Function.STARTS_WITH:
            return x.startswith(y)
        case Function.MATCHES:
            return re.search(y.encode() if isinstance(x, bytes) else y, x) is not None
        case Function.HEX:
            return x.hex()
        case Function.TEXT:
            return "".join(chr(byte) if 32 <= byte < 127 else "." for byte in x)
        case Function.BYTE:
            assert isinstance(x, bytes)
            return x[y] if y is not None and 0 <= y < len(x) else None


def scalar(function: Scalar, x: Any, y: Any, constants: list[Any]) -> Any:
    """A function of a number or a text, by the modules of Python."""
    if function in NAME_FUNCTIONS:
        return names_of(function).get(x)
    if isinstance(x, str):
        return of_text(function, x, constants)
    if isinstance(x, int) and function in (Scalar.ROUND, Scalar.FLOOR, Scalar.CEIL):
        return x
    match function:
        case Scalar.ABS:
            return wrapped(abs(x)) if isinstance(x, int) else abs(x)
        case Scalar.SIGN:
            return (x > 0) - (x < 0)
        case Scalar.INTEGER:
            return round(x) if math.isfinite(x) and -(2**63) <= round(x) < 2**63 else None
        case Scalar.DOUBLE:
            return float(x)
        case Scalar.ROUND | Scalar.FLOOR | Scalar.CEIL if not math.isfinite(x):
            return x
        case Scalar.ROUND:
            scaled = x * 10.0 ** (constants[0] if constants else 0)
            if not math.isfinite(scaled):
                return x
            whole, rest = int(scaled), abs(scaled - int(scaled))
            return float(whole + (rest >= 0.5) * ((x > 0) - (x < 0))) / 10.0 ** (constants[0] if constants else 0)
        case Scalar.FLOOR | Scalar.CEIL:
            return float(math.floor(x) if function is Scalar.FLOOR else math.ceil(x))
        case Scalar.POWER:
            with np.errstate(all="ignore"):
                found = float(np.float64(x) ** np.float64(y))
            return None if math.isnan(found) and not (math.isnan(x) or math.isnan(y)) else found
        case Scalar.EXP:
            return math.inf if x > 709.7 else math.exp(x)
    smallest_without = x < 0 if function is Scalar.SQRT else x <= 0
    if smallest_without:
        return None
    functions = {Scalar.SQRT: math.sqrt, Scalar.LN: math.log, Scalar.LOG2: math.log2, Scalar.LOG10: math.log10}
    return functions[function](x)


def of_text(function: Scalar, x: str, constants: list[Any]) -> str:
    match function:
        case Scalar.LOWER:
            return x.lower()
        case Scalar.UPPER:
            return x.upper()
        case Scalar.TRIM:
            return x.strip(" ")
        case Scalar.CONCAT:
            return f"{constants[0]}{x}{constants[1]}"
        case Scalar.REPLACE:
            return x.replace(*constants) if constants[0] else x
        case Scalar.SPLIT_PART:
            parts = [x] if not constants[0] else x.split(constants[0])
            number = constants[1] if constants[1] >= 0 else len(parts) + 1 + constants[1]
            return parts[number - 1] if 1 <= number <= len(parts) and constants[1] != 0 else ""
    start = constants[0] if constants[0] >= 0 else len(x) + 1 + constants[0]
    end = len(x) + 1 if len(constants) == 1 else start + constants[1]
    return "".join(character for place, character in enumerate(x, 1) if start <= place < end)


def binary(op: Op, x: Any, y: Any) -> Any:
    if x is None or y is None:
        return None
    if op in COMPARE:
        if isinstance(x, IPv4Address | IPv6Address):
            return COMPARE[op]((x.version, int(x)), (y.version, int(y)))
        return COMPARE[op](float(x), float(y)) if float in (type(x), type(y)) else COMPARE[op](x, y)
    if float in (type(x), type(y)):
        x, y = float(x), float(y)
        if op in (Op.DIV, Op.MOD):
            return None if y == 0 else x / y if op is Op.DIV else math.fmod(x, y)
        return INTEGER[op](x, y)
    if op in (Op.DIV, Op.MOD):
        if y == 0:
            return None
        quotient = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
        return wrapped(quotient) if op is Op.DIV else x - quotient * y
    return wrapped(INTEGER[op](x, y))


def groups(plan: LowLevelPlan, rows: Iterable[Row]) -> dict[tuple, list[Any]]:
    """(pane, key values…) to sub-aggregates, over all rows at once: no table, no eviction, no order.

    An address or MAC key is its bytes. A minimum or maximum over no value is None.
    """
    found: dict[tuple, list[list[Any]]] = {}
    for row in rows:
        if plan.where is not None and value(plan.where, row) is not True:
            continue
        keys = [value(key.expression, row) for key in plan.keys]
        keys = [as_bytes(key.expression.type, each) for key, each in zip(plan.keys, keys, strict=True)]
        place = found.setdefault(((row["ts"] - plan.origin) // plan.pane, *keys), [[] for _ in plan.subaggregates])
        for seen, sub in zip(place, plan.subaggregates, strict=True):
            argument = True if sub.argument is None else value(sub.argument, row)
            if argument is not None:
                seen.append((row["ts"], argument))
    return {
        key: [aggregate(sub.kind, seen) for sub, seen in zip(plan.subaggregates, place, strict=True)]
        for key, place in found.items()
    }


def as_bytes(type_: Type, key: Any) -> Any:
    """A key as the low level hands it on."""
    if isinstance(key, IPv4Address | IPv6Address):
        return key.packed
    return key.to_bytes(6, "big") if type_ is Type.MAC and key is not None else key


def aggregate(kind: Kind, seen: list[tuple[int, Any]]) -> Any:
    """A sub-aggregate over (ts, value) pairs."""
    values = [value for _, value in seen]
    match kind:
        case Kind.COUNT:
            return len(values)
        case Kind.SUM:
            return math.fsum(values) if float in map(type, values) else wrapped(sum(values))
        case Kind.UPPER_SUM:
            return sum(value >> 32 for value in values)
        case Kind.LOWER_SUM:
            return sum(value & 0xFFFFFFFF for value in values)
        case Kind.MIN:
            return min(values, default=None)
        case Kind.MAX:
            return max(values, default=None)
        case Kind.BIT_AND:
            return reduce(and_, values, -1)
        case Kind.BIT_OR:
            return reduce(or_, values, 0)
        case Kind.BIT_XOR:
            return reduce(xor, values, 0)
        case Kind.EARLIEST | Kind.LATEST:
            times = [ts for ts, _ in seen]
            return (min if kind is Kind.EARLIEST else max)(times, default=None)
        case Kind.FIRST | Kind.LAST:
            return (min if kind is Kind.FIRST else max)(seen, default=(None, None))[1]
