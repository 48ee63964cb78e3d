"""Parameters that change while queries run: from which window a new value counts, and wrong values, on both engines.

The tests find a value that some tasks of a micro-batch do not use, a repeated micro-batch with a newer value, and a
wrong value that is used or ends the run.
"""

from pathlib import Path

import pyarrow as pa
import pytest

from highlevel.inline.engine import InlineRun, Input
from highlevel.spark.errors import FolderError
from highlevel.spark.run_folder.watched_copies import WatchedCopies
from lowlevel.metrics import WATCHLIST_FAILED, WATCHLIST_RELOADS
from lowlevel.node.node_watchlists import find_watched_files
from lowlevel.watch import watched_file
from queries.gsql import compile_query
from queries.query_text import query_text
from tests.harness.inline_rows import rows_of
from tests.harness.links import write_links
from tests.harness.live_pipes import AGREED, Pipe

SCRIPT = """PARAM {{ least UINT DEFAULT 1 BETWEEN 1 AND 100; }}
SELECT count(*) AS n, max($least) AS of_rows, count(*) * 0 + $least AS at_end FROM packets [RANGE {}]
HAVING n * 100 >= $least"""


COUNTERS = (WATCHLIST_RELOADS, WATCHLIST_FAILED)


def put(path: Path, text: str) -> None:
    part = path.with_suffix(".part")
    part.write_text(text)
    part.replace(path)


def plan_of(path: Path, window: str):
    return compile_query(query_text(SCRIPT.format(window), {"least": f"@{path}"}), "q")


def test_a_live_query_uses_a_new_value_for_later_rows_and_for_windows_that_end_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched_file, "CHECK_INTERVAL", 0.0)
    limits = tmp_path / "limits.toml"
    put(limits, "least = 5")
    pipe = Pipe(tmp_path / "pipe")
    run = InlineRun([plan_of(limits, "10 seconds")], [Input("tap", pipe.path)], slack=0)
    results = run.results()

    def next_window_after(*seconds: float) -> tuple:
        pipe.write(*seconds)
        ((_, _, *values),) = rows_of(next(results)[1])
        return tuple(values)

    pipe.write(*[1] * AGREED)
    assert next_window_after(12) == (AGREED, 5, 5)
    put(limits, "least = 7")
    assert next_window_after(13, 22) == (2, 7, 7)  # the row at 12 s had the old value, that at 13 s has the new one
    for number, wrong in enumerate(("least = 101", "least = 'x'", "leas = 7"), 2):
        put(limits, wrong)
        with pytest.warns(RuntimeWarning, match=r"limits\.toml: .*; the setting stays as it was"):
            window = next_window_after(10 * number + 3, 10 * number + 12)
        assert window == (2, 7, 7)
    put(limits, "least = 2")
    assert next_window_after(53, 62) == (2, 7, 2)  # the row at 52 s had the old value
    pipe.close()
    assert [tuple(row)[2:] for _, batch in results for row in rows_of(batch)] == [(1, 2, 2)]


def test_copies_change_between_micro_batches_and_not_for_a_repeated_one(tmp_path: Path) -> None:
    limits, said = tmp_path / "limits.toml", list[str]()
    put(limits, "least = 5")
    plan = plan_of(limits, "1 s")
    copies = WatchedCopies([plan], tmp_path / "run", said.append)
    (tmp_path / "run").mkdir(mode=0o700)
    copies.open()
    (bound,) = copies.bind([plan])
    assert bound == plan
    (copy,) = {file.location for file in find_watched_files((bound,))}
    assert copy.read_text() == "least = 5"
    put(limits, "least = 6")
    copies.refresh(0)
    assert copy.read_text() == "least = 6"
    assert said == [f"{limits}: the new setting is used from this micro-batch on"]
    put(limits, "least = 7")
    copies.refresh(0)  # repeated
    again = WatchedCopies([plan], tmp_path / "run", said.append)  # a restart
    again.open()
    again.refresh(0)
    assert copy.read_text() == "least = 6"
    again.refresh(1)
    assert copy.read_text() == "least = 7"
    put(limits, "least = 500")
    again.refresh(2)
    again.refresh(3)
    assert copy.read_text() == "least = 7"
    expected = "the setting 'least = …', an integer from 1 to 100; the setting stays as it was"
    assert said[2:] == [f"warning: {limits}: got least = 500, expected {expected}"]
    limits.unlink()
    again.refresh(4)
    assert "cannot be read as a setting: No such file or directory; the setting stays as it was" in said[-1]
    counters = [samples.total(metric) for samples in (copies.samples, again.samples) for metric in COUNTERS]
    assert counters == [1, 0, 1, 2]


def test_a_copy_that_cannot_be_read_is_not_replaced_by_a_newer_version(tmp_path: Path) -> None:
    """A repeated micro-batch would have another value than its first attempt."""
    limits = tmp_path / "limits.toml"
    put(limits, "least = 5")
    (tmp_path / "run").mkdir(mode=0o700)
    plan = plan_of(limits, "1 s")
    copies = WatchedCopies([plan], tmp_path / "run", lambda _: None)
    copies.open()
    (copy,) = {file.location for file in find_watched_files(tuple(copies.bind([plan])))}
    copy.unlink()
    copy.mkdir()
    with pytest.raises(FolderError, match=r"limits\.toml: cannot be read: Is a directory; restore it from a copy"):
        WatchedCopies([plan], tmp_path / "run", lambda _: None).open()


def test_a_copy_that_the_present_query_refuses_is_replaced(tmp_path: Path) -> None:
    limits = tmp_path / "limits.toml"
    put(limits, "least = 5")
    (tmp_path / "run").mkdir(mode=0o700)
    plan = plan_of(limits, "1 s")
    copies = WatchedCopies([plan], tmp_path / "run", lambda _: None)
    copies.open()
    (copy,) = {file.location for file in find_watched_files(tuple(copies.bind([plan])))}
    copy.write_text("least = 500")
    WatchedCopies([plan], tmp_path / "run", lambda _: None).open()
    assert copy.read_text() == "least = 5"


@pytest.mark.spark
def test_a_run_on_spark_uses_a_new_value_from_the_next_micro_batch_on(spark, tmp_path: Path) -> None:
    from highlevel.spark.stream import StreamRun

    limits, said, values = tmp_path / "limits.toml", list[str](), {0: "least = 7", 1: "least = 101", 2: "least = 9"}
    put(limits, "least = 5")
    (tmp_path / "captures").mkdir()
    inputs = write_links(tmp_path / "captures", 8)[:1]
    used: dict[int, set[tuple[int, int]]] = {}

    def on_batch(batch: int, results: dict[str, pa.Table], _: object) -> None:
        rows = results["q"]
        used[batch] = set(zip(rows["of_rows"].to_pylist(), rows["at_end"].to_pylist(), strict=True))
        if batch in values:
            put(limits, values[batch])

    run = StreamRun(
        spark,
        [plan_of(limits, "1 s")],
        inputs,
        tmp_path / "run",
        block_records=400,
        partitions=1,
        max_blocks=1,
        on_batch=on_batch,
        say=said.append,
    )
    run.start()
    assert run.wait()
    run.stop()
    at_end = {batch: {end for _, end in pairs} for batch, pairs in used.items() if pairs}
    assert len(at_end) > 3
    for batch, found in at_end.items():
        assert found == ({5} if batch < 1 else {7} if batch < 3 else {9}), batch
        # A window that began before the change has rows with the old value.
        assert max(rows for rows, _ in used[batch]) == next(iter(found)), batch
    assert [run.samples.total(metric, file=str(limits)) for metric in COUNTERS] == [2, 1]
    assert sum("stays as it was" in line for line in said) == 1
    assert sum("is used from this micro-batch on" in line for line in said) == 2
