"""The memory of tables: the maximum number of slots for which all tables fit into a memory budget.

A plan has a table for each tuple of IP versions that its address keys can have (`lowlevel.table.keys`). The budget
includes all these tables. Addresses of one header have the same version: 4, 6, or 0 if the header is missing.

    source and destination of a packet          4 4 | 6 6                      2 tables
    source of the outer and the inner header    4 0 | 4 4 | 4 6 | 6 0 | …      6 tables
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from capture.files.blocks import BLOCK_RECORDS
from lowlevel.expressions.tree import Expression, columns_of
from lowlevel.expressions.types import Type
from lowlevel.node.filter_join import count_filter_join_bytes
from lowlevel.plan import LowLevelPlan
from lowlevel.table.flushing import Flushing, Policy
from lowlevel.table.flushing_table import make_table
from lowlevel.table.keys import KeyLayout
from lowlevel.table.sharing import SharedPlan, share
from lowlevel.table.spread import PIECE_WORDS

MIN_SLOTS = 1 << 10
"""Minimum number of slots of a table."""

MAX_SLOTS = 1 << 26
"""Maximum number of slots of a table."""


def fit_slots(memory: int, plans: Sequence[LowLevelPlan], flushing: Flushing) -> int:
    """Return the number of slots per table, a power of two.

    It is the largest number for which all tables of `plans` fit into `memory` bytes.
    Raises ValueError, which states the required memory, if MIN_SLOTS slots do not fit.
    """
    table_count, fixed_bytes, slot_bytes = _memory_needs(plans, flushing)
    if fixed_bytes + slot_bytes * MIN_SLOTS > memory:
        needed = fixed_bytes + slot_bytes * MIN_SLOTS
        raise ValueError(
            f"got {memory:,} bytes for {table_count} tables, expected at least {needed:,}: each has buffers for the "
            f"packets of a block, and {MIN_SLOTS:,} slots"
        )
    slots = MIN_SLOTS
    while slot_bytes and slots < MAX_SLOTS and fixed_bytes + slot_bytes * 2 * slots <= memory:
        slots *= 2
    return slots


def max_table_bytes(slots: int, plans: Sequence[LowLevelPlan], flushing: Flushing) -> int:
    """Return the memory in bytes of all tables that `plans` can have."""
    _, fixed_bytes, slot_bytes = _memory_needs(plans, flushing)
    return fixed_bytes + slot_bytes * slots


def _memory_needs(plans: Sequence[LowLevelPlan], flushing: Flushing) -> tuple[int, int, int]:
    """Return the number of possible tables, and the sums of their fixed bytes and of their bytes per slot.

    A shared table counts once. Plans without tables do not count.
    """
    shared_plans = share([plan for plan in plans if plan.reduced], feeding=flushing.policy is Policy.AT_ONCE)
    costs = [
        _table_bytes(KeyLayout(table.plan.keys, versions), table.plan, flushing)
        for table in shared_plans
        for versions in list_versions(table.plan)
    ]
    shared_bytes = count_filter_join_bytes(plans) + sum(_input_buffer_bytes(table) for table in shared_plans)
    return (
        len(costs),
        shared_bytes + sum(fixed_bytes for fixed_bytes, _ in costs),
        sum(slot_bytes for _, slot_bytes in costs),
    )


def _input_buffer_bytes(shared: SharedPlan) -> int:
    """Return the bytes of a table's input buffer: for the panes of a feeding table's entries, or for pieces of rows."""
    if shared.feeder is not None:
        return 8 * BLOCK_RECORDS
    return PIECE_WORDS * 8 * BLOCK_RECORDS if shared.plan.spread else 0


def list_versions(plan: LowLevelPlan) -> list[tuple[int, ...]]:
    """Return all tuples of IP versions that the address keys of a row can have."""
    addresses = [key.expression for key in plan.keys if key.expression.type is Type.ADDRESS]
    headers = [_header_name(plan.kind, address) for address in addresses]
    distinct_headers = list(dict.fromkeys(headers))
    choices = [(4, 6) if plan.kind == "packets" and header == "outer" else (0, 4, 6) for header in distinct_headers]
    return [
        tuple(chosen_versions[distinct_headers.index(header)] for header in headers)
        for chosen_versions in product(*choices)
    ]


def _header_name(kind: str, address: Expression) -> str:
    """Return a name for the header of an address. Addresses with the same header name have the same version."""
    names = sorted(column.name for column in columns_of(address))
    if len(names) == 1 and kind in ("packets", "frames", "samples"):
        if names[0] in ("srcIP", "destIP"):
            return "outer"
        if names[0] in ("inner.srcIP", "inner.destIP"):
            return "inner"
    return " ".join(names)


def _table_bytes(layout: KeyLayout, plan: LowLevelPlan, flushing: Flushing) -> tuple[int, int]:
    """Return the fixed bytes of a table and its bytes per slot, measured on two small tables."""
    tables = (make_table(layout.words, plan.subaggregates, slots, BLOCK_RECORDS, flushing) for slots in (1024, 2048))
    small_bytes, large_bytes = (table.bytes for table in tables)
    slot_bytes = (large_bytes - small_bytes) // 1024
    return small_bytes - 1024 * slot_bytes, slot_bytes
