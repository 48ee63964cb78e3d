"""Slots from a memory budget: the memory of the tables stays within it for all packets.

The tests detect a table that was omitted (another IP version, a second query), and a budget that is not used. They
detect a bound that is printed but not kept.
"""

from pathlib import Path

import pytest

from capture.files.blocks import BLOCK_RECORDS
from capture.files.scan import scan
from capture.open import open_capture
from lowlevel.metrics import TABLE_BYTES
from lowlevel.node.memory import MIN_SLOTS, fit_slots, list_versions, max_table_bytes
from lowlevel.node.node import Node
from lowlevel.plan import LowLevelPlan
from lowlevel.table.flushing import Flushing
from queries.gsql import compile_query
from tests.harness.links import write_links

MEBIBYTE = 1 << 20
WINDOW = "[RANGE 1 minute]"
QUERIES = {
    "ports": f"SELECT destPort, count(*) FROM p {WINDOW} GROUP BY destPort",
    "pairs": f"SELECT srcIP, destIP, count(*), sum(len) FROM p {WINDOW} GROUP BY srcIP, destIP",
    "inner": f"SELECT srcIP, inner.srcIP, count(*) FROM p {WINDOW} GROUP BY srcIP, inner.srcIP",
    "sources": f"SELECT srcIP, count(*) FROM p {WINDOW} GROUP BY srcIP",
    "frames": f"SELECT srcIP, count(*) FROM frames {WINDOW} GROUP BY srcIP",
}


def plans(*names: str) -> list[LowLevelPlan]:
    return [compile_query(QUERIES[name], name).leaves[0].low for name in names]


def test_addresses_of_one_header_have_one_version() -> None:
    versions = {name: list_versions(*plans(name)) for name in QUERIES}
    assert versions["ports"] == [()]
    assert versions["pairs"] == [(4, 4), (6, 6)]
    assert versions["sources"] == [(4,), (6,)]
    assert versions["inner"] == [(4, 0), (4, 4), (4, 6), (6, 0), (6, 4), (6, 6)]
    assert versions["frames"] == [(0,), (4,), (6,)]


@pytest.mark.parametrize("names", [["ports"], ["pairs"], ["pairs", "pairs", "ports"], ["pairs", "inner", "frames"]])
@pytest.mark.parametrize("mebibytes", [128, 200, 700])
def test_the_budget_is_kept_and_half_of_it_would_not_do_for_twice_the_slots(names: list[str], mebibytes: int) -> None:
    slots = fit_slots(mebibytes * MEBIBYTE, plans(*names), Flushing())
    assert slots >= MIN_SLOTS
    assert slots & (slots - 1) == 0
    assert max_table_bytes(slots, plans(*names), Flushing()) <= mebibytes * MEBIBYTE
    assert max_table_bytes(2 * slots, plans(*names), Flushing()) > mebibytes * MEBIBYTE


@pytest.mark.parametrize("policy", ["at_once", "paced"])
def test_what_tables_really_take_is_no_more_than_was_said(policy: str, tmp_path: Path) -> None:
    served = plans("pairs", "pairs", "ports", "frames", "sources")
    slots = fit_slots(64 * MEBIBYTE, served, Flushing(policy))
    capture = open_capture(write_links(tmp_path, 3)[0].path)
    node = Node("A", capture, served, slots, flushing=Flushing(policy))
    for block in scan(capture).blocks:  # of IPv4, IPv6 and ARP
        for _ in node.process(block):
            pass
    sources = node.reducers[4]
    assert sources.receives_entries == (policy == "at_once")
    if sources.receives_entries:  # rows from the table of pairs are laid out before they are stored
        assert sources.bytes == sum(table.bytes for _, table in sources.tables.values()) + 8 * BLOCK_RECORDS
    taken = node.samples([("a",), ("b",), ("c",), ("d",), ("e",)]).total(TABLE_BYTES)
    assert 0 < taken <= max_table_bytes(slots, served, Flushing(policy)) <= 64 * MEBIBYTE


def test_a_budget_that_is_too_small_is_told_how_much_is_needed() -> None:
    with pytest.raises(
        ValueError, match=r"got 1,048,576 bytes for 3 tables, expected at least [\d,]+: each has buffers"
    ):
        fit_slots(MEBIBYTE, plans("pairs", "ports"), Flushing())
