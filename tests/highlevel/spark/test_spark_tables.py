"""Files with a schema on Spark: rows and late rows are those of the inline engine, also after a restart.

The tests find a batch that is read twice or not at all, a row that is late on one engine only, and a batch that begins
at a wrong row. Batches of 7 rows make many micro-batches; tasks and operators run without a JVM. One run on Spark has
batches of the usual size.
"""

import datetime as dt
import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, feather, parquet

import wiretide
from capture.errors import InputError
from dashboards.tables import Engine, Tables
from highlevel.inline import table_files
from highlevel.inline.engine import Input
from highlevel.inline.table_files import FileStream
from highlevel.metrics import LATE_PARTIALS
from highlevel.plan.plan import Plan
from highlevel.results.user_types import readable
from highlevel.spark.inputs.table_reading import index_table, read_table_range
from queries.gsql import compile_query
from queries.pipeline.file import parse_pipeline
from queries.pipeline.sections import PipelineError
from queries.pipeline.table_settings import table_input
from queries.plans.subqueries import ReadableQuery
from queries.text.schema import parse_schema
from tests.harness.stream_steps import spec, steps

SCHEMA = """
PROTOCOL base { TIME ts (banded_increasing(2 seconds)); TIME seen (increasing); }
PROTOCOL events (base) { STRING user; IP srcIP; UINT bytes; }
PROTOCOL others (events) { STRING more; }
PROTOCOL plain { TIME ts; UINT bytes; }
"""
QUERIES = {
    "groups": "SELECT user, srcIP, count(*) AS n, sum(bytes) AS b FROM events [RANGE 2 seconds] GROUP BY user, srcIP",
    "sliding": "SELECT count(*) AS n, avg(bytes) AS a FROM events [RANGE 6 seconds, SLIDE 2 seconds] WHERE bytes > 9",
    "second time": "SELECT user, count(*) AS n FROM events [RANGE 3 seconds, WA seen] GROUP BY user",
    "rows": "SELECT ts, srcIP, bytes FROM events WHERE user = 'u1'",
    "join": "SELECT a.ts, b.bytes FROM events a JOIN others b [RANGE TUMBLING 2 s] ON a.user = b.user AND b.ts > a.ts",
    "two levels": "WITH n AS (SELECT user, count(*) AS n FROM events [RANGE 2 seconds] GROUP BY user) "
    "SELECT n, count(*) AS users FROM n [RANGE 8 seconds] GROUP BY n",
    "both": "SELECT user, count(*) AS n FROM events UNION others [RANGE 2 seconds] GROUP BY user",
    "withdrawn rows": "SELECT user, count(*) AS n FROM (SELECT ts, user, 1 - bytes % 3 AS weight FROM events) "
    "CHANGES BY weight [RANGE 2 seconds] GROUP BY user",
    "no watermark": "SELECT count(*) AS n, sum(bytes) AS b FROM plain [RANGE 2 seconds]",
}
STARTED = int(dt.datetime(2024, 5, 1, tzinfo=dt.UTC).timestamp() * 1e6)


def rows_of(random: Random, count: int, disorder: float) -> pa.Table:
    """Rows of which some are older than the schema allows."""
    numbers = np.random.default_rng(random.randrange(1 << 30))
    times = STARTED + (np.arange(count) * 0.2e6 - numbers.random(count) * disorder * 1e6).astype(np.int64)
    zone = pa.timestamp("us", "UTC")
    return pa.table(
        {
            "more": [""] * count,
            "user": [f"u{number}" for number in numbers.integers(0, 4, count)],
            "bytes": numbers.integers(0, 1000, count),
            "ts": pa.array(times, zone),
            "seen": pa.array(times + numbers.integers(0, 10**6, count), zone),
            "srcIP": [f"10.0.0.{number}" for number in numbers.integers(0, 4, count)],
        }
    )


def write(random: Random, table: pa.Table, folder: Path, name: str) -> list[Path]:
    """Write a table as some files of random formats."""
    bounds = sorted({0, table.num_rows, *(random.randrange(table.num_rows) for _ in range(random.randrange(3)))})
    paths = []
    for number, (start, end) in enumerate(pairwise(bounds)):
        part = table.slice(start, end - start)
        path = folder / f"{name}{number}{random.choice(['.csv', '.csv.gz', '.jsonl', '.parquet', '.arrow', '.arrows'])}"
        match path.suffixes:
            case [".csv"]:
                csv.write_csv(part, path)
            case [".csv", ".gz"]:
                with pa.output_stream(str(path)) as sink:
                    csv.write_csv(part, sink)
            case [".jsonl"]:
                lines = (json.dumps(row, default=lambda time: time.isoformat()) for row in part.to_pylist())
                path.write_text("".join(f"{line}\n" for line in lines))
            case [".parquet"]:
                parquet.write_table(part, path, row_group_size=random.choice([1, 10, 1000]))
            case [".arrow"]:
                feather.write_feather(part, path, chunksize=random.choice([1, 10, 1000]))
            case _:
                with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, part.schema) as writer:
                    writer.write_table(part, max_chunksize=random.choice([1, 10, 1000]))
        paths.append(path)
    return paths


def inputs_of(files: dict[str, list[Path]]) -> list[Input]:
    protocols = parse_schema(SCHEMA)
    streams = (
        FileStream.make(name, paths, protocols[name].columns, protocols[name].times, [])
        for name, paths in files.items()
    )
    return [table_input(stream) for stream in streams]


def plan_of(name: str, inputs: list[Input]) -> Plan:
    tables = Tables({str(source.stream): source.table for source in inputs if source.table is not None})
    return Plan(name, QUERIES[name], tables.bind(QUERIES[name], None)[0].root)


def inline(sql: str, files: dict[str, list[Path]]) -> tuple[list[tuple], float]:
    plan, start = Tables.of_schema(SCHEMA, [], {name: [*map(str, paths)] for name, paths in files.items()}).bind(
        sql, None
    )
    with start() as answer:
        batches = [readable(batch, plan.times) for batch in answer.batches]
        return ordered(batches), answer.samples().total(LATE_PARTIALS)


def ordered(batches: list) -> list[tuple]:
    return sorted((tuple(row.values()) for batch in batches for row in batch.to_pylist()), key=repr)


@pytest.mark.parametrize("seed", range(4))
def test_micro_batches_have_the_rows_and_the_late_rows_of_the_inline_engine(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(seed)
    monkeypatch.setattr(table_files, "BATCH_ROWS", 7)
    monkeypatch.setattr("highlevel.inline.table_sources.TEXT_BYTES", random.choice([1, 100, 1 << 20]))
    files = {
        name: write(random, rows_of(random, random.randrange(1, 100), random.choice([0.1, 5])), tmp_path, name)
        for name in ("events", "others", "plain")
    }
    inputs = inputs_of(files)
    plans = [plan_of(name, inputs) for name in QUERIES]
    used = spec(inputs, random, plans)
    found: dict[str, list] = {name: [] for name in QUERIES}
    batches = list(steps(used, tmp_path / "state", random))
    for results, _ in batches:
        for name, rows in results.items():
            found[name].append(readable(rows, plans[list(QUERIES).index(name)].times))
    _, totals = batches[-1]
    late_rows = 0.0
    for name, sql in QUERIES.items():
        expected, late = inline(sql, files)
        assert ordered(found[name]) == expected, (name, seed)
        assert totals.samples.total(LATE_PARTIALS, query=name) == late, (name, seed)
        late_rows += late
    assert late_rows > 0 or seed != 0


def test_a_row_changes_at_most_once_in_a_micro_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_files, "BATCH_ROWS", 7)
    sql = "SELECT user, count(*) AS n FROM events [RANGE 10 seconds] GROUP BY user EMIT CHANGES"
    withdrawn = 0
    for seed in range(4):
        random = Random(seed)
        files = {"events": write(random, rows_of(random, 200, 5), tmp_path, f"e{seed}-")}
        inputs = inputs_of(files)
        plan = compile_query(sql, "q", tables=_readable(inputs))
        content: Counter[tuple] = Counter()
        for results, _ in steps(spec(inputs, random, [plan]), tmp_path / f"state{seed}", random):
            changes = [tuple(row.values()) for row in results["q"].to_pylist()] if "q" in results else []
            assert len({tuple(row) for *row, _, _ in changes}) == len(changes), seed
            for *row, weight, _ in changes:
                content[tuple(row)] += weight
                withdrawn += weight < 0
        expected, _ = inline(sql.removesuffix(" EMIT CHANGES"), files)
        assert len(+content) == len(expected), seed
        assert set(content.values()) <= {0, 1}, seed
    assert withdrawn > 0


def test_every_batch_can_be_read_from_its_position(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_files, "BATCH_ROWS", 7)
    monkeypatch.setattr("highlevel.inline.table_sources.TEXT_BYTES", 100)
    for seed in range(5):
        random = Random(seed)
        (source,) = inputs_of({"events": write(random, rows_of(random, 100, 3), tmp_path, f"e{seed}-")})
        assert source.table is not None
        whole = [rows.to_pylist() for _, rows, _ in source.table.rows()]
        starts = index_table(source.table).starts
        assert [len(rows) for rows in whole] == [7] * 14 + [2]
        for number, start in enumerate(starts):
            assert [rows.to_pylist() for _, rows, _ in source.table.rows(start)] == whole[number:], (seed, number)


KEYED = """PROTOCOL keyed { UINT id (key); TIME ts (banded_increasing(9 seconds)); UINT bytes; STRING op; }"""


def test_rows_that_an_update_replaces_are_found_in_earlier_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events without the row before: a task reads its batches as if it had read all earlier ones."""
    monkeypatch.setattr(table_files, "BATCH_ROWS", 7)
    monkeypatch.setattr("highlevel.inline.table_sources.TEXT_BYTES", 300)
    sql = "SELECT count(*) AS n, sum(bytes) AS b FROM keyed CHANGES BY op [RANGE 5 seconds]"
    for seed in range(3):
        random = Random(f"keyed {seed}")
        lines = []
        for number in range(80):
            moment = dt.datetime.fromtimestamp((STARTED + number * 10**6) / 1e6, dt.UTC).isoformat()
            key = {"id": random.randrange(12)}
            row = {**key, "ts": moment, "bytes": random.randrange(99)}
            deleted = random.random() < 0.2
            lines.append({"op": "d" if deleted else "u", "before": key if deleted else None, "after": row})
            lines[-1]["after"] = None if deleted else row
        paths = [tmp_path / f"{seed}-{part}.jsonl" for part in range(2)]
        for path, part in zip(paths, (lines[:37], lines[37:]), strict=True):
            path.write_text("".join(f"{json.dumps(line)}\n" for line in part))
        protocol = parse_schema(KEYED)["keyed"]
        stream = FileStream.make("keyed", paths, protocol.columns, protocol.times, [])
        whole = [rows.to_pylist() for _, rows, _ in stream.rows()]
        assert sum(row["op"] == "d" for rows in whole[-5:] for row in rows) > 5, "updates withdraw rows"
        for number, start in enumerate(index_table(stream).starts):
            assert [rows.to_pylist() for _, rows, _ in stream.rows(start)] == whole[number:], (seed, number)
        plan = Plan("q", sql, Tables({"keyed": stream}).bind(sql, None)[0].root)
        used = spec([table_input(stream)], random, [plan])
        found = [table for results, _ in steps(used, tmp_path / str(seed), random) for table in results.values()]
        _, start = Tables.of_schema(KEYED, paths, {}).bind(sql, None)
        with start() as answer:
            assert ordered([*found]) == ordered([*answer.batches]), seed


@pytest.mark.parametrize("count", [20, 24, 26])
def test_a_file_that_changes_after_the_index_is_refused(
    count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_files, "BATCH_ROWS", 7)
    table, path = rows_of(Random(2), 26, 1), tmp_path / "e.parquet"
    parquet.write_table(table.slice(0, 25), path)
    inputs = inputs_of({"events": [path]})
    used = spec(inputs, Random(2), [plan_of("rows", inputs)])
    assert inputs[0].table is not None
    (whole,) = index_table(inputs[0].table).ranges(0, 0, 4, 1)
    parquet.write_table(table.slice(0, count), path)
    with pytest.raises(InputError, match=f"a file changed during the run: got {count} rows from batch 0 on, expected"):
        list(read_table_range(used.assignment, whole))


LARGE = """SELECT user, count(*) AS n, sum(bytes) AS b FROM events [RANGE 1 hour] GROUP BY user"""


@pytest.mark.spark
def test_a_run_on_spark_stops_and_continues_and_batches_have_its_rows(spark, tmp_path: Path) -> None:
    from highlevel.spark.stream import StreamRun

    random = Random(1)
    large = rows_of(random, 5 * table_files.BATCH_ROWS // 2, 4)
    parquet.write_table(pa.concat_tables([large, large.slice(0, 1000)]), tmp_path / "e.parquet", row_group_size=50_000)
    files = {"events": [tmp_path / "e.parquet"]}
    expected, late = inline(LARGE, files)
    assert late == 1000
    inputs = inputs_of(files)
    plan = compile_query(LARGE, "large", tables=_readable(inputs))

    class EnoughError(Exception):
        pass

    def after_first(*_: object) -> None:
        raise EnoughError

    run = StreamRun(spark, [plan], inputs, tmp_path / "run", max_blocks=1, on_batch=after_first)
    run.start()
    with pytest.raises(EnoughError):
        run.wait()
    run.stop()
    again = StreamRun(spark, [plan], inputs, tmp_path / "run", max_blocks=1)
    again.start()
    assert again.wait()
    again.stop()
    written = wiretide.query("SELECT * FROM large", tmp_path / "run")
    assert len(expected) == written.num_rows > 0
    assert sum(row[3] for row in expected) == sum(written["n"].to_pylist())
    assert again.samples.total(LATE_PARTIALS) == late
    streams = {"events": [str(tmp_path / "e.parquet")]}
    plan, start = Tables.of_schema(SCHEMA, [], streams, Engine("local")).bind(LARGE, None)
    with start() as answer:
        assert ordered([readable(batch, plan.times) for batch in answer.batches]) == expected
        assert answer.samples().total(LATE_PARTIALS) == late


def _readable(inputs: list[Input]) -> dict[str, ReadableQuery]:
    return {
        stream.name: ReadableQuery(stream.columns, stream.times, stream.node, Plan(stream.name, "", stream.node(None)))
        for stream in (source.table for source in inputs)
        if stream is not None
    }


def _bind(text: str, folder: Path) -> list[Input]:
    pipeline = parse_pipeline(text, folder)
    return pipeline.inputs(pipeline.plans())


PIPELINE = """
[links.events]
table = "events*"
schema = "my.protocol"
[links.others]
table = ["o.csv"]
schema = "PROTOCOL x { TIME ts (increasing); UINT bytes; }"
protocol = "x"
[queries.users]
sql = "SELECT user, count(*) AS n FROM events [RANGE 2 seconds] GROUP BY user"
[queries.later]
sql = "SELECT max(n) AS most FROM users [RANGE 10 seconds]"
[queries.others_too]
sql = "SELECT sum(bytes) AS b FROM others [RANGE 2 seconds]"
"""


def test_a_pipeline_file_reads_tables(tmp_path: Path) -> None:
    (tmp_path / "my.protocol").write_text(SCHEMA)
    write(Random(3), rows_of(Random(3), 100, 1), tmp_path, "events")
    csv.write_csv(rows_of(Random(4), 10, 0), tmp_path / "o.csv")
    pipeline = parse_pipeline(PIPELINE, tmp_path)
    plans = pipeline.plans()
    inputs = pipeline.inputs(plans)
    assert [source.link for source in inputs] == ["events", "others"]
    assert [[source.feeds(leaf) for leaf in plan.leaves] for plan in plans for source in inputs] == [
        *([[True], [False]] * 2),
        *[[False], [True]],
    ]
    used = spec(inputs, Random(1), plans)
    rows = {plan.name: 0 for plan in plans}
    for results, _ in steps(used, tmp_path / "state", Random(1)):
        rows = {name: rows[name] + table.num_rows for name, table in results.items()}
    assert all(rows.values()), rows


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('schema = "my.protocol"', "", "links.events.schema is missing: expected a file, or the text PROTOCOL events"),
        ('protocol = "x"', "", "links.others.protocol: others is no protocol of the schema, which has x; expected the"),
        ('protocol = "x"', 'protocol = "y"', "y is no protocol of the schema, which has x; expected one of them"),
        ('schema = "my.protocol"', 'schema = "none"', "cannot be read as a schema"),
        ('UINT bytes; }"', 'UNIT bytes; }"', "unknown type 'UNIT'"),
        ('table = ["o.csv"]', "table = []", "links.others.table: got [], expected a path or a list of paths"),
        ('table = ["o.csv"]', 'table = "o.csv"\ncapture = "x"', "links.others.capture is not known; valid here: table"),
        ('table = ["o.csv"]', 'table = "o.txt"', "another suffix, expected one of .csv"),
        ('table = ["o.csv"]', 'table = "none/*"', "no file"),
        (
            "SELECT max(n) AS most FROM users [",
            "SELECT max(len) AS most FROM nobody [",
            "no file for the stream nobody",
        ),
    ],
)
def test_wrong_tables_of_a_pipeline_are_errors(old: str, new: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "my.protocol").write_text(SCHEMA)
    (tmp_path / "events.csv").write_text("")
    assert old in PIPELINE
    with pytest.raises((PipelineError, InputError)) as error:
        _bind(PIPELINE.replace(old, new), tmp_path)
    assert message in str(error.value)
