"""Result files and output of a run on Spark when a micro-batch is repeated.

The tests detect a window in the files of two micro-batches, and a window that is shown twice after a restart.
"""

from pathlib import Path

import pyarrow as pa

from capture.metrics import RECORDS_READ, Samples
from dashboards.monitors.pipeline import Monitor, read_last_results
from highlevel.metrics import LOW_WATERMARK
from highlevel.spark.result_files import result_file, write_results
from highlevel.spark.totals import Totals
from queries.gsql import compile_query
from queries.pipeline.file import read_pipeline
from tests.harness.links import write_links
from tests.references.exporter_rows import exposition

SECOND = 1_000_000_000


def window(number: int) -> pa.Table:
    start = number * 60 * SECOND
    rows = {"window_start": [start], "window_end": [start + 60 * SECOND], "n": [5]}
    return pa.table({name: pa.array(values, pa.int64()) for name, values in rows.items()})


def test_a_second_attempt_without_rows_takes_those_of_the_first_away(tmp_path: Path) -> None:
    write_results(tmp_path, 6, {"q": window(1)})
    write_results(tmp_path, 7, {"q": window(2)})
    write_results(tmp_path, 7, {"q": window(2).slice(0, 0)})
    write_results(tmp_path, 8, {"q": window(2), "other": window(1).slice(0, 0)})
    assert sorted(path.name for path in (tmp_path / "q").iterdir()) == [
        "part-00000006.parquet",
        "part-00000008.parquet",
    ]
    assert not result_file(tmp_path, "other", 8).parent.exists()
    plan = compile_query("SELECT count(*) AS n FROM a [RANGE 1 minute]", "q")
    found = [read_last_results(tmp_path, plan, last) for last in (5, 6, 7, 8)]
    assert [table and table["window_start"].to_pylist() for table in found] == [
        None,
        [60 * SECOND],
        [60 * SECOND],
        [120 * SECOND],
    ]


class Continued:
    """A run that was killed after micro-batch 3 had been written, and before Spark took it for done."""

    def __init__(self, samples: Samples) -> None:
        self.totals = Totals(samples, watermarks={"q": 240 * SECOND})
        self.continued_batch = 3


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
