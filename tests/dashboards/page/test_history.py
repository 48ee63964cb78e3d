"""The store of closed windows: what is kept, in which order, over restarts and errors.

* Random windows and a list in Python catch lost, repeated and exchanged windows.
* Restarts with repeated micro-batches catch windows that are stored twice.
* A full and a damaged file catch a store that stops the pipeline.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from capture.metrics import Samples
from capture.units import SECOND
from dashboards.page.history import History
from dashboards.page.metrics import HISTORY_DELETED, HISTORY_LOST, HISTORY_ROWS_CUT, HISTORY_WINDOWS
from dashboards.page.stored_windows import HEAD_ROWS, KEPT_ROWS
from tests.harness.live_pages import START, drawn_rows, live_page, window_rows


def counted(history: History) -> Samples:
    samples = Samples()
    history.count_samples(samples)
    return samples


@pytest.mark.parametrize("seed", range(5))
def test_windows_are_read_as_they_were_added(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    expected: list[tuple[int, str, int, list[dict]]] = []
    with live_page(tmp_path, served=False) as page:
        number = dict.fromkeys(page.plans, 0)
        for batch in range(40):
            name = random.choice(list(page.plans))
            plan, tables = page.plans[name], []
            for _ in range(random.randrange(4)):
                number[name] += random.randrange(1, 4)
                table = window_rows(plan, number[name], drawn_rows(random, plan, random.choice([1, 5, 300])))
                rank = page.history.series[name].rank
                assert rank is not None
                ranked = table.sort_by([(rank, "descending")])
                expected.append((len(expected) + 1, name, number[name], ranked.to_pylist()))
                tables.append(table)
            if tables:
                page.history.add(batch, name, pa.concat_tables(tables))
        history = page.history
        assert history.newest == len(expected)
        for window, (id_, name, number_, rows) in zip(history.stored.since(0, 1000), expected, strict=True):
            assert (window.id, window.query, window.groups) == (id_, name, len(rows))
            assert window.end == (START + 10 * number_ + 10) * SECOND
            assert window.rows.to_pylist() == rows[:HEAD_ROWS]
            whole = history.stored.window(id_)
            assert whole is not None
            assert whole.rows.to_pylist() == rows
            sums = {column: sum(row[column] for row in rows) for column in window.totals}
            assert window.totals == sums
        since = random.randrange(len(expected))
        assert [window.id for window in history.stored.since(since, 3)] == [e[0] for e in expected[since : since + 3]]
        for name in page.plans:
            mine = [e for e in expected if e[1] == name]
            length = random.randrange(1, 50) * SECOND
            newest = max(e[2] for e in mine)
            inside = [e[0] for e in mine if (newest - e[2]) * 10 * SECOND < length]
            assert [window.id for window in history.stored.range(name, length, 1000)] == inside
            found = history.stored.newest_of(name)
            assert found is not None
            assert found.id == mine[-1][0]


def test_windows_survive_a_restart_and_repeated_micro_batches_are_stored_once(tmp_path: Path) -> None:
    random = Random(1)
    with live_page(tmp_path, "total", served=False) as page:
        tables = [window_rows(page.plans["total"], n, drawn_rows(random, page.plans["total"], 1)) for n in range(6)]
        for batch in range(5):
            page.history.add(batch, "total", tables[batch])
    with live_page(tmp_path, "total", served=False) as page:
        assert page.history.newest == 5
        page.history.continue_after(3)
        for batch in range(2, 6):  # Spark repeats 4, and 2 and 3 must not be added again
            page.history.add(batch, "total", tables[batch])
        windows = page.history.stored.since(0, 100)
        assert [window.end for window in windows] == [(START + 10 * n + 10) * SECOND for n in range(6)]
        assert [window.id for window in windows] == [1, 2, 3, 4, 6, 7]  # an ID is never used again


def test_windows_of_a_changed_query_are_deleted(tmp_path: Path) -> None:
    random = Random(1)
    with live_page(tmp_path, served=False) as page:
        for name, plan in page.plans.items():
            page.history.add(0, name, window_rows(plan, 0, drawn_rows(random, plan, 2)))
    with sqlite3.connect(tmp_path / "history.sqlite") as file:
        file.execute("UPDATE queries SET signature = 'another' WHERE query = 'talkers'")
    file.close()
    with live_page(tmp_path, served=False) as page:
        assert [window.query for window in page.history.stored.since(0, 10)] == ["total"]


def test_old_windows_are_deleted_by_age_and_size(tmp_path: Path) -> None:
    random = Random(1)
    with live_page(tmp_path, "total", served=False, keep=100 * SECOND) as page:
        plan = page.plans["total"]
        for number in range(200):
            page.history.add(number, "total", window_rows(plan, number, drawn_rows(random, plan, 1)))
        kept = [window.id for window in page.history.stored.since(0, 1000)]
        assert kept[-1] == 200
        assert 11 <= len(kept) <= 11 + 64
        assert counted(page.history).total(HISTORY_DELETED) == 200 - len(kept)
    (tmp_path / "history.sqlite").unlink()
    with live_page(tmp_path, served=False, size=1 << 20) as page:
        plan = page.plans["talkers"]
        for number in range(200):
            page.history.add(number, "talkers", window_rows(plan, number, drawn_rows(random, plan, 500)))
        samples = counted(page.history)
        kept = [window.id for window in page.history.stored.since(0, 1000)]
        assert kept[-1] == 200
        assert len(kept) == samples.total(HISTORY_WINDOWS) == 200 - samples.total(HISTORY_DELETED)
        assert 20 < len(kept) < 140


def test_a_large_window_has_its_largest_rows_and_counts_the_others(tmp_path: Path) -> None:
    with live_page(tmp_path, served=False) as page:
        plan = page.plans["talkers"]
        rows = drawn_rows(Random(3), plan, KEPT_ROWS + 500)
        page.history.add(0, "talkers", window_rows(plan, 0, rows))
        window = page.history.stored.window(1)
        assert window is not None
        assert window.groups == KEPT_ROWS + 500
        assert window.rows["n"].to_pylist() == sorted((row["n"] for row in rows), reverse=True)[:KEPT_ROWS]
        assert window.totals["n"] == sum(row["n"] for row in rows)
        assert counted(page.history).total(HISTORY_ROWS_CUT) == 500


def test_rows_that_the_driver_did_not_receive_are_counted_and_part_of_the_totals(tmp_path: Path) -> None:
    with live_page(tmp_path, served=False) as page:
        name, plan = next(iter(page.plans.items()))
        window = window_rows(plan, 1, drawn_rows(Random(1), plan, 5))
        (end,) = set(window["window_end"].to_pylist())
        rest = {"window_end": [end], "rest_rows": [7]}
        rest |= {value.column: [1000] for value in page.history.series[name].values}
        page.history.add(0, name, window, pa.table(rest))
        (stored,) = page.history.stored.since(0, 10)
        assert stored.groups == 12
        for column, total in stored.totals.items():
            assert total == sum(window[column].to_pylist()) + 1000
        assert counted(page.history).total(HISTORY_ROWS_CUT) == 7


def test_rows_without_windows_are_one_entry_for_each_batch(tmp_path: Path) -> None:
    with live_page(tmp_path, "rows", served=False) as page:
        plan = page.plans["rows"]
        table = pa.Table.from_pylist([{"ts": n, "srcIP": b"\x0a\0\0\1", "len": n} for n in range(5)], plan.schema)
        page.history.add(0, "rows", table, pa.table({"rest_rows": [3]}))
        page.history.add(1, "rows", table.slice(0, 0))
        (window,) = page.history.stored.since(0, 10)
        assert (window.start, window.end, window.groups) == (None, None, 5 + 3)
        assert window.rows == table


def test_sessions_are_one_entry_for_each_batch(tmp_path: Path) -> None:
    with live_page(tmp_path, "sessions", served=False) as page:
        plan = page.plans["sessions"]
        rows = drawn_rows(Random(1), plan, 4)
        table = pa.concat_tables([window_rows(plan, number, [row]) for number, row in enumerate(rows)])
        page.history.add(0, "sessions", table)
        (window,) = page.history.stored.since(0, 10)
        assert (window.start, window.end, window.groups) == (None, None, 4)
        assert window.rows.to_pylist() == table.to_pylist()
        assert not page.history.has_windows("sessions")


def test_a_full_disk_loses_windows_and_not_the_pipeline(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    random = Random(1)
    with live_page(tmp_path, served=False) as page:
        plan = page.plans["talkers"]
        page.history._writer.execute("PRAGMA max_page_count = 60")  # the error of SQLite is that of a full disk
        for number in range(20):
            page.history.add(number, "talkers", window_rows(plan, number, drawn_rows(random, plan, 500)))
        samples = counted(page.history)
        assert samples.total(HISTORY_LOST) + samples.total(HISTORY_WINDOWS) == 20
        assert 0 < samples.total(HISTORY_WINDOWS) < 20
        assert len(page.history.stored.since(0, 100)) == samples.total(HISTORY_WINDOWS)
        page.history._writer.execute("PRAGMA max_page_count = 100000")
        page.history.add(20, "talkers", window_rows(plan, 20, drawn_rows(random, plan, 500)))
        assert counted(page.history).total(HISTORY_WINDOWS) == samples.total(HISTORY_WINDOWS) + 1
    assert capsys.readouterr().out.count("windows are missing on the page") == 1


def test_a_damaged_file_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "history.sqlite").write_bytes(b"no database" * 1000)
    with pytest.raises(OSError, match=r"history\.sqlite: cannot be used as the history of the page: .*delete the file"):
        live_page(tmp_path, served=False).__enter__()


def test_the_file_is_private(tmp_path: Path) -> None:
    with live_page(tmp_path, served=False) as page:
        page.history.add(0, "total", window_rows(page.plans["total"], 0, [{"packets": 1}]))
        modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.glob("history.sqlite*")}
        assert modes == dict.fromkeys(modes, 0o600)
