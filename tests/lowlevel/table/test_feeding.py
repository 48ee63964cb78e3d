"""Tables that are fed from finer ones, against a dictionary over all rows, and against tables that packets feed.

* Random families of plans (fewer keys, keys in another order, longer panes, chains of them) run over disordered
  captures of both IP versions, with tables of a few slots. They detect a part of a key or a count in the wrong column,
  and an entry that is stored twice or in the wrong pane. They detect a watermark that ignores entries of a finer table.
* Plans that differ in one thing catch a table that is fed what it must not be, or not what it could be.
"""

import gc
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random
from weakref import ref

import numpy as np
import pyarrow as pa
import pytest

from capture.files.scan import scan
from capture.open import open_mapped
from lowlevel.metrics import ROWS_ACCEPTED, ROWS_FILTERED, TABLE_EVICTIONS, TABLE_FLUSHED
from lowlevel.node.node import Node
from lowlevel.plan import LowLevelPlan
from lowlevel.punctuation import END, Item, Punctuation
from lowlevel.subaggregates import Kind, SubAggregate
from lowlevel.table.bucket_table import TaggedTable
from lowlevel.table.feeding import MERGEABLE, Projection, can_feed, count_feeders, find_feeders, function_of, widen
from lowlevel.table.flushing import Flushing, Policy
from lowlevel.table.keys import KeyLayout
from lowlevel.table.query_tables import QueryTables
from lowlevel.table.sharing import share
from tests.references import lowlevel_oracle
from tests.references.made_rows import made_rows
from tests.references.node_oracle import check_promises, merged, oracle_rows, write_capture
from tests.references.pcap_bytes import NS
from tests.references.random_plans import COMPUTED, PACKET, keys_of, random_plan
from tests.references.random_tables import TYPES, partials, plan_of, random_rows

COUNT = SubAggregate("packets", Kind.COUNT)
BYTES = SubAggregate("bytes", Kind.SUM, PACKET["len"])
LEAST = SubAggregate("least", Kind.MIN, PACKET["len"])
MOST_TTL = SubAggregate("most", Kind.MAX, PACKET["ttl"])
HOPS = SubAggregate("hops", Kind.SUM, PACKET["ttl"])
FIRST = (SubAggregate("since", Kind.EARLIEST, PACKET["len"]), SubAggregate("first", Kind.FIRST, PACKET["len"]))
TUPLE = ("srcIP", "destIP", "srcPort", "destPort", "protocol")
PLAN = LowLevelPlan(None, keys_of(*TUPLE), (COUNT, BYTES), 10 * NS)
FINEST: tuple[tuple[str, ...], ...] = (
    TUPLE,
    ("srcPort", "wide_nullable", "srcIP", "bool_nullable"),
    ("float_nullable", "destIP", "is_null", "srcIP", "vlan"),
    ("srcMAC", "interface", "ethertype", "wide", "destIP"),
)


def family(random: Random, names: tuple[str, ...]) -> list[LowLevelPlan]:
    """A plan by `names`, and plans that are made of its groups, or of each other's."""
    finest = random_plan(random, names)
    plans = [finest]
    for _ in range(random.randrange(1, 6)):
        of = random.choice(plans)
        keys = tuple(random.sample(of.keys, random.randrange(len(of.keys) + 1)))
        alone = [sub for sub in of.subaggregates if sub.kind in MERGEABLE]  # others are words that belong together
        subs = tuple(random.sample(alone, random.randrange(1, len(alone) + 1)))
        if random.random() < 0.5:  # what the finer one does not keep, as yet
            subs += tuple(random.sample((LEAST, MOST_TTL, HOPS), random.randrange(1, 3)))
            subs = tuple({sub.name: sub for sub in subs}.values())
        factor = random.choice([1, 1, 3])
        origin = of.origin + random.choice([0, 0, 1, -2]) * of.pane
        plans.append(replace(of, keys=keys, subaggregates=subs, pane=factor * of.pane, origin=origin))
    random.shuffle(plans)
    return plans


@pytest.mark.parametrize("names", FINEST, ids="+".join)
@pytest.mark.parametrize("slots, policy", [(8, Policy.AT_ONCE), (64, Policy.AT_ONCE), (16, Policy.PACED)])
def test_every_query_gets_its_exact_groups_and_promises_are_kept(
    names: tuple[str, ...], slots: int, policy: Policy, tmp_path: Path
) -> None:
    fed = 0
    for seed in range(2):
        random = Random(f"fed {names}{slots}{policy}{seed}")
        path = tmp_path / f"{seed}.pcap"
        write_capture(path, random.randrange(2**30), 150)
        rows = oracle_rows(path)
        plans = family(random, names)
        block = random.choice([1, 7, 16, 64])
        file = open_mapped(path, "a test")
        node = Node("main1", file, plans, slots, block, flushing=Flushing(policy))
        fed += sum(query.receives_entries for query in node.reducers)
        items: list[list[Item]] = [[] for _ in plans]
        for each in scan(file, block).blocks:
            for number, item in node.process(each):
                items[number].append(item)
        samples = node.samples([(str(number),) for number in range(len(plans))])
        for number, (plan, given) in enumerate(zip(plans, items, strict=True)):
            truth = lowlevel_oracle.groups(plan, rows)
            batches = [item for item in given if isinstance(item, pa.RecordBatch)]
            query, name = node.reducers[number], str(number)
            assert merged(plan, batches) == truth
            check_promises(plan, given, truth)
            assert query.tally.partials == sum(batch.num_rows for batch in batches)
            if policy is Policy.AT_ONCE:
                left = samples.total(TABLE_EVICTIONS, query=name) + samples.total(TABLE_FLUSHED, query=name)
                assert left == query.tally.partials
            assert query.tally.resident == len(query.waiting_partials) == 0
            chosen = samples.total(ROWS_ACCEPTED, query=name)
            assert chosen + samples.total(ROWS_FILTERED, query=name) == len(rows)
            alone = Node("main1", file, [plan], slots, block, flushing=Flushing(policy))
            marks = [item for each in scan(file, block).blocks for _, item in alone.process(each)]
            assert alone.reducers[0].accepted == chosen
            if policy is Policy.AT_ONCE:
                told = [[item for item in some if isinstance(item, Punctuation)] for some in (given, marks)]
                assert told[0] == told[1]
    assert (fed > 0) == (policy is Policy.AT_ONCE)


def test_the_tables_of_a_node_are_freed_with_it(tmp_path: Path) -> None:
    path = tmp_path / "some.pcap"
    write_capture(path, 1, 150)
    file = open_mapped(path, "a test")
    gc.disable()  # what only it would free stays: the tables of every part of a capture that a process has read
    try:
        node = Node("main1", file, [PLAN, replace(PLAN, keys=PLAN.keys[:1])], 64)
        for block in scan(file).blocks:
            for _ in node.process(block):
                pass
        assert sum(query.receives_entries for query in node.reducers) == 1
        queries = [ref(query) for query in node.reducers]
        del node
        assert [query() for query in queries] == [None, None]
    finally:
        gc.enable()


@pytest.mark.parametrize("slots", [8, 64])
def test_addresses_of_several_headers_texts_and_macs_arrive_as_they_were(slots: int) -> None:
    names = ("exporter", "srcIP", "nextHop", "destIP", "name", "srcMAC")
    for seed in range(4):
        random = Random(f"texts {slots}{seed}")
        batches = [random_rows(random, 40, texts) for texts in range(5)]
        finer = QueryTables("link", plan_of(*names), slots, 64)
        some = random.sample(names, random.randrange(len(names)))
        coarser = QueryTables("link", replace(plan_of(*some), pane=20), slots, 64)
        finer.forward_entries_to(coarser)
        texts: list[str] = []
        found: Counter[tuple] = Counter()
        items = []
        for rows in batches:
            made = made_rows(rows, TYPES, texts)
            for tables in (finer, coarser):
                out = list(tables.add(made))
                items += out if tables is coarser else []
        assert list(finer.advance_watermark(END))
        for batch in [*items, *coarser.advance_watermark(END)]:
            batch.validate(full=True)
            for row in batch.to_pylist():
                key = (row["pane"], *(row[name] for name in some))
                found[*key, "rows"] += row["rows"]
                found[*key, "sum"] += row["sum"]
        alone = QueryTables("link", coarser.plan, slots, 64)
        assert found == partials(alone, batches)
        assert coarser.accepted == alone.accepted
        assert set(coarser.tables) == set(alone.tables)


def test_a_projection_is_its_plain_twin() -> None:
    """Neighbouring pieces are moved together: the words must be those of packets, laid out by the table itself."""
    random = Random(5)
    coarser = replace(PLAN, keys=keys_of("destPort", "destIP", "protocol", "srcIP"), pane=30 * NS, origin=-20 * NS)
    layouts = [KeyLayout(plan.keys, (6, 6)) for plan in (PLAN, coarser)]
    table = TaggedTable(layouts[1].words, coarser.subaggregates, 16, 8)
    projection = Projection(PLAN, layouts[0], coarser, layouts[1], table)
    entries = [
        [random.randrange(-5, 5), *(random.getrandbits(63) for _ in range(layouts[0].words + 2))] for _ in "12345678"
    ]
    found = np.empty(len(entries), np.int64)
    smallest = projection.fill(np.array(entries, np.int64), found)
    panes = [(entry[0] * 10 + 20) // 30 for entry in entries]
    assert found.tolist() == panes
    assert smallest == min(panes)
    assert [*zip(*table.args[:, : len(entries)].tolist(), strict=True)] == [tuple(entry[-2:]) for entry in entries]
    for row, entry in enumerate(entries):
        for source, target in ((0, 3), (1, 1), (3, 0), (4, 2)):
            for origin, place in zip(layouts[0].slices[source], layouts[1].slices[target], strict=True):
                mask = (1 << place.bits) - 1
                moved = int(table.words[place.word, row]) % 2**64 >> place.shift & mask
                assert moved == entry[1 + origin.word] % 2**64 >> origin.shift & mask


FED: dict[str, LowLevelPlan] = {
    "fewer keys": replace(PLAN, keys=keys_of("srcIP")),
    "no keys": replace(PLAN, keys=()),
    "keys in another order": replace(PLAN, keys=PLAN.keys[::-1]),
    "longer panes": replace(PLAN, pane=60 * NS),
    "longer panes from another pane's start": replace(PLAN, pane=60 * NS, origin=-30 * NS),
    "one of the sub-aggregates": replace(PLAN, keys=keys_of("destIP"), subaggregates=(replace(BYTES, name="volume"),)),
}
NOT_FED: dict[str, LowLevelPlan] = {
    "another key": replace(PLAN, keys=keys_of("vlan")),
    "computed of a key": replace(PLAN, keys=(replace(PLAN.keys[0], expression=COMPUTED["bool_nullable"]),)),
    "words that belong together": replace(PLAN, keys=(), subaggregates=FIRST),
    "too many others": replace(PLAN, keys=(), subaggregates=(LEAST, MOST_TTL, HOPS)),
    "another predicate": replace(PLAN, keys=(), where=COMPUTED["bool"]),
    "another kind": replace(PLAN, keys=(), kind="frames"),
    "sampled otherwise": replace(PLAN, keys=(), sampling=10),
    "spread": replace(PLAN, keys=(), spread=True),
    "panes that are no multiple": replace(PLAN, keys=(), pane=15 * NS),
    "panes that begin in between": replace(PLAN, keys=(), pane=20 * NS, origin=5 * NS),
}


@pytest.mark.parametrize("what", FED)
def test_a_plan_of_whole_entries_is_fed(what: str) -> None:
    assert can_feed(PLAN, FED[what])
    (finer, coarser) = share([FED[what], PLAN]) if "order" not in what else share([PLAN, FED[what]])
    assert (finer.plan.keys, coarser.feeder) == (PLAN.keys, 0)


@pytest.mark.parametrize("what", NOT_FED)
def test_a_plan_of_anything_else_is_not_fed(what: str) -> None:
    assert not can_feed(PLAN, NOT_FED[what])
    assert [shared.feeder for shared in share([PLAN, NOT_FED[what]])] == [None, None]


LACKING: dict[str, tuple[SubAggregate, ...]] = {
    "another kind": (replace(BYTES, kind=Kind.MAX),),
    "another argument": (BYTES, replace(BYTES, name="hops", argument=PACKET["ttl"])),
    "as many as there may be": (LEAST, COUNT, MOST_TTL),
}


@pytest.mark.parametrize("what", LACKING)
def test_a_table_keeps_what_another_lacks_there(what: str) -> None:
    coarser = replace(PLAN, keys=keys_of("destIP"), subaggregates=LACKING[what])
    assert not can_feed(PLAN, coarser)
    finer, fed = share([coarser, PLAN])
    assert fed.feeder == 0
    kept = [function_of(sub) for sub in finer.plan.subaggregates]
    assert kept[:2] == [function_of(COUNT), function_of(BYTES)]
    assert set(kept) == {function_of(sub) for sub in (COUNT, BYTES, *coarser.subaggregates)}
    assert len(kept) == len(set(kept))
    assert can_feed(finer.plan, coarser)
    (sharer,) = finer.sharers
    names = [finer.plan.schema.names[place] for place in sharer.columns]
    assert names == PLAN.schema.names  # its query is handed what it asked for
    assert [each.plan for each in share([coarser, PLAN], feeding=False)] == [coarser, PLAN]


def test_the_table_that_packets_feed_is_the_one_that_keeps_more() -> None:
    """That of the pairs could be fed itself no longer, and packets would find their entries in two tables."""
    pairs = replace(PLAN, keys=keys_of("srcIP", "destIP"))
    source = replace(PLAN, keys=keys_of("srcIP"), subaggregates=(LEAST,))
    wide = widen([source, PLAN, pairs])
    assert wide[0::2] == [source, pairs]
    assert [function_of(sub) for sub in wide[1].subaggregates] == [function_of(sub) for sub in (COUNT, BYTES, LEAST)]
    assert find_feeders(wide) == [1, None, 1]
    apart = replace(PLAN, keys=keys_of("srcIP", "vlan"))
    assert find_feeders(widen([source, PLAN, apart])) == [2, None, None]  # the one of fewer groups


def test_rows_that_are_spread_over_panes_feed_tables_of_the_same_panes_alone() -> None:
    spread = replace(PLAN, spread=True)
    assert can_feed(spread, replace(spread, keys=()))
    assert not can_feed(spread, replace(spread, keys=(), pane=60 * NS))
    assert not can_feed(spread, replace(spread, keys=(), origin=10 * NS))


def test_a_table_is_fed_from_the_coarsest_that_can_and_groups_come_behind_it() -> None:
    pairs, source = (replace(PLAN, keys=keys_of(*names)) for names in (("srcIP", "destIP"), ("srcIP",)))
    assert find_feeders([source, PLAN, pairs]) == [2, None, 1]
    assert [count_feeders(place, [2, None, 1]) for place in range(3)] == [2, 0, 1]
    assert [(shared.sharers[0].index, shared.feeder) for shared in share([source, PLAN, pairs])] == [
        (1, None),
        (2, 0),
        (0, 1),
    ]


def test_tables_whose_entries_leave_bit_by_bit_are_not_fed() -> None:
    tables = [QueryTables("link", plan_of(), 16, 4, Flushing(Policy.PACED)) for _ in range(2)]
    with pytest.raises(ValueError, match="expected at_once"):
        tables[0].forward_entries_to(tables[1])
