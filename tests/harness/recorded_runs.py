"""The items of the low level of an inline run, in their order, and the operators of the high level over them.

So a plan can be run step by step, and restarted between two items.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pyarrow as pa

from highlevel.inline.engine import InlineRun, Input
from highlevel.plan.pipeline import NodeOperators
from lowlevel.punctuation import GraphItem, Punctuation
from queries.gsql import compile_query
from tests.harness.live_pipes import START
from tests.references.operator_contract import through_ipc
from tests.references.pcap_bytes import NS, pcap_bytes
from tests.references.small_captures import RAW_IP, udp


def disordered_capture(path: Path, random: Random, *, packets: int = 300, seconds: int = 60, late: float = 5) -> Path:
    """A capture with packets between four hosts that arrive up to `late` seconds late, with lengths of 3 sizes."""
    arrivals = sorted((ts + random.random() * late, ts) for ts in (random.random() * seconds for _ in range(packets)))
    records = []
    for _, ts in arrivals:
        source, target = random.sample(range(1, 5), 2)
        ports = random.choice([53, 80]), random.choice([53, 1024])
        frame = udp(f"10.0.0.{source}", f"10.0.0.{target}", *ports, random.choice([40, 40, 60, 500]))
        records.append((START + round(ts * NS), frame))
    path.write_bytes(pcap_bytes(records, RAW_IP))
    return path


@dataclass(frozen=True)
class RecordedRun:
    """A query over one capture: the operators with their ports, and the items of the low level."""

    sql: str
    path: Path
    block_records: int = 16

    def run(self) -> InlineRun:
        """Open the capture with one thread, so that the order of the items is always the same."""
        source = [Input("a", self.path)]
        return InlineRun([compile_query(self.sql)], source, threads=1, block_records=self.block_records)

    def items(self) -> list[tuple[int, GraphItem]]:
        """Return the items of the low level with their ports."""
        run = self.run()
        ports = run._ports
        return [(ports[number, shard], item) for number, shard, item in run._run_low_level()]

    def steps(self, restart: int | None = None) -> Iterator[list[GraphItem]]:
        """Yield the items of the result after each item of the low level. Restart the operators before one of them."""
        operators: NodeOperators = self.run().nodes
        for step, (port, item) in enumerate(self.items()):
            if step == restart:
                tables = through_ipc(operators.snapshot())
                operators = self.run().nodes
                operators.restore(tables)
            following = (
                operators.punctuate(port, item) if isinstance(item, Punctuation) else operators.process_rows(port, item)
            )
            yield [item for _, item in following]


def rows_in(items: list[GraphItem]) -> list[tuple]:
    """Return the rows among items."""
    return [tuple(row.values()) for item in items if isinstance(item, pa.RecordBatch) for row in item.to_pylist()]
