"""The configuration of Prometheus, and the provisioning of Grafana. Strings are written as JSON, which is YAML."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from dashboards.alerts.metrics import FIRING, MESSAGES, WAITING
from highlevel.metrics import SPOOL_NEWEST
from queries.pipeline.alert_settings import AlertSettings

PROMETHEUS_PORT, GRAFANA_PORT = 9090, 3000

PROMETHEUS_FILE = "prometheus/prometheus.yml"
RULES_FILE = "prometheus/rules.yml"
SOURCE_FILE = "grafana/provisioning/datasources/wiretide.yaml"
PROVIDER_FILE = "grafana/provisioning/dashboards/wiretide.yaml"
DASHBOARD_FOLDER = "grafana/dashboards"

_PROMETHEUS = """\
global:
  scrape_interval: 5s
scrape_configs:
  - job_name: wiretide
    static_configs:
      - targets: {targets}
{rules}"""

_RULE = """\
      - alert: {name}
        expr: {expression}
        for: {hold}
        annotations:
          summary: {summary}
"""

_SOURCE = """\
apiVersion: 1
datasources:
  - name: Wiretide
    uid: {uid}
    type: prometheus
    access: proxy
    url: {url}
    isDefault: true
    jsonData:
      timeInterval: 5s
      httpMethod: POST
"""

_PROVIDER = """\
apiVersion: 1
providers:
  - name: Wiretide
    type: file
    folder: Wiretide
    updateIntervalSeconds: 30
    allowUiUpdates: true
    disableDeletion: false
    options:
      path: /var/lib/wiretide/dashboards
"""


def make_monitoring(targets: Sequence[str], uid: str, alerts: AlertSettings) -> dict[str, str]:
    """Return the text of each file by its relative path.

    `targets`: HOST:PORT of the metrics; `uid`: data source. Each rule of the pipeline becomes a rule of Prometheus that
    fires while it has alerts. Conditions are not translated: the pipeline evaluates all rows, and Prometheus has only
    the top groups.
    """
    url = f"http://127.0.0.1:{PROMETHEUS_PORT}"
    rules = make_rules(alerts)
    return {
        PROMETHEUS_FILE: _PROMETHEUS.format(
            targets=json.dumps(list(targets)), rules=f"rule_files: [{Path(RULES_FILE).name}]\n" if rules else ""
        ),
        **({RULES_FILE: rules} if rules else {}),
        SOURCE_FILE: _SOURCE.format(uid=json.dumps(uid), url=json.dumps(url)),
        PROVIDER_FILE: _PROVIDER,
    }


def make_rules(alerts: AlertSettings) -> str:
    """Return alerting rules for Prometheus; an empty text without alerts in the pipeline.

    Besides the rules of the pipeline, two rules detect messages that do not arrive. If the pipeline has a rule with
    `absent`, another rule detects a spool without new segments, because such a rule needs the watermark of a node.
    """
    rules = [
        (name, f'{FIRING.name}{{rule="{name}"}} > 0', "0s", f"{{{{ $value }}}} alerts of the rule {name}")
        for name in (rule.name for rule in alerts.rules)
    ]
    if alerts.rules and alerts.receivers:
        summary = "{{ $value }} messages about alerts wait for {{ $labels.receiver }}"
        rules.append(("WiretideMessagesWait", f"{WAITING.name} > 0", "15m", summary))
        lost = f'increase({MESSAGES.name}{{result=~"refused|dropped"}}[1h]) > 0'
        rules.append(("WiretideMessagesLost", lost, "0s", "messages about alerts are lost: {{ $labels.receiver }}"))
    if any(rule.absent is not None for rule in alerts.rules):
        summary = "the spool of {{ $labels.link }} has no new segment: its node has stopped, or the link is silent"
        rules.append(("WiretideSpoolWithoutSegments", f"time() - {SPOOL_NEWEST.name} > 600", "0s", summary))
    texts = [
        _RULE.format(name=json.dumps(name), expression=json.dumps(expression), hold=hold, summary=json.dumps(summary))
        for name, expression, hold, summary in rules
    ]
    return "groups:\n  - name: wiretide\n    rules:\n" + "".join(texts) if texts else ""
