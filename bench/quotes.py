"""Price quotes and the queries over them of Chandramouli, Goldstein and Maier (2010), §6.

A quote has a change of its price. The price rises with a given probability; the size of a change is normal with mean
0.70 and standard deviation 0.30, and more than 0. Some quotes are ignorable: they belong to no query, and each state
keeps them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from capture.lazy_dataclasses import dataclass
from highlevel.patterns.automaton import Arc, Automaton, Field, Transfer
from highlevel.speculation.lifetimes.kernels.endpoints import INSERT
from highlevel.speculation.lifetimes.model import change_schema, concat, make_changes, make_ctis
from lowlevel.expressions.tree import Binary, Column, Conditional, Expression, Literal, Unary
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
    """Quotes: their number, the probability of a rise, and the shares of ignorable and of late quotes.

    A late quote arrives `1..most_late` places late. There are `symbols` symbols in turn.
    """

    count: int
    rise: float = 0.5
    ignorable: float = 0.0
    late: float = 0.0
    most_late: int = 5000
    symbols: int = 1


def changes(quotes: Quotes, punctuated: int, batch: int, seed: int = 1) -> Iterator[pa.RecordBatch]:
    """Yield the quotes in batches in the order of arrival, with a CTI after each `punctuated` quotes."""
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


def vees_in_one_loop(times: int, drop: float, window: int) -> Automaton:
    """Return Q1 as an automaton of two states: an arc from the first to itself simulates the states of `vees`.

    The emulation CAN of the paper. `falls0` is 1 if a run of `vees` is in q1 after no V, `rises0` if it is in q2, and
    so on. All runs of one start have the same balance.
    """
    none, one = Literal(0, Type.INT), Literal(1, Type.INT)
    falls = [Field(f"falls{found}", none) for found in range(times)]
    rises = [Field(f"rises{found}", none) for found in range(times)]
    begun, balance = Field("begun", none), Field("balance", none)
    is_fall, is_new = _compare(Op.LT, CHANGE, 0.0), _compare(Op.EQ, begun.column, 0)
    is_deep = _compare(Op.GT, balance.column, 1)
    last = Conditional(is_deep, rises[-1].column, none)
    others: list[Expression] = [field.column for field in rises[:-1]]
    after_rise: tuple[list[Expression], list[Expression]] = [none, *others], [*others, last]
    transfer: list[tuple[str, Expression]] = [("begun", one)]
    for found in range(times):
        first = one if found == 0 else none
        of_falls = Conditional(is_fall, falls[found].column, after_rise[0][found])
        of_rises = Conditional(is_fall, falls[found].column, after_rise[1][found])
        transfer.append((falls[found].name, Conditional(is_new, first, of_falls)))
        transfer.append((rises[found].name, Conditional(is_new, none, of_rises)))
    step = Conditional(is_fall, one, Literal(-1, Type.INT))
    transfer.append(("balance", Conditional(is_new, none, Binary(Op.ADD, balance.column, step))))
    goes_on = _both(is_fall, _any([field.column for field in falls]))
    returns = _both(Unary(Op.NOT, is_fall), _any([*after_rise[0], *after_rise[1]]))
    begins = _both(is_new, _compare(Op.LT, CHANGE, -drop))
    is_last = _both(_compare(Op.EQ, rises[-1].column, 1), _compare(Op.EQ, balance.column, 1))
    arcs = (
        Arc("q0", "q0", Binary(Op.OR, begins, Binary(Op.OR, goes_on, returns)), tuple(transfer)),
        Arc("q0", "q1", _both(_compare(Op.GT, CHANGE, 0.0), is_last)),
    )
    return Automaton("q0", ("q1",), arcs, (begun, balance, *falls, *rises), window * UNIT)


def _any(values: list[Expression]) -> Expression:
    """Return whether one of some values is 1."""
    total = values[0]
    for value in values[1:]:
        total = Binary(Op.ADD, total, value)
    return _compare(Op.GT, total, 0)


def waits(window: int) -> Automaton:
    """Return a query whose runs begin at 14 % of the quotes, and wait for a rise that only 0.2 % of the quotes have."""
    is_large = _compare(Op.GT, CHANGE, 1.5)
    arcs = (
        Arc("q0", "q1", _compare(Op.LT, CHANGE, -0.85)),
        Arc("q1", "q1", Unary(Op.NOT, is_large)),
        Arc("q1", "q2", is_large),
    )
    return Automaton("q0", ("q2",), arcs, (Field("balance", Literal(0, Type.INT)),), window * UNIT)
