"""The data source `wiretide` of Spark: rows of captures in the session of a user.

* Rows against `wiretide.packets` and an independent decoder catch rows lost, doubled or changed on the way.
* Small ranges detect rows that are lost at the edges of ranges, and guessed boundaries that no task verifies.
* Cut files catch a DataFrame that is silently incomplete.

Plans and tasks are called here as Spark calls them, without Spark, unless a test is marked.
"""

import json
import operator
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import wiretide
from capture.errors import InputError
from highlevel.spark.data_source.capture_rows import plan_ranges, read_rows
from highlevel.spark.data_source.options import SourceOptions
from highlevel.spark.data_source.source import CaptureTable
from highlevel.spark.inputs import byte_ranges
from queries.gsql import compile_query
from queries.pipeline.inputs import bind_files
from tests.harness.links import write_links
from tests.references.capture_oracle import read_pcap
from tests.references.imitating_frames import START, imitating_frames
from tests.references.pcap_bytes import NS, pcap_bytes
from tests.references.written_exports import write_exports

ROOT = Path(__file__).resolve().parents[4]
NUMBERS = {"times": "ns"}


def read(path: Path | str, cores: int = 1, **options: str) -> pa.Table:
    """The rows of a DataFrame, planned and read in this process."""
    parsed = SourceOptions.parse({"path": str(path)} | options)
    parts = plan_ranges(bind_files(parsed.paths), parsed, cores)
    batches = [batch for part in parts for batch in read_rows(part, parsed, parsed.columns)]
    return pa.Table.from_batches(batches) if batches else pa.table({})


def wanted(path: Path, kind: str) -> list[dict]:
    """The rows that `wiretide.packets` returns, with times in ns."""
    batches = [*wiretide.packets(path, kind=kind)]
    rows = pa.Table.from_batches(batches) if batches else pa.table({})
    times = [number for number, field in enumerate(rows.schema) if pa.types.is_timestamp(field.type)]
    for number in times:
        rows = rows.set_column(number, rows.schema[number].name, rows.column(number).cast(pa.int64()))
    return rows.to_pylist()


def imitations(path: Path) -> Path:
    frames = imitating_frames(1)
    path.write_bytes(pcap_bytes([(START + number * NS, frame) for number, frame in enumerate(frames)]))
    return path


@pytest.mark.spark
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(("netbios.pcap", "packets"), ("dos_win98_smb_netbeui.pcap", "frames"), ("ah.pcapng", "frames")),
        *(("exports.pcap", "flows"), ("sflow.pcap", "samples")),
    ],
)
def test_a_dataframe_has_the_rows_of_the_capture(name: str, kind: str, spark, captures: Path, tmp_path: Path) -> None:
    wiretide.register(spark)
    path = captures / "pcap" / name
    if kind == "flows":
        path = tmp_path / name
        write_exports(path, Random(1), 100)
    frame = spark.read.format("wiretide").option("kind", kind).option("times", "ns").load(str(path))
    rows = [row.asDict() for row in frame.collect()]
    assert rows == wanted(path, kind) != []


@pytest.mark.spark
def test_a_dataframe_has_the_packets_of_an_independent_decoder(spark, captures: Path) -> None:
    wiretide.register(spark)
    path = captures / "pcap" / "1kxun.pcap"
    names = ["ts", "srcIP", "destIP", "srcPort", "destPort", "protocol", "len", "payload"]
    frame = spark.read.format("wiretide").options(columns=",".join(names)).load(f"file://{path}")
    found = Counter(tuple(row.values()) for row in frame.toArrow().to_pylist())
    expected = Counter(
        (row["ts"] // 1000, *(row[name] for name in names[1:]))
        for row in read_pcap(path).rows()
        if not isinstance(row, str)
    )
    assert expected == Counter(
        (int(ts.timestamp()) * 10**6 + ts.microsecond, ip_address(source), ip_address(target), *rest)
        for (ts, source, target, *rest), count in found.items()
        for _ in range(count)
    )


@pytest.mark.spark
def test_folders_globs_and_lists_of_files_have_one_link_each(spark, tmp_path: Path) -> None:
    wiretide.register(spark)
    inputs = write_links(tmp_path, 5)
    counts = {path.path.stem: sum(batch.num_rows for batch in wiretide.packets(path.path)) for path in inputs}
    read_ = spark.read.format("wiretide")
    for paths in (str(tmp_path), f"{tmp_path}/*.pcap", [str(input_.path) for input_ in inputs]):
        found = read_.load(paths).groupBy("link").count().collect()
        assert {row["link"]: row["count"] for row in found} == {link: count for link, count in counts.items() if count}
    (only,) = read_.option("link", "border").load(str(tmp_path)).groupBy("link").count().collect()
    assert (only["link"], only["count"]) == ("border", sum(counts.values()))


@pytest.mark.spark
def test_a_schema_selects_columns(spark, captures: Path) -> None:
    wiretide.register(spark)
    path = str(captures / "pcap" / "netbios.pcap")
    reader = spark.read.format("wiretide")
    frame = reader.schema("srcIP STRING, `inner.ttl` BIGINT").load(path)
    assert frame.columns == ["srcIP", "inner.ttl"]
    assert frame.distinct().count() > 1
    with pytest.raises(Exception, match="schema: got srcIP bigint, expected srcIP string"):
        reader.schema("srcIP BIGINT").load(path).count()
    with pytest.raises(Exception, match="ValueError: option kind: got 'packet', expected packets, frames, flows or"):
        spark.read.format("wiretide").option("kind", "packet").load(path)


@pytest.mark.parametrize("seed", range(10))
def test_ranges_together_contain_every_row_once(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(byte_ranges, "MIN_RANGE_BYTES", Random(seed).randrange(2_000, 20_000))
    for input_ in write_links(tmp_path, seed):
        for ranges in ("guessed", "exact"):
            rows = read(input_.path, 16, ranges=ranges, **NUMBERS).to_pylist()
            assert rows == wanted(input_.path, "packets")


def test_rows_of_flows_are_read_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(byte_ranges, "MIN_RANGE_BYTES", 1000)
    path = tmp_path / "exports.pcap"
    write_exports(path, Random(1), 100)
    assert read(path, 8, kind="flows", **NUMBERS).to_pylist() == wanted(path, "flows") != []


def test_a_wrong_guess_fails_and_exact_ranges_do_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(byte_ranges, "MIN_RANGE_BYTES", 1000)
    path = imitations(tmp_path / "a.pcap")
    options = {"kind": "frames", "columns": "ts, len"}
    with pytest.raises(InputError, match=r'a.pcap: the first record after byte \d+ was guessed wrong.*"exact"'):
        read(path, 64, **options)
    assert read(path, 64, ranges="exact", **options).num_rows == len(imitating_frames(1))


OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def random_condition(random: Random, rows: list[dict]) -> tuple[str, Callable[[dict], bool]]:
    """A condition, and its definition over one row of a DataFrame with times in ns."""
    name = random.choice(["ts", "ts", "srcIP", "destPort", "protocol", "len"])
    value = random.choice(rows)[name]
    value = 53 if value is None else value
    if name == "ts":
        value += random.choice([-1, 0, 0, 1])
    sign = random.choice([*OPERATORS] if name != "srcIP" else ["=", "<>"])
    literal = f"'{value}'" if name == "srcIP" else value
    return f"{name} {sign} {literal}", lambda row: row[name] is not None and OPERATORS[sign](row[name], value)


@pytest.mark.parametrize("seed", range(10))
def test_a_condition_chooses_the_rows_of_its_definition(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(byte_ranges, "BLOCK_RECORDS", 64)  # so that blocks are skipped
    monkeypatch.setattr(byte_ranges, "MIN_RANGE_BYTES", 20_000)
    random = Random(seed)
    path = write_links(tmp_path, seed)[0].path
    rows = wanted(path, "packets")
    for _ in range(6):
        pairs = [random_condition(random, rows) for _ in range(random.randrange(1, 3))]
        table = make_table(path, where=" AND ".join(text for text, _ in pairs), columns="srcIP, len", **NUMBERS)
        table.cores = 4
        reader = table.reader(table.schema())
        got = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
        kept = [row for row in rows if all(holds(row) for _, holds in pairs)]
        assert got == [{name: row[name] for name in ("srcIP", "len")} for row in kept]


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("ln > 5", "line 1, column 31: unknown column 'ln'"),
        ("len > (SELECT max(len) FROM packets)", "line 1, column 37: a sub-query in WHERE"),
        ("len > 1) UNION SELECT ts FROM packets WHERE (len > 1", "expected a condition over the columns of one row"),
    ],
)
def test_a_wrong_condition_is_an_error_before_the_job(where: str, message: str, tmp_path: Path) -> None:
    path = write_links(tmp_path, 3)[0].path
    with pytest.raises(ValueError, match=r"^option where: .*") as raised:
        make_table(path, where=where).schema()
    assert message in str(raised.value)


@pytest.mark.spark
def test_filters_of_one_job_do_not_change_the_next(spark, captures: Path) -> None:
    """Spark stores the reader that has taken a filter, and uses it for other jobs over the same DataFrame."""
    wiretide.register(spark)
    path = str(captures / "pcap" / "1kxun.pcap")
    frame = spark.read.format("wiretide").option("columns", "protocol, len").load(path)
    lengths = [row.len for row in frame.collect()]
    large = sum(length > 100 for length in lengths)
    assert 0 < large < len(lengths)
    assert frame.where("len > 100").count() == large
    assert frame.count() == len(lengths)
    assert frame.where("len > 100").union(frame.where("len <= 100")).count() == len(lengths)
    chosen = spark.read.format("wiretide").option("columns", "protocol").option("where", "len > 100").load(path)
    assert chosen.count() == large


CONNECTED = """
import sys
from pyspark.sql import SparkSession
import wiretide

spark = SparkSession.builder.remote("local[2]").getOrCreate()
wiretide.register(spark)
rows = spark.read.format("wiretide").option("columns", "protocol, len").load(sys.argv[1])
counts = rows.groupBy("protocol").count()
counts.write.json(sys.argv[2] + "/rows")
sql = "SELECT protocol, count(*) AS count FROM packets GROUP BY protocol"
spark.read.format("wiretide").option("sql", sql).load(sys.argv[1]).write.json(sys.argv[2] + "/query")
"""


@pytest.mark.spark
@pytest.mark.slow("starts a server of Spark Connect")
def test_a_session_of_spark_connect_reads_captures(tmp_path: Path) -> None:
    path = write_links(tmp_path, 5)[0].path
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, "-c", CONNECTED, str(path), str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    expected = Counter(row["protocol"] for row in wanted(path, "packets"))
    for name in ("rows", "query"):
        lines = [line for file in (tmp_path / name).glob("*.json") for line in file.read_text().splitlines()]
        assert {row["protocol"]: row["count"] for row in map(json.loads, lines)} == expected


@pytest.mark.parametrize("lost", [1, 70])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_damaged_capture_fails_or_is_read_up_to_the_damage(suffix: str, lost: int, tmp_path: Path) -> None:
    from gzip import compress

    whole = write_links(tmp_path, 7)[0].path
    path = tmp_path / f"cut.pcap{suffix}"
    data = whole.read_bytes()[:-lost]
    path.write_bytes(compress(data) if suffix else data)
    with pytest.raises(InputError, match=r'cut\.pcap\S*: damaged: cut in record.* at byte \d+; option\("damage", "st'):
        read(path)
    with pytest.warns(RuntimeWarning, match="cut in record"):
        expected = wanted(path, "packets")
    rows = read(path, damage="stop", link=expected[0]["link"], **NUMBERS).to_pylist()
    assert rows == expected
    assert len(rows) in {len(wanted(whole, "packets")) - 1, len(wanted(whole, "packets")) - 2}


def test_damage_in_the_middle_is_never_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(byte_ranges, "MIN_RANGE_BYTES", 2000)
    path = write_links(tmp_path, 8)[0].path
    data = bytearray(path.read_bytes())
    cut = len(data) // 2
    data[cut : cut + 200] = b"\xff" * 200
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"damaged: |guessed wrong, or the capture is damaged"):
        read(path, 16)
    with pytest.warns(RuntimeWarning):
        expected = wanted(path, "packets")
    assert read(path, 16, damage="stop", **NUMBERS).to_pylist() == expected


def test_a_large_batch_is_divided(captures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("highlevel.spark.data_source.capture_rows.BATCH_BYTES", 10_000)
    path = captures / "pcap" / "netbios.pcap"
    rows = read(path, **NUMBERS)
    assert len(rows.to_batches()) > 3
    assert rows.to_pylist() == wanted(path, "packets")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "packet"}, r"option kind: got 'packet', expected packets, frames, flows or samples"),
        ({"times": "us"}, r"option times: got 'us', expected timestamp or ns"),
        ({"damage": "x"}, r"option damage: got 'x', expected error or stop"),
        ({"ranges": "x"}, r"option ranges: got 'x', expected guessed or exact"),
        ({"columns": "ts, foo"}, r"option columns: no column of packets is named foo; the columns are ts, link,"),
        ({"columns": "ts,,len"}, r"option columns: got 'ts,,len', expected names separated by commas"),
        ({"columns": "ts, TS"}, r"option columns: got ts twice, expected each column once"),
        ({"link": ""}, r"option link: got an empty text, expected the name of a link"),
        (
            {"colums": "ts"},
            r"option colums: unknown; the options of the format wiretide are columns, link, sql, where,",
        ),
        ({"sql": "SELECT 1", "link": "a"}, r"option link: got it with the option sql; the query selects rows"),
        ({"maxfilespertrigger": "0"}, r"option maxFilesPerTrigger: got '0', expected a number of files from 1"),
        ({"path": "s3a://bucket/a.pcap"}, r"got the path s3a://bucket/a.pcap, expected a file that every executor"),
    ],
)
def test_a_wrong_option_is_named_with_the_choices(options: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        SourceOptions.parse({"path": "a.pcap"} | options)


def test_a_path_is_needed() -> None:
    with pytest.raises(ValueError, match=r"^got no path, expected a capture, a folder or a glob: spark\.read\.format"):
        SourceOptions.parse({})
    parsed = SourceOptions.parse({"paths": json.dumps(["a.pcap", "file:/b.pcap"])})
    assert parsed.paths == ("a.pcap", "/b.pcap")


@pytest.mark.spark
def test_a_query_in_sql_has_its_final_rows(spark, captures: Path) -> None:
    wiretide.register(spark)
    path = captures / "pcap" / "netbios.pcap"
    sql = "SELECT srcIP, min(ts) AS first, sum(len) AS bytes FROM packets [RANGE 1 s] GROUP BY srcIP"
    reader = spark.read.format("wiretide").option("sql", sql)
    rows = reader.option("times", "ns").load(str(path))
    expected = wiretide.query(sql, path)
    columns = [
        expected[name].cast(pa.int64()) if pa.types.is_timestamp(expected[name].type) else expected[name]
        for name in expected.column_names
    ]
    wanted_rows = sorted(zip(*(column.to_pylist() for column in columns), strict=True))
    assert sorted(map(tuple, rows.collect())) == wanted_rows
    assert dict(reader.option("times", "timestamp").load(str(path)).dtypes)["first"] == "timestamp"


def make_table(path: Path, **options: str) -> CaptureTable:
    """A table as Spark makes it."""
    attributes = {"bind_files": staticmethod(bind_files), "compile_query": staticmethod(compile_query), "cores": 1}
    return type("Bound", (CaptureTable,), attributes)({"path": str(path)} | options)


def test_a_query_over_a_damaged_capture_fails_or_uses_the_rows_before(tmp_path: Path) -> None:
    path = write_links(tmp_path, 8)[0].path
    path.write_bytes(path.read_bytes()[:-3])

    def count(**options: str) -> list[int]:
        table = make_table(path, sql="SELECT count(*) AS n FROM packets", **options)
        reader = table.reader(table.schema())
        (part,) = reader.partitions()
        return [row["n"] for batch in reader.read(part) for row in batch.to_pylist()]

    assert count(damage="stop")[0] > 1000
    with pytest.raises(InputError, match=r"1 of the captures are damaged; option\("):
        count()


@pytest.mark.parametrize(
    ("options", "method", "message"),
    [
        (
            {"sql": "SELECT count(*) FROM packets"},
            "streamReader",
            "option sql: got a query with spark.readStream",
        ),
        (
            {"kind": "flows", "link": "a"},
            "streamReader",
            "option link: got one link for all files of flows",
        ),
        (
            {"maxfilespertrigger": "2"},
            "reader",
            "option maxFilesPerTrigger: got the option with spark.read",
        ),
    ],
)
def test_an_option_of_the_other_reader_is_refused(options, method, message, tmp_path: Path) -> None:
    table = make_table(tmp_path, **options)
    with pytest.raises(ValueError, match=f"^{message}"):
        getattr(table, method)(table.schema())


def test_a_path_that_does_not_exist_is_an_error_before_the_job(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="none: got no file or folder of this name, expected a capture"):
        make_table(tmp_path / "none").schema()


def test_only_a_session_is_registered() -> None:
    with pytest.raises(ValueError, match=r"^got builtins.str, expected a pyspark.sql.SparkSession"):
        wiretide.register("local")
