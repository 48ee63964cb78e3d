"""A real Alertmanager lists the alerts of a run, keeps them while they are firing, and ends them."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from dashboards.alerts.alerts import Alerts
from dashboards.alerts.delivery import Delivery, DeliveryTimes
from tests.harness.alert_rules import MINUTE, evaluation_of, pipeline, scans
from tests.harness.prometheus_server import alertmanager

pytestmark = pytest.mark.slow("a real Alertmanager")

RULES = """
[alerts.scan]
query = "scans"
where = "packets > 100"
severity = "critical"
summary = "{{srcIP}} scans <b>"
[receivers.am]
kind = "alertmanager"
url = "{url}"
"""


def test_a_real_alertmanager_lists_alerts_with_labels_and_annotations_and_ends_them(tmp_path: Path) -> None:
    with alertmanager(tmp_path) as server:
        file = pipeline(RULES.format(url=server.url), tmp_path)
        evaluated = evaluation_of(file)
        deliver = partial(Delivery, times=DeliveryTimes(0.01, 0.02, 0.1))
        alerts = Alerts(file.alerts, evaluated, tmp_path, print, deliver)
        alerts.continue_after(0)
        rows = [(1, "10.0.0.1", 200, 7), (1, "2001:db8::1", 300, 8), (1, "10.0.0.3", 5, 9)]
        alerts.evaluate(1, scans(evaluated, rows), {})
        server.until(lambda: len(server.alerts()) == 2, "two alerts")
        ipv4, ipv6 = server.alerts()
        assert ipv4["labels"] == {"alertname": "scan", "severity": "critical", "src_ip": "10.0.0.1"}
        assert ipv6["labels"] == {"alertname": "scan", "severity": "critical", "src_ip": "2001:db8::1"}
        assert ipv4["startsAt"] == "1970-01-01T00:01:00.000Z"
        assert ipv4["annotations"]["summary"] == "10.0.0.1 scans <b>"
        assert ipv4["annotations"]["state"] == "final"
        assert json.loads(ipv4["annotations"]["evidence"])[0]["packets"] == 200
        # The evidence of the next window replaces the annotations, and the identity stays.
        alerts.evaluate(2, scans(evaluated, [(2, "10.0.0.1", 900, 7)]), {"scans": 2 * MINUTE})
        server.until(
            lambda: [json.loads(alert["annotations"]["evidence"])[0]["packets"] for alert in server.alerts()] == [900],
            "one alert, with new evidence",
        )
        (alert,) = server.alerts()
        assert (alert["fingerprint"], alert["startsAt"]) == (ipv4["fingerprint"], ipv4["startsAt"])
        before = alert["endsAt"]
        server.until(lambda: server.alerts()[0]["endsAt"] > before, "a repetition that prolongs the alert")
        alerts.evaluate(3, {}, {"scans": 3 * MINUTE})
        server.until(lambda: server.alerts() == [], "no alert")
        alerts.close()
