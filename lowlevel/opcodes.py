"""What the table's kernels do with the argument of a sub-aggregate."""

from __future__ import annotations

import numpy as np

from lowlevel.subaggregates import INT_MAX, INT_MIN, Kind, SubAggregate
from lowlevel.types import Type

COUNT, SUM, MIN, MAX, SUM_FLOAT, MIN_FLOAT, MAX_FLOAT, BIT_AND, BIT_OR, BIT_XOR = range(10)
EARLIEST, FIRST, FIRST_FLOAT, LATEST, LAST, LAST_FLOAT = range(10, 16)

OPCODES: dict[tuple[Kind, Type], int] = {
    (Kind.COUNT, Type.INT): SUM,  # over the 0/1 column that says where the argument is present
    (Kind.SUM, Type.INT): SUM,
    (Kind.MIN, Type.INT): MIN,
    (Kind.MAX, Type.INT): MAX,
    (Kind.SUM, Type.FLOAT): SUM_FLOAT,
    (Kind.MIN, Type.FLOAT): MIN_FLOAT,
    (Kind.MAX, Type.FLOAT): MAX_FLOAT,
    (Kind.BIT_AND, Type.INT): BIT_AND,
    (Kind.BIT_OR, Type.INT): BIT_OR,
    (Kind.BIT_XOR, Type.INT): BIT_XOR,
    (Kind.EARLIEST, Type.INT): EARLIEST,
    (Kind.FIRST, Type.INT): FIRST,
    (Kind.FIRST, Type.FLOAT): FIRST_FLOAT,
    (Kind.LATEST, Type.INT): LATEST,
    (Kind.LAST, Type.INT): LAST,
    (Kind.LAST, Type.FLOAT): LAST_FLOAT,
}
"""How a slot's word takes in an argument; `count(*)` alone takes none and is COUNT."""

IDENTITIES: dict[int, int | float] = {
    SUM: 0,
    MIN: INT_MAX,
    MAX: INT_MIN,
    SUM_FLOAT: 0.0,
    MIN_FLOAT: float("inf"),
    MAX_FLOAT: float("-inf"),
    BIT_AND: -1,
    BIT_OR: 0,
    BIT_XOR: 0,
    EARLIEST: INT_MAX,
    FIRST: INT_MAX,
    FIRST_FLOAT: float("inf"),
    LATEST: INT_MIN,
    LAST: INT_MIN,
    LAST_FLOAT: float("-inf"),
}
"""What an absent (NULL) argument is replaced by: the value that changes nothing."""


def start(kind: int) -> int:
    """Return the word, as an integer, of a sub-aggregate that has taken in nothing."""
    identity = IDENTITIES.get(kind, 0)
    return int(np.array(identity, np.float64).view(np.int64)) if isinstance(identity, float) else identity


def opcode(sub: SubAggregate) -> int:
    """Return how the kernel updates this sub-aggregate."""
    return COUNT if sub.argument is None else OPCODES[sub.kind, sub.type]
