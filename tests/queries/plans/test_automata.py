"""AUTOMATON and CREATE AUTOMATON: hand-checked answers, all orders of arrival, and wrong clauses.

Finds: an arc that reads the register after its own change, a run that survives its window or a gap of numbers, a
deadline that is reported although a row has come, a result that a late row does not correct, and a wrong clause that
is accepted, or refused without the remedy.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import wiretide
from highlevel.inline import table_files
from highlevel.plan.automaton_nodes import RUN_STATE
from highlevel.plan.operators import rows_of_runs
from queries.gsql import compile_query
from queries.query_text import query_text
from queries.text.errors import QueryError
from queries.text.parser import parse_query
from tests.references.query_printer import query_text as printed

SCHEMA = """
PROTOCOL ticks { TIME ts (banded_increasing(100)); STRING host; STRING kind; LLONG price; TIME until; ULLONG seq; }
"""

Row = tuple[int, str, str, int, int, int]


def frame(rows: list[Row]) -> pa.Table:
    """Return rows with times in seconds."""
    columns = list(zip(*rows, strict=True))
    times = [
        pa.array([None if each is None else each * 10**9 for each in columns[at]], pa.timestamp("ns")) for at in (0, 4)
    ]
    return pa.table({
        "ts": times[0],
        "host": pa.array(columns[1], pa.string()),
        "kind": pa.array(columns[2], pa.string()),
        "price": pa.array(columns[3], pa.int64()),
        "until": times[1],
        "seq": pa.array(columns[5], pa.int64()),
    })  # fmt: skip


def ticks(kinds: str, host: str = "a", start: int = 1) -> list[Row]:
    """Return a row for each letter of `kinds`, a second apart. Blanks are seconds without a row."""
    return [
        (start + second, host, kind, second, 100 + second, 1 + second)
        for second, kind in enumerate(kinds)
        if kind != " "
    ]


def answer(clauses: str, rows: list[Row], after: str = "", select: str = "*") -> list[tuple[Any, ...]]:
    """Return the rows of a query, times in seconds."""
    result = wiretide.query(f"SELECT {select} FROM ticks AUTOMATON ({clauses}){after}", frame(rows), schema=SCHEMA)
    columns = [
        [None if value is None else value.value // 10**9 for value in column.to_pylist()]
        if pa.types.is_timestamp(column.type)
        else column.to_pylist()
        for column in result.columns
    ]
    return sorted(zip(*columns, strict=True), key=repr)


COUNT = """ORDER BY ts REGISTER n INT DEFAULT 0 START idle FINAL done
    ARC idle TO busy WHEN kind = 'a' SET n = 1
    ARC busy TO busy WHEN kind = 'a' SET n = n + 1
    ARC busy TO done WHEN kind = 'b' AND n >= 2"""

UNANSWERED = """PARTITION BY host ORDER BY ts REGISTER asked TIME START idle FINAL missing
    ARC idle TO waiting WHEN kind = 'q' SET asked = ts
    ARC waiting TO waiting WHEN kind <> 'r'
    ARC waiting TO missing AT asked + INTERVAL '3 seconds' WITHIN 10 seconds"""

PROBES = """ORDER BY ts REGISTER one INT, other INT DEFAULT 7 START s FINAL e
    ARC s TO e WHEN kind = 'a' SET one = other, other = price"""

CASES: dict[str, tuple[str, list[Row], list[tuple[Any, ...]]]] = {
    "a run for each first row, and the register of each": (COUNT, ticks("aaab"), [(1, 4, 3), (2, 4, 2)]),
    "a row that fits no arc ends the run": (COUNT, ticks("aaxab"), []),
    "values are those before the arc": (PROBES, ticks("a"), [(1, 1, 7, 0)]),
    "within: less than this after the first row": (
        COUNT + " WITHIN 3 seconds",
        ticks("aaab"),
        [(2, 4, 2)],
    ),
    "partitions have runs of their own": (
        COUNT.replace("ORDER", "PARTITION BY host ORDER", 1),
        ticks("a a b") + ticks(" a a b", "b"),
        [("a", 1, 5, 2), ("b", 2, 6, 2)],
    ),
    "no answer in time": (UNANSWERED, ticks("q"), [("a", 1, 4, 1)]),
    "an answer in time": (UNANSWERED, ticks("qxr"), []),
    "an answer at the deadline is too late": (UNANSWERED, ticks("q  r"), [("a", 1, 4, 1)]),
    "other rows do not move the deadline": (UNANSWERED, ticks("qxxxxr"), [("a", 1, 4, 1)]),
    "two questions": (UNANSWERED, ticks("qq"), [("a", 1, 4, 1), ("a", 2, 5, 2)]),
    "a deadline that may be in the past": (
        UNANSWERED.replace("asked = ts", "asked = until").replace("10 seconds", "2 seconds").replace("+", "-"),
        [(4, "a", "q", 0, 8, 1), (20, "a", "q", 0, 25, 2)],
        [("a", 4, 5, 8)],
    ),
    "a gap of numbers ends a run": (
        COUNT.replace("ORDER BY ts", "ORDER BY ts NUMBERED BY seq"),
        ticks("aa b"),
        [],
    ),
    "rows without a number continue no run": (
        "ORDER BY ts NUMBERED BY seq START s FINAL e ARC s TO m ARC m TO e",
        [(time, "a", "a", 0, 9, number) for time, number in enumerate((None, 0, 1, None, None), 1)],
        [(2, 3)],
    ),
    "numbers without a gap": (
        COUNT.replace("ORDER BY ts", "ORDER BY ts NUMBERED BY seq"),
        ticks("aab"),
        [(1, 3, 2)],
    ),
    "a result is true while all rows are": (
        "ORDER BY ts LIFETIME TO until START s FINAL e ARC s TO m WHEN kind = 'a' ARC m TO e WHEN kind = 'b'",
        [(1, "a", "a", 0, 9, 1), (2, "a", "b", 0, 50, 2), (3, "a", "a", 0, 50, 3), (4, "a", "b", 0, 8, 4)],
        [(1, 2, 9), (3, 4, 8)],
    ),
    "a row that has ended continues no run": (
        "ORDER BY ts LIFETIME TO until START s FINAL e ARC s TO m WHEN kind = 'a' ARC m TO e WHEN kind = 'b'",
        [(1, "a", "a", 0, 2, 1), (2, "a", "b", 0, 50, 2)],
        [],
    ),
    "a silent arc consumes no row": (
        """ORDER BY ts REGISTER n INT DEFAULT 0 START s FINAL e
        ARC s TO s WHEN kind = 'a' SET n = n + 1 SILENT ARC s TO e WHEN n = 2""",
        ticks("aaa"),
        [(1, 2, 2), (2, 3, 2)],
    ),
    "fields with a default and fields that SET makes NULL, of each type": (
        """ORDER BY ts REGISTER a IP DEFAULT '10.0.0.5', b IPV6 DEFAULT '::5', c MAC DEFAULT '00:00:00:00:00:05',
        d TIME DEFAULT '1970-01-01T00:00:05Z', f FLOAT DEFAULT 5, g BOOL DEFAULT TRUE, h STRING DEFAULT 'x',
        i INT DEFAULT NULL, j USHORT DEFAULT 5
        START s FINAL e ARC s TO e WHEN kind = 'a' AND a = '10.0.0.5' AND b = '::5' AND h = 'x'
        ARC s TO e WHEN kind = 'b' AND c = '00:00:00:00:00:05'
        SET a = NULL, b = NULL, c = NULL, d = NULL, f = NULL, g = NULL, h = NULL, i = NULL, j = NULL""",
        ticks("ab"),
        [
            (1, 1, "10.0.0.5", "::5", "00:00:00:00:00:05", 5, 5.0, True, "x", None, 5),
            (2, 2, *[None] * 9),
        ],
    ),
    "two final states and texts in the register": (
        """ORDER BY ts REGISTER seen STRING START s FINAL e, f
        ARC s TO e WHEN kind = 'a' SET seen = 'one' ARC s TO f WHEN kind = 'b' SET seen = kind""",
        ticks("ab"),
        [(1, 1, "one"), (2, 2, "b")],
    ),
    "arcs with times apply to rows of these times": (
        """ORDER BY ts REGISTER n INT START s FINAL e
        ARC s TO e WHEN kind = 'a' SET n = 1 TO TIMESTAMP '1970-01-01T00:00:03Z'
        ARC s TO e WHEN kind = 'a' SET n = 2 FROM '1970-01-01T00:00:02Z' TO '1970-01-01T00:00:04Z'""",
        ticks("aaaa"),
        [(1, 1, 1), (2, 2, 1), (2, 2, 2), (3, 3, 2)],
    ),
    "equal results of two rows are two rows": (
        "ORDER BY ts START s FINAL e ARC s TO e WHEN kind = 'a'",
        [(1, "a", "a", 0, 9, 1), (1, "a", "a", 0, 9, 1)],
        [(1, 1), (1, 1)],
    ),
    "equal results of two ways are one row": (
        "ORDER BY ts START s FINAL e, f ARC s TO e WHEN kind = 'a' ARC s TO f WHEN kind = 'a'",
        ticks("a"),
        [(1, 1)],
    ),
}


OUTSIDE = "ignore:ARC … AT did not apply to 1 run:RuntimeWarning"


@pytest.mark.filterwarnings(OUTSIDE)
@pytest.mark.parametrize("name", CASES)
def test_the_answer_is_the_hand_checked_one(name: str) -> None:
    clauses, rows, expected = CASES[name]
    assert answer(clauses, rows) == expected


@pytest.mark.filterwarnings(OUTSIDE)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("wait", ["0", "2 seconds", "FOREVER"])
def test_changes_add_up_to_the_answer_in_every_order(name: str, wait: str) -> None:
    clauses, rows, expected = CASES[name]
    shuffled = random.Random(f"{name} {wait}").sample(rows, len(rows))
    after = f" WITH CONSISTENCY (WAIT {wait}, REMEMBER FOREVER) EMIT CHANGES"
    total: Counter[tuple[Any, ...]] = Counter()
    for *row, weight, _ in answer(clauses, shuffled, after):
        total[tuple(row)] += weight
    assert +total == Counter(expected)
    assert not -total


COUNT_ROWS = COUNT.replace("START", "ALL ROWS PER MATCH START")

ALL_ROWS: dict[str, tuple[str, list[Row], list[tuple[int, int, int, str]]]] = {
    "each result has its rows": (
        COUNT_ROWS,
        ticks("aaab"),
        [
            *((1, 4, second, "busy") for second in (1, 2, 3)),
            (1, 4, 4, "done"),
            *((2, 4, second, "busy") for second in (2, 3)),
            (2, 4, 4, "done"),
        ],
    ),
    "a row that changes nothing is left out": (
        """ORDER BY ts ALL ROWS PER MATCH START s FINAL e
        ARC s TO open WHEN kind = 'a' ARC open TO open WHEN kind = 'x' ARC open TO e WHEN kind = 'b'""",
        ticks("axxb"),
        [(1, 4, 1, "open"), (1, 4, 4, "e")],
    ),
    "the first and the last row are returned": (
        "ORDER BY ts ALL ROWS PER MATCH START s FINAL s ARC s TO s WHEN kind = 'a'",
        ticks("aaa"),
        [(1, 1, 1, "s"), (1, 2, 1, "s"), (1, 2, 2, "s"), (1, 3, 1, "s"), (1, 3, 3, "s"), (2, 2, 2, "s"),
         (2, 3, 2, "s"), (2, 3, 3, "s"), (3, 3, 3, "s")],
    ),
    "the rows of all derivations, once for each state": (
        """ORDER BY ts ALL ROWS PER MATCH START s FINAL e ARC s TO x WHEN kind = 'a' ARC s TO y WHEN kind = 'a'
        ARC x TO x WHEN kind = 'c' ARC y TO x WHEN kind = 'c' ARC x TO e WHEN kind = 'b'""",
        ticks("acb"),
        [(1, 3, 1, "x"), (1, 3, 1, "y"), (1, 3, 2, "x"), (1, 3, 3, "e")],
    ),
    "a silent arc has no row": (
        """ORDER BY ts REGISTER n INT DEFAULT 0 ALL ROWS PER MATCH START s FINAL e
        ARC s TO s WHEN kind = 'a' SET n = n + 1 SILENT ARC s TO e WHEN n = 2""",
        ticks("aa"),
        [(1, 2, 1, "s"), (1, 2, 2, "s")],
    ),
    "partitions and numbers": (
        "PARTITION BY host ORDER BY ts NUMBERED BY seq ALL ROWS PER MATCH START s FINAL e ARC s TO m ARC m TO e",
        ticks("aa a") + ticks(" bb", "b"),
        [(1, 2, 1, "m"), (1, 2, 2, "e"), (2, 3, 2, "m"), (2, 3, 3, "e")],
    ),
    "the time of AT has no row": (
        UNANSWERED.replace("START", "ALL ROWS PER MATCH START"),
        ticks("qxx"),
        [(1, 4, 1, "waiting")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ALL_ROWS)
def test_the_rows_of_results_are_the_hand_checked_ones(name: str) -> None:
    clauses, rows, expected = ALL_ROWS[name]
    shuffled = random.Random(name).sample(rows, len(rows))
    assert answer(clauses, shuffled, select="match_start, match_end, ts, state") == sorted(expected, key=repr)


@pytest.mark.parametrize("name", [name for name, (clauses, *_) in ALL_ROWS.items() if " AT " not in clauses])
def test_changes_of_the_rows_of_results_add_up_in_every_order(name: str) -> None:
    clauses, rows, expected = ALL_ROWS[name]
    shuffled = random.Random(f"changes {name}").sample(rows, len(rows))
    after = " WITH CONSISTENCY (WAIT 0, REMEMBER FOREVER) EMIT CHANGES"
    total: Counter[tuple[Any, ...]] = Counter()
    for *row, weight, _ in answer(clauses, shuffled, after, "match_start, match_end, ts, state"):
        total[tuple(row)] += weight
    assert +total == Counter(expected)
    assert not -total


def test_a_late_row_of_another_derivation_of_a_result_is_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_files, "BATCH_ROWS", 1)
    clauses = """ORDER BY ts ALL ROWS PER MATCH START s FINAL e ARC s TO m WHEN kind = 'a'
        ARC m TO m WHEN kind = 'x' ARC m TO n WHEN kind = 'x' ARC m TO e WHEN kind = 'b' ARC n TO e WHEN kind = 'b'"""
    rows = ticks("axb")
    changes = answer(clauses, [rows[0], rows[2], rows[1]], " EMIT CHANGES", "ts, state")
    assert changes == [(1, "m", 1, False), (2, "n", 1, False), (3, "e", 1, False)]


def test_the_columns_of_all_rows_are_those_of_the_result_and_of_the_row() -> None:
    clauses = COUNT_ROWS.replace("ORDER", "PARTITION BY host ORDER", 1).replace("REGISTER", "REGISTER state STRING,")
    sql = f"SELECT * FROM ticks AUTOMATON ({clauses}) WHERE price > 0 AND n = 2 AND run_state <> 'done'"
    table = wiretide.query(sql, frame(ticks("aaab")), schema=SCHEMA)
    names = "host ts match_start match_end state n run_state kind price until seq"
    assert table.column_names == names.split()
    assert table.select(["n", "run_state", "price"]).to_pylist() == [
        {"n": 2, "run_state": "busy", "price": 1},
        {"n": 2, "run_state": "busy", "price": 2},
    ]


def test_all_rows_of_runs_over_results_need_another_name_of_their_time() -> None:
    results = f"SELECT {{time}}, n FROM ticks AUTOMATON ({COUNT})"
    sql = """SELECT match_end, {order}, n FROM ({results}) AUTOMATON (
        ORDER BY {order} ALL ROWS PER MATCH START s FINAL e ARC s TO m WHEN n = 3 ARC m TO e)"""
    rows = frame(ticks("aaabaab"))
    renamed = sql.format(results=results.format(time="match_end AS at"), order="at")
    found = wiretide.query(renamed, rows, schema=SCHEMA).to_pylist()
    seconds = [(row["match_end"].value // 10**9, row["at"].value // 10**9, row["n"]) for row in found]
    assert sorted(seconds) == [(7, 4, 3), (7, 7, 2)]
    with pytest.raises(QueryError, match=r"ORDER BY match_end and ALL ROWS PER MATCH: .* expected another name"):
        wiretide.query(sql.format(results=results.format(time="match_end"), order="match_end"), rows, schema=SCHEMA)


def test_a_column_of_all_rows_may_have_the_internal_name_of_the_state() -> None:
    sql = f"""SELECT state, "{RUN_STATE}" FROM (SELECT ts, price AS "{RUN_STATE}" FROM ticks) AUTOMATON (
        ORDER BY ts ALL ROWS PER MATCH START s FINAL e ARC s TO m WHEN "{RUN_STATE}" = 0 ARC m TO e)"""
    rows = wiretide.query(sql, frame(ticks("ab")), schema=SCHEMA).to_pylist()
    assert sorted(tuple(row.values()) for row in rows) == [("e", 1), ("m", 0)]


def test_rows_that_no_open_run_contains_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_of_runs, "MIN_ROOM", 10)
    monkeypatch.setattr(table_files, "BATCH_ROWS", 5)
    kept: list[int] = []
    forget = rows_of_runs.RowsAndTracedRuns._forget

    def count(runs: rows_of_runs.RowsAndTracedRuns) -> None:
        forget(runs)
        kept.append(runs.num_rows)

    monkeypatch.setattr(rows_of_runs.RowsAndTracedRuns, "_forget", count)
    clauses = COUNT_ROWS.replace("ORDER", "PARTITION BY host ORDER", 1)
    rows = [(second, host, kind, second, 9, 1) for second, kind in enumerate("xx" * 100 + "aab") for host in "ab"]
    schema = SCHEMA.replace("banded_increasing(100)", "increasing")
    sql = f"SELECT host, match_start, ts FROM ticks AUTOMATON ({clauses})"
    table = wiretide.query(sql, frame(rows), schema=schema)
    assert Counter(table["host"].to_pylist()) == {"a": 3, "b": 3}
    assert max(kept) < 60


def test_a_deadline_that_WITHIN_excludes_is_reported() -> None:
    """The row at 4 asks for 5, that at 20 for 22, where its run ends."""
    clauses, rows, expected = CASES["a deadline that may be in the past"]
    with pytest.warns(RuntimeWarning, match="AT did not apply to 1 run, because the time after AT was not before the"):
        assert answer(clauses, rows) == expected


def test_A18_the_rows_of_a_match_are_those_whose_lifetimes_contain_the_result() -> None:
    rows = ticks("".join(random.Random(18).choices("ab", k=60)))
    query = (
        "SELECT {0} FROM ticks MATCH_RECOGNIZE (ORDER BY ts {1} PATTERN (A B+) DEFINE A AS kind = 'a', B AS kind = 'b')"
    )
    every = wiretide.query(
        query.format("number, ts", "MEASURES match_number() AS number ALL ROWS PER MATCH"), frame(rows), schema=SCHEMA
    ).to_pylist()
    one = wiretide.query(
        query.format("*", "MEASURES match_number() AS number, first(ts) AS begun, last(ts) AS ended ONE ROW PER MATCH"),
        frame(rows),
        schema=SCHEMA,
    ).to_pylist()
    times = [row[0] for row in rows]
    assert len(one) > 8
    for match in one:
        begin, end = (match[name].value // 10**9 for name in ("begun", "ended"))
        found = [row["ts"].value // 10**9 for row in every if row["number"] == match["number"]]
        assert found == [time for time in times if begin <= time <= end]


def test_a_withdrawn_row_withdraws_the_results_over_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_files, "BATCH_ROWS", 1)
    rows = ticks("aab")
    schema = SCHEMA.replace("ULLONG seq", "LLONG seq")
    table = frame([(*row[:5], 1) for row in rows] + [(*rows[1][:5], -1)])
    sql = f"SELECT * FROM (SELECT * FROM ticks CHANGES BY seq) AUTOMATON ({COUNT}) EMIT CHANGES"
    found = wiretide.query(sql, table, schema=schema).to_pylist()
    assert [(row["match_start"].value // 10**9, row["n"], row["weight"]) for row in found] == [(1, 2, 1), (1, 2, -1)]
    assert wiretide.query(sql.removesuffix(" EMIT CHANGES"), table, schema=schema).num_rows == 0


CREATE = f"CREATE AUTOMATON counted ON ticks ({COUNT});\n"


def test_a_created_automaton_is_a_table() -> None:
    sql = CREATE + "SELECT n, count(*) AS runs FROM counted GROUP BY n"
    found = wiretide.query(sql, frame(ticks("aaab")), schema=SCHEMA).to_pylist()
    assert sorted((row["n"], row["runs"]) for row in found) == [(2, 1), (3, 1)]


def test_a_condition_may_have_thousands_of_parts() -> None:
    parts = " AND ".join(f"srcPort <> {port}" for port in range(1000, 3000))
    arcs = f"START a FINAL b ARC a TO b WHEN {parts}"
    compile_query(f"SELECT match_end FROM packets AUTOMATON (ORDER BY ts {arcs} WITHIN 10 seconds)", "q")
    pattern = f"PATTERN (A B) DEFINE A AS {parts}"
    compile_query(f"SELECT t FROM packets MATCH_RECOGNIZE (ORDER BY ts MEASURES A.ts AS t {pattern})", "q")


def test_created_automata_may_read_each_other_and_queries_with_a_name() -> None:
    sql = (
        "DEFINE { query_name 'letters'; } SELECT ts, kind FROM ticks WHERE kind <> 'x';\n"
        f"{CREATE.replace('ON ticks', 'ON letters')}"
        "CREATE AUTOMATON twice ON counted (ORDER BY match_end START s FINAL e ARC s TO m ARC m TO e);\n"
        "SELECT * FROM twice"
    )
    table = frame(ticks("aaxb aaxb"))
    found = wiretide.query(sql, table, schema=SCHEMA).to_pylist()
    assert [(row["match_start"].value // 10**9, row["match_end"].value // 10**9) for row in found] == [(4, 9)]


def test_a_condition_on_the_partition_selects_rows_and_other_conditions_select_results() -> None:
    clauses = COUNT.replace("ORDER", "PARTITION BY host ORDER", 1)
    rows = ticks("aaab") + ticks("aab", "b")
    assert answer(clauses, rows, " WHERE host = 'a' AND n > 2") == [("a", 1, 4, 3)]


WRONG = {
    "no state": ("ORDER BY ts START FINAL e ARC s TO e", "FINAL"),
    "an unknown final state": ("ORDER BY ts START s FINAL z ARC s TO e", "expected a state of an arc"),
    "an unknown column": (COUNT.replace("kind = 'a'", "sort = 'a'", 1), "unknown column 'sort'"),
    "an unknown field": (COUNT.replace("SET n = 1", "SET m = 1"), "SET m; expected a field of REGISTER"),
    "no register": ("ORDER BY ts START s FINAL e ARC s TO e SET m = 1", "expected REGISTER with this field"),
    "a field with the name of a column": (COUNT.replace("n INT", "price INT"), "a field 'price'"),
    "a field with the name of a time": (COUNT.replace("n INT", "match_end INT"), "a field 'match_end'"),
    "an unknown type": (COUNT.replace("n INT", "n INTEGERS"), "got 'INTEGERS' as the type of n"),
    "a value of another type": (COUNT.replace("SET n = 1", "SET n = kind"), "SET n to a value of type text"),
    "a default of another type": (COUNT.replace("DEFAULT 0", "DEFAULT 'a'"), "DEFAULT of n to a value of type text"),
    "a condition that is none": (COUNT.replace("WHEN kind = 'b' AND n >= 2", "WHEN n"), "WHEN with a value of type"),
    "a column in a silent arc": (
        "ORDER BY ts START s FINAL e ARC s TO e SILENT ARC e TO s WHEN price > 2",
        "SILENT ARC with the column price",
    ),
    "a deadline over a row": (UNANSWERED.replace("AT asked", "AT ts"), "AT with the column ts"),
    "a deadline that is no time": (UNANSWERED.replace("AT asked + INTERVAL '3 seconds'", "AT 3"), "AT a value of type"),
    "a deadline with SET": (
        UNANSWERED.replace("'3 seconds'", "'3 seconds' SET asked = NULL"),
        "SET after AT; expected only a time",
    ),
    "a deadline that does not end the run": (
        UNANSWERED.replace("WITHIN", "ARC missing TO waiting WITHIN"),
        "expected a final state that no arc leaves",
    ),
    "another time": (COUNT.replace("ORDER BY ts", "ORDER BY price"), "ORDER BY price in AUTOMATON"),
    "numbers that are texts": (
        COUNT.replace("ORDER BY ts", "ORDER BY ts NUMBERED BY kind"),
        "NUMBERED BY kind of type",
    ),
    "an end that is no time": (COUNT.replace("ORDER BY ts", "ORDER BY ts LIFETIME TO price"), "LIFETIME TO price of"),
    "an endless silent cycle": (
        "ORDER BY ts REGISTER n INT DEFAULT 0 START s FINAL s SILENT ARC s TO s SET n = n + 1",
        "cycle of silent arcs",
    ),
    "a function of the register": (COUNT.replace("n >= 2", "n & 1 = 1"), "over earlier rows"),
    "twice the same field": (COUNT.replace("SET n = 1", "SET n = 1, n = 2"), "n is set twice"),
    "an unknown column in PARTITION BY": (COUNT.replace("ORDER", "PARTITION BY x ORDER", 1), "unknown column 'x'"),
    "no arc": ("ORDER BY ts START s FINAL s", "expected ARC and two states"),
    "a window without a length": (COUNT + " WITHIN", "WITHIN"),
    "a misspelt start": ("ORDER BY ts START idel FINAL f ARC idle TO f", "the start state 'idel'"),
    "a misspelt source": (
        COUNT.replace("ARC busy TO done", "ARC bsy TO done"),
        "an arc from 'bsy', which no run reaches",
    ),
    "a deadline that WITHIN excludes": (
        UNANSWERED.replace("10 seconds", "3 seconds"),
        "AT 3 seconds after asked, and WITHIN 3 seconds",
    ),
    "a part of ALL ROWS": (COUNT.replace("START", "ALL ROWS START"), "got 'ALL'"),
    "all rows with the rules of MATCH_RECOGNIZE": (
        COUNT_ROWS.replace("MATCH", "MATCH OMIT EMPTY MATCHES"),
        "got 'OMIT'",
    ),
    "a set of values of the register": (
        COUNT.replace("n >= 2", "n IN (2, 3)"),
        "line 4, column 9: IN over earlier rows",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_automaton_is_refused_with_the_place_and_the_remedy(name: str) -> None:
    clauses, text = WRONG[name]
    with pytest.raises(QueryError, match="expected") as error:
        answer(clauses, ticks("ab"))
    assert text in str(error.value)


FOLLOWED = """SELECT match_start, match_end, n FROM (SELECT ts, kind, price FROM ticks) AUTOMATON (ORDER BY ts
    REGISTER n INT DEFAULT 0 START idle FINAL done ARC idle TO busy WHEN kind = 'a' SET n = price ARCS FROM '{0}')"""


def followed(folder: Path, text: str) -> str:
    """Return a query whose file of arcs has this text."""
    (folder / "rules.arcs").write_text(text)
    return FOLLOWED.format(folder / "rules.arcs")


def test_A08_arcs_of_a_file_are_those_of_the_automaton(tmp_path: Path) -> None:
    text = "-- two arcs\nARC busy TO more WHEN kind = 'b' SET n = n + 10;\n\nARC MORE TO done WHEN kind = 'c'"
    found = wiretide.query(followed(tmp_path, text), frame(ticks("abcab c")), schema=SCHEMA).to_pylist()
    assert [(row["match_start"].value // 10**9, row["match_end"].value // 10**9, row["n"]) for row in found] == [
        (1, 3, 10),
        (4, 7, 13),
    ]


WRONG_FILES = {
    "an unknown column": ("ARC busy TO done WHEN sort = 'a'", "line 1, column 23: unknown column 'sort'"),
    "a column that the rows do not have": ("\nARC busy TO done WHEN host = 'a'", "line 2, column 23: unknown column"),
    "a condition that is none": ("ARC busy TO done WHEN n", "WHEN with a value of type integer"),
    "an arc without a row": ("SILENT ARC busy TO done", "an arc without a row belongs to the automaton"),
    "a deadline": ("ARC busy TO done AT ts", "an arc with AT belongs to the automaton"),
    "another statement": ("MOVE busy TO done", "expected ARC and two states"),
    "text after an arc": ("ARC busy TO done WHEN n = 3 now", "or the next ARC"),
    "a time that is a column": ("ARC busy TO done FROM ts", "FROM without a time"),
    "an end before the begin": ("ARC busy TO done FROM '2024-05-02' TO '2024-05-01'", "TO a time that is not after"),
    "a function of the register": ("ARC busy TO done WHEN n & 1 = 1", "over earlier rows"),
    "a file in the file": ("ARC busy TO done WHEN in_list(price, 'x')", "not supported in a file of arcs"),
}


@pytest.mark.parametrize("name", WRONG_FILES)
def test_a_wrong_file_of_arcs_is_refused_with_its_line_and_the_remedy(name: str, tmp_path: Path) -> None:
    text, problem = WRONG_FILES[name]
    with pytest.raises(QueryError, match="expected") as error:
        wiretide.query(followed(tmp_path, text), frame(ticks("ab")), schema=SCHEMA)
    assert "rules.arcs: " in str(error.value)
    assert str(error.value).splitlines()[0].count("expected") == 1
    assert problem in str(error.value)


def test_a_file_of_arcs_needs_a_path_that_exists_and_rows_with_chosen_columns(tmp_path: Path) -> None:
    sql = followed(tmp_path, "")
    over_packets = "SELECT * FROM packets AUTOMATON (ORDER BY ts START s FINAL e ARCS FROM 'rules.arcs')"
    for wrong, problem in (
        (sql.replace("rules.arcs", "other.arcs"), "cannot be read as a file of arcs"),
        (sql.replace("ARCS FROM", "ARCS"), "expected FROM and a file with arcs"),
        (over_packets, "ARCS FROM over a link; expected a query that selects the columns"),
    ):
        with pytest.raises(QueryError, match="expected") as error:
            compile_query(wrong.replace("kind, price FROM ticks", "'a' AS kind, len AS price FROM packets"))
        assert problem in str(error.value)


def test_explain_lists_the_arcs_of_a_file(tmp_path: Path) -> None:
    sql = followed(tmp_path, "ARC busy TO done WHEN kind = 2 FROM '2024-05-01'")
    sql = sql.replace("kind, price FROM ticks", "srcPort AS kind, len AS price FROM packets").replace("'a'", "1")
    text = wiretide.explain(sql)
    assert "busy ► done: kind = 2, from 2024-05-01T00:00:00" in text
    assert text.rstrip().endswith("rules.arcs: 1 arc")


WRONG_SCRIPTS = {
    "no query": (CREATE, "a query after CREATE AUTOMATON: SELECT * FROM counted"),
    "another object": ("CREATE VIEW v AS SELECT * FROM ticks; SELECT * FROM v", "expected AUTOMATON"),
    "no rows": (f"CREATE AUTOMATON c ({COUNT}); SELECT * FROM c", "expected ON and its rows"),
    "no parentheses": ("CREATE AUTOMATON c ON ticks; SELECT * FROM c", "the automaton after its rows"),
    "an unused automaton": (CREATE + "SELECT * FROM ticks", "no query reads 'counted'"),
    "a wrong name": ("CREATE AUTOMATON 5 ON ticks (ORDER BY ts); SELECT * FROM c", "the name of the automaton"),
}


@pytest.mark.parametrize("name", WRONG_SCRIPTS)
def test_a_wrong_statement_is_refused(name: str) -> None:
    sql, text = WRONG_SCRIPTS[name]
    with pytest.raises(QueryError, match="expected") as error:
        wiretide.query(sql, frame(ticks("ab")), schema=SCHEMA)
    assert text in str(error.value)


def test_lines_of_messages_are_those_of_the_script() -> None:
    sql = CREATE.replace("n >= 2", "n >= z") + "SELECT * FROM counted"
    with pytest.raises(QueryError, match="line 4"):
        wiretide.query(sql, frame(ticks("ab")), schema=SCHEMA)


@pytest.mark.parametrize("name", [*CASES, *ALL_ROWS])
def test_a_printed_automaton_is_read_as_the_same_plan(name: str) -> None:
    clauses, *_ = (CASES | ALL_ROWS)[name]
    sql = f"SELECT * FROM ticks AUTOMATON ({clauses})"
    again = printed(parse_query(sql))
    assert printed(parse_query(again)) == again


def test_explain_lists_the_arcs_and_the_register() -> None:
    text = wiretide.explain(
        query_text(
            CREATE.replace("ticks", "packets").replace("kind", "srcPort").replace("'a'", "1").replace("'b'", "2")
            + "SELECT * FROM counted"
        )
    )
    assert "idle ► busy: srcPort = 1; n = 1" in text
    assert "busy ► done: srcPort = 2 AND n >= 2" in text
    assert "n = 0" in text


def test_explain_lists_the_times_of_arcs() -> None:
    arc = "ARC s TO e WHEN len > 9 FROM '2024-05-01' TO '2024-05-02'"
    sql = f"SELECT * FROM packets AUTOMATON (ORDER BY ts START s FINAL e {arc} ARC s TO e)"
    text = wiretide.explain(sql)
    assert "s ► e: len > 9, from 2024-05-01T00:00:00.000000000, to 2024-05-02T00:00:00.000000000\n" in text
    assert "s ► e: every row\n" in text


IGNORED = "; a row is ignored if no other arc applies"

WAITING = "ARC idle TO busy WHEN len = 1 ARC busy TO done WHEN len = 2 ARC busy TO busy WHEN len > 9"
"""The arc from `busy` to itself ignores rows, unless another clause prevents it."""

LOOPS = {
    "no new value": ("", True),
    "a new value of itself": (" SET n = n", True),
    "a new value": (" SET n = n + 1", False),
    "a silent arc": (" SILENT ARC busy TO done WHEN n = 5", False),
    "a loop in the final state": (" SET n = 1 ARC done TO done WHEN len > 9", False),
}


@pytest.mark.parametrize("name", LOOPS)
def test_explain_marks_arcs_that_ignore_rows(name: str) -> None:
    clause, is_ignorable = LOOPS[name]
    automaton = f"ORDER BY ts REGISTER n INT DEFAULT 0 START idle FINAL done {WAITING}{clause}"
    sql = f"SELECT * FROM packets AUTOMATON ({automaton})"
    lines = [text.partition(" ► ")[2] for text in wiretide.explain(sql).splitlines() if " ► " in text]
    assert len(lines) == 3 + clause.count("ARC")
    assert [text.endswith(IGNORED) for text in lines] == [False, False, is_ignorable] + [False] * clause.count("ARC")


@pytest.mark.parametrize("constants", [7, 8])
def test_explain_marks_arcs_with_regard_to_the_arcs_of_the_file(constants: int, tmp_path: Path) -> None:
    """Eight arcs that compare a value with constants are searched by the value, and rows are ignored as before."""
    arcs = [f"ARC busy TO done WHEN kind = {number}" for number in range(constants)]
    sql = followed(tmp_path, ";".join([*arcs, "ARC busy TO busy WHEN price > 50"]))
    sql = sql.replace("kind, price FROM ticks", "srcPort AS kind, len AS price FROM packets").replace("'a'", "1")
    (loop,) = (text for text in wiretide.explain(sql).splitlines() if "busy ► busy: price > 50" in text)
    assert loop.endswith(IGNORED)


def test_a_partition_of_a_time_of_results_is_refused() -> None:
    sql = f"SELECT * FROM (SELECT ts, kind, price AS match_end FROM ticks) AUTOMATON (PARTITION BY match_end {COUNT})"
    with pytest.raises(QueryError, match="PARTITION BY match_end, a time of results; expected another name"):
        wiretide.query(sql, frame(ticks("ab")), schema=SCHEMA)


def test_a_table_without_a_time_is_refused() -> None:
    sql = f"SELECT * FROM (SELECT kind, price AS ts FROM ticks) AUTOMATON ({COUNT})"
    with pytest.raises(QueryError, match="ORDER BY ts in AUTOMATON; expected rows with a time"):
        wiretide.query(sql, frame(ticks("ab")), schema=SCHEMA)


def test_early_results_of_an_automaton_are_refused() -> None:
    with pytest.raises(QueryError, match="EARLY of an automaton"):
        answer(COUNT, ticks("ab"), " WITH CONSISTENCY (EARLY 1 second) EMIT CHANGES")


def test_an_automaton_over_packets_compiles() -> None:
    clauses = "PARTITION BY srcMAC ORDER BY ts REGISTER m MAC START s FINAL e ARC s TO e SET m = destMAC"
    sql = f"SELECT * FROM packets AUTOMATON ({clauses})"
    assert [column.name for column in compile_query(sql).root.columns][:3] == ["srcMAC", "match_start", "match_end"]
