"""Packets written by hand for queries that are graphs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from ipaddress import ip_address
from pathlib import Path
from random import Random
from typing import NamedTuple

from highlevel.inline.engine import InlineRun, Input
from highlevel.plan.plan import Plan
from tests.references.pcap_bytes import pcap_bytes
from tests.references.small_captures import RAW_IP, udp

SECOND = 10**9


class Packet(NamedTuple):
    ts: int
    src: str
    dest: str
    port: int
    length: int


def address(text: str) -> bytes:
    return ip_address(text).packed


def made(random: Random, count: int, first: int = 0) -> list[Packet]:
    """Packets over a minute between few hosts, in order of arrival: up to 0, 2 or 30 s late."""
    late = random.choice([0, 2, 30]) * SECOND
    hosts = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "2001:db8::1"]
    found = []
    for _ in range(count):
        ends = random.sample(hosts[:3], 2) if random.random() < 0.9 else [hosts[3], hosts[3]]
        ts = (first + random.randrange(60_000)) * 1_000_000
        packet = Packet(ts, ends[0], ends[1], random.randrange(1, 4), random.choice([60, 100, 1400]))
        found.append((ts + random.randrange(late + 1), packet))
    return [packet for _, packet in sorted(found)]


Links = dict[str, list[Packet]]


def write(folder: Path, links: Links) -> list[Input]:
    inputs = []
    for name, of_link in links.items():
        records = [(each.ts, udp(each.src, each.dest, each.port, 9, each.length)) for each in of_link]
        path = folder / f"{name}.pcap"
        path.write_bytes(pcap_bytes(records, RAW_IP))
        inputs.append(Input(name, path, name))
    return inputs


def run(plan: Plan, inputs: list[Input], seed: int = 0) -> tuple[Counter, InlineRun]:
    """The rows of the answer, and the engine that gave them."""
    engine = InlineRun([plan], inputs, 64, threads=1 + seed % 2, block_records=random_block(seed))
    batches = [batch for _, batch in engine.results()]
    assert all(batch.schema == plan.schema for batch in batches)
    return rows_of(batches), engine


def random_block(seed: int) -> int:
    return Random(seed).choice([1, 7, 50, 1000])


def rows_of(batches: Iterable) -> Counter:
    return Counter(tuple(row.values()) for batch in batches for row in batch.to_pylist())


def pairs(left: Iterable[Packet], right: Iterable[Packet], low: int, high: int) -> list[tuple[Packet, Packet]]:
    """Packets in opposite directions whose times are apart by `[low, high]`."""
    return [(s, a) for s in left for a in right if low <= a.ts - s.ts <= high and (s.src, s.dest) == (a.dest, a.src)]
