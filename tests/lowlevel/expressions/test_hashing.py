"""Hashes of values, against SplitMix64 in plain Python, and as the random numbers of samples.

The tests detect a hash that depends on the batch, equal hashes of different values or positions, and biased numbers.
"""

from __future__ import annotations

from hashlib import blake2b
from ipaddress import ip_address
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import wiretide
from lowlevel.expressions.columns import AddressVector, AnyVector, TextVector, Vector
from lowlevel.expressions.hashing import hash_values, uniform

MASK = 2**64 - 1
ROWS = 50
SOURCES = 300
SAMPLE = 30


def reference(values: list[tuple[Any, int]]) -> int:
    """The hash of one row of pairs: a number, a text, an address or None, and the number of its words."""
    state = 0
    for value, words in [(0, 1), *values]:
        parts = [1, *words_of(value)] if value is not None else [0] * (1 + words)
        for part in parts:
            state = ((state ^ part) + 0x9E3779B97F4A7C15) & MASK
            state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
            state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & MASK
            state ^= state >> 31
    return state >> 1


def words_of(value: Any) -> list[int]:
    if isinstance(value, str):
        return [int.from_bytes(blake2b(value.encode(), digest_size=8).digest(), "big")]
    if isinstance(value, float):
        return [int(np.float64(value + 0.0).view(np.uint64))]
    if isinstance(value, int):
        return [value & MASK]
    return [value.version, *divmod(int(value), 2**64)]


def column(random: Random, kind: str) -> tuple[AnyVector, list[Any], int]:
    """A column, its values, and the number of words of each."""
    mask = np.array([random.random() < 0.8 for _ in range(ROWS)])
    values: list[Any]
    vector: AnyVector
    if kind == "integer":
        values = [random.randint(-(2**63), 2**63 - 1) for _ in range(ROWS)]
        vector = Vector(np.array(values), mask)
    elif kind == "float":
        values = [random.choice([0.0, -0.0, 1.5, random.random()]) for _ in range(ROWS)]
        vector = Vector(np.array(values), mask)
    elif kind == "text":
        names = ["a", "b", "link"]
        ids = [random.randrange(3) for _ in range(ROWS)]
        values = [names[text_id] for text_id in ids]
        vector = TextVector(np.array(ids), names, mask)
    else:
        values = [ip_address(random.choice(["10.0.0.1", "::1", "2001:db8::7"])) for _ in range(ROWS)]
        high, low = (np.array([divmod(int(each), 2**64)[half] for each in values], np.uint64) for half in (0, 1))
        vector = AddressVector(np.where(mask, [each.version for each in values], 0), high, low, mask)
    known = [value if is_known else None for value, is_known in zip(values, mask.tolist(), strict=True)]
    return vector, known, 3 if kind == "address" else 1


@pytest.mark.parametrize("seed", range(10))
def test_hashes_are_those_of_the_reference(seed: int) -> None:
    random = Random(seed)
    kinds = [random.choice(["integer", "float", "text", "address"]) for _ in range(random.randint(1, 4))]
    columns = [column(random, kind) for kind in kinds]
    found = hash_values([Vector(np.array(0)), *(vector for vector, _, _ in columns)])
    expected = [reference([(values[row], words) for _, values, words in columns]) for row in range(ROWS)]
    assert np.broadcast_to(found.data, ROWS).tolist() == expected


def test_a_uniform_number_is_never_0() -> None:
    ends = uniform(Vector(np.array([0, 2**63 - 1]))).data
    assert ends.tolist() == [2.0**-53, 1.0]


@pytest.fixture(scope="module")
def flows() -> pa.Table:
    """Sources with bytes of a heavy tail: a few of them have most of the bytes."""
    random = Random(1)
    return pa.table({"source": range(SOURCES), "bytes": [int(40 * random.paretovariate(1.1)) for _ in range(SOURCES)]})


def test_a_reservoir_has_each_row_equally_often(flows: pa.Table) -> None:
    """The count of each row is binomial: in the mean, chi-squared is the number of rows."""
    runs = 150
    counts = np.zeros(SOURCES)
    for seed in range(runs):
        sql = f"SELECT source FROM flows ORDER BY uniform(source, {seed}) LIMIT {SAMPLE}"
        chosen = wiretide.query(sql, streams={"flows": flows}).column("source").to_numpy()
        assert len(set(chosen.tolist())) == SAMPLE
        counts[chosen] += 1
    share = SAMPLE / SOURCES
    chi_squared = ((counts - runs * share) ** 2).sum() / (runs * share * (1 - share))
    assert abs(chi_squared - SOURCES) < 4 * (2 * SOURCES) ** 0.5


PRIORITY_SAMPLE = """
SELECT source, greatest(bytes * 1.0, threshold) AS estimate
FROM (SELECT source, bytes, place, min(priority) OVER () AS threshold
      FROM (SELECT source, bytes, bytes / uniform(source, {seed}) AS priority,
                   row_number() OVER (ORDER BY bytes / uniform(source, {seed}) DESC) AS place
            FROM flows)
      WHERE place <= {size} + 1)
WHERE place <= {size}
"""


def test_priority_sampling_estimates_sums_of_subsets_without_bias(flows: pa.Table) -> None:
    """Duffield, Lund, Thorup (J. ACM 2007). The variance is at most total² / (size - 1) (Szegedy, STOC 2006)."""
    volumes = flows.column("bytes").to_numpy()
    is_odd = np.arange(SOURCES) % 2 == 1
    totals, subsets = [], []
    for seed in range(150):
        sample = wiretide.query(PRIORITY_SAMPLE.format(seed=seed, size=SAMPLE), streams={"flows": flows})
        sources, estimates = (sample.column(name).to_numpy() for name in ("source", "estimate"))
        assert len(sources) == SAMPLE
        totals.append(estimates.sum())
        subsets.append(estimates[is_odd[sources]].sum())
    for found, truth in ((totals, volumes.sum()), (subsets, volumes[is_odd].sum())):
        error = np.std(found) / len(found) ** 0.5
        assert abs(np.mean(found) - truth) < 4 * error
        assert np.var(found) <= volumes.sum() ** 2 / (SAMPLE - 1)
