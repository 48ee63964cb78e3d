"""Queries that differ in a constant, in one table, against nodes that serve each of them alone.

Random plans detect partials of a wrong query, a constant without its rows, and counters that differ. Plans that differ
in something else detect a table for too many plans.
"""

from dataclasses import replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from lowlevel.expressions.address_constants import Address
from lowlevel.expressions.equality_index import MIN_CONSTANTS
from lowlevel.expressions.tree import Binary, Expression, Literal
from lowlevel.expressions.types import Op, Type
from lowlevel.metrics import ROWS_ACCEPTED, ROWS_FILTERED
from lowlevel.plan import Key, LowLevelPlan
from lowlevel.punctuation import Item, Punctuation
from lowlevel.subaggregates import Kind, SubAggregate
from lowlevel.table.sharing import share
from tests.conftest import Rounds
from tests.references.node_oracle import merged, node_of, write_capture
from tests.references.pcap_bytes import NS
from tests.references.random_plans import KEY_SHAPES, PACKET, keys_of, random_plan

COUNT = SubAggregate("packets", Kind.COUNT)
BYTES = SubAggregate("bytes", Kind.SUM, PACKET["len"])
LONG = Binary(Op.GT, PACKET["len"], Literal(90, Type.INT))
SEEDS = 40


def equals(column: str, value: int | Address) -> Binary:
    return Binary(Op.EQ, PACKET[column], Literal(value, Type.ADDRESS if isinstance(value, Address) else Type.INT))


def both(left: Expression, right: Expression) -> Binary:
    return Binary(Op.AND, left, right)


PLAN = LowLevelPlan(None, keys_of("srcIP"), (COUNT, BYTES), 60 * NS)
PLANS = [replace(PLAN, where=equals("destPort", port)) for port in range(MIN_CONSTANTS)]


def draw_plans(random: Random) -> list[LowLevelPlan]:
    """Plans with several constants of a column, with different names, and some other plans."""
    first = replace(random_plan(random, random.choice(KEY_SHAPES)), where=None)
    column, values = random.choice(
        [
            ("destPort", [53, 80, 443, 1, 2, 3, 4, 5, 6]),
            ("protocol", [1, 2, 6, 17, 58, 89, 132, 255]),
            ("srcIP", [Address(4, 10 << 24 | 1 << 8 | last) for last in range(6)] + [Address(6, n) for n in range(4)]),
        ]
    )
    plans = []
    for number, value in enumerate([*values, random.choice(values)]):
        where = equals(column, value)
        if column == "protocol":
            where = both(where, LONG) if number % 2 else both(LONG, where)
        keys = tuple(Key(f"{key.name}_{number}", key.expression) for key in first.keys)
        plans.append(replace(first, where=where, keys=keys))
    plans.append(replace(first, where=LONG))
    plans.append(replace(first, where=equals(column, values[0]), subaggregates=(COUNT, *first.subaggregates)))
    random.shuffle(plans)
    return plans


def output(path: Path, plans: list[LowLevelPlan], slots: int, block: int) -> tuple[list[list[Item]], dict]:
    """Return the items of each plan, and accepted and filtered rows by plan."""
    node, index = node_of(path, plans, slots, block)
    items: list[list[Item]] = [[] for _ in plans]
    for part in index.blocks:
        for number, item in node.process(part):
            items[number].append(item)
    samples = node.samples([(str(number),) for number in range(len(plans))])
    counts = {
        number: tuple(samples.total(metric, query=str(number)) for metric in (ROWS_ACCEPTED, ROWS_FILTERED))
        for number in range(len(plans))
    }
    return items, counts


def test_each_query_has_the_partials_and_counters_that_it_has_alone(rounds: Rounds, tmp_path: Path) -> None:
    divided_rows = 0
    for seed in rounds(SEEDS):
        random = Random(f"constants {seed}")
        path = tmp_path / f"{seed}.pcap"
        write_capture(path, random.randrange(2**30), 150)
        plans = draw_plans(random)
        slots, block = random.choice([8, 64]), random.choice([1, 7, 64])
        together, counts = output(path, plans, slots, block)
        tables = [shared for shared in share(plans) if shared.compared is not None]
        divided_rows += sum(counts[sharer.index][0] for shared in tables for sharer in shared.sharers)
        for number, (plan, items) in enumerate(zip(plans, together, strict=True)):
            alone, counts_alone = output(path, [plan], slots, block)
            for batches in (items, alone[0]):
                assert all(batch.schema == plan.schema for batch in batches if isinstance(batch, pa.RecordBatch))
            partials, partials_alone = (
                [item for item in batches if isinstance(item, pa.RecordBatch)] for batches in (items, alone[0])
            )
            assert merged(plan, partials) == merged(plan, partials_alone), f"seed {seed}"
            watermarks, watermarks_alone = (
                [item for item in batches if isinstance(item, Punctuation)] for batches in (items, alone[0])
            )
            assert watermarks == watermarks_alone, f"seed {seed}"
            assert counts[number] == counts_alone[0], f"seed {seed}"
    assert divided_rows > 0


def test_eight_constants_share_a_table_and_seven_do_not() -> None:
    (shared,) = share(PLANS)
    assert [(sharer.index, sharer.constant) for sharer in shared.sharers] == [(n, n) for n in range(MIN_CONSTANTS)]
    assert len(share(PLANS[1:])) == MIN_CONSTANTS - 1


def test_plans_with_equal_constants_share_their_table_first() -> None:
    (shared,) = share([*PLANS, PLANS[3]])
    assert [sharer.index for sharer in shared.sharers if sharer.constant == 3] == [3, MIN_CONSTANTS]


OTHERS = {
    "another condition": replace(PLAN, where=both(equals("destPort", 9), LONG)),
    "a comparison that is no equality": replace(PLAN, where=Binary(Op.GT, PACKET["destPort"], Literal(9, Type.INT))),
    "another column": replace(PLAN, where=equals("srcPort", 9)),
    "another key": replace(PLANS[0], keys=keys_of("destIP"), where=equals("destPort", 9)),
    "another sub-aggregate": replace(PLANS[0], subaggregates=(COUNT,), where=equals("destPort", 9)),
    "another pane": replace(PLANS[0], pane=30 * NS, where=equals("destPort", 9)),
    "another kind of rows": replace(PLANS[0], kind="frames", where=equals("destPort", 9)),
    "single rows": replace(PLANS[0], pane=1, reduced=False, where=equals("destPort", 9)),
}


@pytest.mark.parametrize("difference", OTHERS)
def test_a_plan_that_differs_in_more_than_a_constant_has_its_own_table(difference: str) -> None:
    tables = share([*PLANS, OTHERS[difference]], feeding=False)
    assert [len(shared.sharers) for shared in tables] == [MIN_CONSTANTS, 1]


def test_a_plan_with_two_comparisons_is_in_the_table_with_most_queries() -> None:
    plans = [replace(PLAN, where=both(equals("destPort", port), equals("ttl", 64))) for port in range(9)]
    plans += [replace(PLAN, where=both(equals("destPort", 1), equals("ttl", ttl))) for ttl in range(8)]
    by_column = {shared.compared.name: len(shared.sharers) for shared in share(plans) if shared.compared is not None}
    assert by_column == {"destPort": 9, "ttl": 8}


def test_tables_of_constants_feed_each_other(tmp_path: Path) -> None:
    """Queries by pair and by source, each with the same constants: packets update one table."""
    path = tmp_path / "any.pcap"
    write_capture(path, 7, 150)
    ports = [53, 80, 443, 1, 2, 3, 4, 5]
    plans = [
        replace(PLAN, keys=keys_of(*names), where=equals("destPort", port))
        for names in (("srcIP", "destIP"), ("srcIP",))
        for port in ports
    ]
    assert [shared.feeder for shared in share(plans)] == [None, 0]
    together, counts = output(path, plans, 64, 16)
    for number, (plan, items) in enumerate(zip(plans, together, strict=True)):
        alone, counts_alone = output(path, [plan], 64, 16)
        partials, partials_alone = (
            [item for item in batches if isinstance(item, pa.RecordBatch)] for batches in (items, alone[0])
        )
        assert merged(plan, partials) == merged(plan, partials_alone)
        assert counts[number] == counts_alone[0]
