"""A node on a live interface that brings more than it can reduce: it samples, and the kernel drops less for it.

The tests detect a ring whose occupancy is not checked, and sampling that does not relieve it. They detect packets that
are neither counted nor reported as shed or dropped. As `test_interface.py` it needs root, and is skipped elsewhere.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.veth import Pair, in_namespace, veth_obstacle, veth_pair
from capture.files.blocks import Block
from capture.metrics import INTERFACE_DROPPED, INTERFACE_RECEIVED, RECORDS_READ, Samples
from capture.open import open_capture
from dashboards.output.console import compile_kernels
from lowlevel.metrics import RECORDS_SHED
from lowlevel.node.link_worker import LinkWorker
from lowlevel.node.node import Node
from lowlevel.node.shedding import RING_FILLING, SAMPLING_FACTOR_KEY, RingPressure
from lowlevel.punctuation import Item
from lowlevel.spool.fingerprint import fingerprint
from lowlevel.spool.reader import SpoolReader
from lowlevel.spool.writer import SpoolWriter
from lowlevel.table.flushing import Flushing
from lowlevel.watermarks.rule import parse_rule
from queries.gsql import compile_query

pytestmark = [
    pytest.mark.skipif(veth_obstacle() is not None, reason=str(veth_obstacle())),
    pytest.mark.slow("three seconds of traffic over a real network interface"),
]

PACKETS, RATE, SIZE = 60_000, 20_000, 1000
"""Three seconds of 20 MB/s: a block of the ring, 1 MiB, is full in 50 ms."""

SLOW = 0.2
"""Seconds that a block takes to be reduced."""

PLAN = compile_query("SELECT count(*) AS n FROM A [RANGE 1 second]", "all")


class SlowNode(Node):
    """A node that is no match for its wire."""

    def process(self, block: Block) -> Iterator[tuple[int, Item]]:
        time.sleep(SLOW)
        yield from super().process(block)


def flooded(pair: Pair, spool: Path) -> Samples:
    """Return the counters of a slow node with a small ring after all packets were sent."""
    with in_namespace(pair.receiving):
        capture = open_capture(f"interface:{pair.receiver}?ring=16MiB")
    node = SlowNode(
        "A", capture, [PLAN.leaves[0].low], 1 << 10, watermark_rule=parse_rule("late 1s"), flushing=Flushing("paced")
    )  # fmt: skip
    writer = SpoolWriter(spool, "A", [("all", fingerprint(PLAN.leaves[0].low))])
    link = LinkWorker(capture, node, [("all", PLAN.leaves[0].low)], writer)
    sent = threading.Event()
    command = ["ip", "netns", "exec", pair.sending, sys.executable, "-m", "bench.frame_sender", pair.sender]

    def send() -> None:
        words = [str(each) for each in (PACKETS, RATE, SIZE)]
        subprocess.run([*command, *words], check=True, stdout=subprocess.DEVNULL)
        sent.set()

    sending = threading.Thread(target=send)
    sending.start()
    link.run(sent.is_set)
    sending.join()
    return link.samples


def test_a_ring_that_fills_is_sampled_and_loses_less(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_kernels()
    with veth_pair() as pair:
        samples = flooded(pair, tmp_path / "sampled")
        before = pair.dropped_before()
    shed, read = samples.total(RECORDS_SHED, cause=RING_FILLING), samples.total(RECORDS_READ)
    assert shed > 0
    assert samples.total(RECORDS_SHED) == shed
    assert samples.total(INTERFACE_RECEIVED) == read + shed + samples.total(INTERFACE_DROPPED)
    assert samples.total(INTERFACE_RECEIVED) + before == PACKETS
    stood_for: dict[int, int] = {}
    for segment in SpoolReader(tmp_path / "sampled"):
        for _, _, item in segment.new_items:
            if hasattr(item, "num_rows"):
                factor = int((item.schema.metadata or {}).get(SAMPLING_FACTOR_KEY, b"1"))
                stood_for[factor] = stood_for.get(factor, 0) + sum(item.column(item.schema.names[-1]).to_pylist())
    assert max(stood_for) > 1
    assert sum(packets // factor for factor, packets in stood_for.items()) == read
    monkeypatch.setattr(RingPressure, "update", lambda *_: 0)
    with veth_pair() as pair:
        without = flooded(pair, tmp_path / "all")
    assert without.total(RECORDS_SHED) == 0
    assert samples.total(INTERFACE_DROPPED) < without.total(INTERFACE_DROPPED) / 2
