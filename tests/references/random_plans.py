"""The columns of packets as expressions, and seeded random low-level plans over them.

Floats are multiples of 1/4 below 2**40, so that their sums are exact in every order and can be compared with `==`.
"""

from __future__ import annotations

from random import Random

from capture.packets.columns import COLUMNS
from lowlevel.expressions.tree import Binary, Column, Expression, IsNull, Literal
from lowlevel.expressions.types import Op, Type
from lowlevel.plan import Key, LowLevelPlan
from lowlevel.subaggregates import TIME_OF, Kind, SubAggregate
from tests.references import random_expressions
from tests.references.pcap_bytes import NS

PACKET = {
    spec.name: Column(spec.name, Type(spec.type), spec.nullable, spec.bits)
    for spec in COLUMNS.values()
    if spec.bits or spec.name == "interface"
}
LINK = Column("link", Type.TEXT)
COMPUTED: dict[str, Expression] = {
    "wide": Binary(Op.MUL, PACKET["len"], Literal(-3, Type.INT)),
    "wide_nullable": Binary(Op.DIV, PACKET["len"], PACKET["srcPort"]),
    "float": Binary(Op.DIV, PACKET["len"], Literal(4.0, Type.FLOAT)),
    "float_nullable": Binary(Op.MUL, PACKET["destPort"], Literal(-0.5, Type.FLOAT)),
    "bool": Binary(Op.GT, PACKET["ttl"], Literal(64, Type.INT)),
    "bool_nullable": Binary(Op.LT, PACKET["srcPort"], PACKET["destPort"]),
    "is_null": IsNull(PACKET["vlan"]),
}
KEY_SHAPES: tuple[tuple[str, ...], ...] = (
    (),
    ("srcIP",),
    ("srcIP", "destIP"),
    ("srcIP", "destIP", "srcPort", "destPort", "protocol"),
    ("protocol", "tcp_flags"),
    ("srcPort", "wide_nullable", "bool_nullable"),
    ("float_nullable", "is_null"),
    ("vlan", "destIP", "wide"),
    ("srcMAC", "interface", "ethertype"),
    ("ts",),
)


def keys_of(*names: str) -> tuple[Key, ...]:
    """Keys of the named packet columns or computed expressions."""
    return tuple(Key(name, PACKET.get(name) or COMPUTED[name]) for name in names)


def random_plan(random: Random, keys: tuple[str, ...]) -> LowLevelPlan:
    """`count(*)` and up to eight sub-aggregates over integers and floats, with and without NULLs; often a predicate."""
    arguments = [PACKET[name] for name in ("len", "ttl", "destPort", "icmp_type", "ts")]
    arguments += [COMPUTED[name] for name in ("wide", "wide_nullable", "float", "float_nullable")]
    subs = [SubAggregate("packets", Kind.COUNT)]
    for number in range(random.randrange(7)):
        kind = random.choice([Kind.COUNT, Kind.SUM, Kind.MIN, Kind.MAX])
        argument: Expression = random.choice([*arguments, PACKET["srcIP"], LINK] if kind is Kind.COUNT else arguments)
        if kind is Kind.SUM and argument.type is not Type.FLOAT:
            kind = (Kind.SUM, Kind.UPPER_SUM, Kind.LOWER_SUM)[number % 3]
        subs.append(SubAggregate(f"{kind}{number}", kind, argument))
    for number in range(random.randrange(3)):
        argument = random.choice(arguments)
        if argument.type is Type.INT and random.random() < 0.5:
            kind = random.choice([Kind.BIT_AND, Kind.BIT_OR, Kind.BIT_XOR])
            subs.append(SubAggregate(f"{kind}{number}", kind, argument))
        else:
            kind = random.choice([Kind.FIRST, Kind.LAST])
            subs += [SubAggregate(f"{each}{number}", each, argument) for each in (TIME_OF[kind], kind)]
    columns = [*PACKET.values(), LINK]
    where = random_expressions.condition(random, columns, random.randrange(1, 4)) if random.random() < 0.6 else None
    pane = random.choice([1, 999, NS, 10 * NS, 60 * NS, 2**40])
    return LowLevelPlan(where, keys_of(*keys), tuple(subs), pane, random.choice([0, 7, -NS, 1_700_000_030 * NS, 2**61]))
