"""The node with flush policies, over random captures with clocks that are wrong, against the oracle.

* Merged partials catch an entry that a policy loses between table, buffer and batch.
* Punctuation catches a promise that is made of packets alone, while older entries are still in a table or a buffer.
* Empty polls catch a table that keeps closed panes although no packet waits.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from capture.files.scan import scan
from capture.open import open_capture
from lowlevel.metrics import (
    TABLE_BURST,
    TABLE_DIRECT,
    TABLE_EVICTIONS,
    TABLE_FLUSHED,
    TABLE_FORCED,
    TABLE_PANES,
    TABLE_RESIDENT,
    TABLE_SWEPT,
)
from lowlevel.node.node import Node
from lowlevel.punctuation import BEGINNING, Item, Punctuation
from lowlevel.table.flushing import Flushing, Policy
from lowlevel.watermarks.rule import parse_rule
from tests.references import lowlevel_oracle
from tests.references.node_oracle import check_promises, merged, minute, oracle_rows, write_capture
from tests.references.pcap_bytes import NS, pcap_bytes
from tests.references.small_captures import RAW_IP, udp

LEFT = TABLE_EVICTIONS, TABLE_FLUSHED, TABLE_SWEPT, TABLE_FORCED, TABLE_DIRECT
MINUTE = 60 * NS
BIT_BY_BIT = [policy for policy in Policy if policy is not Policy.AT_ONCE]


@pytest.mark.parametrize("policy", Policy)
def test_whatever_the_policy_partials_are_exact_and_promises_are_kept(policy: Policy, tmp_path: Path) -> None:
    for seed in range(4):
        random = Random(f"{policy}{seed}")
        path = tmp_path / f"{seed}.pcap"
        write_capture(path, random.randrange(2**30))
        rows = oracle_rows(path)
        flushing = Flushing(policy, 1 if policy.ordered else random.randrange(3), random.choice([1, 20]))
        plans = [minute(("srcIP", "destIP")), minute(("protocol",))]
        file, block = open_capture(path), random.choice([1, 7, 64])
        node = Node("main1", file, plans, random.choice([8, 16, 64]), block, flushing=flushing)
        items: list[list[Item]] = [[], []]
        for each in scan(file, block).blocks:
            for number, item in [*node.process(each), *(node.tick(0) if random.random() < 0.1 else ())]:
                items[number].append(item)
        samples = node.samples([("first",), ("second",)])
        for name, plan, given in zip(["first", "second"], plans, items, strict=True):
            truth = lowlevel_oracle.groups(plan, rows)
            batches = [item for item in given if isinstance(item, pa.RecordBatch)]
            assert merged(plan, batches) == truth
            check_promises(plan, given, truth)
            left = sum(samples.total(metric, query=name) for metric in LEFT)
            assert left == sum(batch.num_rows for batch in batches)
            assert samples.total(TABLE_RESIDENT, query=name) == samples.total(TABLE_PANES, query=name) == 0


def live(path: Path, node: Node) -> Iterator[tuple[int, Item]]:
    """Give a node a file's blocks as live input, without knowledge of later blocks."""
    for each in scan(open_capture(path), 64).blocks:
        yield from node.process(replace(each, watermark=BEGINNING))


def minutes(path: Path, groups: int, seconds: list[int]) -> None:
    """One packet in each of `seconds`, of `groups` groups in turn."""
    frames = [udp(f"10.0.{group // 256}.{group % 256}", "10.1.0.1", 1, 2) for group in range(groups)]
    path.write_bytes(pcap_bytes([(s * NS, frames[place % groups]) for place, s in enumerate(seconds)], RAW_IP))


@pytest.mark.parametrize("policy", BIT_BY_BIT)
def test_on_an_empty_poll_every_closed_pane_leaves(policy: Policy, tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    minutes(path, 40, list(range(300)))
    plan = minute(("srcIP",))
    node = Node(
        "main1", open_capture(path), [plan], 256, 64, watermark_rule=parse_rule("ordered"), flushing=Flushing(policy)
    )
    given = [item for _, item in live(path, node)]
    given += [item for _, item in node.tick(10**15)]
    assert given[-1] == Punctuation("main1", 4 * MINUTE)
    batches = [item for item in given if isinstance(item, pa.RecordBatch)]
    found = merged(plan, batches)
    assert {pane for pane, _ in found} == set(range(4))
    assert sum(values[0] for values in found.values()) == 240
    assert node.samples([("q",)]).total(TABLE_PANES) == 1


@pytest.mark.parametrize("policy", BIT_BY_BIT)
def test_one_packet_dated_next_year_neither_flushes_a_table_nor_makes_a_promise(policy: Policy, tmp_path: Path) -> None:
    seconds = [place // 4 for place in range(200)]
    straight, crooked = tmp_path / "straight.pcap", tmp_path / "crooked.pcap"
    minutes(straight, 40, seconds)
    minutes(crooked, 40, [*seconds[:150], 366 * 86_400, *seconds[150:]])
    resident = []
    for path in (straight, crooked):
        node = Node(
            "main1", open_capture(path), [minute(("srcIP",))], 256, 64, watermark_rule=parse_rule("ordered"),
            flushing=Flushing(policy),
        )  # fmt: skip
        given = [item for _, item in live(path, node)]
        assert not any(isinstance(item, Punctuation) and item.watermark > 0 for item in given)
        samples = node.samples([("q",)])
        resident.append(samples.total(TABLE_RESIDENT))
        assert samples.total(TABLE_FORCED) == samples.total(TABLE_SWEPT) == 0
        assert samples.total(TABLE_BURST) <= 64
    assert resident[0] == resident[1] > 30
