"""CSV, JSON, Parquet and Arrow files, and tables, with a schema: their answers are those of the table in memory.

The tests can find a watermark that closes a window too early, a row that is neither in a window nor counted as late,
and a wrong value that is read as another value.
"""

import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path
from random import Random

import duckdb
import pyarrow as pa
import pytest
from pyarrow import csv, feather, parquet

import wiretide
from capture.errors import InputError
from highlevel.inline import table_files
from queries.text.errors import QueryError
from tests.harness.command_line import run

SCHEMA = """
PROTOCOL base { TIME ts (banded_increasing(5 seconds)); }
PROTOCOL events (base) { STRING user; IP srcIP; UINT bytes; FLOAT load; BOOL ok; STRING site (constant); }
PROTOCOL plain { TIME ts; UINT bytes; }
"""
QUERIES = [
    "SELECT user, count(*) AS n, sum(bytes) AS b FROM events [RANGE 10 seconds] GROUP BY user",
    "SELECT max(bytes) AS m, avg(load) AS l FROM events [RANGE 20 seconds, SLIDE 5 seconds] WHERE ok",
    "SELECT ts, srcIP FROM events WHERE srcIP IN '10.0.0.0/30' AND site = 'a'",
    "SELECT count(*) AS n, max(ts) AS newest FROM events",
    "SELECT a.ts, b.bytes FROM events a JOIN events b [RANGE TUMBLING 2 s, WA ts] ON a.srcIP = b.srcIP AND b.ts > a.ts",
    "WITH n AS (SELECT count(*) AS n FROM events [RANGE 10 seconds]) SELECT max(n) AS most FROM n [RANGE 30 seconds]",
]
STARTED = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)


def events(seed: int, rows: int = 400, disorder: float = 5) -> pa.Table:
    random = Random(seed)
    times = [STARTED + dt.timedelta(seconds=at * 0.2 - random.random() * disorder) for at in range(rows)]
    return pa.table(
        {
            "site": ["a"] * rows,
            "TS": pa.array(times, pa.timestamp("us", "UTC")),
            "user": [f"u{random.randrange(4)}" for _ in times],
            "srcIP": [f"10.0.0.{random.randrange(9)}" for _ in times],
            "bytes": [random.randrange(1000) for _ in times],
            "load": [random.random() for _ in times],
            "ok": [random.random() < 0.5 for _ in times],
            "unused": [None] * rows,
        }
    )


def write_arrows(table: pa.Table, path: str) -> None:
    with pa.OSFile(path, "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)


def write_gzip(table: pa.Table, path: str) -> None:
    with pa.output_stream(path) as sink:
        csv.write_csv(table, sink)


def write_json(table: pa.Table, path: str) -> None:
    """Write JSON lines: names as in the schema, times and addresses as texts, and a value that no protocol has."""
    names = [name.replace("TS", "ts") for name in table.column_names]
    lines = [json.dumps(dict(zip(names, row.values(), strict=True)), default=str) for row in table.to_pylist()]
    with pa.output_stream(path) as sink:
        sink.write("\n".join(lines).encode())


WRITERS: dict[str, Callable[[pa.Table, str], object]] = {
    "e.csv": csv.write_csv,
    "e.csv.gz": write_gzip,
    "e.ndjson": write_json,
    "e.jsonl.gz": write_json,
    "e.parquet": lambda table, path: parquet.write_table(table, path, row_group_size=50),
    "e.arrow": lambda table, path: feather.write_feather(table, path, chunksize=30),
    "e.arrows": write_arrows,
}


def rows(table: pa.Table) -> list[tuple]:
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


@pytest.mark.drawn
@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("batch_rows", [7, table_files.BATCH_ROWS])
def test_a_file_gives_the_answers_of_the_table(
    name: str, batch_rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_files, "BATCH_ROWS", batch_rows)
    table = events(14)
    path = tmp_path / name
    WRITERS[name](table, str(path))
    whole = table.rename_columns([name.replace("TS", "ts") for name in table.column_names]).drop_columns("unused")
    for sql in QUERIES:
        expected = rows(wiretide.query(sql, whole))
        assert expected, sql
        assert rows(wiretide.query(sql, path, schema=SCHEMA)) == expected, sql
        assert rows(wiretide.query(sql, table, schema=SCHEMA)) == expected, sql
    grouped = duckdb.sql("SELECT user, count(*), sum(bytes)::BIGINT FROM whole GROUP BY user ORDER BY user").fetchall()
    sql = "SELECT user, count(*) AS n, sum(bytes) AS b FROM events GROUP BY user"
    assert rows(wiretide.query(sql, streams={"EVENTS": [str(path)]}, schema=SCHEMA)) == grouped


@pytest.mark.parametrize("seed", range(8))
def test_newlines_in_quotes_end_no_row(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)
    values = ["", "a", '5" disk', 'x"', "two\nlines", '\n"', 'end"\n', ",\n\n,", '"\n"', "\r\n", "long\n" * 9]
    users = [random.choice(values) for _ in range(60)]
    texts = [
        user if user in ('5" disk', 'x"') else '"' + user.replace('"', '""') + '"' for user in users
    ]  # a quote inside a value without quotes is a part of the value
    lines = [f"{text},2024-05-01T08:00:00Z,{number}\n" for number, text in enumerate(texts)]
    (tmp_path / "t.csv").write_bytes(('"user",ts,n\n' + "".join(lines)).encode())
    schema = "PROTOCOL t { TIME ts; STRING user; UINT n; }"
    for size in (1, random.randrange(2, 200), 1 << 20):
        monkeypatch.setattr("highlevel.inline.table_sources.TEXT_BYTES", size)
        read = wiretide.query("SELECT n, user FROM t", tmp_path / "t.csv", schema=schema).to_pylist()
        assert [(row["n"], row["user"]) for row in read] == list(enumerate(users)), (seed, size)


def test_a_quote_without_an_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("highlevel.inline.table_sources.TEXT_BYTES", 100)
    monkeypatch.setattr("highlevel.inline.table_sources.MAX_ROW_BYTES", 1000)
    schema, path = "PROTOCOL t { TIME ts; STRING user; }", tmp_path / "t.csv"
    path.write_text("ts,user\n" + '2024-05-01T08:00:00Z,"a\n' + "2024-05-01T08:00:00Z,b\n" * 100)
    with pytest.raises(InputError, match="got a row of more than 1,000 bytes at byte 8; is a quote missing"):
        wiretide.query("SELECT user FROM t", path, schema=schema)
    path.write_text('ts,"us\ner"\n2024-05-01T08:00:00Z,b\n')
    with pytest.raises(InputError, match="the names contain a newline; expected the names in one line"):
        wiretide.query("SELECT user FROM t", path, schema=schema)


def test_rows_outside_the_band_are_counted_as_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_files, "BATCH_ROWS", 10)
    table, sql = events(5), "SELECT count(*) AS n FROM events [RANGE 1 second]"
    increasing = SCHEMA.replace("banded_increasing(5 seconds)", "increasing")
    with pytest.warns(RuntimeWarning, match="late rows? missed a window") as warned:
        counted = sum(wiretide.query(sql, table, schema=increasing)["n"].to_pylist())
    late = int(str(warned[0].message).split()[0].replace(",", ""))
    assert "use a larger banded_increasing in the schema" in str(warned[0].message)
    assert late > 0
    assert counted + late == table.num_rows


def test_windows_close_before_the_end_only_with_a_temporal_attribute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_files, "BATCH_ROWS", 10)
    for name, early in (("events", True), ("plain", False)):
        read: list[int] = []
        table = events(3)
        with wiretide.open(table, schema=SCHEMA) as opened:
            opened._source.progress.append(lambda done, _, read=read: read.append(done))
            windows = iter(opened.query(f"SELECT count(*) AS n FROM {name} [RANGE 1 second]"))
            next(windows)
            assert (len(read) < 20) is early, name
            assert sum(window["n"][0].as_py() for window in windows) > 0
        assert read == sorted(read)
        assert len(read) == 40


def test_several_files_are_one_stream_and_an_empty_file_has_no_rows(tmp_path: Path) -> None:
    table = events(1)
    csv.write_csv(table.slice(0, 250), tmp_path / "a.csv")
    parquet.write_table(table.slice(250), tmp_path / "b.parquet")
    csv.write_csv(table.slice(0, 0), tmp_path / "none.csv")
    files = [tmp_path / name for name in ("a.csv", "none.csv", "b.parquet")]
    (tmp_path / "my.protocol").write_text(SCHEMA)
    counted = wiretide.query("SELECT count(*) AS n FROM events", *files, schema=tmp_path / "my.protocol")
    assert counted["n"].to_pylist() == [400]
    none = wiretide.query("SELECT ts FROM events", tmp_path / "none.csv", schema=SCHEMA)
    assert none.num_rows == 0


def test_the_command_line_reads_a_schema(tmp_path: Path) -> None:
    csv.write_csv(events(1), tmp_path / "e.csv")
    (tmp_path / "my.protocol").write_text(SCHEMA)
    sql = "PARAM { least UINT DEFAULT 0; } SELECT count(*) AS n FROM events WHERE bytes >= $least"
    asked = ("query", "e.csv", "--schema", "my.protocol", sql, "--format", "csv")
    assert run(*asked, cwd=tmp_path)[:2] == (0, "n\n400\n")
    assert run(*asked, "--param", "least=5000", cwd=tmp_path)[:2] == (0, "n\n")
    bound = ("query", "-s", "events=e.csv", "--schema", "my.protocol", "SELECT count(*) AS n FROM events", "--stats")
    status, _, err = run(*bound, cwd=tmp_path)
    assert (status, "wiretide_result_rows_total" in err) == (0, True)
    (tmp_path / "narrow.protocol").write_text(SCHEMA.replace("banded_increasing(5 seconds)", "increasing"))
    csv.write_csv(pa.concat_tables([events(1, 20_000)] * 4), tmp_path / "late.csv")
    late = ("query", "late.csv", "--schema", "narrow.protocol", "SELECT count(*) AS n FROM events [RANGE 1 second]")
    assert "late rows missed a window that was already final" in run(*late, cwd=tmp_path)[2]
    for words, message in (
        (["--threads", "2"], "--schema and --threads"),
        (["--follow"], "--schema and --follow"),
        (["--layer", "inner"], "--schema and --layer"),
        (["--schema", "none.protocol"], "none.protocol: cannot be read as a schema"),
        (["-s", "events=e.csv"], "either files or streams by name"),
    ):
        status, out, err = run(*asked, *words, cwd=tmp_path)
        assert (status > 0, out) == (True, ""), words
        assert message in err


WRONG = [
    ("none.csv", "a,b\n1,2\n", "PROTOCOL e { INT c; }", "no column c of e; the columns are: a, b"),
    ("e.csv", "byte,b\n1,2\n", "PROTOCOL e { INT bytes; }", "no column bytes of e; the columns are: byte, b"),
    ("e.csv", "a\nx\n", "PROTOCOL e { INT a; }", "column a: got 'x', expected INT"),
    ("e.csv", "a\n70000\n", "PROTOCOL e { USHORT a; }", "column a: got 70000, expected USHORT, 0 to 65535"),
    ("e.csv", "a\n-1\n", "PROTOCOL e { ULLONG a; }", "column a: got -1, expected ULLONG"),
    ("e.csv", "a\n1.5.2\n", "PROTOCOL e { FLOAT a; }", "got '1.5.2', expected FLOAT"),
    ("e.csv", "a\nmaybe\n", "PROTOCOL e { BOOL a; }", "got 'maybe', expected BOOL"),
    ("e.csv", "a\n10.0.0\n", "PROTOCOL e { IP a; }", "got '10.0.0', expected IP"),
    ("e.csv", "a\n10.0.0.1\n", "PROTOCOL e { MAC a; }", "got '10.0.0.1', expected MAC, for example 00:11"),
    ("e.csv", "a\n1\n2\n3\nfour\n5\nsix\n", "PROTOCOL e { INT a; }", "column a: got 'four', expected INT"),
    ("e.csv", "a\n0:1\n", "PROTOCOL e { MAC a; }", "got '0:1', expected MAC"),
    ("e.csv", "a\nsoon\n", "PROTOCOL e { TIME a; }", "got 'soon', expected TIME"),
    ("e.csv", "a\n2024-05-01T00:00:00Z\n2024-05-02T00:00:00Z\n2024-05-03\n", "PROTOCOL e { TIME a; }", "'2024-05-03'"),
    ("e.csv", "a\n2024-05-01\n2024-05-02T00:00:00+01:00\n", "PROTOCOL e { TIME a; }", "'2024-05-02T00:00:00+01:00'"),
    ("e.csv", "a,b\n,1\n", "PROTOCOL e { TIME a; INT b; }", "a row without a time"),
    ("e.csv", "a\n1\n1,2\n", "PROTOCOL e { INT a; }", "e.csv: cannot be read"),
    ("e.csv", "", "PROTOCOL e { INT a; }", "cannot be read as CSV"),
    ("e.ndjson", '{"a": "soon"}', "PROTOCOL e { TIME a; }", "got 'soon', expected TIME"),
    ("e.ndjson", '{"a": "x"}', "PROTOCOL e { INT a; }", "e.ndjson: cannot be read further: JSON parse error"),
    ("e.ndjson", '{"b": 1}', "PROTOCOL e { TIME a; }", "a row without a time"),
    ("e.parquet", "a\n1\n", "PROTOCOL e { INT a; }", "cannot be read as Parquet"),
    ("e.arrow", "a\n1\n", "PROTOCOL e { INT a; }", "cannot be read as Arrow"),
    ("e.txt", "a\n1\n", "PROTOCOL e { INT a; }", "another suffix, expected one of .csv"),
]


@pytest.mark.parametrize(("name", "text", "schema", "message"), WRONG)
def test_a_wrong_file_is_an_error_with_its_column(
    name: str, text: str, schema: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError) as error:
        wiretide.query("SELECT * FROM e", tmp_path / name, schema=schema)
    assert message in str(error.value)


def test_wrong_names_and_types_of_tables_are_errors(tmp_path: Path) -> None:
    table = pa.table({"a": ["x"]})
    with pytest.raises(InputError, match="the table: column a: got values of type string, expected INT"):
        wiretide.query("SELECT a FROM e", table, schema="PROTOCOL e { INT a; }")
    with pytest.raises(InputError, match="no table for f; bound are: e"):
        wiretide.query("SELECT a FROM f", table, schema="PROTOCOL e { STRING a; }")
    with pytest.raises(InputError, match=r"stream f: no protocol of .*; the protocols are: e"):
        wiretide.query("SELECT a FROM f", streams={"f": table}, schema="PROTOCOL e { STRING a; }")
    with pytest.raises(QueryError, match="unknown type 'STR'"):
        wiretide.query("SELECT a FROM e", table, schema="PROTOCOL e { STR a; }")
    with pytest.raises(InputError, match=r"gone.csv: no such file"):
        wiretide.query("SELECT a FROM e", tmp_path / "gone.csv", schema="PROTOCOL e { STRING a; }")
    with pytest.raises(ValueError, match="options of captures together with a schema"):
        wiretide.query("SELECT a FROM e", table, schema="PROTOCOL e { STRING a; }", threads=2)
    for wrong in ([object()], {"e": object()}):
        files, streams = (wrong, None) if isinstance(wrong, list) else ([], wrong)
        with pytest.raises(InputError, match="got object as the input of a schema, expected the path of a file"):
            wiretide.query("SELECT a FROM e", *files, streams=streams, schema="PROTOCOL e { STRING a; }")
