"""When exactly entries leave: the digest of Li 2008, §8.2 by hand, and the shape of its bursts.

* Tests with one packet at a time detect a hand that reads a slot too far or stops at the first empty slot. They detect
  a policy that runs before the boundary instead of after it, and a false collision.
* Windows of the published loads catch a policy whose bursts are those of another.
* Groups that recur detect a paced hand that works although packets already evict enough entries. Groups that do not
  recur, and that evict each other, detect a hand that waits for fewer evictions.
"""

from random import Random

import numpy as np
import pytest

from lowlevel.subaggregates import INT_MAX
from lowlevel.table.entries import CHUNK_ROWS
from lowlevel.table.flushing import Flushing, Policy
from lowlevel.table.flushing_table import FlushingTable
from tests.references.flushed_tables import PANE, Left, Packet, add, home, table_of, taken

SLOTS = 2
PACKETS = [(1, 0), (2, 1), (3, 0), (4, 2), (11, 1), (12, 3), (13, 0), (21, 0), (22, 1), (23, 1), (31, 4)]


def key_for(wanted: int, used: set[int]) -> int:
    """A key whose home is slot `wanted`."""
    key = next(key for key in range(1, 100) if key not in used and home(key, SLOTS) == wanted)
    used.add(key)
    return key


USED: set[int] = set()
KEYS = [key_for(number % SLOTS, USED) for number in range(5)]


def left(entries: list[Left]) -> str:
    return " ".join(f"{pane}.{KEYS.index(key)}:{count}" for pane, key, count in entries)


@pytest.mark.parametrize(
    ("flushing", "probes", "expected"),
    [
        (
            Flushing(Policy.IOP_SLOW),
            None,
            {4: "0.0:2", 11: "0.2:1 0.1:1 P1", 12: "1.1:1", 21: "1.0:1", 22: "1.3:1 P2", 31: "2.0:1"},
        ),
        (
            Flushing(Policy.IOP_TWO_SLOT),
            None,
            {4: "0.0:2", 11: "0.2:1", 12: "0.1:1 P1", 13: "1.1:1", 21: "1.0:1", 22: "1.3:1 P2", 31: "2.0:1"},
        ),
        (
            Flushing(Policy.LAZY),
            1,
            {4: "0.0:2", 11: "0.1:1", 12: "1.1:1", 13: "0.2:1 P1", 21: "1.0:1", 22: "1.3:1 P2", 31: "2.0:1"},
        ),
        (
            Flushing(Policy.SLOW, every=2),
            1,
            {4: "0.0:2", 11: "0.1:1", 12: "0.2:1 1.1:1 P1", 21: "1.0:1", 22: "1.3:1 P2", 31: "2.0:1"},
        ),
    ],
    ids=lambda value: value.policy.value if isinstance(value, Flushing) else None,
)
def test_the_order_of_emission_is_the_published_one(
    flushing: Flushing, probes: int | None, expected: dict[int, str]
) -> None:
    """Pane 10, two slots, slot = key mod 2, M = 1, i = 2. `P` is the smallest pane that may still leave."""
    table = table_of(flushing, SLOTS, 4, probes)
    found = {}
    promised = 0
    for ts, key in PACKETS:
        said = left(add(table, [(ts, KEYS[key])]))
        mark = min(ts // PANE, table.smallest_pane)
        # The input is ordered, so that a packet promises its own pane.
        if mark > promised:
            promised, said = mark, f"{said} P{mark}"
        if said:
            found[ts] = said
    # P3 follows the packet that opens pane 3 only when 2.1 is out: at the end.
    assert found == expected
    table.advance(0, INT_MAX)
    assert left(taken(table)) == "2.1:2 3.4:1"


def load(kind: str, random: Random) -> list[Packet]:
    """2000 packets in each window of four: groups that recur, or a flood of 400 in the first and then five."""
    packets = []
    for window in range(4):
        for place in range(2000):
            ts = window * PANE + place * PANE // 2000
            if kind == "flood":
                key = place % 400 if window == 0 else 1000 + random.randrange(5)
            else:
                key = random.randrange(int(kind))
            packets.append((ts, key))
    return packets


def bursts(kind: str, slots: int, flushing: Flushing, probes: int | None) -> int:
    """The most entries that left for one packet."""
    random = Random(kind)
    names = [random.randrange(1 << 62) for _ in range(1005)]
    table = table_of(flushing, slots, 1, probes)
    most = 0
    for ts, key in load(kind, random):
        table.words[0, 0] = names[key]
        table.update(np.array([ts], np.int64), None, PANE, 0)
        most = max(most, table.evicted_rows)
        table.take_evicted()
    assert most == table.tally.burst
    return most


@pytest.mark.parametrize(("kind", "slots"), [("200", 256), ("400", 512), ("flood", 512)])
def test_bursts_have_the_published_shape(kind: str, slots: int) -> None:
    """Published: with 200 groups that recur IOP 104, two-slot 61, with 400 295 and 197, the others 1 or 2.

    After the flood 360 by lazy, 335 by slow with i = 160, no more than 2 by the others.
    """
    iop = bursts(kind, slots, Flushing(Policy.IOP_SLOW), None)
    two = bursts(kind, slots, Flushing(Policy.IOP_TWO_SLOT), None)
    lazy = bursts(kind, slots, Flushing(Policy.LAZY, disorder=2), 2)
    slow = bursts(kind, slots, Flushing(Policy.SLOW, disorder=2, every=8), 2)
    slower = bursts(kind, slots, Flushing(Policy.SLOW, disorder=2, every=160), 2)
    paced = bursts(kind, slots, Flushing(Policy.PACED, disorder=2), 2)
    assert paced <= 3
    assert slow <= 3
    if kind == "flood":
        assert iop <= 3
        assert lazy > 250
        assert slower > 250
    else:
        assert iop > int(kind) // 3
        assert two > int(kind) // 5
        assert lazy <= 8
        assert slower <= 8


def feed(table: FlushingTable, pane: int, keys: list[int]) -> list[int]:
    """Add packets of one pane, AHEAD at a time; returns how many entries left for each of these batches."""
    batches = [keys[first : first + CHUNK_ROWS] for first in range(0, len(keys), CHUNK_ROWS)]
    return [len(add(table, [(pane * PANE, key) for key in batch])) for batch in batches]


@pytest.mark.parametrize(("slots", "times"), [(256, 8), (512, 8), (1024, 8), (1024, 3)])
def test_of_groups_that_recur_no_more_entries_leave_with_paced_than_packets_come(slots: int, times: int) -> None:
    """512 groups, each so many times in a window: the first packets of a window move out an old entry each.

    With three packets of each the hand has no time to wait, and must leave to the packets what they move out.
    """
    tables = [
        table_of(flushing, slots, CHUNK_ROWS) for flushing in (Flushing(Policy.PACED), Flushing(Policy.SLOW, every=32))
    ]
    for table in tables:
        random = Random(slots)
        names = [random.randrange(1 << 62) for _ in range(512)]
        for pane in range(6):
            feed(table, pane, [key for _ in range(times) for key in random.sample(names, len(names))])
            assert table.old_entries == 0
        assert table.tally.forced == 0
    paced, slow = (table.tally.burst for table in tables)
    assert paced <= CHUNK_ROWS < slow


def test_paced_is_done_in_half_a_window_whatever_the_packets_do() -> None:
    """400 groups that do not recur, then packets for few slots, each of which evicts the one before."""
    random = Random(3)
    table = table_of(Flushing(Policy.PACED), 512, CHUNK_ROWS)
    feed(table, 0, [random.randrange(1 << 62) for _ in range(400)] * 8)
    near: list[int] = []
    while len(near) < 80:
        key = random.randrange(1 << 62)
        near += [key] if home(key, 512) < 8 else []
    half = 400 * 8 // 2
    held = table.tally.resident
    left = feed(table, 1, (near * (half // len(near) + 1))[: half // CHUNK_ROWS * CHUNK_ROWS])
    assert held > 350
    assert table.old_entries == 0
    assert table.tally.swept > 300
    assert table.tally.forced == 0
    # For a quarter of the window only packets evict entries. Then old entries leave evenly.
    quarter = len(left) // 2
    assert max(left[:quarter]) <= CHUNK_ROWS
    assert max(left[quarter:]) <= CHUNK_ROWS + 2 * held // quarter


def test_paced_keeps_its_pace_over_a_pane_without_packets() -> None:
    """If only a watermark opened a pane, its packets do not predict the size of the next pane."""
    table = table_of(Flushing(Policy.PACED, disorder=3), 512, CHUNK_ROWS)
    feed(table, 0, list(range(400)) * 4)
    held = table.tally.resident
    table.advance(1)
    left = [len(taken(table)), *feed(table, 2, [1] * 800)]
    assert sum(left) == held > 300
    assert max(left) <= CHUNK_ROWS
    assert table.old_entries == 0
