"""Price quotes and the queries over them of Chandramouli, Goldstein and Maier (2010), §6.

A quote has a change of its price. It rises with a given probability; the size of a change is normal with mean 0.70 and
standard deviation 0.30, and more than 0. Some quotes are ignorable: they belong to no query, and each state keeps them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from capture.lazy_dataclasses import dataclass
from highlevel.patterns.automaton import Arc, Automaton, Field, Transfer
from highlevel.speculation.lifetimes.kernels.endpoints import INSERT
from highlevel.speculation.lifetimes.model import change_schema, concat, make_changes, make_ctis
from lowlevel.expressions.tree import Binary, Column, Expression, Literal
from lowlevel.expressions.types import Op, Type
from lowlevel.punctuation import END

PAYLOAD = pa.schema([("change", pa.float64()), ("relevant", pa.int64()), ("symbol", pa.int64())])
SCHEMA = change_schema(PAYLOAD)
UNIT = 1_000_000
"""Time between two quotes, in ns: one per millisecond."""

MEAN, DEVIATION = 0.70, 0.30
CHANGE, RELEVANT = Column("change", Type.FLOAT, False), Column("relevant", Type.INT, False)


@dataclass(frozen=True)
class Quotes:
    """Quotes: how many, the probability of a rise, and the parts that are ignorable and late.

    A late quote arrives `1..most_late` places late. There are `symbols` symbols in turn.
    """

    count: int
    rise: float = 0.5
    ignorable: float = 0.0
    late: float = 0.0
    most_late: int = 5000
    symbols: int = 1


def changes(quotes: Quotes, punctuated: int, batch: int, seed: int = 1) -> Iterator[pa.RecordBatch]:
    """Yield the quotes in batches in the order of arrival, with a CTI after `punctuated` quotes each."""
    draw = np.random.default_rng(seed)
    size = draw.normal(MEAN, DEVIATION, quotes.count)
    while (size <= 0).any():
        size = np.where(size > 0, size, draw.normal(MEAN, DEVIATION, quotes.count))
    change = np.where(draw.random(quotes.count) < quotes.rise, size, -size)
    relevant = (draw.random(quotes.count) >= quotes.ignorable).astype(np.int64)
    places = np.arange(quotes.count)
    delays = np.where(draw.random(quotes.count) < quotes.late, draw.integers(1, quotes.most_late + 1, quotes.count), 0)
    order = np.argsort(places + delays + 0.5 * (delays > 0), kind="stable")
    # The CTI after an arrival is the earliest quote that has not arrived.
    waiting = np.minimum.accumulate(np.append(order, quotes.count)[::-1])[::-1]
    symbol = places % quotes.symbols
    for begin in range(0, quotes.count, batch):
        parts = []
        for first in range(begin, min(begin + batch, quotes.count), punctuated):
            end = min(first + punctuated, begin + batch, quotes.count)
            rows = order[first:end]
            payload = pa.RecordBatch.from_arrays(
                [pa.array(change[rows]), pa.array(relevant[rows]), pa.array(symbol[rows])], schema=PAYLOAD
            )
            start, stop = rows * UNIT, np.full(len(rows), END)
            inserts = make_changes(np.full(len(rows), INSERT), start, stop, stop, payload)
            parts += [inserts, make_ctis([int(waiting[end]) * UNIT], PAYLOAD)]
        yield concat(parts, SCHEMA)


def _compare(op: Op, left: Expression, right: float) -> Expression:
    kind = Type.FLOAT if isinstance(right, float) else Type.INT
    return Binary(op, left, Literal(right, kind))


def _both(left: Expression, right: Expression) -> Expression:
    return Binary(Op.AND, left, right)


def vees(times: int, drop: float, window: int, *, with_ignorable: bool = False) -> Automaton:
    """Return query Q1: a drop of more than `drop`, then `times` V with as many falls as rises, in `window` quotes.

    Arcs a0 to a5 of the paper. `balance` is the number of falls minus rises, `found` the number of V so far.
    """
    balance, found = Field("balance", Literal(0, Type.INT)), Field("found", Literal(0, Type.INT))
    fall, rise = _compare(Op.LT, CHANGE, 0.0), _compare(Op.GT, CHANGE, 0.0)
    is_last, is_level = _compare(Op.EQ, found.column, times - 1), _compare(Op.EQ, balance.column, 1)
    more = _compare(Op.LT, found.column, times - 1)
    deeper = Binary(Op.ADD, balance.column, Literal(1, Type.INT))
    higher = ("balance", Binary(Op.SUB, balance.column, Literal(1, Type.INT)))
    next_vee = ("found", Binary(Op.ADD, found.column, Literal(1, Type.INT)))
    arcs: list[tuple[str, str, Expression, Transfer]] = [
        (
            "q0",
            "q1",
            _compare(Op.LT, CHANGE, -drop),
            (("balance", Literal(0, Type.INT)), ("found", Literal(0, Type.INT))),
        ),
        ("q1", "q1", fall, (("balance", deeper),)),
        ("q1", "q2", fall, (("balance", deeper),)),
        ("q2", "q2", _both(rise, Binary(Op.OR, more, _compare(Op.GT, balance.column, 1))), (higher,)),
        ("q2", "q1", _both(rise, more), (higher, next_vee)),
        ("q2", "q3", _both(rise, _both(is_last, is_level)), (higher, next_vee)),
    ]
    made = [Arc(source, target, fence, transfer) for source, target, fence, transfer in arcs]
    if with_ignorable:
        relevant = _compare(Op.EQ, RELEVANT, 1)
        made = [Arc(each.source, each.target, _both(relevant, each.fence), each.transfer) for each in made]
        made += [Arc(state, state, _compare(Op.EQ, RELEVANT, 0)) for state in ("q1", "q2")]
    return Automaton("q0", ("q3",), tuple(made), (balance, found), window * UNIT)
