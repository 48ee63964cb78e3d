"""Queries that share a table, against nodes that serve each of them alone.

* Random plans of few groups of keys run with predicates, NULLs, floats and both IP versions over small tables. They
  detect a column in the output of the wrong query, confused sub-aggregates, and a watermark that one of the sharing
  queries misses.
* Plans that differ in one property of a table detect a sharing group that is too large. Plans that differ only in names
  detect one that is too small.
"""

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from lowlevel.expressions.tree import Binary, Expression, Literal
from lowlevel.expressions.types import Op, Type
from lowlevel.metrics import ROWS_ACCEPTED, ROWS_FILTERED, TABLE_BYTES, TABLE_EVICTIONS, TABLE_FLUSHED
from lowlevel.plan import Key, LowLevelPlan
from lowlevel.punctuation import Item, Punctuation
from lowlevel.subaggregates import TIME_OF, Kind, SubAggregate
from lowlevel.table.flushing import Flushing
from lowlevel.table.reducer import make_reducer
from lowlevel.table.sharing import share, share_conditions
from tests.references.node_oracle import merged, node_of, write_capture
from tests.references.pcap_bytes import NS
from tests.references.random_plans import COMPUTED, KEY_SHAPES, PACKET, keys_of, random_plan

COUNT = SubAggregate("packets", Kind.COUNT)
BYTES = SubAggregate("bytes", Kind.SUM, PACKET["len"])
WEB = Binary(Op.EQ, PACKET["destPort"], Literal(443, Type.INT))
KEYS = (keys_of("srcIP"), keys_of("destIP"))
PLAN = LowLevelPlan(WEB, keys_of("srcIP", "destIP"), (COUNT, BYTES), 60 * NS)


def items_of(path: Path, plans: list[LowLevelPlan], slots: int, block: int) -> tuple[list[list[Item]], Any]:
    """Return the output of a node for each plan, and its counters under the names "0", "1", …"""
    node, index = node_of(path, plans, slots, block)
    items: list[list[Item]] = [[] for _ in plans]
    for each in index.blocks:
        for number, item in node.process(each):
            items[number].append(item)
    return items, node


def partials(items: list[Item]) -> list[pa.RecordBatch]:
    return [item for item in items if isinstance(item, pa.RecordBatch)]


def units(plan: LowLevelPlan) -> list[list[SubAggregate]]:
    """Return a plan's sub-aggregates. A first or last value forms a unit with the time before it."""
    found: list[list[SubAggregate]] = []
    for sub in plan.subaggregates:
        if sub.kind in TIME_OF:
            found[-1].append(sub)
        else:
            found.append([sub])
    return found


def relatives(random: Random, keys: tuple[str, ...]) -> list[LowLevelPlan]:
    """A plan, others that may share its table (their names and sub-aggregates are their own), and one that may not."""
    first = random_plan(random, keys)
    plans = [first, replace(first, pane=3 * first.pane)]
    for number in range(random.randrange(1, 4)):
        known = units(first)
        kept = units(random_plan(random, keys)) + random.sample(known, random.randrange(len(known) + 1))
        random.shuffle(kept)
        subs = [sub for unit in kept for sub in unit]
        named = tuple(replace(sub, name=f"own{number}_{place}") for place, sub in enumerate(subs))
        own_keys = tuple(Key(f"{key.name}_{number}", key.expression) for key in first.keys)
        plans.append(replace(first, keys=own_keys, subaggregates=named))
    random.shuffle(plans)
    return plans


@pytest.mark.parametrize("keys", KEY_SHAPES, ids=lambda keys: "+".join(keys) or "none")
@pytest.mark.parametrize("slots", [8, pytest.param(64, marks=pytest.mark.slow("a second size of the table"))])
def test_each_query_gets_what_it_gets_alone(keys: tuple[str, ...], slots: int, tmp_path: Path) -> None:
    for seed in range(2):
        random = Random(f"shared {keys}{slots}{seed}")
        path = tmp_path / f"{seed}.pcap"
        write_capture(path, random.randrange(2**30), 150)
        plans = relatives(random, keys)
        block = random.choice([1, 7, 64])
        assert len(share(plans)) == 2
        together, node = items_of(path, plans, slots, block)
        names = [f"q{number}" for number in range(len(plans))]
        samples = node.samples([(name,) for name in names])
        for name, plan, given in zip(names, plans, together, strict=True):
            alone, lonely = items_of(path, [plan], slots, block)
            assert merged(plan, partials(given)) == merged(plan, partials(alone[0]))
            marks = [[item for item in items if isinstance(item, Punctuation)] for items in (given, alone[0])]
            assert marks[0] == marks[1]
            counted = lonely.samples([(name,)])
            for metric in (ROWS_ACCEPTED, ROWS_FILTERED):
                assert samples.total(metric, query=name) == counted.total(metric, query=name)
            if not node.reducers[int(name[1:])].receives_entries:  # what is fed meets other entries than packets do
                assert [type(item) for item in given] == [type(item) for item in alone[0]]
                for metric in (TABLE_EVICTIONS, TABLE_FLUSHED):
                    assert samples.total(metric, query=name) == counted.total(metric, query=name)
            left = samples.total(TABLE_EVICTIONS, query=name) + samples.total(TABLE_FLUSHED, query=name)
            assert left == sum(batch.num_rows for batch in partials(given))


def test_tables_of_one_predicate_test_it_once_and_each_keeps_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "any.pcap"
    write_capture(path, 2)
    keys = [keys_of("srcIP"), keys_of("protocol"), keys_of("srcIP", "srcPort")]
    odd = Binary(Op.EQ, Binary(Op.MOD, PACKET["len"], Literal(2, Type.INT)), Literal(1, Type.INT))
    plans = [replace(PLAN, where=where, keys=each) for where in (odd, WEB, None) for each in keys]
    together, node = items_of(path, plans, 16, 7)
    assert len({id(query.where) for query in node.reducers}) == 3
    for plan, given in zip(plans, together, strict=True):
        alone, _ = items_of(path, [plan], 16, 7)
        assert merged(plan, partials(given)) == merged(plan, partials(alone[0]))
    other = replace(PLAN, where=odd, kind="frames", keys=keys[1])
    _, both = items_of(path, [plans[1], other], 16, 7)
    assert both.reducers[0].where is not both.reducers[1].where


def test_rows_of_other_rates_set_by_hand_are_tested_for_themselves() -> None:
    """Their batches differ: a condition shared by both rates would be evaluated once per call for every batch."""
    plans = [replace(PLAN, kind="flows", sampling=rate, keys=keys) for rate in (None, 10) for keys in KEYS]
    queries = [make_reducer("main1", plan, 64, 16, Flushing()) for plan in plans]
    share_conditions(queries)
    places = [[id(other.where) for other in queries].index(id(query.where)) for query in queries]
    assert places == [0, 0, 2, 2]


def test_the_bytes_of_a_shared_table_are_counted_once_under_its_first_query(tmp_path: Path) -> None:
    path = tmp_path / "any.pcap"
    write_capture(path, 1)
    other = replace(PLAN, keys=keys_of("destIP"))
    plans = [replace(each, where=None) for each in (PLAN, other, PLAN)]
    _, node = items_of(path, plans, 64, 16)
    samples = node.samples([("a",), ("b",), ("c",)])
    held = [samples.total(TABLE_BYTES, query=name) for name in "abc"]
    tables = {id(query): query.bytes for query in node.reducers}
    assert (len(tables), held[2]) == (2, 0)
    assert min(held[:2]) > 0
    assert sum(held) == sum(tables.values()) == samples.total(TABLE_BYTES)


def test_an_entry_has_one_word_for_each_distinct_sub_aggregate() -> None:
    least = SubAggregate("least", Kind.MIN, PACKET["len"])
    plans = [
        PLAN,
        replace(PLAN, subaggregates=(replace(BYTES, name="volume"), least)),
        replace(PLAN, subaggregates=(replace(COUNT, name="n"), replace(COUNT, name="again"))),
        replace(PLAN, subaggregates=()),
    ]
    (shared,) = share(plans)
    assert [(sub.kind, sub.argument) for sub in shared.plan.subaggregates] == [
        (sub.kind, sub.argument) for sub in (COUNT, BYTES, least)
    ]
    assert [sharer.columns for sharer in shared.sharers] == [
        (0, 1, 2, 3, 4, 5),
        (0, 1, 2, 3, 5, 6),
        (0, 1, 2, 3, 4, 4),
        (0, 1, 2, 3),
    ]


def test_a_query_that_names_one_sub_aggregate_twice_keeps_it_once() -> None:
    (shared,) = share([replace(PLAN, subaggregates=(COUNT, replace(COUNT, name="again")))])
    assert len(shared.plan.subaggregates) == 1
    (alone,) = share([PLAN])
    assert alone.plan is PLAN


TWISTED: dict[str, LowLevelPlan] = {
    "where": replace(PLAN, where=None),
    "constant of where": replace(PLAN, where=Binary(Op.EQ, PACKET["destPort"], Literal(80, Type.INT))),
    "keys": replace(PLAN, keys=keys_of("srcIP")),
    "order of keys": replace(PLAN, keys=keys_of("destIP", "srcIP")),
    "expression of a key": replace(PLAN, keys=keys_of("srcIP", "wide")),
    "pane": replace(PLAN, pane=120 * NS),
    "origin": replace(PLAN, origin=7),
    "kind": replace(PLAN, kind="frames"),
    "spread": replace(PLAN, spread=True),
    "sampling": replace(PLAN, sampling=100),
}


@pytest.mark.parametrize("what", TWISTED)
def test_plans_that_differ_in_what_a_table_depends_on_do_not_share(what: str) -> None:
    groups = share([PLAN, TWISTED[what], PLAN])
    assert [[sharer.index for sharer in each.sharers] for each in groups] == [[0, 2], [1]]


def test_sub_aggregates_of_another_argument_or_kind_are_words_of_their_own() -> None:
    arguments: list[Expression] = [PACKET["len"], PACKET["ttl"], COMPUTED["wide"]]
    subs = [SubAggregate("x", kind, argument) for kind in (Kind.MIN, Kind.MAX, Kind.SUM) for argument in arguments]
    (shared,) = share([replace(PLAN, subaggregates=(sub,)) for sub in subs])
    assert [(sub.kind, sub.argument) for sub in shared.plan.subaggregates] == [(s.kind, s.argument) for s in subs]
    assert len({sub.name for sub in shared.plan.subaggregates}) == len(subs)
