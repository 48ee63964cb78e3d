"""The sinks of a query with changes over random streams and crashes, against the exact results.

Each test compares a sink with the sum of the changes after each micro-batch. It detects a change that is lost or
doubled by a restart, half of a correction, rows that stay after they were withdrawn, and state that grows.
"""

from collections import Counter
from pathlib import Path
from random import Random

import pyarrow.parquet as pq
import pytest

from capture.units import SECOND
from dashboards.changes.compaction import compact
from dashboards.changes.metrics import FINAL_WATERMARK, PROVISIONAL_AGE
from highlevel.results.stored_files import list_files
from highlevel.results.user_types import readable
from highlevel.spark.run_folder import result_files
from tests.conftest import Rounds
from tests.harness.change_runs import JOINED, LENGTH, PIPELINE, ChangeRun, ChangeStream, rows_of
from tests.references.exporter_rows import samples

CRASHES = ("", "", "", "results", "totals", "shown")
RULE = """
[alerts.busy]
query = "talkers"
where = "n > 100"
[alerts.certain]
query = "talkers"
where = "n > 100"
final = true
"""


def gauges(run: ChangeRun) -> Counter[tuple[str, int]]:
    lines = samples(run.monitor.exporter, "wiretide_query_talkers_n")
    pairs = [line.removeprefix('{src_ip="').split('"} ') for line in lines]
    return Counter({(address, int(float(value))): 1 for address, value in pairs})


def shown_windows(run: ChangeRun) -> Counter[tuple[int, str, int]]:
    history = run.monitor.history
    assert history is not None
    windows = history.stored.in_order("talkers")
    return Counter(
        (window.end // SECOND // LENGTH, ".".join(map(str, row["srcIP"])), row["n"])
        for window in windows
        if window.end is not None
        for row in window.rows.to_pylist()
    )


def firing(run: ChangeRun, rule: str) -> set[str]:
    assert run.monitor.alerts is not None
    return {each["labels"]["srcIP"] for each in run.monitor.alerts.firing_messages() if each["rule"] == rule}


def test_every_sink_shows_the_sum_of_the_changes_after_every_crash(tmp_path: Path, rounds: Rounds) -> None:
    for seed in rounds(3):
        random = Random(f"sinks {seed}")
        folder = tmp_path / str(seed)
        folder.mkdir()
        run, stream, published = ChangeRun(folder, RULE), ChangeStream(random), 0
        for step in range(20):
            changes, final, newest = stream.step()
            run.batch(changes, final, newest, random.choice(CRASHES))
            place = (seed, step)
            published = max([published, *(k for k, *_ in changes)])
            every, final_windows = range(1, stream.newest + 1), range(1, final + 1)
            shown = stream.rows([max(published, final)])
            if published:
                assert gauges(run) == Counter({row[1:]: 1 for row in shown}), place
            assert shown_windows(run) == stream.rows(every), place
            assert run.final_rows() == stream.rows(final_windows), place
            open_windows = [k for k in every if k > final and stream.windows.get(k)]
            current = run.monitor._changes["talkers"]
            assert rows_of([current.provisional_rows()]).total() == stream.rows(open_windows).total(), place
            last = max([k for k in open_windows if k > final], default=final)
            busy = {address for _, address, n in stream.rows([last]) if n > 100}
            assert firing(run, "busy") == busy, place
            assert firing(run, "certain") == {address for _, address, n in stream.rows([final]) if n > 100}, place
            age = max([0, *(newest - k * LENGTH for k in open_windows)])
            exporter = run.monitor.exporter
            assert exporter.current_samples[PROVISIONAL_AGE.name, ("talkers",)] == age, place
            if final:
                assert exporter.current_samples[FINAL_WATERMARK.name, ("talkers",)] == final * LENGTH, place
        run.close()


def test_rows_without_windows_are_final_once_after_every_crash(tmp_path: Path, rounds: Rounds) -> None:
    for seed in rounds(2):
        random = Random(f"rows {seed}")
        folder = tmp_path / str(seed)
        folder.mkdir()
        run, stream = ChangeRun(folder, text=JOINED), ChangeStream(random)
        for step in range(20):
            changes, final, newest = stream.step()
            crash = random.choice(CRASHES)
            run.batch(changes, final, newest, crash)
            place = (seed, step)
            assert run.final_rows() == stream.rows(range(1, final + 1)), place
            current = run.monitor._changes["talkers"]
            provisional = readable(current.provisional_rows(), ())
            assert rows_of([provisional]) == stream.rows(range(final + 1, stream.newest + 1)), place
            open_windows = [k for k in stream.windows if k > final and stream.windows[k]]
            age = max([0, *(newest - k * LENGTH for k in open_windows)])
            assert run.monitor.exporter.current_samples[PROVISIONAL_AGE.name, ("talkers",)] == age, place
            if not crash and changes:
                weights = [weight for *_, weight in changes]
                texts = [f"{weights.count(1)} returned"] * (1 in weights)
                texts += [f"{weights.count(-1)} withdrawn"] * (-1 in weights)
                assert f"talkers: rows: {', '.join(texts)}" in run.lines[-1], place
        run.close()


@pytest.mark.parametrize("text", [PIPELINE, JOINED], ids=["windows", "rows"])
def test_final_rows_that_complete_a_file_are_stored_once_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    run, rows = ChangeRun(tmp_path, text=text), Counter[tuple[int, str, int]]()
    for window in range(1, 7):
        files = list_files(run.output / "certain")
        if files:  # the next rows complete this file
            monkeypatch.setattr(result_files, "MAX_BYTES", files[-1].stat().st_size + 1)
        run.batch([(window, "10.0.0.1", window, 1)], window, window * LENGTH)
        rows[window, "10.0.0.1", window] = 1
        for _ in range(2):
            run.crash()
            assert run.final_rows() == rows, window
    run.close()


def test_the_page_shows_rows_without_windows_when_they_are_final(tmp_path: Path) -> None:
    run = ChangeRun(tmp_path, text=JOINED)
    history = run.monitor.history
    assert history is not None
    run.batch([(1, "10.0.0.1", 5, 1)], newest=10)
    assert list(history.stored.in_order("talkers")) == []
    run.batch([(1, "10.0.0.1", 5, -1), (1, "10.0.0.1", 7, 1), (2, "10.0.0.1", 8, 1)], final_window=1, newest=20)
    (window,) = history.stored.in_order("talkers")
    assert (window.end, window.rows["n"].to_pylist()) == (None, [7])
    assert run.lines[-1].endswith(
        "talkers: rows: 2 returned, 1 withdrawn, 1 final, the last at 1970-01-01T00:00:10Z, srcIP 10.0.0.1, n 7"
    )
    run.close()


@pytest.mark.parametrize("text", [PIPELINE, JOINED], ids=["windows", "rows"])
@pytest.mark.parametrize("only_final", [False, True])
def test_a_compact_table_is_the_sum_of_the_changes(tmp_path: Path, rounds: Rounds, only_final: bool, text: str) -> None:
    for seed in rounds(2):
        random = Random(f"compact {seed}")
        folder = tmp_path / str(seed)
        folder.mkdir()
        run, stream = ChangeRun(folder, text=text), ChangeStream(random)
        for step in range(10):
            run.batch(*stream.step(), random.choice(CRASHES))
            if not (run.output / "talkers").exists():
                continue
            (table,) = compact(folder / "state", only_final=only_final)
            written = pq.read_table(table.path)
            final = run.totals.watermarks["talkers"] // SECOND // LENGTH
            windows = [k for k in stream.windows if k <= final or not only_final]
            assert rows_of([written]) == stream.rows(windows), (seed, step)
            ends = written[run.plan.time_column].cast("int64").to_pylist()
            is_final = zip(ends, written["final"].to_pylist(), strict=True)
            assert all((end // SECOND // LENGTH <= final) == mark for end, mark in is_final)
            assert table.rows == written.num_rows
            before = table.path.read_bytes()
            list(compact(folder / "state", only_final=only_final))
            assert table.path.read_bytes() == before, "a second call gives the same file"
        run.close()
