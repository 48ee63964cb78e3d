"""Functions with a state: subset-sum and reservoir sampling in GSQL, compared with slow references and their bounds.

The comparisons detect a state of the wrong supergroup or window, a cleaning after the wrong row, a random number that
depends on the sizes of batches, and a snapshot that loses a part of the state. The bounds detect a biased estimate, a
variance above the threshold times the sum, and rows that a reservoir prefers.
"""

from collections import Counter
from math import sqrt
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from highlevel.plan.pipeline import make_operator
from lowlevel.punctuation import END, Punctuation
from queries.gsql import compile_query
from queries.text.errors import QueryError
from tests.conftest import Rounds
from tests.references.sample_rows import sample_rows
from tests.references.sampling_twin import reservoir, subset_sum

SUBSET_SUM = """SELECT minute, destPort, srcPort, sum(len) AS bytes, ssthreshold() AS z FROM M
WHERE ssample(len, {size}, {seed})
GROUP BY time/60 AS minute, destPort, srcPort SUPERGROUP destPort
HAVING ssfinal_clean(sum(len))
CLEANING WHEN ssdo_clean(count_distinct$(*))
CLEANING BY ssclean_with(sum(len))"""

RESERVOIR = """SELECT minute, destPort, srcPort, sum(len) AS bytes FROM M
WHERE rsample({size}, {seed})
GROUP BY time/60 AS minute, destPort, srcPort SUPERGROUP destPort
HAVING rsfinal_clean()
CLEANING WHEN rsdo_clean(count_distinct$(*))
CLEANING BY rsclean_with()"""


def drawn_rows(random: Random, count: int) -> list[tuple[int, int, int, int]]:
    """Rows (minute, supergroup, item, weight) with few large weights. Each row has another item.

    No row is of minute 2.
    """
    times = sorted(random.choice([0, 1, 3]) for _ in range(count))
    for _ in range(count // 10):  # disorder between windows
        at = random.randrange(count - 1)
        times[at], times[at + 1] = times[at + 1], times[at]
    return [(time, random.randrange(2), item, int(random.paretovariate(0.8))) for item, time in enumerate(times)]


def test_subset_sum_sampling_equals_its_reference(rounds: Rounds) -> None:
    for seed in rounds(12):
        random = Random(f"subset sum {seed}")
        size = random.choice([1, 2, 7, 40])
        rows = drawn_rows(random, random.choice([30, 300, 1_000]))
        expected = subset_sum(rows, size, seed)
        got = sample_rows(SUBSET_SUM.format(size=size, seed=seed), rows, random)
        assert {row[:4] for row in got} == set(expected), seed
        assert all(row[4] == pytest.approx(expected[row[:4]], rel=1e-12) for row in got), seed


def test_reservoir_sampling_equals_its_reference(rounds: Rounds) -> None:
    for seed in rounds(12):
        random = Random(f"reservoir {seed}")
        size = random.choice([1, 2, 7, 40])
        rows = drawn_rows(random, random.choice([30, 300, 1_000]))
        got = sample_rows(RESERVOIR.format(size=size, seed=seed), rows, random)
        assert Counter(got) == Counter(reservoir(rows, size, seed)), seed


@pytest.mark.parametrize("sql", [SUBSET_SUM, RESERVOIR])
def test_samples_have_the_requested_size(sql: str) -> None:
    """A subset-sum sample that takes over a threshold may be smaller: minute 1 follows 0, and 3 follows none."""
    rows = drawn_rows(Random("size"), 2_000)
    members = Counter(row[:2] for row in rows)
    for size in (1, 10, 100, 1_000):
        got = Counter(row[:2] for row in sample_rows(sql.format(size=size, seed=3), rows, Random(1)))
        for part, count in members.items():
            if sql == SUBSET_SUM and part[0] == 1:
                assert got[part] <= size
            else:
                assert got[part] == min(size, count), (size, part)


@pytest.mark.parametrize("sql", [SUBSET_SUM, RESERVOIR])
def test_a_seed_repeats_a_sample_and_another_seed_draws_another(sql: str) -> None:
    rows = drawn_rows(Random("seeds"), 1_000)
    first, again, other = (
        set(sample_rows(sql.format(size=20, seed=seed), rows, Random(batches)))
        for seed, batches in ((1, 1), (1, 2), (2, 1))
    )
    assert first == again != other


def test_estimates_of_subsets_are_unbiased_and_their_variance_is_below_the_bound() -> None:
    """Two windows, so that the second one begins with a threshold. 150 seeds; the limits are 4 standard errors."""
    size, seeds = 20, 150
    rows = [(window, 0, item, weight) for _, _, item, weight in drawn_rows(Random("bounds"), 200) for window in (0, 1)]
    rows.sort(key=lambda row: row[0])
    subsets = {
        "all": [row for row in rows if row[0] == 1],
        "half": [row for row in rows if row[0] == 1 and row[2] % 2],
        "small": [row for row in rows if row[0] == 1 and row[3] < 5],
        "first rows": [row for row in rows if row[0] == 1 and row[2] < 30],
        "last rows": [row for row in rows if row[0] == 1 and row[2] >= 170],
        "first window": [row for row in rows if row[0] == 0 and row[2] % 3 == 0],
    }
    estimates: dict[str, list[float]] = {name: [] for name in subsets}
    largest = 0.0
    for seed in range(seeds):
        sample = {row[:4]: row[4] for row in sample_rows(SUBSET_SUM.format(size=size, seed=seed), rows, Random(seed))}
        largest = max(largest, *sample.values())
        for name, subset in subsets.items():
            estimates[name].append(sum(max(row[3], sample[row]) for row in subset if row in sample))
    for name, subset in subsets.items():
        exact = sum(row[3] for row in subset)
        bound = largest * exact
        got = np.array(estimates[name])
        assert abs(got.mean() - exact) <= 4 * sqrt(bound / seeds), (name, got.mean(), exact)
        assert abs(got.mean() - exact) <= 4 * got.std(ddof=1) / sqrt(seeds) + 1e-6 * exact, (name, got.mean(), exact)
        assert got.var(ddof=1) <= bound, (name, got.var(ddof=1), bound)


def test_rows_are_in_a_reservoir_equally_often() -> None:
    """Chi-squared of the inclusions of 60 rows in 500 samples of 10. The 0.999 quantile is 98.3 for 59 degrees."""
    items, size, seeds = 60, 10, 500
    rows = [(0, 0, item, 1) for item in range(items)]
    counts: Counter[int] = Counter()
    for seed in range(seeds):
        counts.update(row[2] for row in sample_rows(RESERVOIR.format(size=size, seed=seed), rows, Random(seed)))
    expected = seeds * size / items
    # Draws without replacement have a smaller variance, by the factor (items - size) / (items - 1).
    factor = (items - size) / (items - 1)
    chi_squared = sum((counts[item] - expected) ** 2 for item in range(items)) / expected / factor
    assert 27.5 < chi_squared < 98.3, chi_squared


@pytest.mark.parametrize("window", [0, 1])
def test_watermarks_do_not_change_what_the_next_window_takes_over(window: int) -> None:
    """The watermark `window` behind the newest row closes windows while later ones need their thresholds."""
    rows = sorted(drawn_rows(Random("watermarks"), 900))
    operator = make_operator(compile_query(SUBSET_SUM.format(size=7, seed=5)).root)
    names = [column.name for column in operator.node.input.columns]
    items = []
    for time in (0, 1, 3):
        columns = zip(*(row for row in rows if row[0] == time), strict=True)
        items += operator.punctuate(0, Punctuation("M", time - window))
        copy = make_operator(operator.node)
        copy.restore(operator.snapshot())
        operator = copy
        batch = pa.RecordBatch.from_arrays([pa.array(values, pa.int64()) for values in columns], names)
        items += operator.process_rows(0, batch)
    items += operator.punctuate(0, Punctuation("M", END))
    got = {tuple(row.values())[:4] for item in items if isinstance(item, pa.RecordBatch) for row in item.to_pylist()}
    assert got == set(subset_sum(rows, 7, 5))
    assert operator.snapshot()["states"].num_rows == 0


def test_the_number_of_groups_needs_no_function_with_a_state() -> None:
    sql = """SELECT minute, srcPort, count$(*) AS n, count_distinct$(*) AS g FROM M
    GROUP BY time/60 AS minute, srcPort CLEANING WHEN count_distinct$(*) > 2 CLEANING BY count(*) > 1"""
    rows = [(0, item) for item in (1, 1, 2, 3, 4, 5, 5, 5, 4)]
    # 3 is the third group, then only 1 remains. So it is after the first 5. The last 4 is a third group again.
    assert sample_rows(sql, rows, Random(1)) == [(0, 1, 9, 2), (0, 5, 9, 2)]


CLEAN = "CLEANING WHEN ssdo_clean(count_distinct$(*)) CLEANING BY ssclean_with(sum(len))"
FULL = f"WHERE ssample(len, 9) GROUP BY srcIP {CLEAN}"
WRONG = [
    ("SELECT srcIP FROM M WHERE «ssample(len, 9)", "unknown function 'ssample'", "SUPERGROUP or CLEANING WHEN"),
    ("SELECT «ssthreshold() FROM M", "unknown function 'ssthreshold'", "SUPERGROUP or CLEANING WHEN"),
    (f"SELECT srcIP FROM M WHERE «ssample(len) GROUP BY srcIP {CLEAN}", "other arguments", "ssample(len, 100)"),
    (f"SELECT srcIP FROM M WHERE ssample(len, «0) GROUP BY srcIP {CLEAN}", "a size", "1 to 2147483647"),
    (f"SELECT srcIP FROM M WHERE ssample(len, «len) GROUP BY srcIP {CLEAN}", "a size", "1 to 2147483647"),
    (f"SELECT srcIP FROM M WHERE ssample(len, «1.5) GROUP BY srcIP {CLEAN}", "a size", "1 to 2147483647"),
    (f"SELECT srcIP FROM M WHERE ssample(len, 9, «-1) GROUP BY srcIP {CLEAN}", "a seed", "0 to 2147483647"),
    (f"SELECT srcIP FROM M WHERE ssample(«srcIP, 9) GROUP BY srcIP {CLEAN}", "type address", "integer or float"),
    (f"SELECT srcIP FROM M WHERE ssample(«count(*), 9) GROUP BY srcIP {CLEAN}", "count within ssample", "columns"),
    (f"SELECT srcIP FROM M WHERE NOT «ssample(len, 9) GROUP BY srcIP {CLEAN}", "within a condition", "AND"),
    (f"SELECT srcIP FROM M WHERE «ssdo_clean(1) GROUP BY srcIP {CLEAN}", "within a condition", "ssample"),
    (f"SELECT srcIP FROM M WHERE ssample(len, 9) AND «rsample(9) GROUP BY srcIP {CLEAN}", "a second rsample", "one"),
    (f"SELECT srcIP FROM M GROUP BY srcIP CLEANING WHEN «{CLEAN[14:]}", "ssdo_clean without ssample", "WHERE ssample"),
    (f"SELECT srcIP FROM M WHERE rsample(9) GROUP BY srcIP CLEANING WHEN «{CLEAN[14:]}", "without ssample", "WHERE"),
    (f"SELECT «ssample(len, 9) FROM M {FULL}", "ssample in SELECT", "ssample in WHERE"),
    (f"SELECT «ssclean_with(sum(len)) FROM M {FULL}", "in SELECT", "in CLEANING BY"),
    (
        "SELECT srcIP FROM M WHERE ssample(len, 9) GROUP BY srcIP CLEANING WHEN ssdo_clean(«count(*)) CLEANING BY TRUE",
        "CLEANING WHEN over a group",
        "superaggregates",
    ),
    (
        "SELECT srcIP FROM M WHERE rsample(9) GROUP BY srcIP CLEANING WHEN TRUE CLEANING BY «rsclean_with(sum(len))",
        "rsclean_with with other arguments",
        "rsclean_with()",
    ),
    (
        f"SELECT srcIP FROM M WHERE ssample(len, 9) GROUP BY srcIP HAVING ssfinal_clean(«srcIP) {CLEAN}",
        "ssfinal_clean over a value of type address",
        "integer or float",
    ),
    (
        f"SELECT srcIP FROM M {FULL.replace(CLEAN, 'HAVING ssfinal_clean(1) AND «ssfinal_clean(2) ' + CLEAN)}",
        "a second ssfinal_clean",
        "the same argument",
    ),
    (f"SELECT srcIP FROM M WHERE ssample(len, 9) GROUP BY time/60, «ts {CLEAN}", "a window for each ts", "time/60"),
    (f"SELECT count_distinct$(«len) FROM M {FULL}", "count_distinct$ over a column", "count_distinct$(*)"),
]


@pytest.mark.parametrize(("sql", "problem", "remedy"), WRONG)
def test_wrong_queries_have_a_position_and_a_remedy(sql: str, problem: str, remedy: str) -> None:
    start = sql.index("«")
    with pytest.raises(QueryError) as raised:
        compile_query(sql.replace("«", ""))
    message = str(raised.value)
    assert raised.value.position == start, message
    assert problem in message
    assert remedy in message
