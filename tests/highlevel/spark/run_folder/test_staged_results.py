"""Results that tasks write: exactly once through repeated and abandoned attempts, crashes between all steps, and dates.

The tests detect a row in two files, a row that a crash loses, a file of an abandoned task among the results, and a
reader that sees a row twice while files are written again.
"""

import json
import threading
from collections import Counter
from pathlib import Path
from random import Random

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from highlevel.plan.plan import Plan
from highlevel.results.row_limit import REST_ROWS, RowLimit
from highlevel.results.stored_files import list_files
from highlevel.spark.errors import FolderError
from highlevel.spark.run_folder import result_files
from highlevel.spark.run_folder.result_files import batches_of, move_to_dates, read_batch, read_results, write_results
from highlevel.spark.run_folder.staged_results import (
    ResultWriter,
    StagedFile,
    commit_files,
    decode_written,
    encode_written,
    remove_staged,
    stored_form,
)
from highlevel.spark.tasks.packing import pack
from queries.gsql import compile_query

SECOND = 1_000_000_000
DAY = 86_400 * SECOND
PLAN = compile_query("SELECT srcPort, count(*) AS n FROM a [RANGE 10 seconds] GROUP BY srcPort", "q")


def make_rows(plan: Plan, keys: list[int], end: int) -> pa.Table:
    """Rows of the window that ends at `end` (ns)."""
    columns = [[end - 10 * SECOND] * len(keys), [end] * len(keys), keys, [1] * len(keys)]
    return pa.table(
        [pa.array(values, field.type) for values, field in zip(columns, plan.schema, strict=True)], schema=plan.schema
    )


class DriverEndError(Exception):
    """The driver ends here."""


class Driver:
    """A driver and its tasks without Spark. `crash`: the step of the next micro-batch at which the driver ends."""

    def __init__(self, folder: Path, random: Random) -> None:
        self.folder, self.random, self.crash = folder, random, -1
        self.repeated = True

    def step(self) -> None:
        self.crash -= 1
        if self.crash == 0:
            raise DriverEndError

    def run(self, batch: int, rows: pa.Table, partitions: int, limits: dict[str, RowLimit]) -> None:
        """Process a micro-batch with any number of attempts of each task."""
        writer = ResultWriter(self.folder / "output", self.folder / "staged", batch, limits, {})
        counts, unwritten = [], []
        for part in range(partitions):
            own = rows.filter(pa.array([key % partitions == part for key in rows["srcPort"].to_pylist()], pa.bool_()))
            for _ in range(self.random.choice([0, 0, 1])):
                writer.write(PLAN, part, own)  # a task whose executor was lost
            sent, rest, files = writer.write(PLAN, part, own)
            self.step()
            if files:
                counts.append({"query": 0, "written": encode_written(part, files, rest)})
                known = sum(rest[REST_ROWS].to_pylist()) if rest is not None else 0
                assert sent.num_rows + known == own.num_rows
            else:
                unwritten.append(own)
        written = decode_written(counts)
        files = {"q": written[0].files} if written else {}
        stored = stored_form(PLAN, pa.concat_tables([PLAN.schema.empty_table(), *unwritten]), None)
        targets = {name: [writer.output / file.path for file in staged] for name, staged in files.items()}
        write_results(writer.output, batch, {"q": stored}, repeated=targets if self.repeated else None)
        self.step()
        for file in files.get("q", []):
            commit_files(writer, {"q": [file]}, {})
            self.step()
        remove_staged(writer.staged)
        self.repeated = False


class Reader(threading.Thread):
    """Reads all results again and again, as a program would. `problems`: the rows that it saw twice."""

    def __init__(self, output: Path) -> None:
        super().__init__()
        self.output, self.problems, self.reads = output, Counter[tuple](), 0
        self.ended = threading.Event()

    def run(self) -> None:
        while not self.ended.is_set():
            seen: Counter[tuple] = Counter()
            for path in list_files(self.output / "q"):
                try:
                    table = pq.ParquetFile(path).read()
                except FileNotFoundError:
                    continue
                seen.update(
                    zip(table["window_end"].cast(pa.int64()).to_pylist(), table["srcPort"].to_pylist(), strict=True)
                )
            self.problems.update({row: count for row, count in seen.items() if count > 1})
            self.reads += 1


@pytest.mark.parametrize("seed", range(4))
def test_rows_are_in_the_files_once_through_crashes_at_all_steps_and_with_a_reader(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(seed)
    monkeypatch.setattr(result_files, "MAX_BATCHES", random.choice([1, 3, 7]))
    driver, reader = Driver(tmp_path, random), Reader(tmp_path / "output")
    reader.start()
    try:
        expected: list[tuple[int, int]] = []
        for batch in range(25):
            end = random.randrange(1, 9) * DAY // 3 + batch * 10 * SECOND
            keys = random.sample(range(1000), random.choice([0, 3, 40, 200]))
            rows = pa.concat_tables([make_rows(PLAN, keys, end), make_rows(PLAN, keys[:5], end + DAY)])
            limits = {"q": RowLimit(("n",), {"n": "sum"}, rows=random.choice([5, 30, 1000]))}
            partitions = random.choice([1, 2, 3])
            driver.crash = random.choice([0, 0, *range(1, 8)])
            while True:
                try:
                    driver.run(batch, rows, partitions, limits)
                    break
                except DriverEndError:
                    driver.repeated = True
                    remove_staged(tmp_path / "staged")
                    if random.random() < 0.3:  # with another rule for alerts, all rows are sent
                        limits = {}
            expected += zip(rows["window_end"].to_pylist(), rows["srcPort"].to_pylist(), strict=True)
            found = read_results(tmp_path / "output", PLAN)
            assert Counter(zip(found["window_end"].to_pylist(), found["srcPort"].to_pylist(), strict=True)) == Counter(
                expected
            ), (seed, batch)
            one = read_batch(tmp_path / "output", PLAN, batch)
            assert (0 if one is None else one.num_rows) == rows.num_rows
    finally:
        reader.ended.set()
        reader.join()
    assert reader.reads
    assert not reader.problems, (seed, reader.problems)
    for path in list_files(tmp_path / "output" / "q"):
        assert {date_of(time) for time in pq.ParquetFile(path).read()["window_end"].to_pylist()} == {
            path.parent.name.removeprefix("date=")
        }


def date_of(time: pd.Timestamp) -> str:
    return str(time.date())


def test_the_driver_receives_as_many_bytes_for_a_hundred_times_the_rows(tmp_path: Path) -> None:
    sizes = []
    for batch, count in enumerate((3_000, 30_000, 300_000)):
        limit = RowLimit(("n",), {"n": "sum"}, rows=1_000)
        writer = ResultWriter(tmp_path / "output", tmp_path / "staged", batch, {"q": limit}, {})
        keys = [key % 60_000 for key in range(count)]
        sent, rest, files = writer.write(PLAN, 0, make_rows(PLAN, keys, 10 * SECOND))
        assert sum(file.rows for file in files) == sent.num_rows + sum(rest[REST_ROWS].to_pylist()) == count
        sizes.append(len(pack(sent)) + len(json.dumps(encode_written(0, files, rest))))
        remove_staged(tmp_path / "staged")
    assert max(sizes) < 1.1 * min(sizes), sizes


def test_a_staged_file_that_is_missing_is_an_error(tmp_path: Path) -> None:
    writer = ResultWriter(tmp_path / "output", tmp_path / "staged", 3, {}, {})
    with pytest.raises(FolderError, match=r"staged/3/abc: missing, but a task has written it"):
        commit_files(writer, {"q": [StagedFile("abc", "q/part-00000003-0.parquet", 0, 5)]}, {})


def test_windows_that_a_task_could_not_know_as_estimates_are_marked_before_they_are_visible(tmp_path: Path) -> None:
    earlier = [(0, 15 * SECOND)]
    for batch, sampled in ((0, earlier), (1, [*earlier, (35 * SECOND, 36 * SECOND)])):
        writer = ResultWriter(tmp_path / "output", tmp_path / "staged", batch, {"q": RowLimit(rows=1)}, {"q": earlier})
        rows = pa.concat_tables([make_rows(PLAN, [1, 2], end * SECOND) for end in (20 + 20 * batch, 30 + 20 * batch)])
        _, _, files = writer.write(PLAN, 0, rows)
        commit_files(writer, {"q": files}, {"q": sampled})
    (path,) = list_files(tmp_path / "output" / "q")
    table = pq.ParquetFile(path).read()
    marks = zip(table["window_end"].cast(pa.int64()).to_pylist(), table["estimated"].to_pylist(), strict=True)
    assert sorted({(end // SECOND, mark) for end, mark in marks}) == [(20, True), (30, False), (40, True), (50, False)]
    assert batches_of(path) == [(0, 4), (1, 4)]


def test_duckdb_pandas_and_arrow_read_the_folder_as_one_table_with_a_date(tmp_path: Path) -> None:
    for batch, end in enumerate((DAY - 10 * SECOND, DAY, DAY + 10 * SECOND)):
        write_results(tmp_path, batch, {"q": stored_form(PLAN, make_rows(PLAN, [1, 2], end), None)}, keep=10 * DAY)
    folder = tmp_path / "q"
    assert [path.parent.name for path in list_files(folder)] == ["date=1970-01-01", "date=1970-01-02"]
    expected = [("1970-01-01", 2), ("1970-01-02", 4)]
    sql = f"SELECT date::text, count(*) FROM read_parquet('{folder}/**/*.parquet', hive_partitioning=true) GROUP BY 1"
    assert sorted(duckdb.sql(sql).fetchall()) == expected
    frame = pd.read_parquet(folder)
    assert sorted((str(date), count) for date, count in frame.groupby("date", observed=True).size().items()) == expected
    assert pq.read_table(folder).num_rows == 6


def test_a_query_with_a_column_date_has_folders_of_another_name(tmp_path: Path) -> None:
    plan = compile_query("SELECT srcPort AS Date, count(*) AS n FROM a [RANGE 10 seconds] GROUP BY srcPort", "q")
    write_results(tmp_path, 0, {"q": stored_form(plan, make_rows(plan, [1], DAY), None)})
    assert [path.parent.name for path in list_files(tmp_path / "q")] == ["day_of_results=1970-01-02"]
    assert pd.read_parquet(tmp_path / "q")["Date"].tolist() == [1]


def test_rows_without_a_time_have_no_date(tmp_path: Path) -> None:
    plan = compile_query("SELECT count(*) AS n FROM a [RANGE 10 rows, SLIDE 10 rows, WA row-num]", "q")
    rows = pa.table([[0], [10], [10]], schema=plan.schema)
    write_results(tmp_path, 0, {"q": stored_form(plan, rows, None)})
    assert [path.name for path in (tmp_path / "q").iterdir()] == ["part-00000000.parquet"]


def test_old_dates_are_deleted_with_their_folders(tmp_path: Path) -> None:
    for batch in range(5):
        rows = stored_form(PLAN, make_rows(PLAN, [batch], batch * DAY + 1), None)
        write_results(tmp_path, batch, {"q": rows}, keep=2 * DAY)
    assert sorted(path.name for path in (tmp_path / "q").iterdir()) == [
        "_deleted-until",
        "date=1970-01-03",
        "date=1970-01-04",
        "date=1970-01-05",
    ]


@pytest.mark.parametrize("limit", [1, 100], ids=["tasks", "driver"])
def test_sinks_read_old_rows_of_their_micro_batch_before_these_are_deleted(tmp_path: Path, limit: int) -> None:
    def write(batch: int, days: list[int]) -> None:
        rows = pa.concat_tables([make_rows(PLAN, [1, 2], day * DAY + DAY // 2) for day in days])
        writer = ResultWriter(tmp_path, tmp_path / "staged", batch, {"q": RowLimit(rows=limit)}, {})
        sent, _, files = writer.write(PLAN, 0, rows)
        stored = stored_form(PLAN, sent if not files else sent.slice(0, 0), None)
        write_results(tmp_path, batch, {"q": stored}, keep=DAY // 2)
        commit_files(writer, {"q": files}, {}, DAY // 2)

    write(0, [0])
    write(1, [0, 1, 2])
    rows = read_batch(tmp_path, PLAN, 1)
    assert rows is not None
    assert sorted(set(rows["window_end"].to_pylist())) == [DAY // 2, 3 * DAY // 2, 5 * DAY // 2]
    write(2, [0, 3])
    assert [path.parent.name[-2:] for path in list_files(tmp_path / "q")] == ["01", "04"]
    write(3, [5])
    assert [path.parent.name[-2:] for path in list_files(tmp_path / "q")] == ["06"]


def test_old_files_of_tasks_are_deleted_too(tmp_path: Path) -> None:
    for batch in range(5):
        writer = ResultWriter(tmp_path, tmp_path / "staged", batch, {"q": RowLimit(rows=1)}, {})
        _, _, files = writer.write(PLAN, 1, make_rows(PLAN, [1, 2], batch * DAY + 1))
        commit_files(writer, {"q": files}, {}, 2 * DAY)
    assert [path.parent.name for path in list_files(tmp_path / "q")] == [f"date=1970-01-0{day}" for day in (3, 4, 5)]


def test_the_folder_of_an_earlier_version_is_moved_to_dates(tmp_path: Path) -> None:
    output, aside = tmp_path / "output", tmp_path / "staged" / "undated"
    rows = [stored_form(PLAN, make_rows(PLAN, [batch], batch * DAY // 2), None) for batch in range(6)]
    folder = output / "q"
    folder.mkdir(parents=True)
    for first in (0, 3):
        batches = [(number, 1) for number in range(first, first + 3)]
        path = folder / f"part-{first:08d}.parquet"
        result_files.write_file(path, rows[first].schema, rows[first : first + 3], batches)
    (folder / "deleted-until").write_text("-5")
    (aside / "q").mkdir(parents=True)
    (folder / "part-00000000.parquet").rename(aside / "q" / "part-00000000.parquet")  # an interrupted move
    move_to_dates(output, aside)
    move_to_dates(output, aside)
    assert read_results(output, PLAN)["srcPort"].to_pylist() == list(range(6))
    assert {path.parent.name for path in list_files(folder)} == {f"date=1970-01-0{day}" for day in (1, 2, 3)}
    assert result_files.deleted_until(folder) == -5
    for batch in range(6):
        assert read_batch(output, PLAN, batch)["srcPort"].to_pylist() == [batch]
    assert not list(aside.rglob("*.parquet"))
