"""User-defined functions in Python: their definition, and their calls in queries.

The annotations of a function determine its types: `int`, `float`, `bool`, `str`, and for parameters also `bytes`. A
time is an `int` (ns since the epoch) or a `str`. Addresses and MACs are `str`. A parameter `int | None` receives NULL
as None.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Collection, Sequence
from typing import Any

from lowlevel.expressions.tree import Expression, Literal, ScalarCall, TextOf, UserCall
from lowlevel.expressions.types import Scalar, Type
from lowlevel.expressions.user_functions import ANNOTATIONS, DEFINED, FunctionError, UserFunction, define
from queries.binding.comparisons import Operand
from queries.text.errors import QueryError
from queries.text.tree import Word

TYPES: dict[object, Type] = {
    int: Type.INT, float: Type.FLOAT, bool: Type.BOOL, str: Type.TEXT, bytes: Type.BYTES,
}  # fmt: skip
"""The type for each annotation of a parameter or result. A result cannot be bytes."""

ACCEPTED_TYPES: dict[Type, tuple[Type, ...]] = {
    Type.INT: (Type.INT, Type.TIME),
    Type.FLOAT: (Type.FLOAT, Type.INT),
    Type.BOOL: (Type.BOOL,),
    Type.TEXT: (Type.TEXT, Type.ADDRESS, Type.MAC, Type.TIME),
    Type.BYTES: (Type.BYTES,),
}
"""For each type of a parameter the types of arguments that it accepts. Arguments are converted to its type."""


def define_function(
    body: Callable[..., Any], name: str | None, taken_names: Collection[str], *, of_columns: bool, compiled: bool
) -> None:
    """Define a function for the queries of this process.

    `taken_names`: names that the function must not have. Raises FunctionError.
    """
    if not inspect.isfunction(body):
        raise FunctionError(f"got {type(body).__name__}, expected a function with annotations")
    function_name = name or body.__name__
    if not function_name.isidentifier() or not function_name.isascii():
        raise FunctionError(f"got the name {function_name!r} of a function, expected a word such as risk")
    if function_name.lower() in taken_names:
        raise FunctionError(f"the name {function_name!r} is taken, expected a name that SQL does not use: name='...'")
    try:
        hints = typing.get_type_hints(body)
    except NameError as error:
        raise FunctionError(f"{function_name}: an annotation is unknown: {error}") from None
    kinds: list[Type] = []
    optional: list[int] = []
    for parameter in inspect.signature(body).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            raise FunctionError(f"{function_name}: got the parameter {parameter}, expected one value per parameter")
        annotation = hints.get(parameter.name)
        if _without_none(annotation) is not annotation:
            optional.append(len(kinds))
        kinds.append(_type_of(function_name, parameter.name, _without_none(annotation)))
    if not kinds:
        raise FunctionError(f"{function_name} has no parameter, expected one or more")
    if of_columns and compiled:
        raise FunctionError(f"{function_name}: got columns=True and compiled=True, expected one of them")
    result = _type_of(function_name, "return", _without_none(hints.get("return")))
    for kind in (Type.TEXT, Type.BYTES):
        if compiled and kind in (*kinds, result):
            raise FunctionError(
                f"{function_name}: got compiled=True and {ANNOTATIONS[kind]}, expected int, float and bool only"
            )
    if compiled and optional:
        raise FunctionError(
            f"{function_name}: got compiled=True and a parameter that can be None, expected int, float or bool"
        )
    define(UserFunction(function_name, tuple(kinds), result, body, of_columns, compiled, tuple(optional)))


def _without_none(annotation: object) -> object:
    """Return `str` for `str | None`. Return other annotations unchanged."""
    members = [member for member in typing.get_args(annotation) if member is not type(None)]
    return members[0] if len(members) == 1 else annotation


def _type_of(function: str, parameter: str, annotation: object) -> Type:
    choices = [kind for kind in TYPES if parameter != "return" or kind is not bytes]
    if annotation not in choices:
        got = "no annotation" if annotation is None else f"the annotation {getattr(annotation, '__name__', annotation)}"
        where = "the result" if parameter == "return" else f"the parameter {parameter}"
        names = [ANNOTATIONS[TYPES[kind]] for kind in choices]
        raise FunctionError(f"{function}: {where} has {got}, expected {', '.join(names[:-1])} or {names[-1]}")
    return TYPES[annotation]


def user_call(sql: str, name: Word, operands: Sequence[Operand]) -> Expression:
    """Return the expression for a call of one of the functions in DEFINED. Raises QueryError for wrong arguments."""
    function = DEFINED[name.text.lower()]
    if len(operands) != len(function.parameters):
        shown_count = f"{len(operands)} argument{'' if len(operands) == 1 else 's'}"
        raise QueryError(f"{function.name} with {shown_count}", sql, name.start, function.usage)
    pairs = zip(operands, function.parameters, strict=True)
    return UserCall(function, tuple(_argument(function, operand, kind) for operand, kind in pairs))


def _argument(function: UserFunction, operand: Operand, kind: Type) -> Expression:
    operand = operand.comparable_with(kind)
    bound = operand.bound
    if kind is Type.BYTES and isinstance(bound, Literal):
        operand.fail(f"{function.name} over a constant", "a column of bytes, for example payload")
    if operand.type not in ACCEPTED_TYPES[kind]:
        expected = " or ".join(each.value for each in ACCEPTED_TYPES[kind])
        operand.fail(f"{function.name} over a value of type {operand.type}", expected)
    if kind is Type.FLOAT and operand.type is Type.INT:
        return ScalarCall(Scalar.DOUBLE, bound)
    if kind is Type.TEXT and operand.type is not Type.TEXT:
        return bound if isinstance(bound, Literal) and bound.value is None else TextOf(bound)
    return bound
