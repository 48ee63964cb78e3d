"""Joins of rows with lifetimes in SQL, and LIFETIME over rows that are withdrawn, compared with the definition.

Sessions and leases are logs with withdrawals in a random order of arrival. The reference compares each remaining
session with each remaining lease. The tests detect pairs of rows that only meet, pairs of withdrawn rows, changes that
do not add up, and a final row that changes later.
"""

import re
from collections import Counter
from itertools import pairwise
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

import wiretide
from highlevel.inline import table_files
from highlevel.metrics import LATE_ROWS
from queries.gsql import compile_query
from queries.plans.table_lookup import NamedQuery
from queries.text.errors import QueryError
from tests.conftest import Rounds
from tests.harness.recorded_runs import RecordedRun, rows_in
from tests.references.pcap_bytes import NS
from tests.references.written_exports import write_exports, write_long_flows

SCHEMA = """
PROTOCOL sessions { TIME since (banded_increasing(40 seconds)); TIME until; STRING ip; UINT bytes; STRING op; }
PROTOCOL leases { TIME since (banded_increasing(40 seconds)); TIME until; STRING ip; STRING host; STRING op; }
"""
START = 1_700_000_000

SESSIONS, LEASES = (f"{name} CHANGES BY op [LIFETIME since TO until]" for name in ("sessions", "leases"))
JOIN = f"FROM {SESSIONS} AS s JOIN {LEASES} AS l ON s.ip = l.ip"
ONE_SIDED = ("SEMI", "ANTI")
"""Kinds of joins whose results have only columns of the left item."""

PAIRS = f"SELECT window_start, window_end, s.ip, bytes, host {JOIN} AND (bytes > 20 OR host = 'h1')"
GROUPS = f"SELECT host, count(*) AS n, sum(bytes) AS b, count(DISTINCT s.ip) AS d {JOIN} GROUP BY host"

CLAUSES = [
    "EMIT CHANGES",
    "WITH CONSISTENCY (WAIT 10 seconds) EMIT CHANGES",
    "WITH CONSISTENCY (WAIT FOREVER) EMIT CHANGES",
]


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_files, "BATCH_ROWS", 16)


def log(random: Random, rows: int, values: list) -> pa.Table:
    """Rows of three minutes that arrive up to 10 s late; a third of them is withdrawn up to 20 s later."""
    changes = []
    for _ in range(rows):
        since = random.randrange(180)
        until = since + random.choice([0, 5, 30, random.randrange(1, 60)])
        row = (since, until, random.choice("abc"), random.choice(values))
        arrival = since + random.random() * 10
        changes.append((arrival, (*row, "+I")))
        if random.random() < 0.3:
            withdrawn = arrival + random.random() * 20
            changes.append((withdrawn, (*row, "-D")))
            if random.random() < 0.5:
                changes.append((withdrawn + 0.001, (*row[:1], until + 7, *row[2:], "+I")))
    since, until, ip, value, op = zip(*(row for _, row in sorted(changes)), strict=True)
    times = [pa.array([(START + each) * NS for each in column], pa.timestamp("ns", "UTC")) for column in (since, until)]
    name = "bytes" if isinstance(value[0], int) else "host"
    return pa.table({"since": times[0], "until": times[1], "ip": ip, name: value, "op": op})


def remaining(changes: pa.Table) -> list[tuple[int, int, str, object]]:
    """Return the rows that are left, as start, end (s; a lifetime of 0 is 1 ns), ip and value."""
    left: Counter[tuple] = Counter()
    for *row, op in zip(*(column.to_pylist() for column in changes.columns), strict=True):
        left[tuple(row)] += 1 if op == "+I" else -1
    rows = []
    for since, until, ip, value in left.elements():
        start, end = since.value, until.value
        rows.append((start, max(end, start + 1), ip, value))
    return rows


def pairs(sessions: pa.Table, leases: pa.Table) -> list[tuple[int, int, str, int, str]]:
    """Compare each remaining session with each remaining lease."""
    found = []
    for since, until, ip, size in remaining(sessions):
        for lease_since, lease_until, lease_ip, host in remaining(leases):
            start, end = max(since, lease_since), min(until, lease_until)
            if ip == lease_ip and start < end:
                found.append((start, end, ip, size, host))
    return found


def groups(rows: list[tuple[int, int, str, int, str]]) -> Counter[tuple]:
    found: Counter[tuple] = Counter()
    for host in {row[-1] for row in rows}:
        of_host = [row for row in rows if row[-1] == host]
        for start, end in pairwise(sorted({time for row in of_host for time in row[:2]})):
            true = [row for row in of_host if row[0] <= start and end <= row[1]]
            if true:
                found[start, end, host, len(true), sum(row[3] for row in true), len({row[2] for row in true})] += 1
    return found


def rows_of(answer: pa.Table) -> Counter[tuple]:
    """Return the rows of an answer, or the rows that its changes add up to."""
    found: Counter[tuple] = Counter()
    for row in answer.to_pylist():
        weight = row.pop("weight", 1)
        row.pop("final", None)
        found[tuple(getattr(value, "value", value) for value in row.values())] += weight
    assert min(found.values(), default=0) >= 0
    return +found


def test_pairs_and_groups_are_those_of_the_rows_that_remain(rounds: Rounds) -> None:
    for seed in rounds(4):
        random = Random(f"lifetime joins {seed}")
        tables = {"sessions": log(random, 60, [10, 20, 30]), "leases": log(random, 30, ["h1", "h2"])}
        expected = pairs(*tables.values())
        shown = Counter(row for row in expected if row[3] > 20 or row[4] == "h1")
        for clauses in ("", *random.sample(CLAUSES, 2)):
            answer = wiretide.query(f"{PAIRS} {clauses}", streams=tables, schema=SCHEMA)
            assert rows_of(answer) == shown, (seed, clauses)
            answer = wiretide.query(f"{GROUPS} {clauses}", streams=tables, schema=SCHEMA)
            assert rows_of(answer) == groups(expected), (seed, clauses)


def parts(lifetime: tuple[int, int], others: list[tuple[int, int]], *, has_match: bool) -> list[tuple[int, int]]:
    """Return the parts of a lifetime that are in another lifetime, or in none."""
    start, end = lifetime
    times = sorted({start, end, *(min(max(time, start), end) for bounds in others for time in bounds)})
    found = [(a, b) for a, b in pairwise(times) if any(first <= a and b <= last for first, last in others) == has_match]
    joined: list[tuple[int, int]] = []
    for first, last in found:
        if joined and joined[-1][1] == first:
            joined[-1] = (joined[-1][0], last)
        else:
            joined.append((first, last))
    return joined


def outer_rows(sessions: pa.Table, leases: pa.Table, kind: str) -> Counter[tuple]:
    """Return pairs with more than 20 bytes or h1 as `start, end, ip, bytes, host`, and parts of rows."""
    left, right = remaining(sessions), remaining(leases)
    found: Counter[tuple] = Counter()

    def match(one: tuple, other: tuple) -> bool:
        return one[2] == other[2] and (one[3] > 20 or other[3] == "h1")

    matching = [(one, other) for one in left for other in right if match(one, other)]
    for one, other in matching if kind not in ONE_SIDED else []:
        start, end = max(one[0], other[0]), min(one[1], other[1])
        if start < end:
            found[start, end, *one[2:], other[3]] += 1
    for row in left if kind != "RIGHT" else []:
        for part in parts(row[:2], [b[:2] for a, b in matching if a == row], has_match=kind == "SEMI"):
            found[(*part, *row[2:]) if kind in ONE_SIDED else (*part, *row[2:], None)] += 1
    for row in right if kind in ("RIGHT", "FULL") else []:
        for part in parts(row[:2], [a[:2] for a, b in matching if b == row], has_match=False):
            found[*part, None, None, row[3]] += 1
    return found


def outer(kind: str) -> str:
    columns = "s.ip, bytes" if kind in ONE_SIDED else "s.ip, bytes, host"
    return (
        f"SELECT window_start, window_end, {columns} FROM {SESSIONS} AS s {kind} JOIN {LEASES} AS l "
        "ON s.ip = l.ip AND (bytes > 20 OR host = 'h1')"
    )


@pytest.mark.parametrize("kind", ["LEFT", "RIGHT", "FULL", "SEMI", "ANTI"])
def test_rows_are_returned_while_they_have_a_match_or_none(kind: str, rounds: Rounds) -> None:
    for seed in rounds(2):
        random = Random(f"absences {seed}")
        tables = {"sessions": log(random, 60, [10, 20, 30]), "leases": log(random, 30, ["h1", "h2"])}
        expected = outer_rows(*tables.values(), kind)
        for clauses in ("", *CLAUSES):
            answer = wiretide.query(f"{outer(kind)} {clauses}", streams=tables, schema=SCHEMA)
            assert rows_of(answer) == expected, (seed, clauses)
            certain: set[tuple] = set()
            for *row, weight, final in (row.values() for row in answer.to_pylist() if clauses):
                assert weight > 0 or tuple(row) not in certain, "a row that is final was withdrawn"
                certain |= {tuple(row)} if final and weight > 0 else set()


def test_outer_joins_have_conditions_chains_and_groups() -> None:
    random = Random("chains")
    tables = {"sessions": log(random, 30, [10, 20]), "leases": log(random, 15, ["h1", "h2"])}
    sessions, leases = remaining(tables["sessions"]), remaining(tables["leases"])
    join = f"FROM {SESSIONS} AS s LEFT JOIN {LEASES} AS l ON s.ip = l.ip AND host = 'h1' AND bytes > 10"
    rows: Counter[tuple] = Counter()
    for row in sessions:
        partners = [lease for lease in leases if lease[2] == row[2] and lease[3] == "h1" and row[3] > 10]
        without = parts(row[:2], [each[:2] for each in partners], has_match=False)
        rows.update((*part, row[2], row[3], None) for part in without)
        for lease in partners:
            start, end = max(row[0], lease[0]), min(row[1], lease[1])
            if start < end:
                rows[start, end, row[2], row[3], "h1"] += 1
    sql = f"SELECT window_start, window_end, s.ip, bytes, host {join}"
    assert rows_of(wiretide.query(sql, streams=tables, schema=SCHEMA)) == rows
    none = Counter({row: count for row, count in rows.items() if row[4] is None})
    assert rows_of(wiretide.query(f"{sql} WHERE host IS NULL", streams=tables, schema=SCHEMA)) == none
    grouped = f"SELECT host, count(*) AS n, sum(bytes) AS b, count(DISTINCT s.ip) AS d {join} GROUP BY host"
    chained = f"{sql} JOIN {SESSIONS} AS t ON t.ip = s.ip AND t.bytes > s.bytes"
    expected: Counter[tuple] = Counter()
    for (start, end, ip, size, host), count in rows.items():
        for since, until, other_ip, other in sessions:
            first, last = max(start, since), min(end, until)
            if other_ip == ip and other > size and first < last:
                expected[first, last, ip, size, host] += count
    for clauses in ("", "EMIT CHANGES"):
        found = rows_of(wiretide.query(f"{grouped} {clauses}", streams=tables, schema=SCHEMA))
        assert found == groups([(start, end, ip, size, host) for start, end, ip, size, host in rows.elements()])
        answer = wiretide.query(
            f"{chained} {clauses}".replace(", bytes, host FROM", ", s.bytes, host FROM").replace(
                " bytes > 10", " s.bytes > 10"
            ),
            streams=tables,
            schema=SCHEMA,
        )
        assert rows_of(answer) == expected


ANSWERS = """
PROTOCOL requests { TIME ts (banded_increasing(20 seconds)); STRING ip; UINT number; }
PROTOCOL replies { TIME ts (banded_increasing(20 seconds)); STRING ip; }
"""


def test_a_request_is_without_reply_only_when_no_reply_can_arrive_before_its_deadline(rounds: Rounds) -> None:
    sql = (
        "SELECT window_end, ip, number FROM requests [LIFETIME 30 seconds] q ANTI JOIN replies [LIFETIME 1 ns] r "
        "ON q.ip = r.ip WHERE window_end - window_start = INTERVAL '30 seconds'"
    )
    for seed in rounds(3):
        random = Random(f"replies {seed}")
        sides = []
        for rows in (60, 25):
            arrivals = sorted((second + random.random() * 18, second) for second in random.choices(range(300), k=rows))
            sides.append([(second, random.choice("abc")) for _, second in arrivals])
        requests, replies = sides
        expected = {
            ((START + second + 30) * NS, ip, number)
            for number, (second, ip) in enumerate(requests)
            if not any(other == ip and second <= at < second + 30 for at, other in replies)
        }
        tables = {}
        for name, rows in (("requests", requests), ("replies", replies)):
            times = pa.array([(START + second) * NS for second, _ in rows], pa.timestamp("ns", "UTC"))
            tables[name] = pa.table({"ts": times, "ip": [ip for _, ip in rows]})
        tables["requests"] = tables["requests"].append_column("number", pa.array(range(len(requests))))
        assert expected
        for clauses in ("", *CLAUSES):
            answer = wiretide.query(f"{sql} {clauses}", streams=tables, schema=ANSWERS)
            assert rows_of(answer) == Counter(expected), (seed, clauses)
            final = {
                tuple(getattr(value, "value", value) for value in row.values())[:3]
                for row in answer.to_pylist()
                if row.get("final", True)
            }
            assert final <= expected, (seed, clauses)


def test_no_pair_and_no_group_changes_after_it_is_final() -> None:
    random = Random("final pairs")
    tables = {"sessions": log(random, 90, [10, 20, 30]), "leases": log(random, 40, ["h1", "h2"])}
    for sql in (PAIRS, GROUPS):
        answer = wiretide.query(f"{sql} WITH CONSISTENCY (WAIT FOREVER) EMIT CHANGES", streams=tables, schema=SCHEMA)
        assert min(answer["weight"].to_pylist()) > 0, "a row that is certain was withdrawn"
        early = wiretide.query(f"{sql} EMIT CHANGES", streams=tables, schema=SCHEMA).to_pylist()
        assert min(row["weight"] for row in early) < 0, "nothing was corrected"
        certain: set[tuple] = set()
        for *row, weight, final in (row.values() for row in early):
            assert weight > 0 or tuple(row) not in certain, "a row that is final was withdrawn"
            certain |= {tuple(row)} if final and weight > 0 else set()
        assert certain or sql is PAIRS


def test_three_items_and_conditions_on_the_bounds() -> None:
    random = Random("three items")
    tables = {"sessions": log(random, 40, [10, 20]), "leases": log(random, 20, ["h1", "h2"])}
    sql = (
        f"SELECT window_start, window_end, s.bytes, l.host, t.bytes AS other {JOIN} "
        f"JOIN {SESSIONS} AS t ON t.ip = l.ip AND t.bytes > s.bytes "
        "WHERE window_end - window_start >= INTERVAL '5 s'"
    )
    sessions = remaining(tables["sessions"])
    expected: Counter[tuple] = Counter()
    for start, end, ip, size, host in pairs(*tables.values()):
        for since, until, other_ip, other in sessions:
            first, last = max(start, since), min(end, until)
            if other_ip == ip and other > size and last - first >= 5 * NS:
                expected[first, last, size, host, other] += 1
    assert rows_of(wiretide.query(sql, streams=tables, schema=SCHEMA)) == expected
    assert rows_of(wiretide.query(f"{sql} EMIT CHANGES", streams=tables, schema=SCHEMA)) == expected
    assert expected


def test_a_join_of_lifetimes_can_be_read_in_windows(tmp_path: Path) -> None:
    path = tmp_path / "exports.pcap"
    flows = write_exports(path, Random(5), 40)
    both = "flows [LIFETIME start_ts TO end_ts] a JOIN flows [LIFETIME start_ts TO end_ts] b ON a.protocol = b.protocol"
    sql = (
        f"SELECT count(*) AS n [LIFETIME window_start TO window_end, SLIDE 1 minute] FROM {both} AND a.bytes < b.bytes"
    )
    expected: Counter[int] = Counter()
    for one in flows:
        for other in flows:
            start = max(one["start_ts"], other["start_ts"])
            end = min(max(each["ts"], each["start_ts"] + 1) for each in (one, other))
            if one["protocol"] == other["protocol"] and one["bytes"] < other["bytes"] and start < end:
                for minute in range(start // (60 * NS), (end - 1) // (60 * NS) + 1):
                    expected[minute] += 1
    for clauses in ("", "WITH CONSISTENCY (WAIT 5 seconds, REMEMBER 10 minutes) EMIT CHANGES"):
        total: Counter[tuple] = Counter()
        for items in RecordedRun(f"{sql} {clauses}", path).steps():
            for start, _, n, *weight in rows_in(items):
                total[start // (60 * NS), n] += weight[0] if weight else 1
        assert +total == Counter(dict.fromkeys(expected.items(), 1)), clauses


def test_merged_flows_are_counted_while_they_are_open(tmp_path: Path) -> None:
    path = tmp_path / "exports.pcap"
    write_long_flows(path, Random(11), 40)
    flows = "flows MERGE WITHIN 2 minutes [LIFETIME start_ts TO end_ts]"
    sql = f"SELECT protocol, count(*) AS n, sum(packets) AS p FROM {flows} GROUP BY protocol"
    exact = Counter(row for items in RecordedRun(sql, path).steps() for row in rows_in(items))
    for clauses in ("", "WITH CONSISTENCY (WAIT 30 seconds, REMEMBER 1 hour)"):
        total: Counter[tuple] = Counter()
        corrections = 0
        for items in RecordedRun(f"{sql} {clauses} EMIT CHANGES", path).steps():
            for *row, weight, _ in rows_in(items):
                total[tuple(row)] += weight
                corrections += weight < 0
        assert +total == exact, clauses
        assert corrections


def test_rows_that_begin_too_early_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "exports.pcap"
    write_exports(path, Random(6), 60)
    both = "flows [LIFETIME start_ts TO end_ts] a JOIN flows [LIFETIME start_ts TO end_ts] b ON a.protocol = b.protocol"
    run = RecordedRun(f"SELECT count(*) AS n FROM {both} WITH CONSISTENCY (REMEMBER 30 seconds)", path).run()
    assert list(run.results())
    assert run.samples().total(LATE_ROWS) > 0


REFUSED = [
    ("JOIN", "leases", "a join with lifetimes and l, which has none; expected [LIFETIME start TO end]"),
    ("JOIN", "leases [RANGE 5 s]", "a join with lifetimes and l, which has none; expected [LIFETIME start TO end]"),
    ("JOIN", "leases [LIFETIME since TO host]", "LIFETIME of host, which is text; expected a column of times"),
    ("JOIN", "leases [LIFETIME since TO untill]", "unknown column 'untill' of l"),
    ("JOIN", "leases [LIFETIME 5 s, SLIDE 1 s]", "SLIDE in an item of a join; expected SLIDE in the query with groups"),
    ("JOIN", "leases [LIFETIME 5 s, WA host]", "LIFETIME of l over 'host'; expected a time of its rows"),
]


@pytest.mark.parametrize(("join", "item", "message"), REFUSED)
def test_what_a_join_of_lifetimes_cannot_have_is_refused_with_a_remedy(join: str, item: str, message: str) -> None:
    sql = f"SELECT s.ip FROM sessions [LIFETIME since TO until] s {join} {item} l ON s.ip = l.ip"
    table = log(Random(1), 3, [1])
    with pytest.raises(QueryError, match=re.escape(message)):
        wiretide.query(sql, streams={"sessions": table, "leases": log(Random(1), 3, ["h"])}, schema=SCHEMA)


def test_the_bounds_need_a_name_of_their_own_and_wait_for_remember() -> None:
    flows = "flows [LIFETIME start_ts TO end_ts]"
    sql = f"SELECT window_start, a.bytes FROM {flows} a JOIN {flows} b ON a.srcIP = b.srcIP"
    assert compile_query(sql).waiting_reason == "reads lifetimes without REMEMBER"
    remembering = compile_query(f"{sql} WITH CONSISTENCY (REMEMBER 1 hour)")
    assert remembering.waiting_reason is None
    assert remembering.root.time_columns == ("window_start",)
    reader = "SELECT count(*) AS n FROM pairs [RANGE 1 minute]"
    plan = compile_query(reader, queries={"pairs": NamedQuery(sql)})
    assert [type(node).__name__ for node in plan.nodes][-3:] == ["OverlapJoin", "Apply", "Windowed"]
