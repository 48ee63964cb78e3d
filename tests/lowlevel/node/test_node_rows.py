"""A node with plans of single rows in addition to tables: the output of each plan, its order, and its counters.

The tests detect a row that a table swallows, feeds or receives, rows out of order, and watermarks that are not passed
on. They detect memory that is planned for missing tables, and rows that are not counted as partials.
"""

from dataclasses import replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from capture.open import open_capture
from highlevel.aggregation import Aggregation
from highlevel.inline.engine import Input
from highlevel.plan.nodes import Leaf, Windowed
from highlevel.plan.plan import Plan
from highlevel.windows.kind import TupleWindow
from lowlevel.metrics import ROWS_ACCEPTED, TABLE_BYTES, TABLE_DIRECT, TABLE_EVICTIONS, TABLE_FLUSHED
from lowlevel.node.memory import fit_slots, max_table_bytes
from lowlevel.node.node import Node
from lowlevel.plan import LowLevelPlan
from lowlevel.punctuation import END, Item, Punctuation
from lowlevel.spool.reader import SpoolReader
from lowlevel.table.feeding import can_feed
from lowlevel.table.flushing import Flushing, Policy
from lowlevel.table.query_tables import QueryTables
from lowlevel.table.reducer import QueryRows
from lowlevel.table.sharing import share
from lowlevel.watermarks.rule import Kind as KnowledgeKind
from lowlevel.watermarks.rule import WatermarkRule
from tests.harness.spool_node import write_spools
from tests.references import lowlevel_oracle
from tests.references.node_oracle import merged, node_of, oracle_rows, write_capture
from tests.references.random_plans import KEY_SHAPES, random_plan


def rows_plan(random: Random, keys: tuple[str, ...]) -> LowLevelPlan:
    return replace(random_plan(random, keys), pane=1, origin=0, spread=False, reduced=False)


def partials(items: list[Item]) -> list[pa.RecordBatch]:
    return [item for item in items if isinstance(item, pa.RecordBatch)]


def check_rows(plan: LowLevelPlan, items: list[Item], rows: list[dict]) -> None:
    """One partial for each row that WHERE keeps, in the order of the capture, behind no promise that covers it."""
    wanted = [truth for row in rows if (truth := lowlevel_oracle.groups(plan, [row]))]
    found = [merged(plan, [batch.slice(row, 1)]) for batch in partials(items) for row in range(batch.num_rows)]
    assert found == wanted
    low = -(2**63)
    for item in items:
        if isinstance(item, Punctuation):
            assert item.watermark > low
            low = item.watermark
        else:
            assert min(item.column("pane").to_pylist()) >= low
    assert low == END


@pytest.mark.drawn
@pytest.mark.parametrize("keys", KEY_SHAPES, ids=lambda keys: "+".join(keys) or "none")
def test_rows_leave_one_by_one_in_their_order_beside_tables(keys: tuple[str, ...], tmp_path: Path) -> None:
    for seed in range(3):
        random = Random(f"rows {keys}{seed}")
        path = tmp_path / f"{seed}.pcap"
        write_capture(path, random.randrange(2**30), 150)
        table = random_plan(random, keys)
        one = rows_plan(random, keys)
        plans = [one, table, replace(one, subaggregates=one.subaggregates[:1]), replace(table, reduced=True)]
        random.shuffle(plans)
        node, index = node_of(path, plans, random.choice([8, 64]), random.choice([1, 7, 64]))
        items: list[list[Item]] = [[] for _ in plans]
        for block in index.blocks:
            for number, item in node.process(block):
                items[number].append(item)
        rows = oracle_rows(path)
        names = [f"q{number}" for number in range(len(plans))]
        samples = node.samples([(name,) for name in names])
        for plan, query, given, name in zip(plans, node.reducers, items, names, strict=True):
            left = sum(batch.num_rows for batch in partials(given))
            assert isinstance(query, QueryTables if plan.reduced else QueryRows)
            if plan.reduced:
                assert merged(plan, partials(given)) == lowlevel_oracle.groups(plan, rows)
                entries = samples.total(TABLE_EVICTIONS, query=name) + samples.total(TABLE_FLUSHED, query=name)
                assert (left, samples.total(TABLE_DIRECT, query=name)) == (entries, 0)
                continue
            check_rows(plan, given, rows)
            assert left == samples.total(ROWS_ACCEPTED, query=name) == samples.total(TABLE_DIRECT, query=name)
            assert samples.total(TABLE_BYTES, query=name) == 0
        assert list(node.flush()) == []


@pytest.mark.parametrize("policy", Policy)
def test_a_node_that_flushes_bit_by_bit_holds_back_no_row(policy: Policy, tmp_path: Path) -> None:
    path = tmp_path / "any.pcap"
    write_capture(path, 5, 100)
    plan = rows_plan(Random(5), ("srcIP",))
    _, index = node_of(path, [plan], 8, 7)
    watermark_rule = WatermarkRule(KnowledgeKind.LATE_BY_TIME, 2**62)
    node = Node("main1", open_capture(path), [plan], 8, 7, watermark_rule=watermark_rule, flushing=Flushing(policy))
    for block in index.blocks:
        before = node.reducers[0].accepted
        left = [item for _, item in node.process(block)]
        assert sum(batch.num_rows for batch in partials(left)) == node.reducers[0].accepted - before
    assert node.samples([("q",)]).total(TABLE_DIRECT) == node.reducers[0].accepted > 0


def test_rows_neither_feed_tables_nor_are_fed_by_them_nor_share_one() -> None:
    plan = random_plan(Random(1), ("srcIP", "destIP"))
    whole = replace(plan, pane=1, origin=0, spread=False)
    alone = replace(whole, reduced=False)
    assert can_feed(whole, whole)
    assert not any(can_feed(*pair) for pair in ((alone, whole), (whole, alone), (alone, alone)))
    assert [len(shared.sharers) for shared in share([alone, whole, alone])] == [2, 1]
    assert all(shared.feeder is None for shared in share([alone, whole, alone]))


def test_no_memory_is_planned_for_rows() -> None:
    plan = random_plan(Random(1), ("srcIP", "destIP"))
    alone = replace(plan, pane=1, origin=0, spread=False, reduced=False)
    memory = 64 << 20
    assert fit_slots(memory, [plan, alone], Flushing()) == fit_slots(memory, [plan], Flushing())
    assert max_table_bytes(1024, [plan, alone], Flushing()) == max_table_bytes(1024, [plan], Flushing())
    assert max_table_bytes(1024, [alone], Flushing()) == 0


def test_a_spool_keeps_rows_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "any.pcap"
    write_capture(path, 9, 200)
    low = rows_plan(Random(9), ("srcIP",))
    leaf = Leaf("rows", ("main1",), low)
    plan = Plan("rows", "", Windowed(leaf, Aggregation(TupleWindow(3, 3), low, (), None, ()), "pane"))
    (spool,) = write_spools([Input("main1", path)], tmp_path / "spool", [plan], Random(2), 0.3)
    items = [item for segment in SpoolReader(spool.path) for _, _, item in segment.items]
    rows = [row for row in oracle_rows(path) if lowlevel_oracle.groups(low, [row])]
    # Every new start reads the capture from the position of the last one.
    assert [pane for batch in partials(items) for pane in batch.column("pane").to_pylist()] == [r["ts"] for r in rows]
