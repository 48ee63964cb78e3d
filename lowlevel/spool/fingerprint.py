"""Fingerprints of low-level plans. They prevent that partials of one plan are merged as partials of another plan."""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from fractions import Fraction

from lowlevel.expressions.types import Type
from lowlevel.plan import LowLevelPlan

MEANING_VERSION = 1
"""Version of the meaning of plans. It is increased when a change of the code makes an equal plan produce other
partials."""


def fingerprint(plan: LowLevelPlan) -> str:
    """Return 32 hexadecimal digits, the same in every process, for equal plans; the name of the query has no effect.

    Plans are equal if predicate, keys, sub-aggregates, pane, origin, kind of rows and all other fields are equal, as
    trees: `a AND b` is not `b AND a`. Fields with their default value are omitted, so that a new field of plans
    changes only the fingerprints of plans that use it.
    """
    return hashlib.blake2b(f"{MEANING_VERSION} {tree_text(plan)}".encode(), digest_size=16).hexdigest()


def tree_text(value: object, translate: Callable[[object], object] = lambda value: value) -> str:
    """Return a text of a tree of plain values; different trees have different texts.

    `translate` replaces a value of the tree before its text is made. Raises TypeError for other values.

    >>> tree_text((1, True, "a", 0.5))
    "tuple(int 1,bool True,str 'a',float 0x1.0000000000000p-1)"
    """
    value = translate(value)
    name = type(value).__name__
    if is_dataclass(value):
        field_texts = [
            f"{field.name}={tree_text(getattr(value, field.name), translate)}"
            for field in fields(value)
            if field.compare and _is_set(field, value)
        ]
        return f"{name}({','.join(field_texts)})"
    if isinstance(value, tuple):
        return f"tuple({','.join(tree_text(member, translate) for member in value)})"
    if value is Type.TIME:  # partials contain times as integers; earlier versions had no type for times
        value = Type.INT
    if isinstance(value, Enum):
        return f"{name}.{value.name}"
    if isinstance(value, float):
        return f"float {value.hex()}"
    if value is None or isinstance(
        value, (bool, int, str, bytes, Fraction, ipaddress.IPv4Address, ipaddress.IPv6Address)
    ):
        return f"{name} {value!r}"
    raise TypeError(f"got {name} in a plan, expected plain values, tuples and dataclasses: {value!r}")


def _is_set(field: Field[object], value: object) -> bool:
    """Return whether a field has another value than its default."""
    return field.default is MISSING or getattr(value, field.name) != field.default
