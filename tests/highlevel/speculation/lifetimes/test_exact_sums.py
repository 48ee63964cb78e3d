"""Exact sums of floats against fractions: additions and subtractions in any order, and after a restart.

The tests detect a limb in the wrong word, a sign, subnormal numbers, words that are added while sums are stored, and a
sum that is rounded twice.
"""

import math
from fractions import Fraction
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from highlevel.speculation.lifetimes.aggregates import parse_aggregate
from highlevel.speculation.lifetimes.exact_sums import ExactSums, split
from highlevel.speculation.lifetimes.model import canonical_history, change_schema, make_changes, make_ctis
from highlevel.speculation.lifetimes.snapshot import SnapshotOperator
from lowlevel.punctuation import END
from tests.conftest import Rounds
from tests.references.operator_contract import through_ipc

SPECIAL = [0.0, -0.0, 5e-324, -5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, -1.7976931348623157e308, 1.0]


def drawn(random: Random) -> float:
    return random.choice(
        [random.choice(SPECIAL), random.gauss(0, 1), random.uniform(-1, 1) * 2.0 ** random.randint(-1070, 1023)]
    )


def rounded(values: list[float]) -> float:
    """The sum as a fraction, rounded once."""
    total = sum(map(Fraction, values), Fraction(0))
    try:
        return float(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


def test_limbs_add_up_to_the_sum_in_any_order(rounds: Rounds) -> None:
    for seed in rounds(30):
        random = Random(f"limbs {seed}")
        sums, words, width = ExactSums(), np.zeros((1, 0), np.int64), 0
        kept: list[float] = []
        for _ in range(random.randint(1, 8)):
            values = [drawn(random) for _ in range(random.randint(1, 20))]
            limbs = split(pa.array(values))
            width = sums.assign_words(limbs, width)
            words = np.pad(words, ((0, 0), (0, width - words.shape[1])))
            added = np.zeros((len(values), width), np.int64)
            sums.write(limbs, added)
            words += added.sum(axis=0)
            removed = random.sample(range(len(values)), random.randrange(len(values)))
            words -= added[removed].sum(axis=0)
            kept += [value for number, value in enumerate(values) if number not in removed]
        again = ExactSums()
        assert again.restore(through_ipc({"limbs": sums.snapshot()})["limbs"]) == width
        (found,) = again.quotients(words, np.ones(1, np.int64), np.zeros(1, np.bool_))
        assert found == rounded(kept), (seed, kept)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1e308, 1e308, -1e308], 1e308),
        ([1e16, 1.0, -1e16], 1.0),
        ([math.inf, 1.0], math.inf),
        ([-math.inf, 1.0], -math.inf),
        ([math.inf, -math.inf], math.nan),
        ([math.nan, 1.0], math.nan),
        ([1e308] * 10, math.inf),
    ],
)
def test_infinities_and_nan_are_those_of_ieee_754(values: list[float], expected: float) -> None:
    sums, limbs = ExactSums(), split(pa.array(values))
    words = np.zeros((len(values), sums.assign_words(limbs, 0)), np.int64)
    sums.write(limbs, words)
    (found,) = sums.quotients(words.sum(axis=0, keepdims=True), np.ones(1, np.int64), np.zeros(1, np.bool_))
    assert found == expected or (math.isnan(found) and math.isnan(expected))


def test_sums_and_means_of_rows_that_are_true(rounds: Rounds) -> None:
    payload = pa.schema([("x", pa.float64())])
    for seed in rounds(5):
        random = Random(f"float snapshots {seed}")
        made = lambda: SnapshotOperator(  # noqa: E731
            change_schema(payload), [parse_aggregate("s", "sum(x)"), parse_aggregate("a", "avg(x)")]
        )
        operator = made()
        rows, parts = [], []
        for step in range(10):
            size = random.randint(1, 5)
            starts = [random.randrange(50) for _ in range(size)]
            ends = [start + random.randint(1, 30) for start in starts]
            values = [random.choice([None, drawn(random) / 1e10, 0.1]) for _ in range(size)]
            rows += zip(starts, ends, values, strict=True)
            times = (np.array(starts), np.array(ends), np.array(ends))
            batch = pa.RecordBatch.from_arrays([pa.array(values, pa.float64())], schema=payload)
            parts.append(operator.process(make_changes(np.zeros(size, np.int64), *times, batch)))
            if step == 5:
                tables = through_ipc(operator.snapshot())
                operator = made()
                operator.restore(tables)
        parts.append(operator.process(make_ctis([END], payload)))
        table = pa.Table.from_batches(parts).combine_chunks().to_batches()[0]
        history = canonical_history(table).to_pylist()
        assert history
        for row in history:
            true = [x for start, end, x in rows if start <= row["vs"] and row["ve"] <= end and x is not None]
            if true:
                total = sum(map(Fraction, true), Fraction(0))
                assert (row["s"], row["a"]) == (float(total), float(total / len(true))), seed
            else:
                assert (row["s"], row["a"]) == (None, None), seed
