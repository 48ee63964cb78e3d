"""Result files and output of a run on Spark when a micro-batch is repeated.

The tests detect a window in the files of two micro-batches, and a window that is shown twice after a restart.
"""

import re
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from capture.metrics import RECORDS_READ, Samples
from dashboards.monitors.pipeline import Monitor
from highlevel.metrics import LOW_WATERMARK
from highlevel.results import stored_files
from highlevel.results.row_limit import RowLimit, select_rows
from highlevel.results.stored_columns import with_columns
from highlevel.results.user_types import readable
from highlevel.spark.errors import FolderError
from highlevel.spark.run_folder import result_files
from highlevel.spark.run_folder.result_files import (
    batches_of,
    read_batch,
    read_newest_batch,
    read_part,
    read_results,
    read_rows,
    remove_results,
    write_results,
)
from highlevel.spark.run_folder.totals import Totals
from lowlevel.punctuation import BEGINNING
from queries.gsql import compile_query
from queries.pipeline.file import read_pipeline
from tests.harness.links import write_links
from tests.references.exporter_rows import exposition
from tests.references.exporter_rows import samples as samples_of

SECOND = 1_000_000_000


def window(number: int) -> pa.Table:
    start = number * 60 * SECOND
    rows = {"window_start": [start], "window_end": [start + 60 * SECOND], "n": [5]}
    return pa.table({name: pa.array(values, pa.int64()) for name, values in rows.items()})


PLAN = compile_query("SELECT count(*) AS n FROM a [RANGE 1 minute]", "q")


def starts(table: pa.Table | None) -> list[int] | None:
    """The minutes of the windows of a table."""
    return None if table is None else [start // (60 * SECOND) for start in table["window_start"].to_pylist()]


def newest_starts(output: Path, last: int) -> list[int]:
    """The minutes of the windows of the newest micro-batch with results."""
    return [minute for table in read_newest_batch(output, PLAN, last) for minute in starts(table) or []]


def names(output: Path) -> list[int]:
    return [int(path.stem.removeprefix("part-")) for path in sorted((output / "q").glob("*"))]


def check_row_groups(folder: Path, group_rows: int, random: Random) -> None:
    """Check the sizes of the row groups of each file, and read a random part of it."""
    for path in folder.glob("*"):
        rows = read_rows(path)
        file = pq.read_metadata(path)
        sizes = [file.row_group(number).num_rows for number in range(file.num_row_groups)]
        assert sizes[:-1] == [group_rows] * (len(sizes) - 1)
        assert 0 < sizes[-1] <= group_rows
        start = random.randrange(rows.num_rows)
        count = random.randrange(rows.num_rows - start + 1)
        parts = [*read_part(path, start, count)]
        assert max((part.num_rows for part in parts), default=0) <= group_rows
        assert starts(pa.concat_tables([rows.slice(0, 0), *parts])) == starts(rows.slice(start, count))


def test_a_second_attempt_without_rows_takes_those_of_the_first_away(tmp_path: Path) -> None:
    write_results(tmp_path, 6, {"q": window(1)})
    write_results(tmp_path, 7, {"q": window(2)})
    write_results(tmp_path, 7, {"q": window(2).slice(0, 0)}, repeated={})
    write_results(tmp_path, 8, {"q": window(3), "other": window(1).slice(0, 0)})
    assert names(tmp_path) == [6]
    assert not (tmp_path / "other").exists()
    assert [newest_starts(tmp_path, last) for last in (5, 6, 7, 8)] == [[], [1], [1], [3]]
    assert [starts(read_batch(tmp_path, PLAN, batch)) for batch in (5, 6, 7, 8)] == [None, [1], None, [3]]
    write_results(tmp_path, 6, {"q": window(9)}, repeated={})
    assert starts(read_results(tmp_path, PLAN)) == [9]
    write_results(tmp_path, 6, {"q": window(9).slice(0, 0)}, repeated={})
    assert names(tmp_path) == []


@pytest.mark.parametrize("seed", range(5))
def test_files_have_the_rows_of_each_micro_batch_once_through_repetitions(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(seed)
    monkeypatch.setattr(result_files, "MAX_BATCHES", random.choice([1, 3, 7]))
    monkeypatch.setattr(result_files, "MAX_BYTES", random.choice([1000, 4000, 1 << 20]))
    monkeypatch.setattr(stored_files, "ROW_GROUP_ROWS", group_rows := random.choice([60, 200, 1000]))
    written: dict[int, list[int]] = {}
    batch = 0
    while batch < 40:
        rows = random.sample(range(1000), random.choice([0, 1, 5, 500]))
        table = pa.concat_tables([window(0).slice(0, 0), *(window(number) for number in rows)])
        for attempt in range(random.choice([1, 2])):
            write_results(tmp_path, batch, {"q": table}, repeated={} if attempt else None)
            names_before = names(tmp_path)
        written[batch] = rows
        assert starts(read_batch(tmp_path, PLAN, batch)) == (rows or None)
        assert starts(read_results(tmp_path, PLAN)) == [minute for each in written.values() for minute in each]
        assert names(tmp_path) == names_before
        check_row_groups(tmp_path / "q", group_rows, random)
        batch += 1
        if random.random() < 0.2:  # a restart that repeats the last micro-batch
            batch -= 1
            remove_results(tmp_path, batch)
            del written[batch]
    for path in (tmp_path / "q").iterdir():
        assert len(batches_of(path)) <= result_files.MAX_BATCHES


def test_a_day_of_windows_of_ten_seconds_has_less_than_200_files(tmp_path: Path) -> None:
    rows = window(1)
    for batch in range(8640 // 20):
        write_results(tmp_path, batch, {"q": rows})
    assert len(names(tmp_path)) * 20 < 200


def test_a_file_with_other_columns_is_not_continued(tmp_path: Path) -> None:
    write_results(tmp_path, 1, {"q": window(1)})
    write_results(tmp_path, 2, {"q": window(2).rename_columns(["window_start", "window_end", "m"])})
    assert names(tmp_path) == [1, 2]


def test_old_files_are_deleted_by_the_time_of_their_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_files, "MAX_BATCHES", 2)
    rows = pa.table({"n": [1]})
    for batch in range(10):
        write_results(tmp_path, batch, {"q": window(batch), "no windows": rows}, keep=180 * SECOND)
    assert starts(read_results(tmp_path, PLAN)) == [6, 7, 8, 9]
    assert len(list((tmp_path / "no windows").iterdir())) == 5
    write_results(tmp_path, 10, {"q": window(99)}, keep=180 * SECOND)
    assert starts(read_results(tmp_path, PLAN)) == [99]


def test_lifetimes_without_an_end_delete_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_files, "MAX_BATCHES", 1)
    endless = window(9).set_column(1, "window_end", pa.nulls(1, pa.int64()))
    for batch, rows in enumerate((window(1), window(2), endless)):
        write_results(tmp_path, batch, {"q": rows}, keep=SECOND)
    assert starts(read_results(tmp_path, PLAN)) == [2, 9]
    write_results(tmp_path, 3, {"q": window(99)}, keep=SECOND)
    assert starts(read_results(tmp_path, PLAN)) == [9, 99], "rows without an end are kept"


def test_a_file_of_changes_stays_until_its_rows_are_final(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_files, "MAX_BATCHES", 2)
    plan, keep = compile_query(f"{PLAN.sql} EMIT CHANGES", "q"), 180 * SECOND

    def changes(number: int) -> pa.Table:
        rows = window(number).append_column("weight", pa.array([1])).append_column("final", pa.array([False]))
        return with_columns(rows, plan.root.columns, plan.time_column)

    for batch in range(10):
        write_results(tmp_path, batch, {"q": changes(batch)}, keep, {"q": BEGINNING})
    assert starts(read_results(tmp_path, plan)) == list(range(10)), "no row is final"
    for batch, final_minute, first in ((10, 2, 2), (11, 3, 2), (12, 7, 6), (13, 100, 10)):
        write_results(tmp_path, batch, {"q": changes(batch)}, keep, {"q": final_minute * 60 * SECOND})
        assert starts(read_results(tmp_path, plan)) == list(range(first, batch + 1)), batch


def test_rows_of_changes_without_windows_are_deleted_by_their_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result_files, "MAX_BATCHES", 1)
    sql = "SELECT p.ts, p.srcIP FROM M p [RANGE 1 s] ANTI JOIN M q [RANGE 0 s] ON p.srcIP = q.destIP EMIT CHANGES"
    plan = compile_query(sql, "q")
    for batch in range(5):
        rows = pa.table([[batch * 60 * SECOND], [bytes(4)], [1], [True]], schema=plan.schema)
        stored = with_columns(readable(rows, plan.times), plan.root.columns, plan.time_column)
        write_results(tmp_path, batch, {"q": stored}, 90 * SECOND, {"q": batch * 60 * SECOND})
    assert [time // 60 // SECOND for time in read_results(tmp_path, plan)["ts"].to_pylist()] == [3, 4]


def test_a_damaged_file_is_not_continued(tmp_path: Path) -> None:
    write_results(tmp_path, 1, {"q": window(1)})
    path = tmp_path / "q" / "part-00000001.parquet"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(FolderError, match=r"part-00000001\.parquet: damaged: .*; restore it from a copy"):
        write_results(tmp_path, 2, {"q": window(2)})


def test_damage_of_a_row_group_is_found_when_its_rows_are_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_files, "ROW_GROUP_ROWS", 1)
    for batch in (1, 2, 3):
        write_results(tmp_path, batch, {"q": window(batch)})
    path = tmp_path / "q" / "part-00000001.parquet"
    content = bytearray(path.read_bytes())
    column = pq.read_metadata(path).row_group(2).column(1)
    content[column.data_page_offset + column.total_compressed_size - 1] ^= 1
    path.write_bytes(content)
    assert starts(read_batch(tmp_path, PLAN, 2)) == [2]
    damaged = rf"^{path}: damaged: .*; restore it from a copy"
    with pytest.raises(FolderError, match=damaged):
        read_batch(tmp_path, PLAN, 3)
    with pytest.raises(FolderError, match=damaged):
        write_results(tmp_path, 4, {"q": window(4)})
    with pytest.raises(FolderError, match=rf"^{path}: damaged: got 3 rows, expected 4"):
        list(read_part(path, 2, 2))
    assert path.read_bytes() == content
    assert [each.name for each in path.parent.iterdir()] == [path.name]
    write_results(tmp_path, 3, {"q": window(5)}, repeated={})  # does not need the damaged rows
    assert starts(read_results(tmp_path, PLAN)) == [1, 2, 5]


class Continued:
    """A run that was killed after micro-batch 3 had been written, and before Spark took it for done."""

    def __init__(self, samples: Samples) -> None:
        self.totals = Totals(samples, watermarks={"q": 240 * SECOND})
        self.continued_batch, self.figures, self.rests = 3, Samples(), {}


def test_a_micro_batch_that_is_done_again_after_a_restart_is_shown_once(tmp_path: Path) -> None:
    path = write_links(tmp_path, 3)[0].path
    file = tmp_path / "pipeline.toml"
    file.write_text(
        f'folder = "state"\n[links]\nMain1 = "{path}"\n[metrics]\nport = 0\n'
        '[queries.q]\nsql = "SELECT count(*) AS n FROM Main1 [RANGE 1 minute, SLIDE 1 minute, WA ts]"\n'
    )
    samples = Samples()
    samples.add(RECORDS_READ, 5, "Main1")
    samples.set(LOW_WATERMARK, 240, "q", "Main1")
    write_results(tmp_path / "state" / "output", 3, {"q": window(3)})
    monitor = Monitor(read_pipeline(file), lambda _: None)
    monitor.run = Continued(samples)  # type: ignore[assignment]
    monitor._show_previous_run()
    monitor._on_batch(3, {"q": window(3)}, samples)
    assert "\nwiretide_query_q_n 5.0\n" in exposition(monitor.exporter)
    monitor._on_batch(4, {"q": window(4)}, samples)
    assert "\nwiretide_query_q_n 5.0\n" in exposition(monitor.exporter)
    assert monitor.last_shown_batch == 4


def test_counters_after_a_restart_contain_only_the_newest_window(tmp_path: Path) -> None:
    """A counter that begins again with 0 would otherwise add earlier windows twice."""
    path = write_links(tmp_path, 3)[0].path
    file = tmp_path / "pipeline.toml"
    sql = "SELECT srcPort, count(*) AS n FROM Main1 [RANGE 1 minute, SLIDE 1 minute, WA ts] GROUP BY srcPort"
    file.write_text(
        f'folder = "state"\n[links]\nMain1 = "{path}"\n[metrics]\nport = 0\ncounters = true\n'
        f'[queries.q]\nsql = "{sql}"\n'
    )
    monitor = Monitor(read_pipeline(file), lambda _: None)
    (plan,) = monitor.plans
    groups = 600
    rows = pa.concat_tables(
        pa.table(
            [[minute * 60 * SECOND] * groups, [(minute + 1) * 60 * SECOND] * groups, range(groups), [1] * groups],
            schema=plan.schema,
        )
        for minute in range(3)
    )
    write_results(tmp_path / "state" / "output", 3, {"q": readable(rows, plan.times)})
    samples = Samples()
    samples.add(RECORDS_READ, 5, "Main1")
    monitor.run = Continued(samples)  # type: ignore[assignment]
    monitor._row_limits = {"q": RowLimit(("n",), {"n": "sum"}, rows=300)}
    monitor._show_previous_run()
    lines = re.findall(r"^wiretide_query_q_n_added_total\{.*\} (.*)$", exposition(monitor.exporter), re.MULTILINE)
    assert sum(map(float, lines)) == groups


def test_a_top_of_more_than_a_hundred_groups_has_all_its_series(tmp_path: Path) -> None:
    """Also of many windows: gauges by `mean` and counters by `n` are those of all rows."""
    path = write_links(tmp_path, 3)[0].path
    file = tmp_path / "pipeline.toml"
    sql = "SELECT srcPort, avg(len) AS mean, count(*) AS n FROM Main1 [RANGE 1 minute, SLIDE 1 minute] GROUP BY srcPort"
    file.write_text(
        f'folder = "state"\n[links]\nMain1 = "{path}"\n[metrics]\nport = 0\ncounters = true\ntop = 150\n'
        f'[queries.q]\nsql = "{sql}"\n'
    )
    limited, whole = (Monitor(read_pipeline(file), lambda _: None) for _ in range(2))
    (plan,) = limited.plans
    random, windows, groups = Random(7), 70, 400
    means, counts = (random.sample(range(10_000), groups) for _ in range(2))
    rows = pa.concat_tables(
        pa.table(
            [
                [minute * 60 * SECOND] * groups,
                [(minute + 1) * 60 * SECOND] * groups,
                range(groups),
                pa.array(means, pa.float64()),
                counts,
            ],
            schema=plan.schema,
        )
        for minute in range(windows)
    )
    sent, rest = select_rows(rows, limited._choose_row_limits()["q"])
    assert rest is not None, "not all rows are sent"
    limited.exporter.add_results("q", sent, rest)
    whole.exporter.add_results("q", rows)
    for name in ("mean", "n", "n_added_total"):
        shown = samples_of(limited.exporter, f"wiretide_query_q_{name}")
        assert len(shown) == 150 + (name != "mean")
        assert sorted(shown) == sorted(samples_of(whole.exporter, f"wiretide_query_q_{name}"))
