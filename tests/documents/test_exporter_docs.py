"""docs/guide/metrics.md lists every metric exactly as it is declared, so that the two cannot diverge."""

import re
from pathlib import Path

from capture.collector.metrics import METRICS as COLLECTOR_METRICS
from capture.metrics import METRICS as CAPTURE_METRICS
from capture.metrics import Metric
from dashboards.alerts.metrics import METRICS as ALERT_METRICS
from dashboards.changes.metrics import METRICS as CHANGES_METRICS
from dashboards.page.metrics import METRICS as PAGE_METRICS
from dashboards.prometheus.exporter import HTTP_METRICS, Exporter
from dashboards.prometheus.exporter import METRICS as DASHBOARD_METRICS
from dashboards.sinks.metrics import METRICS as SINK_METRICS
from highlevel.metrics import METRICS as HIGH_METRICS
from lowlevel.metrics import METRICS as LOW_METRICS
from lowlevel.metrics import NODE_METRICS
from queries.gsql import compile_query

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "guide" / "metrics.md").read_text("utf-8")
DECLARED = (
    *DASHBOARD_METRICS,
    *CHANGES_METRICS,
    *SINK_METRICS,
    *HTTP_METRICS,
    *PAGE_METRICS,
    *ALERT_METRICS,
    *CAPTURE_METRICS,
    *COLLECTOR_METRICS,
    *LOW_METRICS,
    *NODE_METRICS,
    *HIGH_METRICS,
)


def row(metric: Metric) -> str:
    """The line of the tables that describes `metric`."""
    return f"| `{metric.name}` | {metric.kind} | {', '.join(metric.labels)} | {metric.help} |"


def test_the_tables_hold_every_declaration_in_order_and_nothing_else() -> None:
    assert re.findall(r"^\| `wiretide_.*$", TEXT, re.MULTILINE) == [row(metric) for metric in DECLARED]


def test_every_metric_that_the_text_names_exists() -> None:
    sql = re.search(r"^```sql\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
    assert sql
    exporter = Exporter([compile_query(sql.group(1), "talkers")], DECLARED, counters=True)
    families = list(exporter.describe())
    known = {family.name for family in families} | {metric.name for metric in DECLARED}
    known |= {f"{family.name}_total" for family in families if family.type == "counter"}
    known |= {f"wiretide_query_sizes_packets_histogram{suffix}" for suffix in ("", "_bucket")}  # of the second query
    assert set(re.findall(r"wiretide_\w*[a-z]", TEXT)) - known == {"wiretide_query"}


def test_help_texts_are_sentences() -> None:
    for metric in DECLARED:
        assert re.fullmatch(r"[A-Z].*\w.*[.)]", metric.help), metric
