"""Results of a run as tables: result files and stored windows have the same rows, types and watermarks.

* The reference is Python over the rows that were written. It catches lost files, wrong types and wrong windows.
* The same query over both stores catches differences between them.
* Damaged, deleted and mixed inputs form a table of messages.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections import Counter
from ipaddress import ip_address
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import wiretide
from capture.units import SECOND
from dashboards.page.stored_windows import VERSION
from highlevel.results.stored_columns import COLUMNS_KEY, with_columns
from highlevel.results.stored_files import list_files
from highlevel.results.user_types import readable
from highlevel.spark.run_folder import result_files
from highlevel.spark.run_folder.result_files import write_results
from tests.harness.command_line import run
from tests.harness.live_pages import START, drawn_rows, live_page, window_rows

NAMES = ("talkers", "total", "pairs", "rows")
WINDOWS = 24


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, list[dict[str, Any]]]]:
    """The folder of a run, and its rows by query. Micro-batches close between 0 and 4 windows of each query."""
    folder, random = tmp_path_factory.mktemp("run") / "state", Random(7)
    folder.mkdir()
    written: dict[str, list[dict[str, Any]]] = {name: [] for name in NAMES}
    with live_page(folder, *NAMES, served=False) as page:
        number = dict.fromkeys(NAMES, 0)
        for batch in range(WINDOWS):
            results = {}
            for name, plan in page.plans.items():
                tables = []
                for _ in range(min(random.randrange(5), WINDOWS - number[name])):
                    rows = drawn_rows(random, plan, random.choice([1, 20, 150]))
                    if name == "rows":
                        bounds = [{"ts": (START + random.randrange(1000)) * SECOND} for _ in rows]
                        table = pa.Table.from_pylist(
                            [{**row, **each} for row, each in zip(rows, bounds, strict=True)], plan.schema
                        )
                    else:
                        table = window_rows(plan, number[name], rows)
                    number[name] += 1
                    tables.append(table)
                    written[name] += table.to_pylist()
                if tables:
                    # The partitions of Spark return windows in any order.
                    table = pa.concat_tables(tables)
                    table = table.take(random.sample(range(table.num_rows), table.num_rows))
                    page.history.add(batch, name, table)
                    results[name] = with_columns(readable(table, plan.times), plan.root.columns)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(result_files, "MAX_BATCHES", 2)  # several files
                write_results(folder / "output", batch, results)
    (folder / "run.json").write_text("{}")
    return folder, written


def stores(folder: Path) -> dict[str, Path]:
    return {"files": folder, "windows": folder / "history.sqlite"}


@pytest.mark.parametrize("store", ["files", "windows"])
def test_a_query_reads_all_stored_rows_with_their_types(store: str, state: Any) -> None:
    folder, written = state
    path = stores(folder)[store]
    sums: Counter[str] = Counter()
    for row in written["talkers"]:
        sums[str(ip_address(row["srcIP"]))] += row["bytes"]
    table = wiretide.query("SELECT srcIP, sum(bytes) AS bytes FROM talkers GROUP BY srcIP", path)
    assert dict(zip(table["srcIP"].to_pylist(), table["bytes"].to_pylist(), strict=True)) == sums
    inside = "SELECT count(*) AS n FROM talkers WHERE srcIP IN '10.0.0.0/29' AND window_start >= '2023-11-14T22:14:00Z'"
    expected = sum(row["srcIP"][3] < 8 and row["window_start"] >= (START + 40) * SECOND for row in written["talkers"])
    assert wiretide.query(inside, path)["n"].to_pylist() == [expected]
    late = "SELECT ts, srcIP FROM rows WHERE len > 500000"
    found = wiretide.query(late, path)
    expected_rows = [(row["ts"], str(ip_address(row["srcIP"]))) for row in written["rows"] if row["len"] > 500_000]
    assert found.schema.field("ts").type == pa.timestamp("ns", "UTC")
    pairs = zip(found["ts"].cast(pa.int64()).to_pylist(), found["srcIP"].to_pylist(), strict=True)
    assert sorted(pairs) == sorted(expected_rows)


@pytest.mark.parametrize("store", ["files", "windows"])
@pytest.mark.parametrize("time", ["window_end", "window_start"])
def test_windows_over_results_are_those_of_the_definition(store: str, time: str, state: Any) -> None:
    folder, written = state
    sql = f"SELECT sum(packets) AS packets FROM total [RANGE 60 seconds, SLIDE 20 seconds, WA {time}]"
    found = wiretide.query(sql, stores(folder)[store])
    length, slide = 60 * SECOND, 20 * SECOND
    expected: Counter[int] = Counter()
    for row in written["total"]:
        first = row[time] // slide * slide + slide
        for end in range(first, first + length, slide):
            expected[end] += row["packets"]
    ends = found["window_end"].cast(pa.int64()).to_pylist()
    assert dict(zip(ends, found["packets"].to_pylist(), strict=True)) == expected
    assert ends == sorted(ends)


def test_windows_close_before_all_results_are_read(state: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first window of a live result comes before the last file is opened."""
    folder, _ = state
    opened: list[Path] = []
    read = pq.read_table
    monkeypatch.setattr(pq, "read_table", lambda path, **options: (opened.append(path), read(path, **options))[1])
    with contextlib.closing(wiretide.watch("SELECT count(*) AS n FROM total [RANGE 20 s]", folder)) as batches:
        next(batches)
    assert 0 < len(opened) < len(list_files(folder / "output" / "total"))


def test_runs_are_joined_by_their_names(state: Any, tmp_path: Path) -> None:
    folder, written = state
    sql = (
        "SELECT a.srcIP, a.n AS n, b.n AS other FROM today.talkers a [RANGE 0 s] JOIN Before.TALKERS b [RANGE 0 s] "
        "ON a.srcIP = b.srcIP AND a.bytes = b.bytes"
    )
    words = ("query", "-s", f"today={folder}", "-s", f"before={folder / 'history.sqlite'}", sql, "--format", "json")
    status, output, errors = run(*words, cwd=tmp_path)
    assert (status, errors) == (0, "")
    rows = [json.loads(line) for line in output.splitlines()]
    assert len(rows) == len(written["talkers"])
    assert all(row["n"] == row["other"] for row in rows)


def test_a_hyphen_in_the_name_of_a_query_may_be_an_underscore(tmp_path: Path) -> None:
    table = pa.table({"window_start": [0], "window_end": [10], "n": [5]})
    write_results(tmp_path / "output", 0, {"top-talkers": readable(table, ["window_start", "window_end"])})
    (tmp_path / "run.json").touch()
    for name in ("top_talkers", '"top-talkers"', "Top_Talkers"):
        assert wiretide.query(f"SELECT n FROM {name}", tmp_path)["n"].to_pylist() == [5]


def test_files_of_earlier_versions_have_types_by_the_names_of_their_columns(state: Any, tmp_path: Path) -> None:
    folder, _ = state
    old = tmp_path / "old"
    for path in list_files(folder / "output" / "talkers"):
        target = old / "output" / "talkers" / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        table = pq.read_table(path, partitioning=None)
        assert COLUMNS_KEY in table.schema.metadata
        pq.write_table(table.replace_schema_metadata(None), target)
    (old / "run.json").touch()
    sql = "SELECT srcIP, sum(n) AS n FROM talkers WHERE srcIP IN '10.0.0.0/28' GROUP BY srcIP ORDER BY n DESC, srcIP"
    assert wiretide.query(sql, old).equals(wiretide.query(sql, folder))


def damaged(folder: Path) -> None:
    path = folder / "output" / "talkers" / "part-00000000.parquet"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"PAR1 no more")


def old_history(folder: Path) -> None:
    with contextlib.closing(sqlite3.connect(folder / "history.sqlite")) as connection:
        connection.execute("CREATE TABLE windows (id INTEGER)")


WRONG = {
    "a run without results": (lambda folder: None, ".", "SELECT n FROM talkers", "the run has no results yet"),
    "a damaged file": (damaged, ".", "SELECT n FROM talkers", "part-00000000.parquet: cannot be read as results of"),
    "an old history": (old_history, "history.sqlite", "SELECT n FROM talkers", f"of version 0, expected {VERSION}"),
    "another database": (
        lambda folder: sqlite3.connect(folder / "x.db").execute("CREATE TABLE a (b)").connection.close(),
        "x.db",
        "SELECT n FROM talkers",
        "x.db: cannot be read as stored windows of `wiretide run`: no such table: windows",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_results_have_a_reason(name: str, tmp_path: Path) -> None:
    make, path, sql, reason = WRONG[name]
    (tmp_path / "run.json").touch()
    make(tmp_path)
    status, output, errors = run("query", path, sql, cwd=tmp_path)
    assert (status, output) == (1, "")
    assert reason in errors
    assert "Traceback" not in errors


REFUSED = [
    (("state", "SELECT n FROM talker"), 1, "no table for talker; bound are: pairs, rows, talkers, total"),
    (("state", "state/history.sqlite", "SELECT n FROM talkers"), 1, "got a second table pairs; expected a name"),
    (("state", "x.pcap", "SELECT n FROM talkers"), 1, "together with x.pcap; expected only results of `wiretide run`"),
    (("state", "--follow", "SELECT n FROM talkers"), 2, "the results of a run, and --follow: expected one query"),
    (("state", "--on", "local", "SELECT n FROM talkers"), 2, "and --on: expected the inline engine"),
    (("state", "SELECT n FROM talkers", "SELECT n FROM total", "-o", "x"), 2, "and several queries: expected one"),
    (("-s", "a=state", "SELECT n FROM talkers"), 1, "no table for talkers; bound are: a.pairs, a.rows, a.talk"),
    (("-s", "a=state", "SELECT n FROM b.talkers"), 2, "unknown kind of rows 'talkers'"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "status", "reason"), REFUSED, ids=lambda value: str(value)[:60])
def test_refused_requests_have_a_reason(
    words: tuple[str, ...], status: int, reason: str, state: Any, tmp_path: Path
) -> None:
    (tmp_path / "state").symlink_to(state[0])
    (tmp_path / "x.pcap").touch()
    got, output, errors = run("query", *words, cwd=tmp_path)
    assert output == ""
    assert reason in " ".join(errors.split())
    assert "Traceback" not in errors
    assert got == status
