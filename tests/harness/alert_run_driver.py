"""A run with alerts, to be killed: `python -m tests.harness.alert_run_driver PIPELINE MOMENT BATCH`.

Run a pipeline with small micro-batches, and kill the process with signal 9 at MOMENT of micro-batch BATCH. Says
`batch N` after each micro-batch.

    results      the rows of the micro-batch are written, its alerts are not evaluated
    stored       its alerts are in the store, and no message has been sent
    delivered    a message was accepted, and is still in the store
    uncommitted  everything is done, except Spark's commit
"""

from __future__ import annotations

import functools
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dashboards.alerts.delivery import Delivery
from dashboards.alerts.store import AlertStore
from dashboards.monitors.pipeline import Monitor
from dashboards.output.log_lines import print_line
from highlevel.spark import stream
from queries.pipeline.file import read_pipeline

MOMENTS = ("results", "stored", "delivered", "uncommitted")
OPTIONS = {"block_records": 100, "max_blocks": 2}


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def before(owner: Any, name: str, is_time: Callable[..., bool]) -> None:
    """Replace a method: it kills the process instead if `is_time` is true for its arguments."""
    method = getattr(owner, name)

    def replacement(*arguments: Any) -> Any:
        if is_time(*arguments):
            die()
        return method(*arguments)

    setattr(owner, name, replacement)


def main(path: Path, moment: str, batch: int) -> None:
    stream.StreamRun = functools.partial(stream.StreamRun, **OPTIONS)  # type: ignore[assignment, misc]
    on_batch = Monitor._on_batch

    def report_batch(monitor: Monitor, number: int, *arguments: Any) -> None:
        if moment == "results" and number >= batch:
            die()
        on_batch(monitor, number, *arguments)
        print("batch", number, flush=True)
        if moment == "uncommitted" and number >= batch:
            die()

    Monitor._on_batch = report_batch  # type: ignore[method-assign]
    if moment == "stored":
        before(Delivery, "notify", lambda delivery: delivery._store.batch >= batch)
    if moment == "delivered":
        before(AlertStore, "remove", lambda store, *_: store.batch >= batch)
    with Monitor(read_pipeline(path), print_line) as monitor:
        monitor.wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
