"""Columns of both IP layers, frames, MACs, texts and payloads through the inline engine, against the definition.

The tests detect a column that is decoded from the wrong layer or kept from the block before. They detect a mask of
fields that omits one, an address of one layer stored with the version of the other, and a NULL that becomes a value.
"""

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from highlevel.inline.engine import InlineRun, Input
from highlevel.plan.plan import Plan
from lowlevel.expressions.types import Type
from tests.references.column_queries import answer, comparable, plans
from tests.references.pcap_bytes import NS, pcap_bytes
from tests.references.random_frames import random_frame

PLANS = plans()
REAL = [
    "ipv6_in_gtp.pcap",
    "gre.pcapng",
    "vxlan.pcap",
    "teredo.pcap",
    "4in6tunnel.pcap",
    "6in4tunnel.pcap",
    "netbios.pcap",
    "http_ipv6.pcap",
    "badpackets.pcap",
    "dlt_ppp.pcap",
    "can.pcap",
]


def inline(path: Path, every: list[Plan] = PLANS, slots: int = 1024) -> list[Counter[tuple]]:
    """Answers of one run of all queries; a MAC is a number as in the twin."""
    found: list[Counter[tuple]] = [Counter() for _ in every]
    for number, batch in InlineRun(every, [Input("link", path)], slots).results():
        macs = [out.name for out in every[number].aggregation.select if out.expression.type is Type.MAC]
        for row in batch.to_pylist():
            row |= {name: int.from_bytes(row[name], "big") for name in macs if row[name] is not None}
            found[number][comparable(row.values())] += 1
    return found


def check(path: Path) -> None:
    for plan, got in zip(PLANS, inline(path), strict=True):
        assert got == answer(plan, path), plan.name


@pytest.mark.parametrize("link_type", [1, 101, 113])
def test_made_captures_give_what_the_definition_gives(link_type: int, tmp_path: Path) -> None:
    random = Random(link_type)
    kinds = {1: [1], 101: [228, 229], 113: [113]}[link_type]
    frames = [random_frame(random, random.choice(kinds))[0] for _ in range(150)] + [b"", b"\x45" + bytes(9), bytes(70)]
    records = [(number * NS, random.choice(frames)) for number in range(400)]
    path = tmp_path / "made.pcap"
    path.write_bytes(pcap_bytes(records, link_type))
    check(path)


@pytest.mark.parametrize("name", REAL)
def test_real_captures_give_what_the_definition_gives(name: str, captures: Path) -> None:
    check(captures / "pcap" / name)


def test_the_layers_of_a_tunnel_are_told_apart(captures: Path) -> None:
    """The inner layer is IPv6, the outer one IPv4: one header must not serve for both."""
    for name, expected in [("6in4tunnel.pcap", (16, 4, 1)), ("4in6tunnel.pcap", (4, 16, 1))]:
        rows = inline(captures / "pcap" / name, PLANS[:1])[0]
        assert {(len(inside), len(outside), tunnels) for inside, outside, tunnels, *_ in rows} == {expected}


def test_one_query_alone_gives_what_it_gives_beside_all_others(captures: Path) -> None:
    """Columns that others asked for are decoded into the same buffers."""
    path = captures / "pcap" / "ipv6_in_gtp.pcap"
    together = inline(path)
    for plan, beside in zip(PLANS, together, strict=True):
        assert inline(path, [plan], 8)[0] == beside
