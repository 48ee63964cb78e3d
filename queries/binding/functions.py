"""Calls of functions: check the number and the types of the arguments."""

from __future__ import annotations

from collections.abc import Sequence

from lowlevel.expressions.tree import Call, Expression, HashOf, Literal
from lowlevel.expressions.types import BYTE_TEXT_FUNCTIONS, Function, Type
from lowlevel.expressions.user_functions import DEFINED
from queries.binding.address_functions import USAGES as ADDRESS_FUNCTIONS
from queries.binding.address_functions import address_function
from queries.binding.comparisons import Operand
from queries.binding.conditionals import USAGES as CONDITIONALS
from queries.binding.conditionals import conditional_function
from queries.binding.filter_joins import SEEN_WITHIN, USAGE, seen_within
from queries.binding.patterns import matches
from queries.binding.scalar_functions import USAGES as SCALAR_FUNCTIONS
from queries.binding.scalar_functions import scalar_function
from queries.binding.time_functions import USAGES as TIME_FUNCTIONS
from queries.binding.time_functions import time_function
from queries.binding.user_functions import user_call
from queries.binding.watchlists import SETTING, SETTING_USAGE, USAGES, bind_watchlist, setting_value
from queries.text.errors import QueryError
from queries.text.tree import Word

HASHES: dict[str, str] = {
    "hash": "hash(srcIP, destIP), or hash(srcIP, 7) with a seed",
    "uniform": "uniform(srcIP, destIP), or uniform(srcIP, 7) with a seed",
}
"""Hashes of values by name, each with an example of its call."""

FUNCTIONS: dict[str, str] = {
    Function.LENGTH: "length(x)",
    Function.CONTAINS: "contains(x, 'text')",
    Function.STARTS_WITH: "starts_with(x, 'text')",
    Function.BYTE: "byte(x, n)",
    Function.TEXT: "text(payload)",
    Function.HEX: "hex(payload)",
    Function.DNS_NAME: "dns_name(payload)",
    Function.TLS_SERVER_NAME: "tls_server_name(payload)",
    Function.HTTP_HOST: "http_host(payload)",
    **USAGES,
    SETTING: SETTING_USAGE,
    SEEN_WITHIN: USAGE,
    **CONDITIONALS,
    **ADDRESS_FUNCTIONS,
    **TIME_FUNCTIONS,
    Function.MATCHES: "matches(x, 'GET .*HTTP')",
    **SCALAR_FUNCTIONS,
    **HASHES,
}
"""Functions by name, each with an example of its call."""


def call(sql: str, name: Word, operands: Sequence[Operand]) -> Expression:
    """Return the call of a function. Raises QueryError at the first wrong argument."""
    if name.text.lower() in DEFINED:
        return user_call(sql, name, operands)
    if name.text.lower() in HASHES:
        return _hash(sql, name, operands)
    if name.text.lower() in USAGES:
        return bind_watchlist(sql, name, operands)
    if name.text.lower() == SETTING:
        return setting_value(sql, name, operands)
    if name.text.lower() in CONDITIONALS:
        return conditional_function(sql, name, operands)
    if name.text.lower() in ADDRESS_FUNCTIONS:
        return address_function(sql, name, operands)
    if name.text.lower() in TIME_FUNCTIONS:
        return time_function(sql, name, operands)
    if name.text.lower() in SCALAR_FUNCTIONS:
        return scalar_function(sql, name, operands)
    if name.text.lower() == SEEN_WITHIN:
        return seen_within(sql, name, operands)
    function = Function(name.text.lower())
    usage = FUNCTIONS[function]
    if len(operands) != 1 + ("," in usage):
        problem = f"{function} with {len(operands)} argument{'' if len(operands) == 1 else 's'}"
        raise QueryError(problem, sql, name.start, usage)
    subject = operands[0]
    if function is Function.MATCHES:
        return matches(subject, operands[1])
    only_bytes = function is Function.BYTE or function in BYTE_TEXT_FUNCTIONS
    wanted = (Type.BYTES,) if only_bytes else (Type.BYTES, Type.TEXT)
    if subject.type not in wanted or isinstance(subject.bound, Literal):
        what = "a constant" if isinstance(subject.bound, Literal) else f"a value of type {subject.type}"
        subject.fail(f"{function} over {what}", f"a column of {' or '.join(wanted)}, for example payload")
    if function is Function.LENGTH or function in BYTE_TEXT_FUNCTIONS:
        return Call(function, subject.bound)
    if function is Function.BYTE:
        return Call(function, subject.bound, _offset(operands[1]))
    return Call(function, subject.bound, _pattern(operands[1].comparable_with(Type.TEXT), subject.type))


def _offset(operand: Operand) -> Expression:
    bound = operand.bound
    if bound.type is not Type.INT:
        operand.fail(f"byte at a value of type {bound.type}", "an integer, counted from 0")
    if isinstance(bound, Literal) and isinstance(bound.value, int) and bound.value < 0:
        operand.fail(f"byte at {bound.value}", "an offset of 0 or more")
    return bound


def _pattern(operand: Operand, wanted: Type) -> Literal:
    """Convert the pattern of a search to the type `wanted`. A text is converted to bytes as UTF-8."""
    bound = operand.bound
    if isinstance(bound, Literal) and isinstance(bound.value, str):
        return Literal(bound.value.encode(), Type.BYTES) if wanted is Type.BYTES else bound
    if isinstance(bound, Literal) and bound.type is wanted:
        return bound
    what = "a constant" if isinstance(bound, Literal) else "a value that is not a constant,"
    expected = "a text like 'GET '" + (" or bytes like x'1603'" if wanted is Type.BYTES else "")
    raise operand.error(f"a search in {wanted} for {what} of type {bound.type}", expected)


def _hash(sql: str, name: Word, operands: Sequence[Operand]) -> Expression:
    """Return a hash of values. The last argument may be a constant: the seed."""
    function = name.text.lower()
    seed, values = 0, list(operands)
    last = operands[-1].bound if operands else None
    if isinstance(last, Literal):
        if not isinstance(last.value, int) or last.type is not Type.INT or not 0 <= last.value < 2**63:
            expected = f"a seed, 0 or more, as the last argument: {HASHES[function]}"
            operands[-1].fail(f"a constant in {function}", expected)
        seed, values = last.value, values[:-1]
    if not values:
        raise QueryError(f"{function} without a value", sql, name.start, HASHES[function])
    for operand in values:
        if operand.type is Type.BYTES:
            operand.fail(f"{function} over bytes", "columns of other types, or text(…) of bytes")
        if isinstance(operand.bound, Literal):
            operand.fail(f"a constant in {function}", "columns, and a seed as the last argument")
    return HashOf(tuple(operand.bound for operand in values), seed, function == "uniform")
