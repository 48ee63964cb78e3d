"""Plans that are graphs, built by hand over packets: the nodes that tests put together."""

from __future__ import annotations

import pyarrow as pa

from highlevel.aggregation import Aggregation, Output
from highlevel.joins.spec import JoinKind, JoinSpec, JoinWindow, Side, WatermarkForm
from highlevel.plan.nodes import Apply, Filter, Join, Leaf, Node, TimeOutput
from highlevel.windows.kind import WHOLE_INPUT, SlidingWindow
from lowlevel.expressions.tree import Binary, Column, Expression, Literal
from lowlevel.expressions.types import Op, Type
from lowlevel.plan import ARROW_TYPES, Key, LowLevelPlan
from lowlevel.subaggregates import Kind, SubAggregate

SRC, DEST = Column("srcIP", Type.ADDRESS, True), Column("destIP", Type.ADDRESS, True)
PORT, LEN = Column("srcPort", Type.INT, True, 16), Column("len", Type.INT, False, 32)
TS, PANE = Column("ts", Type.TIME), Column("pane", Type.TIME)


def number(value: int) -> Literal:
    return Literal(value, Type.INT)


def leaf(*streams: str, where: Expression | None = None, name: str = "q") -> Leaf:
    """Single packets of some streams."""
    keys = tuple(Key(column.name, column) for column in (SRC, DEST, PORT, LEN))
    return Leaf(name, streams, LowLevelPlan(where, keys, (), 1, reduced=False))


def packets(*streams: str, where: Expression | None = None) -> Apply:
    """The same as rows `ts, srcIP, destIP, srcPort, len`."""
    outputs = (Output("ts", PANE), *(Output(column.name, column) for column in (SRC, DEST, PORT, LEN)))
    return Apply(leaf(*streams, where=where), outputs, (TimeOutput("ts", "pane"),))


def longer(node: Node, length: int) -> Filter:
    return Filter(node, Binary(Op.GT, LEN, number(length)))


def side(node: Node, prefix: str) -> Side:
    schema = pa.schema([pa.field(column.name, ARROW_TYPES[column.type]) for column in node.columns])
    return Side(schema, "ts", tuple((column.name, f"{prefix}.{column.name}") for column in node.columns))


def join(
    left: Node,
    right: Node,
    window: JoinWindow,
    form: WatermarkForm = WatermarkForm.LEFT,
    kind: JoinKind = JoinKind.INNER,
    keys: tuple[tuple[Expression, Expression], ...] = ((SRC, DEST), (DEST, SRC)),
    residual: Expression | None = None,
) -> Join:
    """Packets S of the left and A of the right, in opposite directions."""
    return Join(left, right, JoinSpec(side(left, "S"), side(right, "A"), window, keys, residual, kind), form)


def totals(window: SlidingWindow, keys: tuple[Key, ...], amount: Expression, reduced: bool = True) -> Aggregation:
    """`count, sum of amount` of each group of each window."""
    subs = (SubAggregate("c", Kind.COUNT), SubAggregate("s", Kind.SUM, amount))
    pane = window.pane if window != WHOLE_INPUT else 60 * 10**9
    low = LowLevelPlan(None, keys, subs, pane if reduced else 1, window.origin, reduced=reduced)
    names = tuple(key.name for key in keys)
    select = [Output(key.name, Column(key.name, key.expression.type, True)) for key in keys]
    select += [Output("c", Column("c", Type.INT)), Output("s", Column("s", Type.INT))]
    return Aggregation(window, low, names, None, tuple(select))
