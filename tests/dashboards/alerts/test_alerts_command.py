"""`wiretide alerts`: alerts over captures equal those that plain Python computes from the packets."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import wiretide
from capture.units import SECOND
from dashboards.alerts.messages import utc
from tests.harness.alert_captures import PIPELINE, SLIDE, START, draw_packets, expected_alerts, write_pipeline
from tests.harness.alert_receivers import http_receiver
from tests.harness.command_line import environment, run


def command_alerts(folder: Path) -> list[dict[str, Any]]:
    """The alerts that the command prints in the folder of a pipeline."""
    status, out, err = run("alerts", "pipeline.toml", "--format", "json", cwd=folder)
    assert (status, err) == (0, "")
    return [json.loads(line) for line in out.splitlines()]


@pytest.mark.parametrize("seed", range(3))
def test_alerts_over_a_capture_equal_plain_python(seed: int, tmp_path: Path) -> None:
    packets = draw_packets(seed)
    write_pipeline(tmp_path, packets)
    alerts = command_alerts(tmp_path)
    identities = [
        (alert["rule"], tuple(alert["labels"].items()), alert["began"], alert["ended"], alert["reason"])
        for alert in alerts
    ]
    assert {*identities} == expected_alerts(packets), seed
    assert len(identities) == len({*identities})
    assert {rule for rule, *_ in identities} == {"flood", "jump", "quiet", "gone"}
    assert [alert["began"] for alert in alerts] == sorted(alert["began"] for alert in alerts)
    for alert in alerts:
        if alert["rule"] == "flood":
            (row,) = alert["evidence"]
            end = alert["window"]["end"]
            count = sum(1 for second, source, _ in packets if source == row["srcIP"] and end_of(second) == end)
            assert (row["packets"], row["window_end"], alert["rows"]) == (count, end, 1)
            assert alert["summary"] == f"{row['srcIP']} sent {count} packets"


def end_of(second: float) -> str:
    return utc((START + int(second) // SLIDE * SLIDE + SLIDE) * SECOND)


def test_the_table_has_a_line_for_each_alert_and_silences_are_marked(tmp_path: Path) -> None:
    write_pipeline(tmp_path, [(second / 4, "10.0.0.1", 9) for second in range(160)] + [(79.0, "10.0.0.3", 9)])
    (tmp_path / "silences.toml").write_text(
        '[[silence]]\nrule = "quiet"\nuntil = 2023-11-15T00:00:00Z\ncomment = "night"\n'
    )
    text = '[alerts]\nsilences = "silences.toml"\n' + PIPELINE.replace("folder =", "#")
    (tmp_path / "pipeline.toml").write_text(text)
    status, out, err = run("alerts", "pipeline.toml", cwd=tmp_path)
    assert (status, err) == (0, "")
    assert [line.split() for line in out.splitlines()] == [
        ["began", "ended", "severity", "rule", "silenced", "summary"],
        ["-" * width for width in map(len, out.splitlines()[1].split())],
        ["2023-11-14T22:13:40Z", "2023-11-14T22:14:20Z", "critical", "flood", "10.0.0.1", "sent", "40", "packets"],
        ["2023-11-14T22:14:30Z", "warning", "quiet", "yes", "quiet"],
        ["2", "alerts", "of", "4", "rules"],
    ]


def test_no_alert_is_a_line(tmp_path: Path) -> None:
    write_pipeline(tmp_path, [(0.0, "10.0.0.1", 9)])
    assert run("alerts", "pipeline.toml", cwd=tmp_path) == (0, "0 alerts of 4 rules\n", "")
    assert run("alerts", "pipeline.toml", "--format", "json", cwd=tmp_path) == (0, "", "")


WRONG = {
    "no rule": (
        PIPELINE.partition("[alerts")[0],
        2,
        "wiretide: pipeline.toml: alerts: got no rule, expected a section [alerts.NAME]\n",
    ),
    "condition": (
        PIPELINE.replace("packets > 20", "packet > 20"),
        2,
        (
            "wiretide: alerts.flood.where: line 1, column 1: unknown column 'packet' of sources; expected one of the "
            "valid names\n    packet > 20\n    ^\nvalid: packets, window_start, window_end, srcIP, bytes\n"
        ),
    ),
    "spool": (
        PIPELINE.replace('Main = "main.pcap"', 'Main = { capture = "a.pipe", spool = "spool" }'),
        2,
        "wiretide: links.Main.spool: a spool is not a finished capture; expected links with files only\n",
    ),
    "no capture": (
        PIPELINE.replace("main.pcap", "none.pcap"),
        1,
        "wiretide: none.pcap: cannot be read: No such file or directory\n",
    ),
}


@pytest.mark.parametrize(("text", "status", "message"), WRONG.values(), ids=WRONG)
def test_wrong_pipelines_are_errors_without_output(text: str, status: int, message: str, tmp_path: Path) -> None:
    write_pipeline(tmp_path, [(0.0, "10.0.0.1", 9)])
    (tmp_path / "pipeline.toml").write_text(text)
    actual, out, err = run("alerts", "pipeline.toml", cwd=tmp_path)
    assert (actual, out, err.replace(f"{tmp_path}/", "")) == (status, "", message)


def test_a_test_message_is_sent_to_each_receiver(tmp_path: Path) -> None:
    write_pipeline(tmp_path, [])
    with http_receiver((503, {}, b"busy")) as busy, http_receiver() as hook:
        more = "".join(
            f'[receivers.{name}]\nkind = "webhook"\nurl = "{url}"\n' for name, url in (("a", busy.url), ("b", hook.url))
        )
        (tmp_path / "pipeline.toml").write_text(PIPELINE + more)
        status, out, err = run("alerts", "pipeline.toml", "--test", cwd=tmp_path)
    assert (status, out, err) == (
        1,
        (
            f"receivers.log: file {tmp_path}/alerts.jsonl accepted the test message\n"
            f"receivers.b: webhook {hook.url} accepted the test message\n"
        ),
        (
            f"wiretide: warning: receivers.a: webhook {busy.url}: status 503: busy\n"
            "wiretide: 1 of 3 receivers did not accept the test message\n"
        ),
    )
    ((_, _, content),) = hook.requests
    (message,) = content["messages"]
    assert message == json.loads((tmp_path / "alerts.jsonl").read_text()) | {
        name: message[name] for name in ("message", "began", "since")
    }
    assert (message["rule"], message["status"], message["severity"]) == ("test", "firing", "info")


def test_a_pipeline_without_receivers_has_nothing_to_test(tmp_path: Path) -> None:
    write_pipeline(tmp_path, [])
    (tmp_path / "pipeline.toml").write_text(PIPELINE.partition("[receivers")[0])
    assert run("alerts", "pipeline.toml", "--test", cwd=tmp_path) == (
        2, "", "wiretide: receivers: got no receiver, expected a section [receivers.NAME]\n",
    )  # fmt: skip


def test_ctrl_c_ends_the_command_without_a_traceback(tmp_path: Path) -> None:
    write_pipeline(tmp_path, [(0.0, "10.0.0.1", 9)])
    (tmp_path / "main.pcap").unlink()
    os.mkfifo(tmp_path / "main.pcap")  # nobody writes: the command waits
    command = [sys.executable, wiretide.__file__, "alerts", "pipeline.toml"]
    with (
        subprocess.Popen(
            command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), text=True
        ) as process,
        (tmp_path / "main.pcap").open("wb"),
    ):  # returns when the command reads the pipe
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    assert (process.returncode, out, err) == (130, "", "wiretide: stopped\n")
