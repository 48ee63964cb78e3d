"""Queries that are graphs, in fragments and partitions: what Spark's tasks do, compared with the inline engine.

As in `tests.test_spark_stream_steps`, no JVM is needed: planning, tasks and hosts are called level by level, each
micro-batch perhaps twice and its rows in any order.
"""

from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from capture.metrics import RECORDS_READ
from highlevel.metrics import LATE_ROWS, OPERATOR_ROWS_HELD, RESULT_ROWS, WINDOWS_CLOSED, WINDOWS_OPEN
from highlevel.plan.fragments import cut, sources_of
from highlevel.spark.totals import Totals
from lowlevel.punctuation import END
from queries.gsql import compile_query
from tests.links import write_links
from tests.test_spark_stream_steps import inline, same_rows, spec, steps

PAIR = "FROM Main1 S [RANGE 3 s, WA ts], Main2 A [RANGE 2 s, WA ts] WHERE S.srcIP = A.srcIP"
QUERIES = {
    "rows": "SELECT ts, srcIP, len FROM Main1 WHERE len > 100",
    "distinct": "SELECT DISTINCT ts/60 AS minute, srcIP FROM packets",
    "pairs": f"SELECT S.ts, A.ts - S.ts AS apart, S.srcIP, A.len {PAIR}",
    "without": PAIR.replace("FROM Main1", "SELECT S.ts, S.srcIP, A.ts AS other FROM Main1")
    .replace(", Main2", " LEFT JOIN Main2")
    .replace("WHERE", "ON"),
    "by the key": f"SELECT S.srcIP, count(*) AS n [RANGE 20 s, SLIDE 10 s, WA S.ts] {PAIR} GROUP BY S.srcIP",
    "by another": "SELECT A.len, count(*) AS n, sum(S.len) AS s [RANGE 20 s, SLIDE 10 s, WA A.ts] "
    f"{PAIR} GROUP BY A.len",
    "by nothing": f"SELECT count(*) AS n [RANGE 1 minute, SLIDE 1 minute, WA S.ts] {PAIR}",
    "by both times": f"SELECT S.ts/10 AS s, A.ts/10 AS a, count(*) AS n {PAIR} GROUP BY S.ts/10, A.ts/10",
    "of itself": "SELECT count(*) AS n FROM packets a, packets b [RANGE TUMBLING 1 s, WA ts] WHERE a.srcIP = b.destIP",
    "rolled up": "WITH t AS (SELECT srcIP, count(*) AS n FROM packets [RANGE 10 s, SLIDE 10 s, WA ts] GROUP BY srcIP) "
    "SELECT n, count(*) AS sources FROM t [RANGE 1 minute, SLIDE 1 minute, WA ts] GROUP BY n",
    "three times": "WITH t AS (SELECT srcIP, count(*) AS n FROM packets [RANGE 9 s, SLIDE 9 s, WA ts] GROUP BY srcIP)"
    ", u AS (SELECT n, count(*) AS m FROM t [RANGE 18 s, SLIDE 18 s, WA ts] GROUP BY n) "
    "SELECT m, max(n) AS most FROM u [RANGE 1 minute, SLIDE 1 minute, WA ts] GROUP BY m",
    "with a leaf": "WITH t AS (SELECT srcIP, count(*) AS n FROM packets [RANGE 1 s, SLIDE 1 s, WA ts] GROUP BY srcIP) "
    "SELECT t.n, p.len, p.ts FROM t [RANGE 1 s, WA ts], Main1 p [RANGE 1 s, WA ts] WHERE t.n = p.ttl",
    "no graph": "SELECT srcIP, count(*) AS n FROM packets [RANGE 10 s, SLIDE 10 s, WA ts] GROUP BY srcIP",
}
PLANS = [compile_query(sql, name) for name, sql in QUERIES.items()]


@pytest.mark.parametrize("seed", range(5))
def test_partitions_give_the_rows_of_one_process(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    inputs = write_links(tmp_path, seed)
    plans = random.sample(PLANS, 5)
    got: dict[str, list[pa.Table]] = {plan.name: [] for plan in plans}
    totals = Totals()
    for results, after in steps(spec(inputs, random, plans), tmp_path / "state", random):
        totals = after
        for name, table in results.items():
            got[name].append(table)
    want, run = inline(plans, inputs)
    expected = run.samples()
    for plan in plans:
        assert same_rows(pa.concat_tables([plan.schema.empty_table(), *got[plan.name]]), want[plan.name]), plan.name
        for metric in (RESULT_ROWS, WINDOWS_CLOSED, LATE_ROWS):
            told = totals.samples.total(metric, query=plan.name)
            assert told == expected.total(metric, query=plan.name), (plan.name, metric.name)
        assert totals.lows[plan.name] == END
    assert totals.samples.total(RECORDS_READ) == expected.total(RECORDS_READ)
    for metric in (WINDOWS_OPEN, OPERATOR_ROWS_HELD):
        assert totals.samples.total(metric) == 0, metric.name
    assert totals.finished(len(inputs))


def levels(sql: str) -> list[int]:
    return list(cut(compile_query(sql)).levels)


def test_rows_are_dealt_anew_only_where_they_have_to_be() -> None:
    assert levels(QUERIES["no graph"]) == [0]
    assert levels(QUERIES["rows"]) == [0]
    assert levels(QUERIES["pairs"]) == [0]
    assert levels(QUERIES["by the key"]) == [0]
    assert levels(QUERIES["by another"]) == [0, 1]
    assert levels(QUERIES["by nothing"]) == [0, 1]
    assert levels(QUERIES["three times"]) == [0, 1, 2]
    assert levels(QUERIES["with a leaf"]) == [0, 1]


@pytest.mark.parametrize("name", QUERIES)
def test_fragments_hand_on_what_the_query_has(name: str) -> None:
    plan = compile_query(QUERIES[name], name)
    stages = cut(plan)
    assert stages.fragments[-1].schema == plan.schema
    handed = [source for fragment in stages.fragments for source in sources_of(fragment)]
    assert sorted(set(handed)) == list(range(len(stages.sources)))
    assert {source.leaf for source in stages.sources} - {None} == set(range(len(plan.leaves)))
    for number in range(len(stages.fragments) - 1):
        assert any(source.fragment == number for source in stages.sources), "a fragment is read by another, or the last"
