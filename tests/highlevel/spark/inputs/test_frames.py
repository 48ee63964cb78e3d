"""DataFrames of Spark as inputs of queries, streaming ones and others.

The tests find a window that is final before the schema allows it, a row that is lost or counted twice, also after a
restart and in an empty micro-batch; a wrong DataFrame that is accepted; and results that depend on the order of rows.
"""

import datetime as dt
import os
import sys
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import wiretide
from capture.errors import InputError
from highlevel.inline.table_files import FileStream
from highlevel.results.user_types import readable
from highlevel.spark.inputs.assignment import InputAssignment
from highlevel.spark.inputs.frame_reading import FrameTask, frame_input, make_batch_end
from highlevel.spark.inputs.reading import COUNTERS
from highlevel.spark.inputs.topic_reading import find_newest_times
from highlevel.spark.run_folder.totals import Totals
from highlevel.spark.session.session import use_this_python
from highlevel.spark.tasks.host import LevelTask
from highlevel.spark.tasks.packing import unpack
from queries.gsql import compile_query
from queries.plans.subqueries import ReadableQuery
from queries.text.schema import parse_schema
from tests.harness.stream_steps import hosted

SCHEMA = "PROTOCOL logins { TIME ts (banded_increasing(5 seconds)); STRING user; IP src; UINT bytes; }"
SQL = "SELECT user, count(*) AS n, sum(bytes) AS b FROM logins [RANGE 10 seconds, SLIDE 5 seconds] GROUP BY user"
START = dt.datetime(2024, 5, 1, 10, tzinfo=dt.UTC)
ARROW = pa.schema({"bytes": pa.int32(), "ts": pa.timestamp("us", "UTC"), "user": pa.string(), "src": pa.string()})
Row = tuple[int, float, str, str]
Answer = dict[tuple[float, str], tuple[int, int]]


def draw_rows(random: Random, count: int, start: float) -> list[Row]:
    """Rows of which none is more than 5 s older than the newest row before: bytes, seconds, user, address."""
    return [
        (
            random.randrange(100),
            round(start + number * 0.5 - random.random() * 4.5, 3),
            f"u{random.randrange(3)}",
            f"10.0.0.{random.randrange(3)}",
        )
        for number in range(count)
    ]


def table_of(rows: list[Row]) -> pa.Table:
    values = [(length, START + dt.timedelta(seconds=time), user, src) for length, time, user, src in rows]
    columns = zip(*values, strict=True) if values else ([], [], [], [])
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, ARROW, strict=True)], schema=ARROW)


def windows_of(rows: list[Row]) -> Answer:
    """Number and sum of each group, by the definition of the windows."""
    answer: Answer = {}
    for length, time, user, _ in rows:
        for end in (int(time // 5) * 5 + 5, int(time // 5) * 5 + 10):
            count, total = answer.get((end, user), (0, 0))
            answer[end, user] = count + 1, total + length
    return answer


def found_in(table: pa.Table) -> Answer:
    rows = table.to_pylist()
    found = {((row["window_end"] - START).total_seconds(), row["user"]): (row["n"], row["b"]) for row in rows}
    assert len(found) == len(rows), "every window is final once"
    return found


@pytest.mark.parametrize("seed", range(4))
def test_windows_are_final_once_and_complete_in_every_order_of_the_rows(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    print("seed", seed)
    (protocol,) = parse_schema(SCHEMA).values()
    stream = FileStream.make(protocol.name, (), protocol.columns, protocol.times, [])
    readable_query = ReadableQuery(stream.columns, stream.times, stream.node, compile_query("SELECT count(*) FROM x"))
    plan = compile_query(SQL, "users", tables={"logins": readable_query})
    partitions = random.choice([1, 2, 5])
    assignment = InputAssignment.of([plan], [frame_input(stream)], partitions)
    sent: list[Row] = []
    found: Answer = {}
    totals = Totals()
    for batch_id in range(8):
        rows = draw_rows(random, random.choice([0, 1, 30, 60]), 100 + len(sent) * 0.5)
        sent += rows
        newest_times = find_newest_times(assignment, totals)
        for _ in range(random.choice([1, 2])):  # a micro-batch may be repeated
            random.shuffle(rows)
            parts = [rows[start::2] for start in range(2)]
            batches = [
                batch for part in parts for batch in FrameTask(assignment, 0)(iter(table_of(part).to_batches(7)))
            ]
            batches += make_batch_end(assignment, batch_id).to_batches()
            random.shuffle(batches)
            host = LevelTask(assignment, tmp_path, batch_id, newest_times=newest_times)
            answers = hosted(host, batches, partitions)
        columns = [answers[name].to_pylist() for name in answers.column_names]
        counters: dict[bool, list[bytes]] = {True: [], False: []}
        for part, query, payload in zip(*columns, strict=True):
            if query == COUNTERS:
                counters[part == COUNTERS].append(payload)
            else:
                new = found_in(readable(unpack(payload), plan.times))
                assert not new.keys() & found.keys()
                found |= new
        totals.add(assignment, counters[True], counters[False])
    expected = windows_of(sent)
    before_last = max((time for _, time, *_ in sent[: len(sent) - len(rows)]), default=0)
    assert found == {key: values for key, values in expected.items() if key[0] <= before_last - 5}
    assert found


@pytest.mark.parametrize(
    ("master", "variable", "setting", "expected"),
    [
        ("local[2]", None, None, sys.executable),
        ("local[2]", "/chosen/python", None, "python3"),
        ("local[2]", None, "/chosen/python", "python3"),
        ("spark://host:7077", None, None, "python3"),
    ],
)
def test_workers_of_a_session_of_the_user_run_this_python_if_none_is_chosen(
    master: str, variable: str | None, setting: str | None, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the tasks of `wiretide.stream` run python3 of PATH, which may lack Wiretide."""
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    if variable is not None:
        monkeypatch.setenv("PYSPARK_PYTHON", variable)
    settings = {"spark.pyspark.python": setting}
    context = SimpleNamespace(master=master, getConf=lambda: settings, pythonExec="python3")
    use_this_python(context)  # type: ignore[arg-type]
    assert context.pythonExec == expected


@pytest.fixture
def folder_of_rows(spark: Any, tmp_path: Path) -> Any:
    """A function that adds a Parquet file to a folder, and the streaming DataFrame over the folder."""
    from pyarrow import parquet

    folder = tmp_path / "rows"
    folder.mkdir()

    def add(rows: list[Row], name: str) -> None:
        parquet.write_table(table_of(rows), folder / f"{name}.parquet")
        os.utime(folder / f"{name}.parquet", (ord(name), ord(name)))  # Spark reads the oldest file first

    ddl = "bytes INT, ts TIMESTAMP, user STRING, src STRING"
    return add, spark.readStream.schema(ddl).option("maxFilesPerTrigger", 1).parquet(str(folder))


@pytest.mark.spark
def test_a_run_continues_and_its_results_are_those_of_one_pass(folder_of_rows: Any, tmp_path: Path) -> None:
    add, frame = folder_of_rows
    random = Random(3)
    rows = [draw_rows(random, 40, 100 + 20 * number) for number in range(3)]
    users = SQL.replace("logins", "big")
    queries = {"big": "SELECT ts, user, bytes FROM logins WHERE bytes > 20 AND src <> '10.0.0.2'", "users": users}
    seen: list[int] = []

    def run() -> None:
        with wiretide.stream(
            queries,
            {"logins": frame},
            tmp_path / "run",
            schema=SCHEMA,
            trigger={"availableNow": True},
            partitions=2,
            on_results=lambda tables: seen.append(tables["big"].num_rows),
        ) as run:
            assert run.wait()

    add(rows[0], "a")
    run()
    add(rows[1], "b")
    add(rows[2], "c")
    run()
    selected = [[row for row in part if row[0] > 20 and row[3] != "10.0.0.2"] for part in rows]
    assert seen == [len(part) for part in selected]
    found = found_in(wiretide.query("SELECT * FROM users", tmp_path / "run"))
    before_last = max(time for part in rows[:2] for _, time, *_ in part)
    expected = windows_of([row for part in selected for row in part])
    assert found == {key: values for key, values in expected.items() if key[0] <= before_last - 5}
    assert found
    in_one_pass = wiretide.query(
        users.replace("big", "logins"),
        table_of([row for part in selected for row in part]),
        schema=SCHEMA.replace("5 seconds", "1 hour"),
    )
    assert found.items() <= found_in(in_one_pass).items()


@pytest.mark.spark
def test_the_tasks_read_dataframes_that_do_not_stream(folder_of_rows: Any, spark: Any, tmp_path: Path) -> None:
    _, stream = folder_of_rows
    rows = draw_rows(Random(9), 200, 100)
    Random(10).shuffle(rows)  # many rows would be late in this order
    frame = spark.createDataFrame(table_of(rows)).withColumnRenamed("user", "USER")
    assert found_in(wiretide.query(SQL, frame, schema=SCHEMA, on="local")) == windows_of(rows)
    parts = [spark.createDataFrame(table_of(part)).repartition(3) for part in (rows[:50], rows[50:])]
    both = {"logins": parts}
    assert found_in(wiretide.query(SQL, streams=both, schema=SCHEMA, on="local")) == windows_of(rows)
    count = "SELECT count(*) AS n FROM logins"
    empty = wiretide.query(count, frame.limit(0), schema=SCHEMA, on="local")
    assert empty.equals(wiretide.query(count, table_of([]), schema=SCHEMA))
    with pytest.raises(ValueError, match=r"got a streaming DataFrame, expected one that does not stream; wiretide"):
        wiretide.query(SQL, stream, schema=SCHEMA, on="local")
    with pytest.raises(InputError, match="no column bytes of logins; the columns are: ts, USER, src"):
        wiretide.query(SQL, frame.drop("bytes"), schema=SCHEMA, on="local")
    with pytest.raises(InputError, match="got DataFrames of Spark and other inputs for one name of a schema"):
        wiretide.query(SQL, streams={"logins": [frame, table_of([])]}, schema=SCHEMA, on="local")


@pytest.mark.spark
def test_a_wrong_value_ends_the_run_with_its_reason(folder_of_rows: Any, tmp_path: Path) -> None:
    add, frame = folder_of_rows
    add([(1, 1.0, "u", "10.0.0.1"), (2, 2.0, "u", "ten")], "a")
    with wiretide.stream(SQL, {"logins": frame}, tmp_path / "run", schema=SCHEMA) as run:
        with pytest.raises(InputError, match=r"column src: got 'ten', expected IP, for example 10\.0\.0\.1"):
            run.wait()
        run.stop()


@pytest.mark.spark
def test_wrong_dataframes_schemas_and_queries_are_errors(folder_of_rows: Any, spark: Any, tmp_path: Path) -> None:
    _, frame = folder_of_rows
    static = spark.createDataFrame([(1,)], "a INT")

    def error_of(kind: type[Exception], sql: str = SQL, schema: str = SCHEMA, **frames: Any) -> str:
        with pytest.raises(kind) as raised:
            wiretide.stream(sql, frames or {"logins": frame}, tmp_path / "run", schema=schema)
        assert not (tmp_path / "run").exists()
        return str(raised.value)

    assert "logins: got a DataFrame that does not stream, expected one of spark.readStream" in error_of(
        ValueError, logins=static
    )
    assert "logins: got pyarrow.lib.Table, expected a streaming DataFrame" in error_of(ValueError, logins=table_of([]))
    assert "stream other: no protocol of the schema; the protocols are: logins" in error_of(InputError, other=frame)
    assert "no column user of logins; the columns are: bytes" in error_of(InputError, logins=frame.drop("user"))
    text = frame.selectExpr("CAST(ts AS STRING) AS ts", "user", "src", "bytes")
    assert "column ts: got values of type string, expected TIME" in error_of(InputError, logins=text)
    constant = SCHEMA.replace("banded_increasing(5 seconds)", "constant")
    assert "got a schema without watermarks, expected a TIME with increasing" in error_of(InputError, schema=constant)
    keyed = SCHEMA.replace("UINT bytes", "UINT bytes (key)")
    assert "logins: got the key bytes, expected a schema without" in error_of(InputError, schema=keyed)
    rows = "SELECT count(*) AS n FROM logins [RANGE 5 ROWS, SLIDE 5 ROWS]"
    assert "a window that counts rows" in error_of(wiretide.QueryError, rows)
    two = SCHEMA.replace("UINT bytes", "TIME made (increasing)")
    made = frame.withColumn("made", frame["ts"])
    other_time = "SELECT count(*) AS n FROM logins [RANGE 5 seconds, WA made]"
    assert "got made as the time of its windows, expected ts" in error_of(InputError, other_time, two, logins=made)
    for queries, message in (
        ({}, "got no query"),
        ({"": SQL}, "queries and frames: got the name '', expected for example 'users'"),
        ({"..": SQL}, "queries and frames: got the name '..', expected"),
        ({"Logins": SQL}, r"queries and frames: got the name logins twice \(case is ignored\)"),
        ({"a": SQL, "A": SQL}, r"queries and frames: got the name A twice \(case is ignored\)"),
    ):
        with pytest.raises(ValueError, match=message):
            wiretide.stream(queries, {"logins": frame}, tmp_path / "run", schema=SCHEMA)
    assert "queries and frames: got the name LOGINS twice" in error_of(ValueError, logins=frame, LOGINS=frame)
    with pytest.raises(ValueError, match="partitions: got 0, expected at least 1"):
        wiretide.stream(SQL, {"logins": frame}, tmp_path / "run", schema=SCHEMA, partitions=0)
    assert not (tmp_path / "run").exists()
    with pytest.raises(ValueError, match="got no DataFrame"):
        wiretide.stream(SQL, {}, tmp_path / "run", schema=SCHEMA)
    packets = "SELECT count(*) FROM packets [RANGE 1 s]"
    assert "query query: no DataFrame for packets; bound are: logins" in error_of(InputError, packets)
