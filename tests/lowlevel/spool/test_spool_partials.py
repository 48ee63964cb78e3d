"""Partials in segments: every value keeps its type although it is stored in a narrower type. Merges are correct.

The tests detect a narrower type that cannot hold a value, NULL read as a value, and a link column that only some rows
have. They detect rows that a merge moves across a watermark or into a batch with other metadata.
"""

from dataclasses import replace
from random import Random

import pyarrow as pa
import pytest

from lowlevel.plan import LowLevelPlan
from lowlevel.punctuation import Item, Punctuation
from lowlevel.spool.pending import ItemSizes, binary_columns, merge_items, pack, unpack, widths
from tests.references.random_plans import KEY_SHAPES, random_plan
from tests.references.spool_items import LINK, items_of_plans, pairs_plan, random_batch

INT_MIN, INT_MAX = -(2**63), 2**63 - 1
COLUMNS = [
    ([1, 2, -128, 127], pa.int64()),
    ([128], pa.int64()),
    ([-(2**15), 2**15 - 1], pa.int64()),
    ([2**15], pa.int64()),
    ([2**31 - 1, None], pa.int64()),
    ([2**31, -(2**31)], pa.int64()),
    ([INT_MIN, INT_MAX], pa.int64()),
    ([None, None], pa.int64()),
    ([bytes(4), b"abcd"], pa.binary()),
    ([bytes(16), None], pa.binary()),
    ([bytes(4), bytes(16), None, b""], pa.binary()),
    ([b"", b""], pa.binary()),
    ([None, None], pa.binary()),
    ([bytes(6)], pa.binary()),
    (["eth0", "eth0"], pa.string()),
    (["eth0", "eth1"], pa.string()),
    (["eth0", None], pa.string()),
    (["", ""], pa.string()),
    ([True, None, False], pa.bool_()),
    ([0.5, None, float("inf")], pa.float64()),
]


@pytest.mark.parametrize(("values", "kind"), COLUMNS)
@pytest.mark.parametrize("with_link", [False, True])
def test_every_column_comes_back(values: list[object], kind: pa.DataType, with_link: bool) -> None:
    columns = {"link": pa.array([LINK] * len(values))} if with_link else {}
    batch = pa.record_batch({**columns, "x": pa.array(values, kind)})
    assert unpack(pack([batch])).equals(batch)
    assert unpack(pack([batch, batch])).equals(pa.concat_batches([batch, batch]))
    assert unpack(pack([batch.slice(1)])).equals(batch.slice(1))


@pytest.mark.parametrize("seed", range(20))
def test_random_partials_come_back_with_their_schema(seed: int) -> None:
    random = Random(seed)
    plan = random_plan(random, random.choice(KEY_SHAPES))
    batch = random_batch(random, plan, random.randrange(1, 200)).replace_schema_metadata({"noted": str(seed)})
    found = unpack(pack([batch]))
    assert found.equals(batch, check_metadata=True)
    assert found.schema.equals(plan.schema)


def test_a_pair_of_addresses_and_two_numbers_take_few_bytes() -> None:
    batch = random_batch(Random(3), pairs_plan(), 10_000)
    batch = batch.set_column(2, "srcIP", pa.array([bytes(4)] * 10_000, pa.binary()))
    batch = batch.set_column(3, "destIP", pa.array([bytes(4)] * 10_000, pa.binary()))
    for place in (1, 4, 5):
        batch = batch.set_column(place, batch.schema[place].name, pa.array(range(10_000), pa.int64()))
    assert pack([batch]).size < 10_000 * (4 + 4 + 3 * 2) + 2000


@pytest.mark.parametrize("seed", range(10))
def test_sizes_are_never_below_what_is_written(seed: int) -> None:
    random = Random(seed)
    plans = [random_plan(random, random.choice(KEY_SHAPES)) for _ in range(3)]
    sizes = ItemSizes(["a", "b", "c"])
    for rows in (1, 7, 100, 3000):
        for number, plan in enumerate(plans):
            batch = random_batch(random, plan, rows)
            assert sizes.item_bytes(number, batch) >= pack([batch]).size
            part = batch.slice(rows // 2)
            assert sizes.item_bytes(number, part) >= pack([part]).size


def batches(plan: LowLevelPlan) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """One of IPv4 pairs and one of IPv6 pairs."""
    batch = random_batch(Random(1), plan, 6)
    return tuple(  # type: ignore[return-value]
        batch.set_column(2, "srcIP", pa.array([bytes(size)] * 6, pa.binary())).set_column(
            3, "destIP", pa.array([bytes(size)] * 6, pa.binary())
        )
        for size in (4, 16)
    )


def test_batches_of_one_form_between_two_promises_become_one() -> None:
    four, six = batches(pairs_plan())
    noted = four.replace_schema_metadata({"rate": "2"})
    low = Punctuation(LINK, 60)
    items: list[tuple[int, Item]] = [(0, four), (0, six), (1, four), (0, four), (0, noted), (0, low), (0, four)]
    found = merge_items(items)
    assert [(number, item if isinstance(item, Punctuation) else item.num_rows) for number, item in found] == [
        *((0, 12), (0, 6), (0, 6), (0, low)),
        *((0, 6), (1, 6)),
    ]
    assert [item.schema.metadata for _, item in found if not isinstance(item, Punctuation)][2] == {b"rate": b"2"}
    named = [(str(number), item) for number, item in items]
    assert items_of_plans([(str(number), item) for number, item in found]) == items_of_plans(named)


def test_single_rows_stay_in_their_order_whatever_their_form_and_metadata() -> None:
    plan = replace(pairs_plan(), pane=1, origin=0, reduced=False)
    four, six = batches(plan)
    rated = {**plan.schema.metadata, b"rate": b"2"}
    came = [four, six, four.replace_schema_metadata(rated), six.replace_schema_metadata(rated), six, four]
    numbered = [
        batch.set_column(1, "pane", pa.array(range(6 * place, 6 * place + 6))) for place, batch in enumerate(came)
    ]
    found = [batch for _, batch in merge_items([(0, batch) for batch in numbered]) if isinstance(batch, pa.RecordBatch)]
    assert [batch.num_rows for batch in found] == [12, 12, 12]
    kept = [unpack(pack([batch])) for batch in found]
    assert [pane for batch in kept for pane in batch.column("pane").to_pylist()] == list(range(36))
    assert [batch.schema.metadata for batch in kept] == [plan.schema.metadata, rated, plan.schema.metadata]


def test_widths_tell_forms_apart_and_take_null_columns() -> None:
    four, six = batches(pairs_plan())
    binary = binary_columns(four.schema)
    assert binary == (2, 3)
    assert widths(four, binary) == (4, 4)
    assert widths(six, binary) == (16, 16)
    assert widths(four.set_column(2, "srcIP", pa.nulls(6, pa.binary())), binary)[1] == 4


def test_a_slice_of_a_long_batch_is_not_taken_for_all_of_it() -> None:
    whole = random_batch(Random(1), pairs_plan(), 5000)
    sizes = ItemSizes(["pairs"])
    assert sum(
        sizes.item_bytes(0, whole.slice(first, 1000)) for first in range(0, 5000, 1000)
    ) < 1.2 * sizes.item_bytes(0, whole)
