"""Load shedding of a node with a full spool: which blocks, how many, and the correction of the other partials.

The tests detect a k that is off by a step or flutters, and a run of blocks of which none or two are read. They detect
records that are not counted, and a correction of values that must not be multiplied.
"""

from random import Random

import pyarrow as pa
import pytest

from lowlevel.node.shedding import (
    MAX_K,
    RING_FILLING,
    SAMPLING_FACTOR_KEY,
    SPOOL_FILLING,
    SPOOL_FULL,
    Shedding,
    compute_k,
    scale_partials,
)
from queries.gsql import compile_query

BOUND = 1 << 20


def slow_steps(used: int, bound: int) -> int:
    """The definition: of the part that is left, how many times half of an eighth it is below."""
    return min(
        [k for k in range(MAX_K + 1) if (bound - used) * 8 * 2**k >= bound],
        default=MAX_K,
    )


def test_the_less_is_left_the_less_is_looked_at() -> None:
    for used in [0, *range(BOUND - 5000, BOUND + 1), *(BOUND - (BOUND >> n) for n in range(20))]:
        assert compute_k(used, BOUND) == slow_steps(used, BOUND), used
    assert [compute_k(used, BOUND) for used in range(BOUND)] == sorted(compute_k(used, BOUND) for used in range(BOUND))


def test_k_rises_at_once_and_falls_with_an_eighth_more_room() -> None:
    shedding = Shedding()
    assert shedding.next_spool_k(BOUND * 7 // 8, BOUND) == 0
    shedding.spool_k = shedding.next_spool_k(BOUND * 63 // 64, BOUND)
    assert shedding.k == 3
    assert shedding.next_spool_k(BOUND * 7 // 8, BOUND) == 3  # which it would not have risen to
    assert shedding.next_spool_k(BOUND * 3 // 4, BOUND) == 0
    assert [shedding.next_spool_k(used, BOUND) for used in (BOUND, BOUND * 1023 // 1024)] == [10, 7]


@pytest.mark.parametrize("k", [0, 1, 3, 10])
def test_of_each_run_of_blocks_one_is_taken_and_the_records_of_the_others_are_counted(k: int) -> None:
    random = Random(k)
    shedding = Shedding(k)
    sizes = [random.randrange(1, 100) for _ in range(8 << k)]
    taken = [shedding.select_block(records) for records in sizes]
    runs = [taken[start : start + shedding.factor] for start in range(0, len(taken), shedding.factor)]
    assert [sum(run) for run in runs] == [1] * 8
    assert shedding.skipped_records == {
        SPOOL_FILLING: sum(size for size, here in zip(sizes, taken, strict=True) if not here),
        RING_FILLING: 0,
        SPOOL_FULL: 0,
    }
    if k == 10:  # not always at the same place
        assert len({run.index(True) for run in runs}) > 4


def test_a_refused_block_is_counted_by_its_cause() -> None:
    shedding = Shedding()
    shedding.count_skipped(7)
    shedding.count_skipped(4)
    assert shedding.skipped_records == {SPOOL_FILLING: 0, RING_FILLING: 0, SPOOL_FULL: 11}


@pytest.mark.parametrize(
    ("spool", "ring", "cause"), [(1, 3, RING_FILLING), (3, 1, SPOOL_FILLING), (2, 2, SPOOL_FILLING)]
)
def test_the_larger_of_what_spool_and_ring_ask_for_is_in_force_and_is_the_cause(
    spool: int, ring: int, cause: str
) -> None:
    shedding = Shedding(spool, ring)
    assert shedding.factor == 1 << max(spool, ring)
    taken = sum(shedding.select_block(3) for _ in range(shedding.factor))
    assert taken == 1
    assert shedding.skipped_records == {SPOOL_FILLING: 0, RING_FILLING: 0, SPOOL_FULL: 0} | {
        cause: 3 * (shedding.factor - 1)
    }
    assert shedding.next_spool_k(0, BOUND) == 0  # independent of the ring's request


def test_counts_and_sums_stand_for_more_and_the_factor_is_noted() -> None:
    columns = "srcPort, count(*), sum(len), min(len), max(len), sum(len / 2.0), first(len), last(len), bit_and(len), "
    columns += "bit_or(len), bit_xor(len)"
    plan = compile_query(f"SELECT {columns} FROM p [RANGE 1 minute] GROUP BY srcPort").leaves[0].low
    rows = 5
    random = Random(1)
    arrays = [
        pa.array(["l"] * rows)
        if field.type == pa.string()
        else pa.array([random.randrange(100) for _ in range(rows)], field.type)
        for field in plan.schema
    ]
    batch = pa.RecordBatch.from_arrays(arrays, schema=plan.schema.with_metadata({"noted": "before"}))
    grown = scale_partials(batch, plan, 8)
    assert scale_partials(batch, plan, 1) is batch
    assert grown.schema.metadata == {b"noted": b"before", SAMPLING_FACTOR_KEY: b"8"}
    assert scale_partials(batch.replace_schema_metadata(None), plan, 8).schema.metadata == {SAMPLING_FACTOR_KEY: b"8"}
    assert grown.schema.equals(batch.schema)
    kinds = {sub.name: sub.kind for sub in plan.subaggregates}
    for name in batch.schema.names:
        factor = 8 if kinds.get(name) in ("count", "sum") else 1
        values = batch.column(name).to_pylist()
        assert grown.column(name).to_pylist() == [each * factor if factor > 1 else each for each in values], name
