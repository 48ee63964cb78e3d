"""A monitor with a sink that does not answer: the tests detect an alert that waits for it, and a stop that waits."""

import json
from pathlib import Path
from typing import Any

import pytest

from capture.metrics import Samples
from dashboards.sinks.metrics import SINK_ROWS
from dashboards.sinks.target import SinkError
from tests.harness.change_runs import ChangeRun

RULE = """
[alerts.busy]
query = "talkers"
where = "n > 100"
[receivers.log]
kind = "file"
path = "alerts.jsonl"
"""


class OneSink:
    """The sinks of a run: they store the first micro-batch only."""

    def __init__(self, calls: list[str]) -> None:
        self.calls, self.rows = calls, 0

    def write(self, run: str, batch: int, output: Path) -> None:
        if batch:
            raise SinkError("no answer")
        self.rows += 1

    def add_samples(self, samples: Samples) -> None:
        samples.add(SINK_ROWS, self.rows, "one", "talkers")

    def stop(self) -> None:
        self.calls.append("sinks stop")

    def close(self) -> None:
        self.calls.append("sinks close")


def test_alerts_do_not_wait_for_a_sink_and_a_stop_ends_its_waits_first(tmp_path: Path) -> None:
    run, calls = ChangeRun(tmp_path, RULE), list[str]()
    (tmp_path / "state" / "checkpoint").mkdir(exist_ok=True)
    (tmp_path / "state" / "checkpoint" / "metadata").write_text('{"id":"run"}', "utf-8")
    monitor: Any = run.monitor
    monitor.sinks, monitor.run.stop = OneSink(calls), lambda: calls.append("run stop")
    run.batch([(1, "10.0.0.1", 5, 1)], newest=10)
    assert monitor.exporter.current_samples[SINK_ROWS.name, ("one", "talkers")] == 1
    with pytest.raises(SinkError):
        run.batch([(2, "10.0.0.1", 101, 1)], newest=20)
    monitor.close()
    assert calls == ["sinks stop", "run stop", "sinks close"]
    (message,) = [json.loads(line) for line in (tmp_path / "alerts.jsonl").read_text("utf-8").splitlines()]
    assert message["status"] == "firing"
