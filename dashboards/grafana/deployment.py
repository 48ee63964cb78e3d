"""The files around the dashboards: configuration of Prometheus, provisioning of Grafana, and a compose file.

All servers listen on loopback only and use the network of the host, because Wiretide serves its metrics on loopback.
Strings are written as JSON, which is YAML.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from queries.pipeline.alert_settings import AlertRule

PROMETHEUS_PORT, GRAFANA_PORT = 9090, 3000

PROMETHEUS_FILE = "prometheus/prometheus.yml"
RULES_FILE = "prometheus/rules.yml"
SOURCE_FILE = "grafana/provisioning/datasources/wiretide.yaml"
PROVIDER_FILE = "grafana/provisioning/dashboards/wiretide.yaml"
COMPOSE_FILE = "compose.yaml"
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
        expr: max by (rule, instance) (wiretide_alerts_firing{{rule={name}}}) > 0
        labels:
          severity: {severity}
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

_COMPOSE = """\
# Prometheus and Grafana on this machine: http://127.0.0.1:{grafana}
# They use the network of the host, because Wiretide serves its metrics on loopback.
services:
  prometheus:
    image: prom/prometheus:v3.5.0
    network_mode: host
    command:
      - --config.file=/etc/prometheus/prometheus.yml
      - --storage.tsdb.path=/prometheus
      - --web.listen-address=127.0.0.1:{prometheus}
    volumes:
      - ./prometheus:/etc/prometheus:ro
      - prometheus-data:/prometheus
  grafana:
    image: grafana/grafana:12.2.0
    network_mode: host
    environment:
      GF_SERVER_HTTP_ADDR: 127.0.0.1
      GF_SERVER_HTTP_PORT: "{grafana}"
      GF_AUTH_ANONYMOUS_ENABLED: "true"
      GF_AUTH_ANONYMOUS_ORG_ROLE: Viewer
    volumes:
      - ./grafana/provisioning:/etc/grafana/provisioning:ro
      - ./grafana/dashboards:/var/lib/wiretide/dashboards:ro
      - grafana-data:/var/lib/grafana
volumes:
  prometheus-data:
  grafana-data:
"""


def make_deployment(targets: Sequence[str], uid: str, rules: Sequence[AlertRule] = ()) -> dict[str, str]:
    """Return the text of each file by its relative path.

    `targets`: HOST:PORT of the metrics; `uid`: data source. Each rule of the pipeline becomes a rule of Prometheus that
    fires while it has alerts: the pipeline evaluates all rows, and Prometheus has only the top groups.
    """
    url = f"http://127.0.0.1:{PROMETHEUS_PORT}"
    files = {RULES_FILE: _make_rules(rules)} if rules else {}
    return {
        **files,
        PROMETHEUS_FILE: _PROMETHEUS.format(
            targets=json.dumps(list(targets)), rules="rule_files: [rules.yml]\n" if rules else ""
        ),
        SOURCE_FILE: _SOURCE.format(uid=json.dumps(uid), url=json.dumps(url)),
        PROVIDER_FILE: _PROVIDER,
        COMPOSE_FILE: _COMPOSE.format(prometheus=PROMETHEUS_PORT, grafana=GRAFANA_PORT),
    }


def _make_rules(rules: Sequence[AlertRule]) -> str:
    texts = [
        _RULE.format(
            name=json.dumps(rule.name),
            severity=json.dumps(rule.severity),
            summary=json.dumps(f"{{{{ $value }}}} alerts of the rule {rule.name}"),
        )
        for rule in rules
    ]
    return "groups:\n  - name: wiretide\n    rules:\n" + "".join(texts)
