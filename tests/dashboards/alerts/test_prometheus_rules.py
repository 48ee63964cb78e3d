"""Alerting rules for Prometheus: promtool accepts them, and they fire in a real Prometheus that scrapes a run."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from dashboards.alerts.alerts import Alerts
from dashboards.grafana.health_dashboard import ALERT_ROWS
from dashboards.grafana.pipeline_files import make_files
from dashboards.prometheus.exporter import Exporter
from dashboards.prometheus.server import serve
from highlevel.inline.engine import ALL_METRICS
from queries.pipeline.file import PipelineFile
from queries.pipeline.sections import PipelineError
from tests.harness.alert_rules import MINUTE, evaluation_of, pipeline, scans
from tests.harness.grafana_panels import empty_queries, panels_of, read_dashboards
from tests.harness.prometheus_server import program, prometheus

ALERTS = """
[alerts.scan]
query = "scans"
where = "packets > 100 AND srcIP <> '10.0.0.9' -- {{ $value }} \\" '"
severity = "critical"
[alerts.silent-link_2]
query = "scans"
absent = "5m"
labels = []
[receivers.log]
kind = "file"
path = "alerts.jsonl"
"""
RULES = """\
groups:
  - name: wiretide
    rules:
      - alert: "scan"
        expr: "wiretide_alerts_firing{rule=\\"scan\\"} > 0"
        for: 0s
        annotations:
          summary: "{{ $value }} alerts of the rule scan"
      - alert: "silent-link_2"
        expr: "wiretide_alerts_firing{rule=\\"silent-link_2\\"} > 0"
        for: 0s
        annotations:
          summary: "{{ $value }} alerts of the rule silent-link_2"
      - alert: "WiretideMessagesWait"
        expr: "wiretide_alerts_waiting_messages > 0"
        for: 15m
        annotations:
          summary: "{{ $value }} messages about alerts wait for {{ $labels.receiver }}"
      - alert: "WiretideMessagesLost"
        expr: "increase(wiretide_alerts_messages_total{result=~\\"refused|dropped\\"}[1h]) > 0"
        for: 0s
        annotations:
          summary: "messages about alerts are lost: {{ $labels.receiver }}"
      - alert: "WiretideSpoolWithoutSegments"
        expr: "time() - wiretide_spool_newest_segment_seconds > 600"
        for: 0s
        annotations:
          summary: "the spool of {{ $labels.link }} has no new segment: its node has stopped, or the link is silent"
"""

UNIT_TESTS = """\
rule_files: [rules.yml]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - series: wiretide_alerts_firing{rule="scan",severity="critical",instance="a"}
        values: 0 0 3 3 0
      - series: wiretide_alerts_waiting_messages{receiver="log"}
        values: 0 5x20
      - series: wiretide_alerts_messages_total{receiver="log",result="dropped"}
        values: 0 0 2x20
      - series: wiretide_alerts_messages_total{receiver="log",result="sent"}
        values: 0 9x20
      - series: wiretide_spool_newest_segment_seconds{link="eth0"}
        values: 0 60 120x20
    alert_rule_test:
      - {eval_time: 1m, alertname: scan, exp_alerts: []}
      - eval_time: 3m
        alertname: scan
        exp_alerts:
          - exp_labels: {rule: scan, severity: critical, instance: a}
            exp_annotations: {summary: 3 alerts of the rule scan}
      - {eval_time: 4m, alertname: scan, exp_alerts: []}
      - {eval_time: 15m, alertname: WiretideMessagesWait, exp_alerts: []}
      - eval_time: 16m
        alertname: WiretideMessagesWait
        exp_alerts:
          - exp_labels: {receiver: log}
            exp_annotations: {summary: 5 messages about alerts wait for log}
      - eval_time: 3m
        alertname: WiretideMessagesLost
        exp_alerts:
          - exp_labels: {receiver: log, result: dropped}
            exp_annotations: {summary: "messages about alerts are lost: log"}
      - {eval_time: 12m, alertname: WiretideSpoolWithoutSegments, exp_alerts: []}
      - eval_time: 13m
        alertname: WiretideSpoolWithoutSegments
        exp_alerts:
          - exp_labels: {link: eth0}
            exp_annotations:
              summary: "the spool of eth0 has no new segment: its node has stopped, or the link is silent"
"""


def files_of(file: PipelineFile) -> dict[str, str]:
    return make_files(file, "office", "127.0.0.1:9465", "wiretide")


def write_files(folder: Path, alerts: str) -> Path:
    """Write the files for Prometheus; return their folder."""
    made = files_of(pipeline(alerts, folder))
    for name in ("prometheus/prometheus.yml", "prometheus/rules.yml"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(made[name])
    return folder / "prometheus"


def promtool(folder: Path, *words: str) -> str:
    command = [program("promtool"), *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_each_rule_becomes_a_rule_of_prometheus(tmp_path: Path) -> None:
    made = files_of(pipeline(ALERTS, tmp_path))
    assert made["prometheus/rules.yml"] == RULES
    assert made["prometheus/prometheus.yml"].endswith("\nrule_files: [rules.yml]\n")


def test_without_alerts_and_without_receivers_the_rules_are_left_out(tmp_path: Path) -> None:
    made = files_of(pipeline("", tmp_path))
    assert "prometheus/rules.yml" not in made
    assert "rule_files" not in made["prometheus/prometheus.yml"]
    made = files_of(pipeline(ALERTS.partition("[receivers")[0], tmp_path))
    first, separator, _ = RULES.partition('      - alert: "WiretideMessages')
    _, spool, last = RULES.partition('      - alert: "WiretideSpool')
    assert separator
    assert made["prometheus/rules.yml"] == first + spool + last


def test_panels_of_alerts_are_only_in_dashboards_of_pipelines_with_rules(tmp_path: Path) -> None:
    for text, has_alerts in ((ALERTS, True), ("", False)):
        (health,) = [content for name, content in files_of(pipeline(text, tmp_path)).items() if "health" in name]
        titles = {panel["title"] for panel in json.loads(health)["panels"]}
        assert {panel.title for panel in ALERT_ROWS["Alerts"]} <= titles or not has_alerts
        assert ("Alerts" in titles) == has_alerts


def test_a_wrong_rule_is_an_error_of_wiretide_dashboards(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"alerts\.scan\.where: .*unknown column 'packet'"):
        files_of(pipeline('[alerts.scan]\nquery = "scans"\nwhere = "packet > 1"\n', tmp_path))


def test_promtool_accepts_the_files(tmp_path: Path) -> None:
    folder = write_files(tmp_path, ALERTS)
    assert "SUCCESS: 5 rules found" in promtool(folder, "check", "rules", "rules.yml")
    assert "SUCCESS: 5 rules found" in promtool(folder, "check", "config", "prometheus.yml")


def test_rules_fire_as_promtool_evaluates_them(tmp_path: Path) -> None:
    folder = write_files(tmp_path, ALERTS)
    (folder / "tests.yml").write_text(UNIT_TESTS)
    assert "SUCCESS" in promtool(folder, "test", "rules", "tests.yml")


@pytest.mark.slow("a real Prometheus")
def test_rules_fire_in_a_real_prometheus_that_scrapes_a_run(tmp_path: Path) -> None:
    folder = write_files(tmp_path, ALERTS)
    file = pipeline(ALERTS, tmp_path)
    evaluated = evaluation_of(file)
    exporter = Exporter(file.plans(), ALL_METRICS.values())
    alerts = Alerts(file.alerts, evaluated, tmp_path, print)
    alerts.continue_after(0)
    exporter.registry.register(alerts)

    def firing() -> dict[tuple[tuple[str, str], ...], float]:
        return server.values('ALERTS{alertstate="firing"}')

    with serve(exporter, port=0) as target, prometheus(tmp_path, target.url, rules=folder / "rules.yml") as server:
        server.until(lambda: server.values("wiretide_alerts_firing"), "the metrics of alerts")
        assert firing() == {}
        alerts.evaluate(1, scans(evaluated, [(1, "10.0.0.1", 200, 7), (1, "10.0.0.2", 200, 7)]), {})
        labels = {"alertname": "scan", "alertstate": "firing", "rule": "scan", "severity": "critical"}
        server.until(lambda: firing() == {tuple(sorted(labels.items())): 1.0}, "the alert")
        assert server.values('wiretide_alerts_firing{rule="scan"}') == {(("rule", "scan"), ("severity", "critical")): 2}
        titles = {panel.title for panel in ALERT_ROWS["Alerts"]}
        health = next(each for name, each in read_dashboards(files_of(file)).items() if name.endswith("-health"))
        panels = [panel for panel in panels_of(health) if panel["title"] in titles]
        assert len(panels) == len(titles)
        shown = {**health, "panels": panels, "templating": {}}
        server.until(lambda: [*empty_queries(shown, server, "5s", "1h")] == [], "the panels of alerts have data")
        alerts.evaluate(2, {}, {"scans": 2 * MINUTE})
        server.until(lambda: firing() == {}, "no alert")
    alerts.close()
