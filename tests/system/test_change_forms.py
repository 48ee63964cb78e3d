"""`wiretide query --changes`: the forms of other systems are written to standard output and read back.

Each form is read by the rules of its system, step by step. The tests detect an update in two halves, a row that is
withdrawn before it is returned, a key that two rows share, and a progress row before the last change of its time.
"""

import csv
import io
import json
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from capture.errors import InputError
from dashboards.output.change_forms import ChangeWriter
from dashboards.output.formats import ChangeForm
from queries.gsql import compile_query
from tests.harness.command_line import run
from tests.harness.disordered_links import write_disordered

GROUPS = (
    "SELECT srcIP, count(*) AS n, avg(len) AS size [RANGE 10 seconds] FROM packets GROUP BY srcIP HAVING count(*) > 60"
)
ABSENT = (
    "SELECT p.ts, p.srcIP FROM packets p [RANGE 20 ms] ANTI JOIN packets q [RANGE 0 s] ON q.srcIP = p.srcIP "
    "AND q.ts > p.ts"
)


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two blocks of packets that are up to 12 seconds late."""
    return write_disordered(tmp_path_factory.mktemp("forms") / "late.pcap", Random(4), packets=20_000, late=12)


def answer(capture: Path, sql: str, *options: str) -> str:
    status, text, errors = run("query", capture, sql, *options, cwd=capture.parent)
    assert status == 0, errors
    return text


def rows_of(capture: Path, sql: str) -> Counter[tuple[Any, ...]]:
    """The exact answer of the query without changes."""
    return Counter(tuple(json.loads(line).values()) for line in answer(capture, sql, "--format", "json").splitlines())


def changes_of(capture: Path, sql: str, form: str) -> list[dict[str, Any]]:
    text = answer(capture, f"{sql} EMIT CHANGES", "--changes", form, "--format", "json")
    return [json.loads(line) for line in text.splitlines()]


def test_debezium_is_a_table_with_a_key(capture: Path) -> None:
    table: dict[tuple[Any, ...], dict[str, Any]] = {}
    operations: Counter[str] = Counter()
    for event in changes_of(capture, GROUPS, "debezium"):
        before, after = event["before"], event["after"]
        key = tuple((before or after)[name] for name in ("window_end", "srcIP"))
        operations[event["op"]] += 1
        assert table.pop(key, None) == before, "an event states the row that the table has"
        if after is not None:
            assert tuple(after[name] for name in ("window_end", "srcIP")) == key
            table[key] = after
        assert event["op"] == ("c" if before is None else "d" if after is None else "u")
        source = event["source"]
        assert (source["connector"], source["snapshot"], source["table"]) == ("wiretide", "false", "query")
        assert source["ts_ms"] == key[0] // 1_000_000
    assert Counter(tuple(row.values()) for row in table.values()) == rows_of(capture, GROUPS)
    assert operations["u"] > 0


def test_debezium_has_the_time_of_writing_and_a_snapshot_of_a_query_without_changes() -> None:
    sql = "SELECT srcIP, count(*) AS n [RANGE 10 seconds] FROM packets GROUP BY srcIP"
    plan = compile_query(sql, "talkers")
    row = {"window_start": 0, "window_end": 10**10, "srcIP": bytes([10, 0, 0, 1]), "n": 5}
    writer = ChangeWriter(plan, ChangeForm.DEBEZIUM, clock=lambda: 12_345_678_901)
    (batch,) = writer.convert([pa.RecordBatch.from_pylist([row], plan.schema)])
    (event,) = batch.to_pylist()
    assert (event["op"], event["before"], event["after"], event["ts_ms"], event["final"]) == (
        *("r", None, row, 12_345, True),
    )
    source = event["source"]
    assert (source["ts_ms"], source["snapshot"], source["table"], source["version"] > "0") == (
        *(10_000, "true", "talkers", True),
    )


@pytest.mark.parametrize("suffix", ["jsonl", "parquet", "arrow"])
def test_envelopes_are_a_source(capture: Path, suffix: str, tmp_path: Path) -> None:
    """CHANGES BY reads the envelopes that --changes debezium writes. Its result is the exact answer."""
    envelopes, schema = tmp_path / f"changes.{suffix}", tmp_path / "schema.txt"
    times = ("--times", "iso") if suffix == "jsonl" else ()
    answer(capture, f"{GROUPS} EMIT CHANGES", "--changes", "debezium", *times, "-o", str(envelopes))
    schema.write_text(
        "PROTOCOL log { TIME window_end (banded_increasing(1 hour)); IP srcIP; UINT n; FLOAT size; STRING op; }"
    )
    sql = "SELECT window_end, srcIP, n, size FROM log CHANGES BY op"
    found = answer(envelopes, sql, "--schema", str(schema), "--format", "json")
    read = Counter(tuple(json.loads(line).values()) for line in found.splitlines())
    assert read == Counter({row[1:]: count for row, count in rows_of(capture, GROUPS).items()})


@pytest.mark.parametrize("sql", [GROUPS, ABSENT], ids=["with a key", "without a key"])
def test_flink_is_a_changelog(capture: Path, sql: str) -> None:
    text = answer(capture, f"{sql} EMIT CHANGES", "--changes", "flink", "--format", "csv", "--raw-csv")
    assert text == answer(capture, f"{sql} EMIT CHANGES", "--changes", "flink", "--format", "csv"), "no + is escaped"
    rows: Counter[tuple[str, ...]] = Counter()
    kinds: Counter[str] = Counter()
    open_update = None
    for kind, *row, final in csv.reader(io.StringIO(text.partition("\n")[2])):
        kinds[kind] += 1
        assert final in ("true", "false")
        assert (kind == "+U") == (open_update is not None), "an update is two rows, one after the other"
        open_update = row if kind == "-U" else None
        rows[tuple(row)] += 1 if kind[0] == "+" else -1
        assert rows[tuple(row)] >= 0
    exact = csv.reader(io.StringIO(answer(capture, sql, "--format", "csv").partition("\n")[2]))
    assert +rows == Counter(map(tuple, exact))
    assert kinds["+U"] == kinds["-U"]
    assert (kinds["+U"] > 0) == (sql == GROUPS), "without a key a correction is a deletion and an insertion"
    assert kinds["+U"] + kinds["-D"] > 0, "some results are corrected"


@pytest.mark.parametrize("sql", [GROUPS, ABSENT])
def test_a_progress_row_is_after_all_changes_of_its_times(capture: Path, sql: str) -> None:
    time = "ts" if sql == ABSENT else "window_end"
    rows: Counter[tuple[Any, ...]] = Counter()
    progress, watermark, marks = 0, 0, 0
    for line in changes_of(capture, sql, "diff"):
        timestamp, is_progress, diff, *row = line.values()
        assert timestamp >= progress
        if is_progress:
            assert diff is None
            progress, watermark, marks = timestamp, max(watermark, line[time] or 0), marks + 1
            continue
        assert line[time] > watermark, "rows up to the watermark are final"
        rows[tuple(row)] += diff
    assert +rows == rows_of(capture, sql)
    assert marks > 2
    assert watermark == max(dict(zip(["start", "end"], row, strict=False)).get("end", 0) if sql == GROUPS else row[0]
                            for row in rows_of(capture, sql))  # fmt: skip


@pytest.mark.parametrize("form", ["debezium", "diff"])
def test_all_formats_have_the_same_rows(capture: Path, form: str, tmp_path: Path) -> None:
    lines = [without_clock(line) for line in changes_of(capture, GROUPS, form)]
    for name in ("a.parquet", "a.arrow"):
        answer(capture, f"{GROUPS} EMIT CHANGES", "--changes", form, "-o", str(tmp_path / name))
    tables = [pq.read_table(tmp_path / "a.parquet"), pa.ipc.open_stream((tmp_path / "a.arrow").read_bytes()).read_all()]
    for table in tables:
        shown = json.loads(json.dumps(table.to_pylist(), default=lambda time: time.value))
        assert [without_clock(line) for line in shown] == lines


def without_clock(line: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in line.items() if name != "ts_ms"}


REFUSED = [
    (GROUPS, "flink", "got a query without changes, expected EMIT CHANGES at its end"),
    (f"{ABSENT} EMIT CHANGES", "debezium", "got rows without a key (ts, srcIP), expected --changes flink"),
    (
        "SELECT count(*) AS n [RANGE 10 s] FROM packets GROUP BY srcIP, destPort EMIT CHANGES",
        "debezium",
        "the key of the query is window_end, srcIP, destPort, but the rows have only window_end; expected srcIP,",
    ),
    ("SELECT srcIP AS op [RANGE 9 s] FROM packets GROUP BY srcIP EMIT CHANGES", "flink", "got a column 'op'"),
]


@pytest.mark.parametrize(("sql", "form", "message"), REFUSED, ids=[each[-1] for each in REFUSED])
def test_a_form_that_is_impossible_for_the_results_is_refused(sql: str, form: str, message: str) -> None:
    with pytest.raises(InputError) as refused:
        ChangeWriter(compile_query(sql), ChangeForm(form))
    assert message in str(refused.value)


OPTIONS = [
    ("debezium", "csv", "rows are in envelopes, expected --format json"),
    ("flink", "openmetrics", "samples and plots cannot be corrected"),
]


@pytest.mark.parametrize(("form", "kind", "message"), OPTIONS)
def test_a_form_that_is_impossible_in_the_format_is_refused(capture: Path, form: str, kind: str, message: str) -> None:
    sql = f"{GROUPS} EMIT CHANGES"
    status, text, errors = run("query", capture, sql, "--changes", form, "--format", kind, cwd=capture.parent)
    assert (status != 0, text) == (True, "")
    assert message in " ".join(errors.split())
