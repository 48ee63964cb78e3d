"""The first rows at each instant (LIMIT over LIFETIME) and ranks (OVER), compared with the definition.

Two thousand streams follow each other in time, so each of them has results of its own. Within a stream rows arrive in
any order. The tests detect a group that is ranked only when its snapshot ends, periods that are divided or joined
wrongly, corrections that do not add up, a result that changes after it is final, and state that a restart loses.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

import wiretide
from highlevel.inline import table_files
from highlevel.plan.answer_nodes import RowFunctionKind
from queries.explain.plan import explain
from queries.gsql import compile_query
from queries.text.errors import QueryError
from tests.conftest import Rounds
from tests.harness.recorded_runs import RecordedRun, rows_in
from tests.references.instant_ranks import Ranked, ranked_rows
from tests.references.written_exports import write_exports

SCHEMA = "PROTOCOL rows { TIME begin (banded_increasing(40 seconds)); TIME finish; STRING host; UINT load; }"
NS = 10**9
STREAMS = 2_000
STREAM_LENGTH = 60 * NS
"""All rows of a stream are true within this time."""

LIFETIME = "FROM rows [LIFETIME begin TO finish]"
Rows = list[tuple[int, int, str, int]]


def random_rows(random: Random, streams: int) -> Rows:
    """Rows `begin, finish, host, load` in the order of arrival, up to eight in each stream."""
    rows = []
    for stream in range(streams):
        of_stream = []
        for _ in range(random.randint(1, 8)):
            begin = random.randrange(30)
            finish = begin + random.choice([1, 2, random.randint(1, 25)])
            origin = 1_700_000_000 * NS + stream * STREAM_LENGTH
            row = (origin + begin * NS, origin + finish * NS, random.choice("abcd"), random.choice([1, 2, 2, 5]))
            of_stream.append((begin + random.random() * random.choice([0, 30]), row))
        rows += [row for _, row in sorted(of_stream)]
    return rows


def table_of(rows: Rows) -> pa.Table:
    begin, finish, host, load = zip(*rows, strict=True)
    times = [pa.array(column, pa.timestamp("ns", "UTC")) for column in (begin, finish)]
    return pa.table({"begin": times[0], "finish": times[1], "host": host, "load": load})


def streams_of(rows: Rows) -> list[Rows]:
    """Return the rows of each stream."""
    streams: dict[int, Rows] = defaultdict(list)
    for row in rows:
        streams[row[0] // STREAM_LENGTH - 1_700_000_000 * NS // STREAM_LENGTH].append(row)
    return list(streams.values())


def snapshots(rows: Rows) -> list[Ranked]:
    """Return the number and the sum of the rows of each group, from one start or end to the next."""
    found: list[Ranked] = []
    for host in {row[2] for row in rows}:
        of_host = [row for row in rows if row[2] == host]
        for start, end in pairwise(sorted({time for row in of_host for time in row[:2]})):
            loads = [load for first, last, _, load in of_host if first <= start and end <= last]
            if loads:
                found.append((start, end, (host, len(loads), sum(loads))))
    return found


def first_groups(rows: Rows) -> Counter[tuple]:
    """LIMIT 2 by the number of rows, then by host and sum."""
    ordered = sorted(snapshots(rows), key=lambda row: (-row[2][1], row[2][0], row[2][2]))
    return ranked_rows(ordered, lambda values: values[1], limit=2)


def ranked_groups(rows: Rows) -> Counter[tuple]:
    ordered = sorted(snapshots(rows), key=lambda row: (-row[2][2], row[2]))
    return ranked_rows(ordered, lambda values: values[2], function=RowFunctionKind.RANK)


def first_rows(rows: Rows) -> Counter[tuple]:
    true = [(begin, finish, (host, load)) for begin, finish, host, load in rows]
    true.sort(key=lambda row: (-row[2][1], row[2][0], row[0]))
    return ranked_rows(true, lambda values: values[1], limit=1, offset=1)


def numbered_rows(rows: Rows) -> Counter[tuple]:
    """The number of a row among those of its host, and the rank of these numbers."""
    true = [(begin, finish, (host, load)) for begin, finish, host, load in rows]
    true.sort(key=lambda row: (row[2][1], row[0]))
    function = RowFunctionKind.ROW_NUMBER
    return ranked_rows(true, lambda values: values[1], partition=lambda values: values[0], function=function)


GROUPS = f"SELECT host, count(*) AS n, sum(load) AS s {LIFETIME} GROUP BY host ORDER BY n DESC LIMIT 2"
RANKS = (
    f"SELECT host, count(*) AS n, sum(load) AS s, rank() OVER (ORDER BY sum(load) DESC) AS r {LIFETIME} GROUP BY host"
)
ROWS = f"SELECT host, load {LIFETIME} ORDER BY load DESC LIMIT 1 OFFSET 1"
NUMBERS = f"SELECT host, load, row_number() OVER (PARTITION BY host ORDER BY load) AS r {LIFETIME}"
QUERIES = [(GROUPS, first_groups), (RANKS, ranked_groups), (ROWS, first_rows), (NUMBERS, numbered_rows)]


def rows_of(answer: pa.Table) -> Counter[tuple]:
    """Return the rows of an answer, or the rows that its changes add up to. No row is withdrawn after it is final."""
    found: Counter[tuple] = Counter()
    certain: set[tuple] = set()
    for row in answer.to_pylist():
        weight, final = row.pop("weight", 1), row.pop("final", True)
        values = tuple(getattr(value, "value", value) for value in row.values())
        found[values] += weight
        assert values not in certain or "weight" not in answer.column_names, f"{values} has changed"
        if final and weight > 0:
            certain.add(values)
    assert min(found.values(), default=0) >= 0
    return +found


@pytest.mark.parametrize(("sql", "reference"), QUERIES, ids=["groups", "ranks", "rows", "numbers"])
def test_two_thousand_streams_have_the_results_of_the_definition(
    sql: str, reference: Callable[[Rows], Counter[tuple]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_files, "BATCH_ROWS", 400)
    rows = random_rows(Random(f"instants {sql}"), STREAMS)
    expected: Counter[tuple] = Counter()
    for stream in streams_of(rows):
        expected.update(reference(stream))
    for clauses in ("", "EMIT CHANGES"):
        answer = wiretide.query(f"{sql} {clauses}", streams={"rows": table_of(rows)}, schema=SCHEMA)
        assert rows_of(answer) == expected, clauses


@pytest.mark.parametrize(("sql", "reference"), QUERIES, ids=["groups", "ranks", "rows", "numbers"])
def test_results_of_small_batches_are_corrected_until_they_are_final(
    sql: str, reference: Callable[[Rows], Counter[tuple]], rounds: Rounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_files, "BATCH_ROWS", 2)
    corrected = False
    for seed in rounds(2):
        random = Random(f"small batches {seed}")
        rows = random_rows(random, 8)
        expected: Counter[tuple] = Counter()
        for stream in streams_of(rows):
            expected.update(reference(stream))
        for wait in (0, 10, None):
            clauses = f"WITH CONSISTENCY (WAIT {'FOREVER' if wait is None else f'{wait} s'}) EMIT CHANGES"
            answer = wiretide.query(f"{sql} {clauses}", streams={"rows": table_of(rows)}, schema=SCHEMA)
            assert rows_of(answer) == expected, (seed, clauses)
            has_corrections = min(answer["weight"].to_pylist()) < 0
            assert not has_corrections or wait is not None, "a result that is final was withdrawn"
            corrected |= has_corrections
    assert corrected, "no result was returned before it was final"


def test_open_flows_have_first_groups_before_the_end_of_the_input(tmp_path: Path) -> None:
    path = tmp_path / "exports.pcap"
    flows = write_exports(path, Random(4), 80)
    lifetime = "FROM flows [LIFETIME start_ts TO end_ts]"
    sql = f"SELECT protocol, count(*) AS n {lifetime} GROUP BY protocol ORDER BY n DESC LIMIT 1"
    steps = list(RecordedRun(f"{sql} WITH CONSISTENCY (REMEMBER 6 minutes)", path).steps())
    assert sum(map(len, map(rows_in, steps[:-2]))) > 20, "no results before the end"
    rows = [(flow["start_ts"], max(flow["ts"], flow["start_ts"] + 1), flow["protocol"], 0) for flow in flows]
    counted = [(start, end, values[:2]) for start, end, values in snapshots(rows)]
    counted.sort(key=lambda row: (-row[2][1], row[2][0]))
    expected = ranked_rows(counted, lambda values: values[1], limit=1)
    assert Counter(tuple(row) for items in steps for row in rows_in(items)) == expected
    total: Counter[tuple] = Counter()
    for items in RecordedRun(f"{sql} WITH CONSISTENCY (WAIT 20 s, REMEMBER 6 minutes) EMIT CHANGES", path).steps():
        for *row, weight, _ in rows_in(items):
            total[tuple(row)] += weight
    assert +total == expected


def test_ranks_and_the_first_of_them_are_one_query_and_a_row_may_be_true_for_ever() -> None:
    begin = pa.array([1, 2, 4, 6], pa.timestamp("ns"))
    finish = pa.array([None, 9, 5, 8], pa.timestamp("ns"))
    rows = pa.table({"begin": begin, "finish": finish, "host": ["a", "b", "c", "d"], "load": [1, 5, 9, 5]})
    sql = f"SELECT host, dense_rank() OVER (ORDER BY load DESC) * 10 AS r {LIFETIME} ORDER BY r, host DESC LIMIT 2"
    found = [
        tuple(getattr(value, "value", value) for value in row.values()) for row in wiretide.query(sql, rows).to_pylist()
    ]
    expected = [
        *((1, 2, "a", 10), (2, 4, "a", 20), (2, 4, "b", 10), (4, 5, "b", 20), (4, 5, "c", 10), (5, 6, "a", 20)),
        *((5, 9, "b", 10), (6, 8, "d", 10), (8, 9, "a", 20), (9, None, "a", 10)),
    ]
    assert sorted(found, key=str) == sorted(expected, key=str)
    read = f"SELECT host, max(r) AS r FROM ({sql}) [RANGE 100 s] WHERE r = 10 GROUP BY host"
    with_ends = rows.filter(pa.compute.is_valid(rows["finish"]))
    assert {row["host"] for row in wiretide.query(read, with_ends).to_pylist()} == {"b", "c", "d"}


REFUSED = [
    (f"host, load {LIFETIME}", "expected an aggregate like count(*), ORDER BY with LIMIT, rank() OVER"),
    (f"host, load {LIFETIME} ORDER BY load", "a window over rows without an aggregate"),
    (f"host, sum(load) OVER () AS s {LIFETIME}", "sum OVER together with LIFETIME; expected row_number, rank, dense_"),
    (f"host AS window_end, load {LIFETIME} ORDER BY load LIMIT 1", "a column called window_end; expected another"),
    (f"host, count(*) AS n {LIFETIME} GROUP BY host ORDER BY window_end LIMIT 1", "window_end in a query with ranks"),
    (f"host, window_start % 2 AS n {LIFETIME} GROUP BY host ORDER BY n LIMIT 1", "window_start in a query with ranks"),
    ("host, load FROM rows [LIFETIME begin TO finish, SLIDE 1 s] ORDER BY load LIMIT 1", "expected an aggregate like"),
    ("host FROM rows [LIFETIME begin TO load] ORDER BY load LIMIT 1", "LIFETIME of load, which is integer"),
    (f"host {LIFETIME} ORDER BY load LIMIT 1 WITH CONSISTENCY (EARLY 1 s) EMIT CHANGES", "EARLY of lifetimes"),
]


@pytest.mark.parametrize(("select", "message"), REFUSED)
def test_what_ranks_at_an_instant_cannot_have_is_refused_with_a_remedy(select: str, message: str) -> None:
    rows = table_of(random_rows(Random(1), 1))
    with pytest.raises(QueryError, match=re.escape(message)):
        wiretide.query(f"SELECT {select}", streams={"rows": rows}, schema=SCHEMA)


def test_the_plan_states_when_results_are_returned() -> None:
    sql = "SELECT srcIP, count(*) AS n FROM packets [LIFETIME 5 minutes] GROUP BY srcIP ORDER BY n DESC LIMIT 3"
    plan = compile_query(f"{sql} WITH CONSISTENCY (WAIT 2 s, REMEMBER 1 hour) EMIT CHANGES")
    text = explain(plan)
    assert "limit           3 rows at each instant" in text
    assert "a result is returned when the newest row begins 0 s after its end" in text
    assert "a row is used when the newest row begins 2 seconds later" in text
    assert plan.with_final_rows().root == compile_query(f"{sql} WITH CONSISTENCY (REMEMBER 1 hour)").root
