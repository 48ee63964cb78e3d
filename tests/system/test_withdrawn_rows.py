"""CHANGES BY over files and tables: windows without the rows that the source withdrew.

The tests detect a window that still contains a withdrawn row, corrections that do not add up, and a late withdrawal
that is not counted.
"""

import datetime as dt
import json
from collections import Counter
from pathlib import Path
from random import Random

import duckdb
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

import wiretide
from capture.errors import InputError
from highlevel.inline import table_files
from tests.harness.command_line import run

SCHEMA = "PROTOCOL log { TIME ts (banded_increasing(%s seconds)); STRING host; UINT bytes; STRING op; }"
WINDOWS = "SELECT host, count(*) AS n, sum(bytes) AS b, max(bytes) AS m FROM log CHANGES BY op [RANGE 20 seconds] "
GROUPS = f"{WINDOWS} GROUP BY host"
STARTED = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)


def change_log(seed: int, rows: int = 300) -> pa.Table:
    """Rows of five minutes; a third of them is withdrawn, and some of these replaced, up to 30 seconds later."""
    random, changes = Random(seed), []
    for number in range(rows):
        row = (number, random.choice("abc"), random.randrange(100))
        changes.append((number, (*row, "+I")))
        if random.random() < 0.3:
            changes.append((number + random.random() * 30, (*row, "-U")))
            changes.append((number + random.random() * 30, (*row[:2], random.randrange(100), "+U")))
        elif random.random() < 0.1:
            changes.append((number + random.random() * 30, (*row, "-D")))
    seconds, hosts, sizes, operations = zip(*(change for _, change in sorted(changes)), strict=True)
    times = pa.array([STARTED + dt.timedelta(seconds=second) for second in seconds], pa.timestamp("us", "UTC"))
    return pa.table({"ts": times, "host": hosts, "bytes": sizes, "op": operations})


def remaining(log: pa.Table) -> Counter[tuple]:
    """The groups of the rows that are left when each withdrawal has removed one equal row."""
    left: Counter[tuple] = Counter()
    for row in log.to_pylist():
        left[row["ts"], row["host"], row["bytes"]] += 1 if row["op"].startswith("+") else -1
    groups: dict[tuple, list[int]] = {}
    for ts, host, size in left.elements():
        groups.setdefault((int((ts - STARTED).total_seconds()) // 20, host), []).append(size)
    return Counter((*key, len(sizes), sum(sizes), max(sizes)) for key, sizes in groups.items())


def groups_of(table: pa.Table) -> Counter[tuple]:
    found: Counter[tuple] = Counter()
    for row in table.to_pylist():
        window = int((row["window_start"] - STARTED).total_seconds()) // 20
        found[window, row["host"], row["n"], row["b"], row["m"]] += row.get("weight", 1)
    return found


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_files, "BATCH_ROWS", 20)


@pytest.mark.parametrize("clauses", ["", "EMIT CHANGES", "WITH CONSISTENCY (WAIT 10 seconds) EMIT CHANGES"])
@pytest.mark.parametrize("seed", range(3))
def test_windows_have_the_rows_that_remain(seed: int, clauses: str) -> None:
    log = change_log(seed)
    sql = f"{GROUPS} {clauses}"
    answer = wiretide.query(sql, log, schema=SCHEMA % 60)
    found = groups_of(answer)
    assert +found == remaining(log)
    if clauses:
        weights = answer["weight"].to_pylist()
        assert min(weights) < 0 < len([final for final in answer["final"].to_pylist() if final])


@pytest.mark.parametrize("name", ["log.csv", "log.parquet"])
def test_files_of_changes(name: str, tmp_path: Path) -> None:
    log = change_log(7)
    (csv.write_csv if name.endswith("csv") else parquet.write_table)(log, str(tmp_path / name))
    assert groups_of(wiretide.query(GROUPS, tmp_path / name, schema=SCHEMA % 60)) == remaining(log)
    total = duckdb.sql("SELECT sum(if(op[1] = '+', bytes, -bytes))::BIGINT FROM log").fetchall()[0]
    sql = "SELECT sum(bytes) AS b FROM log CHANGES BY op [RANGE 1 day]"
    assert wiretide.query(sql, tmp_path / name, schema=SCHEMA % 60)["b"].to_pylist() == list(total)


KEYED = "PROTOCOL log { UINT id (key); TIME ts (banded_increasing(5 minutes)); STRING host; UINT bytes; STRING op; }"


def keyed_log(seed: int) -> tuple[list[dict], list[dict]]:
    """Events with the whole row before a change, and the same events as PostgreSQL writes them by default.

    Rows have a key. The log begins with a snapshot of some rows, which is sent again later.
    """
    random, rows, whole = Random(seed), {}, []
    for second in range(200):
        moment = (STARTED + dt.timedelta(seconds=second)).isoformat()
        if second in (5, 150):
            whole += [{"op": "r", "before": rows.get(key), "after": row} for key, row in rows.items()]
        key = random.choice([*rows, second]) if random.random() < 0.5 else second
        after = {"id": key, "ts": moment, "host": random.choice("abc"), "bytes": random.randrange(100)}
        if key in rows and random.random() < 0.2:
            whole.append({"op": "d", "before": rows.pop(key), "after": None})
            continue
        whole.append({"op": "u" if key in rows else "c", "before": rows.get(key), "after": after})
        rows[key] = after
    empty = dict.fromkeys(("ts", "host", "bytes"))
    partial = [{**event, "before": None if event["after"] else {**event["before"], **empty}} for event in whole]
    return [{**event, "op": "u"} if event["before"] and event["op"] == "r" else event for event in whole], partial


@pytest.mark.parametrize("clauses", ["", "EMIT CHANGES"])
def test_updates_without_the_row_before_have_the_answer_of_those_with_it(clauses: str, tmp_path: Path) -> None:
    """Two files: an update finds its row in the file before."""
    for seed in range(3):
        whole, partial = keyed_log(seed)
        sql = f"SELECT host, count(*) AS n, sum(bytes) AS b FROM log CHANGES BY op [RANGE 20 s] GROUP BY host {clauses}"
        answers = []
        for schema, events in ((KEYED.replace(" (key)", ""), whole), (KEYED, partial), (KEYED, whole)):
            middle = len(events) // 2
            (tmp_path / "1.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in events[:middle]))
            parquet.write_table(parquet_rows(events[middle:]), tmp_path / "2.parquet")
            answer = wiretide.query(sql, tmp_path / "1.jsonl", tmp_path / "2.parquet", schema=schema)
            totals: Counter[tuple] = Counter()
            for row in answer.to_pylist():
                totals[row["window_start"], row["host"], row["n"], row["b"]] += row.get("weight", 1)
            answers.append(+totals)
        assert answers[0] == answers[1] == answers[2], seed


def parquet_rows(events: list[dict]) -> pa.Table:
    """Events with times as timestamps."""
    row = pa.struct(
        [("id", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("host", pa.string()), ("bytes", pa.int64())]
    )

    def typed(values: dict | None) -> dict | None:
        return values and {**values, "ts": values["ts"] and dt.datetime.fromisoformat(values["ts"])}

    rows = [{**event, "before": typed(event["before"]), "after": typed(event["after"])} for event in events]
    return pa.Table.from_pylist(rows, pa.schema([("op", pa.string()), ("before", row), ("after", row)]))


def test_an_update_without_the_row_before_needs_a_key(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in keyed_log(1)[1]))
    sql = "SELECT count(*) AS n FROM log CHANGES BY op [RANGE 20 s]"
    with pytest.raises(InputError, match=r"'u' without the row 'before'.*or a key in the schema: UINT id \(key\);"):
        wiretide.query(sql, tmp_path / "log.jsonl", schema=KEYED.replace(" (key)", ""))


@pytest.mark.parametrize(
    ("column", "first", "second"),
    [
        ("IP id (key)", "fe80::1", "FE80:0::1"),
        ("MAC id (key)", "00:11:22:aa:bb:cc", "00:11:22:AA:BB:CC"),
        ("TIME id (key)", "2024-05-01T10:00:00Z", "2024-05-01T12:00:00+02:00"),
        ("FLOAT id (key)", 1, 1.0),
    ],
)
def test_a_key_is_a_value_and_no_text(column: str, first: object, second: object, tmp_path: Path) -> None:
    """Two texts of one value are one key, also in two files."""
    for number, key in enumerate([first, second]):
        row = {"id": key, "ts": "2024-05-01T10:00:00Z", "bytes": number + 5}
        (tmp_path / f"{number}.jsonl").write_text(json.dumps({"op": "u", "before": None, "after": row}))
    schema = f"PROTOCOL log {{ TIME ts; {column}; UINT bytes; STRING op; }}"
    sql = "SELECT sum(bytes) AS b, count(*) AS n FROM log CHANGES BY op"
    answer = wiretide.query(sql, tmp_path / "0.jsonl", tmp_path / "1.jsonl", schema=schema)
    assert answer.select(["b", "n"]).to_pylist() == [{"b": 6, "n": 1}]


def test_a_time_of_a_table_is_a_key_on_the_command_line(tmp_path: Path) -> None:
    times = pa.array([1, 2, 2], pa.timestamp("ns", "UTC"))
    after = pa.StructArray.from_arrays([times, pa.array([1, 2, 3])], ["ts", "bytes"])
    events = {"op": ["c"] * 3, "before": pa.nulls(3, after.type), "after": after}
    parquet.write_table(pa.table(events), tmp_path / "log.parquet")
    (tmp_path / "log.protocol").write_text("PROTOCOL log { TIME ts (key); UINT bytes; STRING op; }")
    sql = "SELECT sum(bytes) AS b FROM log CHANGES BY op"
    words = ["--schema", "log.protocol", "log.parquet", sql, "--format", "csv"]
    status, output, errors = run("query", *words, cwd=tmp_path)
    assert (status, output.splitlines()[-1:], errors) == (0, ["4"], "")


def test_a_key_needs_events() -> None:
    schema = "PROTOCOL log { TIME ts; UINT id (key); STRING op; }"
    rows = pa.table({"ts": [STARTED], "id": [1], "op": ["c"]})
    with pytest.raises(
        InputError, match="got rows, expected events of Debezium, because the schema of log has the key"
    ):
        wiretide.query("SELECT id FROM log CHANGES BY op", rows, schema=schema)


def test_changes_of_wiretide_are_a_source(tmp_path: Path) -> None:
    """The changes of a query, read as a change log, add up to its answer."""
    log = change_log(9)
    changes = wiretide.query(f"{GROUPS} EMIT CHANGES", log, schema=SCHEMA % 60)
    sql = "SELECT window_end, host, n FROM changes CHANGES BY weight"
    found = wiretide.query(sql, streams={"changes": changes.drop_columns(["final"])})
    expected = wiretide.query(GROUPS, log, schema=SCHEMA % 60)
    assert Counter(found["n"].to_pylist()) == Counter(expected["n"].to_pylist())


def test_a_withdrawal_beyond_the_band_is_late_and_counted() -> None:
    log, sql = change_log(3), "SELECT sum(bytes) AS b FROM log CHANGES BY op [RANGE 1 day]"
    with pytest.warns(RuntimeWarning, match="late rows? missed a window that was already final") as warned:
        answer = wiretide.query(sql, log, schema=SCHEMA % 1)
    assert "use a larger banded_increasing in the schema" in str(warned[0].message)
    assert answer["b"].to_pylist() != wiretide.query(sql, log, schema=SCHEMA % 60)["b"].to_pylist()


def test_captures_and_rows_without_a_time_are_refused() -> None:
    with pytest.raises(wiretide.QueryError, match="CHANGES BY of packets; expected a table or a query"):
        wiretide.query("SELECT count(*) FROM packets CHANGES BY len", "none.pcap")
    schema = "PROTOCOL log { STRING host; STRING op; }"
    log = pa.table({"host": ["a"], "op": ["+"]})
    with pytest.raises(wiretide.QueryError, match="CHANGES BY of rows without a time"):
        wiretide.query("SELECT count(*) FROM log CHANGES BY op", log, schema=schema)
