"""The memory that tables share: sizes follow the free memory and the evictions, and rows do not depend on them.

The tests find partials that are lost or repeated when a table is replaced, counters that forget the replaced table, and
tables that exceed the memory.
"""

import gc
from pathlib import Path
from random import Random

import pytest

from capture.metrics import Samples
from highlevel.inline import engine
from highlevel.inline.engine import InlineRun, Input
from lowlevel.metrics import TABLE_BYTES, TABLE_EVICTIONS
from lowlevel.node.node import TABLE_SLOTS, budget_of
from lowlevel.table.budget import MIN_SLOTS, NEW_TABLE_DIVISOR, TableBudget
from lowlevel.table.flushing import Flushing, Policy
from lowlevel.table.query_tables import QueryTables
from queries.gsql import compile_query
from tests.harness.inline_rows import rows_of
from tests.references.pcap_bytes import NS, pcap_bytes
from tests.references.small_captures import RAW_IP, udp

START = 1_700_000_040 * NS
QUERIES = (
    "SELECT srcPort, count(*) AS n, sum(len) AS b FROM p GROUP BY srcPort",
    "SELECT srcIP, srcPort, count(*) AS n FROM p [RANGE 20 s] GROUP BY srcIP, srcPort",
    "SELECT destPort, max(len) AS m FROM p [RANGE 10 s, SLIDE 5 s] GROUP BY destPort",
    "SELECT srcPort, destPort, count(*) AS n FROM p [RANGE 20 s] GROUP BY srcPort, destPort",
    "SELECT srcPort % 7 AS c, count(*) AS n FROM p [RANGE 20 s] GROUP BY c",
)


def write(random: Random, path: Path, count: int, ports: int) -> Input:
    frames = [
        (START + number * 10_000_000, udp("10.0.0.1", "10.0.0.2", random.randrange(1, ports), random.randrange(1, 9)))
        for number in range(count)
    ]
    path.write_bytes(pcap_bytes(frames, RAW_IP))
    return Input("p", path)


def answers(source: Input, slots: int) -> tuple[list[list[tuple]], Samples]:
    plans = [compile_query(sql, f"q{number}") for number, sql in enumerate(QUERIES)]
    run = InlineRun(plans, [source], slots, threads=1, block_records=300)
    found: list[list[tuple]] = [[] for _ in plans]
    for number, batch in run.results():
        found[number] += [tuple(row) for row in rows_of(batch)]
    return [sorted(rows) for rows in found], run.samples()


@pytest.mark.parametrize("seed", range(3))
def test_tables_that_grow_have_the_rows_of_tables_of_one_size(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(seed)
    source = write(random, tmp_path / "p.pcap", 6000, random.choice([100, 5000]))
    expected, fixed = answers(source, 64)
    budget = TableBudget()
    monkeypatch.setattr(engine, "budget_of", lambda slots: budget)
    found, grown = answers(source, 64)
    assert found == expected, seed
    assert grown.total(TABLE_EVICTIONS) < fixed.total(TABLE_EVICTIONS) / 2, seed
    assert grown.total(TABLE_BYTES, query="q1") > fixed.total(TABLE_BYTES, query="q1")
    assert grown.total(TABLE_BYTES, query="q4") == fixed.total(TABLE_BYTES, query="q4"), "seven groups evict nothing"
    gc.collect()
    assert budget.used == 0


def test_memory_that_is_used_up_limits_new_tables_and_growth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write(Random(1), tmp_path / "p.pcap", 3000, 5000)
    expected, large = answers(source, 1 << 16)
    budget = TableBudget(6 << 20)
    monkeypatch.setattr(engine, "budget_of", lambda slots: budget)
    found, small = answers(source, 1 << 16)
    assert found == expected
    assert small.total(TABLE_BYTES) < budget.limit < large.total(TABLE_BYTES)
    none_left = TableBudget(1)
    monkeypatch.setattr(engine, "budget_of", lambda slots: none_left)
    found, least = answers(source, 1 << 16)
    assert found == expected
    assert 0 < least.total(TABLE_BYTES) < small.total(TABLE_BYTES)


def test_a_new_table_has_a_part_of_the_free_memory() -> None:
    plan = compile_query(QUERIES[0]).leaves[0].low
    budget = TableBudget(8 << 20)
    kept, sizes = [], []
    for _ in range(12):
        tables = QueryTables("p", plan, TABLE_SLOTS, 1000, budget=budget)
        free = budget.limit - budget.used
        _, table = tables._table_for(())
        assert table.bytes * NEW_TABLE_DIVISOR <= free
        kept.append(tables)
        sizes.append(table.bytes)
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > sizes[-1] > 8 * MIN_SLOTS
    assert sum(sizes) == budget.used < budget.limit


def test_a_size_that_the_user_has_chosen_does_not_change() -> None:
    assert budget_of(TABLE_SLOTS) is not None
    assert budget_of(2 * TABLE_SLOTS) is None
    plan = compile_query(QUERIES[0]).leaves[0].low
    with pytest.raises(ValueError, match="got a budget with the flush policy paced, expected at_once"):
        QueryTables("p", plan, 1024, 1000, Flushing(Policy.PACED), TableBudget())
