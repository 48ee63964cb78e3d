"""Alerts of `wiretide run`: those of `wiretide alerts`, also if the process is killed again and again.

The process kills itself between the results and the alerts of a micro-batch, between the store and the delivery,
between the delivery and its record, and before Spark's commit.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.harness.alert_captures import draw_packets, expected_alerts, write_pipeline
from tests.harness.alert_run_driver import MOMENTS
from tests.harness.command_line import environment, run

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parents[3]


def drive(pipeline: Path, moment: str, batch: int) -> tuple[int, list[str]]:
    """Run the pipeline until a moment; return the status and the lines."""
    command = [sys.executable, "-m", "tests.harness.alert_run_driver", pipeline, moment, str(batch)]
    done = subprocess.run(
        list(map(str, command)), cwd=ROOT, capture_output=True, text=True, check=False, env=environment()
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode, done.stdout.splitlines()


def delivered(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "alerts.jsonl").read_text("utf-8").splitlines()]


def test_a_run_that_is_killed_delivers_every_message_at_least_once(tmp_path: Path, soak: bool) -> None:
    packets = draw_packets(1)
    pipeline = write_pipeline(tmp_path, packets)
    status, out, err = run("alerts", "pipeline.toml", "--format", "json", cwd=tmp_path)
    assert (status, err) == (0, "")
    expected = [json.loads(line) for line in out.splitlines()]
    assert len(expected) == len(expected_alerts(packets)) > 15
    first = 1
    for moment in MOMENTS if soak else ("delivered",):
        status, lines = drive(pipeline, moment, first)
        assert status == -signal.SIGKILL, (moment, lines)
        reached = [int(line.removeprefix("batch ")) for line in lines if line.startswith("batch ")]
        first = max([first, *reached]) + 1
    status, lines = drive(pipeline, "never", 0)
    assert (status, lines[-1].startswith("batch ")) == (0, True)
    messages = delivered(tmp_path)
    by_id = {message["message"]: message for message in messages}
    assert len(messages) > len(by_id), "a message that was delivered before a kill is delivered again"
    assert all(by_id[message["message"]] == message for message in messages), "equal IDs are equal messages"
    began = {(message["id"], message["began"]) for message in messages if message["status"] == "firing"}
    assert began == {(alert["id"], alert["began"]) for alert in expected}
    ended = {message["message"]: message for message in messages if message["status"] == "ended"}
    assert ended == {
        alert["message"]: {name: value for name, value in alert.items() if name != "silenced"}
        for alert in expected
        if alert["status"] == "ended"
    }


def test_a_finished_run_with_a_changed_rule_ends_the_alerts_of_the_old_one(tmp_path: Path) -> None:
    pipeline = write_pipeline(
        tmp_path, [(second / 4, "10.0.0.1", 9) for second in range(160)] + [(80.0, "10.0.0.1", 9)]
    )
    status, out, err = run("run", "pipeline.toml", "--until-done", cwd=tmp_path)
    assert (status, err) == (0, "")
    assert "2023-11-14T22:13:40Z  alert firing (critical): 10.0.0.1 sent 40 packets\n" in out
    assert "2023-11-14T22:14:20Z  alert ended (critical): 10.0.0.1 sent 40 packets\n" in out
    firing = {alert["rule"] for alert in delivered(tmp_path)} - {
        alert["rule"] for alert in delivered(tmp_path) if alert["status"] == "ended"
    }
    assert firing == {"quiet"}
    pipeline.write_text(pipeline.read_text().replace("[alerts.quiet]", "[alerts.calm]"))
    status, out, err = run("run", "pipeline.toml", "--until-done", cwd=tmp_path)
    assert (status, err) == (0, "")
    *_, begin, end = delivered(tmp_path)
    assert (begin["rule"], begin["status"]) == ("quiet", "firing")
    changes = {"status": "ended", "ended": "2023-11-14T22:14:50Z", "reason": "rule changed"}
    assert end == begin | changes | {"message": begin["message"].replace("firing", "ended")}
