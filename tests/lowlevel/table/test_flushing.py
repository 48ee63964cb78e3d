"""Tables whose entries leave bit by bit, on random disordered streams, against dictionaries.

* Sums over any stream catch an entry that is lost, doubled, or taken for that of another pane.
* A check of all slots after every batch detects wrong counters of panes, hence a wrong watermark. It detects an entry
  that outlives its bound.
* Ordered streams catch an in-order policy that lets a new entry leave before an old one.
* One packet from the far future or past detects a table that trusts a single packet.
* The kernels as plain Python, with numpy's bound checks, detect a write after the end of the slots or of the output.
"""

from collections import Counter
from itertools import pairwise
from random import Random

import numpy as np
import pytest

import lowlevel.table.flushing_table
from lowlevel.subaggregates import INT_MAX, INT_MIN, Kind, SubAggregate
from lowlevel.table.bucket_flush_kernel import update_tagged_flushing
from lowlevel.table.bucket_table import TaggedTable
from lowlevel.table.entries import CHUNK_ROWS
from lowlevel.table.flush_kernels import advance_table, update_flushing
from lowlevel.table.flushing import MAX_DISORDER, Flushing, Policy
from lowlevel.table.flushing_table import FlushingTable, make_table
from tests.harness.plain_kernels import plain
from tests.references.flushed_tables import (
    PANE,
    TIMES,
    Left,
    Packet,
    add,
    disordered,
    promises,
    residents,
    table_of,
    taken,
)

CAPACITY = 2 * CHUNK_ROWS + 16
BIT_BY_BIT = [policy for policy in Policy if policy is not Policy.AT_ONCE]
FUTURE = 10**12


def any_flushing(random: Random, policy: Policy) -> Flushing:
    return Flushing(policy, 1 if policy.ordered else random.randrange(4), random.choice([1, 3, 20]))


def batches(random: Random, packets: list[Packet]) -> list[list[Packet]]:
    """Cut a stream into batches of any size, some empty."""
    cut = []
    while packets:
        size = random.choice([0, 1, 2, random.randrange(CAPACITY), CAPACITY])
        cut.append(packets[:size])
        packets = packets[size:]
    return cut


def check(table: FlushingTable, current: int, memory: int) -> None:
    """Compare the table's counters with its entries, and the entries with the bound."""
    held = residents(table)
    panes = {pane for pane, _, _ in held}
    tally = table.tally
    assert tally.resident == len(held)
    assert tally.panes == len(panes)
    assert table.smallest_pane == min(panes, default=INT_MAX)
    assert table.old_entries == sum(pane < current for pane, _, _ in held)
    assert panes <= set(range(current - table.flushing.disorder, current + 1))
    assert table.bytes == memory


def merge(found: Counter[tuple[int, int]], entries: list[Left], promised: int) -> int:
    """Add the flushed entries to the sums. No entry may belong to a pane that the watermark has closed."""
    for pane, key, count in entries:
        assert pane >= promised
        found[pane, key] += count
    return len(entries)


@pytest.mark.parametrize("policy", BIT_BY_BIT)
@pytest.mark.parametrize("slots", [8, 16, 64])
def test_whatever_the_policy_sums_are_exact_the_bound_is_kept_and_promises_are_not_broken(
    policy: Policy, slots: int
) -> None:
    for seed in range(12):
        random = Random(f"{policy}{slots}{seed}")
        table = table_of(any_flushing(random, policy), slots, CAPACITY, random.choice([None, None, 1, 4]))
        packets = disordered(random, 600, random.choice([2, 20, 100]), random.choice([0, 3, 10, 80]))
        memory, lows = table.bytes, promises(packets)
        found: Counter[tuple[int, int]] = Counter()
        current, promised, given, rows = INT_MIN, INT_MIN, 0, 0

        for batch in batches(random, packets):
            rows += merge(found, add(table, batch), promised)
            given += len(batch)
            current = max([current, *(ts // PANE for ts, _ in batch)])
            check(table, current, memory)
            if given and lows[given - 1] != INT_MAX and random.random() < 0.5:
                low = lows[given - 1] // PANE
                idle = random.random() < 0.3
                table.advance(low, low if idle else INT_MIN)
                rows += merge(found, taken(table), promised)
                current = max(current, low)
                check(table, current, memory)
                assert not idle or table.smallest_pane >= low
                # The highest allowed output watermark is the watermark of the packets, unless older entries remain.
                promised = max(promised, min(low, table.smallest_pane))
        table.advance(INT_MIN, INT_MAX)
        rows += merge(found, taken(table), promised)
        assert residents(table) == []
        assert found == Counter((ts // PANE, key) for ts, key in packets)
        assert table.tally.partials == rows


@pytest.mark.parametrize("policy", [Policy.IOP_SLOW, Policy.IOP_TWO_SLOT])
def test_in_order_policies_are_in_order(policy: Policy) -> None:
    for seed in range(30):
        random = Random(seed)
        table = table_of(Flushing(policy), random.choice([4, 16, 64]), CAPACITY)
        packets = disordered(random, 500, random.choice([2, 20, 100]), 0)
        entries = [entry for batch in batches(random, packets) for entry in add(table, batch)]
        table.advance(INT_MIN, INT_MAX)
        entries += taken(table)
        assert [before[0] <= after[0] for before, after in pairwise(entries)].count(False) == 0


@pytest.mark.parametrize("policy", [Policy.LAZY, Policy.SLOW, Policy.PACED])
def test_out_of_order_policies_are_not(policy: Policy) -> None:
    """Order costs bursts. A policy that is ordered without this cost would be another policy."""
    table = table_of(Flushing(policy, 2, 20), 16, CAPACITY)
    packets = disordered(Random(1), 500, 20, 0)
    entries = [entry for start in range(0, 500, 50) for entry in add(table, packets[start : start + 50])]
    assert any(before[0] > after[0] for before, after in pairwise(entries))


@pytest.mark.parametrize("policy", BIT_BY_BIT)
def test_one_packet_from_the_future_or_the_past_moves_nothing(policy: Policy) -> None:
    table = table_of(Flushing(policy), 64, CAPACITY)
    add(table, [(5, key) for key in range(20)], limit=0)
    for ts in (FUTURE, -FUTURE, PANE):
        before = residents(table)
        assert add(table, [(ts, 7)], limit=0) == [(ts // PANE, 7, 1)]
        assert residents(table) == before
    assert table.tally.direct == 3
    add(table, [(PANE, 7)], limit=1)
    assert table.tally.direct == 3
    assert (1, 7, 1) in residents(table)


@pytest.mark.parametrize("policy", BIT_BY_BIT)
def test_before_the_link_has_a_present_packets_pass_through(policy: Policy) -> None:
    table = table_of(Flushing(policy), 64, CAPACITY)
    assert add(table, [(5, 1), (5, 1)], limit=INT_MIN) == [(0, 1, 1), (0, 1, 1)]
    assert residents(table) == []


@pytest.mark.parametrize("policy", BIT_BY_BIT)
def test_a_gap_of_years_costs_one_flush(policy: Policy) -> None:
    table = table_of(Flushing(policy), 64, CAPACITY)
    left = add(table, [(5, key) for key in range(20)])
    assert sorted(left + add(table, [(FUTURE, 1)])) == [(0, key, 1) for key in range(20)]
    assert residents(table) == [(FUTURE // PANE, 1, 1)]
    assert table.tally.panes == 1


@pytest.mark.parametrize("policy", BIT_BY_BIT)
def test_in_a_lull_promises_alone_keep_the_bound(policy: Policy) -> None:
    """Pane 0 is full, and no packet follows: pane M + 1 is opened by a promise, and nothing of pane 0 is left."""
    disorder = 1 if policy.ordered else 2
    table = table_of(Flushing(policy, disorder), 64, CAPACITY)
    left = add(table, [(5, key) for key in range(40)])
    for pane in range(disorder + 1):
        table.advance(pane)
    table.advance(disorder + 1)
    assert table.tally.resident == 0
    assert sum(count for _, _, count in left + taken(table)) == 40


def test_paced_in_a_lull_is_done_before_the_bound_and_without_a_burst() -> None:
    table = table_of(Flushing(Policy.PACED), 1024, 1024)
    add(table, [(5, key) for key in range(700)])
    held = table.tally.resident
    bursts = []
    for _ in range(lowlevel.table.flushing_table.SWEEP_WATERMARKS):
        table.advance(1)
        bursts.append(len(taken(table)))
    assert sum(bursts) == held > 500
    assert max(bursts) <= 1024 // lowlevel.table.flushing_table.SWEEP_WATERMARKS
    assert table.tally.forced == 0


def test_paced_spreads_a_pane_over_half_of_the_next_ones_packets() -> None:
    random = Random(2)
    table = table_of(Flushing(Policy.PACED), 256, 64)
    for _ in range(20):
        add(table, [(5, random.randrange(1 << 60)) for _ in range(10)])
    held = table.tally.resident
    steps = [len(add(table, [(PANE, 1)] * 10)) for _ in range(11)]  # the first opens the pane, at its own place
    assert sum(steps) == held > 150
    assert steps[-1] == 0
    assert max(steps) < held / 4
    assert table.tally.forced == 0


def test_each_counter_counts_its_own_way_out() -> None:
    table = table_of(Flushing(Policy.LAZY), 8, CAPACITY)
    add(table, [(5, key) for key in range(10)])
    assert (table.tally.evicted, table.tally.resident) == (2, 8)
    assert table.tally.collisions >= 2
    table.advance(2)
    assert (table.tally.forced, table.tally.burst) == (8, 8)
    assert (table.tally.flushed, table.tally.swept, table.tally.direct) == (0, 0, 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("often",),
            "got the flush policy 'often', expected any of at_once, iop_slow, iop_two_slot, lazy, slow, paced",
        ),
        ((Policy.LAZY, -1), "got a disorder of -1 panes, expected 0 to 1,024"),
        ((Policy.LAZY, MAX_DISORDER + 1), "got a disorder of 1025 panes"),
        ((Policy.IOP_SLOW, 2), "got a disorder of 2 panes for iop_slow, expected 1"),
        ((Policy.SLOW, 1, 0), "got one entry for every 0 packets, expected 1 to 1,073,741,824"),
    ],
)
def test_what_no_table_can_keep_to_is_refused(arguments: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Flushing(*arguments)


def test_a_policy_has_its_table() -> None:
    subs = [SubAggregate("packets", Kind.COUNT)]
    assert type(make_table(1, subs, 16, 4, Flushing())) is TaggedTable
    table = make_table(1, subs, 16, 4, Flushing("paced"))
    assert isinstance(table, FlushingTable)
    with pytest.raises(ValueError, match="got at_once, expected any of iop_slow"):
        FlushingTable(1, subs, 16, 4, Flushing())


@pytest.mark.parametrize("policy", BIT_BY_BIT)
def test_the_kernels_as_plain_python_stay_inside_their_arrays_and_agree_with_their_machine_code(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(f"plain {policy}")
    flushing = any_flushing(random, policy)
    fast, slow = (table_of(flushing, 8, CAPACITY) for _ in range(2))
    # Of `memory` and `slots`, which begin at the same address, the kernels own the whole.
    arrays = [array for name, array in vars(slow).items() if isinstance(array, np.ndarray) and name != "slots"]
    arrays.append(TIMES)
    for batch in batches(random, disordered(random, 800, 20, 30)):
        limit = random.choice([INT_MAX, max([0, *(ts // PANE for ts, _ in batch)])])
        pane, before = random.choice([INT_MIN, min([0, *(ts // PANE for ts, _ in batch)])]), random.randrange(-2, 9)
        left = add(fast, batch, limit)
        fast.advance(pane, before)
        left += taken(fast)
        with monkeypatch.context() as patch:
            patch.setattr(lowlevel.table.flushing_table, "update_flushing", plain(update_flushing, *arrays))
            patch.setattr(
                lowlevel.table.flushing_table, "update_tagged_flushing", plain(update_tagged_flushing, *arrays)
            )
            patch.setattr(lowlevel.table.flushing_table, "advance_table", plain(advance_table, *arrays))
            entries = add(slow, batch, limit)
            slow.advance(pane, before)
            assert entries + taken(slow) == left
        assert np.array_equal(fast.slots, slow.slots)
        assert fast.state.tolist() == slow.state.tolist()
        assert fast.pane_counts.tolist() == slow.pane_counts.tolist()
