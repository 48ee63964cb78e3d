"""The sampling operator: rows in their order of arrival, compared with a slow reference, and lossy counting.

These tests detect a superaggregate of the wrong supergroup or row, a group that CLEANING BY keeps or deletes wrongly,
and a result that depends on the size of batches. They measure the published bounds of lossy counting (Manku, Motwani:
VLDB 2002).
"""

from collections import Counter
from random import Random

import pytest

from queries.gsql import compile_query
from queries.text.errors import QueryError
from tests.conftest import Rounds
from tests.references.sample_rows import sample_rows

LOSSY_COUNTING = """SELECT minute, srcPort, count(*) AS n, count$(*) AS total FROM M
GROUP BY time/60 AS minute, destPort, srcPort SUPERGROUP destPort
CLEANING WHEN count$(*) % {w} = 0
CLEANING BY count(*) + first((count$(*) + {w} - 1) / {w}) - 1 > count$(*) / {w}"""


def lossy_counts(rows: list[tuple], w: int) -> Counter[tuple]:
    """Count by the definition: entries (f, delta) for each minute and supergroup, deleted at bucket boundaries."""
    entries: dict[tuple, dict[int, list[int]]] = {}
    totals: Counter[tuple] = Counter()
    for minute, supergroup, item in rows:
        of = (minute, supergroup)
        totals[of] += 1
        bucket = -(-totals[of] // w)
        counts = entries.setdefault(of, {})
        counts.setdefault(item, [0, bucket - 1])[0] += 1
        if totals[of] % w == 0:
            entries[of] = {item: entry for item, entry in counts.items() if sum(entry) > bucket}
    return Counter(
        (of[0], item, entry[0], totals[of]) for of, counts in entries.items() for item, entry in counts.items()
    )


def drawn_rows(random: Random, count: int) -> list[tuple]:
    """Rows (minute, supergroup, item) with few frequent and many rare items, minutes out of order."""
    return [(random.randrange(3), random.randrange(2), int(random.paretovariate(0.7)) % 10_000) for _ in range(count)]


def test_lossy_counting_in_gsql_equals_its_definition(rounds: Rounds) -> None:
    for seed in rounds(10):
        random = Random(f"lossy {seed}")
        w = random.choice([1, 7, 50])
        rows = drawn_rows(random, 1_000)
        assert Counter(sample_rows(LOSSY_COUNTING.format(w=w), rows, random)) == lossy_counts(rows, w), seed


def test_lossy_counting_keeps_its_published_bounds(rounds: Rounds) -> None:
    w, support = 100, 0.05
    for seed in rounds(3):
        random = Random(f"bounds {seed}")
        rows = [(0, 0, item) for _, _, item in drawn_rows(random, 20_000)]
        exact = Counter(item for _, _, item in rows)
        estimated = {item: n for _, item, n, _ in sample_rows(LOSSY_COUNTING.format(w=w), rows, random)}
        epsilon_n = len(rows) / w
        for item, count in exact.items():
            assert count - epsilon_n <= estimated.get(item, 0) <= count, (seed, item)
        frequent = {item for item, n in estimated.items() if n >= support * len(rows) - epsilon_n}
        assert frequent >= {item for item, count in exact.items() if count >= support * len(rows)}, seed
        assert all(exact[item] >= support * len(rows) - epsilon_n for item in frequent), seed
        assert len(estimated) <= 7 * w, "1/epsilon * log(epsilon N) entries"


CLEAN = "CLEANING WHEN count$(*) % 10 = 0 CLEANING BY count(*) > 1"
WRONG = [
    ("SELECT count(*) FROM M «SUPERGROUP srcIP", "SUPERGROUP without groups", "GROUP BY"),
    (
        "SELECT count(*) FROM M «CLEANING WHEN count$(*) > 1 CLEANING BY TRUE",
        "without groups",
    ),
    ("SELECT count(*) FROM M GROUP BY srcIP SUPERGROUP «destIP", "not a group", "items of GROUP BY"),
    ("SELECT count(*) FROM M GROUP BY srcIP SUPERGROUP« ", "got the end of the query"),
    ("SELECT count(*) FROM M GROUP BY srcIP «CLEANING WHEN count$(*) > 1", "without CLEANING BY", "both clauses"),
    ("SELECT count(*) FROM M GROUP BY srcIP «CLEANING BY count(*) > 1", "without CLEANING WHEN", "both clauses"),
    ("SELECT count(*) FROM M GROUP BY srcIP CLEANING «count(*) > 1", "got 'count'", "WHEN or BY after CLEANING"),
    (
        "SELECT count(*) FROM M GROUP BY srcIP CLEANING WHEN «count(*) > 1 CLEANING BY count(*) > 1",
        "CLEANING WHEN over a group",
        "superaggregates",
    ),
    (
        "SELECT count(*) FROM M GROUP BY srcIP CLEANING WHEN «count$(*) CLEANING BY count(*) > 1",
        "CLEANING WHEN over a value of type integer",
        "a condition",
    ),
    (
        "SELECT count(*) FROM M GROUP BY srcIP CLEANING WHEN count$(*) > 1 CLEANING BY «count(*)",
        "CLEANING BY over a value of type integer",
        "a condition",
    ),
    (f"SELECT count(*) FROM M «[RANGE 1 minute] GROUP BY srcIP {CLEAN}", "a window clause", "GROUP BY time/60"),
    (f"SELECT count(*) FROM M GROUP BY srcIP {CLEAN} «ORDER BY 1", "ORDER BY in a query that samples", "reads this"),
    (f"SELECT count(*) FROM M GROUP BY srcIP {CLEAN} «LIMIT 3", "LIMIT in a query that samples", "reads this"),
    (f"SELECT «DISTINCT srcIP FROM M GROUP BY srcIP {CLEAN}", "DISTINCT in a query that samples", "no DISTINCT"),
    (f"SELECT «destIP FROM M GROUP BY srcIP {CLEAN}", "neither grouped by", "GROUP BY destIP"),
    (f"SELECT sum(«srcIP) FROM M GROUP BY srcIP {CLEAN}", "sum over a value of type address", "integer or float"),
    (f"SELECT sum$(«*) FROM M GROUP BY srcIP {CLEAN}", "sum$(*)", "an argument"),
    (f"SELECT sum(«count$(*)) FROM M GROUP BY srcIP {CLEAN}", "within sum", "first"),
    (f"SELECT first(«len) FROM M GROUP BY srcIP {CLEAN}", "neither grouped by", "GROUP BY len"),
    (f"SELECT first(«count(*)) FROM M GROUP BY srcIP {CLEAN}", "first over a value of the row", "superaggregates"),
    (f"SELECT count(*) FROM M GROUP BY «ts/60, srcIP {CLEAN}", "a window of 60 ns", "time/60"),
    (f"SELECT max(«ts) FROM M GROUP BY time/60, srcIP {CLEAN}", "an aggregate over a time", "other columns"),
    (f"SELECT count(*) FILTER (WHERE «len > 5) FROM M GROUP BY srcIP {CLEAN}", "FILTER after count", "WHERE"),
    (f"SELECT count(*) FROM M GROUP BY «ROLLUP (srcIP) {CLEAN}", "grouping sets in a query", "columns only"),
    (f"SELECT «avg(len) FROM M GROUP BY srcIP {CLEAN}", "the aggregate avg in a query that samples", "count, sum"),
    (f"SELECT sum(«count(*)) FROM M GROUP BY srcIP {CLEAN}", "the aggregate count within sum", "columns of the rows"),
    (f"SELECT len FROM M GROUP BY «count(*) {CLEAN}", "the aggregate count within GROUP BY", "columns of the rows"),
    (f"SELECT len FROM M GROUP BY «1 {CLEAN}", "GROUP BY over a constant", "a column"),
    (f"SELECT sum(«ts) FROM M GROUP BY srcIP {CLEAN}", "an aggregate over a time", "other columns"),
    ("SELECT «count$(*) FROM M GROUP BY srcIP", "unknown function 'count$'", "SUPERGROUP"),
    (f"SELECT «median$(len) FROM M GROUP BY srcIP {CLEAN}", "median$"),
]


@pytest.mark.parametrize(("sql", "problem", "remedy"), [(*case, "")[:3] for case in WRONG])
def test_wrong_queries_have_a_position_and_a_remedy(sql: str, problem: str, remedy: str) -> None:
    start = sql.index("«")
    with pytest.raises(QueryError) as raised:
        compile_query(sql.replace("«", ""))
    message = str(raised.value)
    assert raised.value.position == start, message
    assert problem in message
    assert remedy in message
