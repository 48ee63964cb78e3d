"""Dashboards for Grafana: each panel's query has data in a real Prometheus, and no file of the user is lost.

No Grafana runs in these tests. They detect a panel over a metric that does not exist, a legend over a missing label,
panels without the data source, and identifiers that change from one call to the next.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dashboards.grafana.health_dashboard import NODE_ROWS, ROWS, HealthPanel
from dashboards.grafana.pipeline_files import make_files
from dashboards.prometheus.exporter import Exporter
from dashboards.prometheus.server import serve
from highlevel.inline.engine import ALL_METRICS, InlineRun, Input
from lowlevel.metrics import LULL_WATERMARKS
from queries.pipeline.file import PipelineFile, parse_pipeline
from tests.conformance.traffic import LINKS, generate_links
from tests.harness.command_line import run
from tests.harness.prometheus_server import prometheus

PIPELINE = """
[links]
office = "office.pcap"
Backbone_2 = "Backbone_2.pcap"

[queries.talkers]
sql = '''SELECT srcIP, destPort, count(*) AS packets, sum(len) AS bytes FROM packets [RANGE 10 s]
    GROUP BY srcIP, destPort'''
rank = "bytes"

[queries.total]
sql = "SELECT count(*) AS packets FROM packets [RANGE 10 s]"

[queries.moving]
sql = '''SELECT protocol, moving_sum(len, 3) AS m, count(*) / 10 AS per_second FROM packets [RANGE 10 s]
    GROUP BY protocol CLOSING WHEN moving_sum(len, 3) = 0'''

[queries.selected]
sql = "SELECT ts, srcIP FROM packets WHERE len > 1000"

[metrics]
top = 3
"""

WITHOUT_DATA = {"Restarts of Spark", "Records that are no packets", "Lag of the watermark"}
"""Panels over events that do not happen in the replay. At the end of the input the watermark has no lag."""


def read_dashboards(files: dict[str, str]) -> dict[str, dict[str, Any]]:
    return {Path(name).stem: json.loads(text) for name, text in files.items() if name.endswith(".json")}


def panels_of(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


@pytest.fixture
def pipeline(tmp_path: Path) -> PipelineFile:
    for name, path in zip(LINKS, generate_links(tmp_path)[0], strict=True):
        path.rename(tmp_path / f"{name}.pcap")
    return parse_pipeline(PIPELINE, tmp_path)


def replay(pipeline: PipelineFile) -> Exporter:
    plans = pipeline.plans()
    inputs = [Input(link, Path(path), link) for link, paths in pipeline.links.items() for path in paths]
    replayed = InlineRun(plans, inputs)
    exporter = Exporter(plans, ALL_METRICS.values(), pipeline.top, pipeline.ranks)
    for number, batch in replayed.results():
        exporter.results(plans[number].name, pa.Table.from_batches([batch]))
    exporter.samples(replayed.samples())
    return exporter


@pytest.fixture
def exporter(pipeline: PipelineFile) -> Iterator[str]:
    with serve(replay(pipeline), port=0) as server:
        yield server.url


@pytest.mark.slow("a real Prometheus")
def test_each_panel_has_data_in_a_real_prometheus(pipeline: PipelineFile, exporter: str, tmp_path: Path) -> None:
    files = make_files(pipeline, "office", "127.0.0.1:9465", "wiretide")
    with prometheus(tmp_path, exporter) as server:
        server.until(lambda: server.values("rate(wiretide_records_read_total[5s])"), "scraped twice")
        for dashboard in read_dashboards(files).values():
            for panel in panels_of(dashboard):
                for target in panel["targets"]:
                    expression = target["expr"].replace("$__rate_interval", "5s")
                    found = server.ask("query", query=expression)["result"]
                    assert found or panel["title"] in WITHOUT_DATA, (panel["title"], expression)
                    used = set(re.findall(r"\{\{(\w+)\}\}", target.get("legendFormat", "")))
                    for one in found:
                        # Packets without ports have no label `dest_port`.
                        assert used - {*one["metric"]} <= {"dest_port"}, (panel["title"], one)


def test_each_value_column_has_a_panel_and_each_query_with_groups_a_table(pipeline: PipelineFile) -> None:
    queries = read_dashboards(make_files(pipeline, "office", "", "source"))["office-queries"]
    rows = [panel["title"] for panel in queries["panels"] if panel["type"] == "row"]
    assert rows == ["talkers", "total", "moving"]
    titles = [(panel["type"], panel["title"]) for panel in panels_of(queries)]
    assert titles == [
        ("timeseries", "talkers: packets"),
        ("timeseries", "talkers: bytes"),
        ("table", "talkers: newest window"),
        ("timeseries", "total: packets"),
        ("timeseries", "moving: m"),
        ("timeseries", "moving: per_second"),
        ("table", "moving: newest window"),
    ]
    by_title = {panel["title"]: panel for panel in panels_of(queries)}
    assert by_title["talkers: bytes"]["fieldConfig"]["defaults"]["unit"] == "decbytes"
    (target,) = by_title["talkers: packets"]["targets"]
    assert (target["expr"], target["legendFormat"]) == ("wiretide_query_talkers_packets", "{{src_ip}} {{dest_port}}")
    (target,) = by_title["total: packets"]["targets"]
    assert target["legendFormat"] == "packets"
    renamed = by_title["talkers: newest window"]["transformations"][-1]["options"]["renameByName"]
    assert renamed == {"Value #A": "packets", "Value #B": "bytes"}


def test_panels_read_the_data_source_of_the_provisioning_and_do_not_overlap(pipeline: PipelineFile) -> None:
    files = make_files(pipeline, "office", "", "my-source")
    assert 'uid: "my-source"' in files["grafana/provisioning/datasources/wiretide.yaml"]
    for dashboard in read_dashboards(files).values():
        cells = []
        for panel in panels_of(dashboard):
            assert panel["datasource"] == {"type": "prometheus", "uid": "my-source"}
            place = panel["gridPos"]
            cells += [
                (x, y)
                for x in range(place["x"], place["x"] + place["w"])
                for y in range(place["y"], place["y"] + place["h"])
            ]
        assert len(cells) == len({*cells})
        assert max(x for x, _ in cells) < 24


def test_identifiers_are_the_same_at_each_call_and_differ_between_pipelines(pipeline: PipelineFile) -> None:
    first, second = (make_files(pipeline, name, "", "source") for name in ("office", "Head Office, 2nd floor " * 3))
    assert first == make_files(pipeline, "office", "", "source")
    uids = [dashboard["uid"] for files in (first, second) for dashboard in read_dashboards(files).values()]
    assert len({*uids}) == 4
    assert max(map(len, uids)) <= 40
    assert {"wiretide-office-queries", "wiretide-office-health"} <= {*uids}


def test_panels_of_the_node_and_its_metrics_are_only_in_pipelines_with_spools(
    pipeline: PipelineFile, tmp_path: Path
) -> None:
    text = PIPELINE + '\n[links.live]\ncapture = "live.pipe"\nspool = "spool"\n'
    with_node = make_files(parse_pipeline(text, tmp_path), "office", "node.example:9999", "source")
    without = make_files(pipeline, "office", "node.example:9999", "source")
    node_titles = {panel.title for panels in NODE_ROWS.values() for panel in panels}
    for files, has_node in ((with_node, True), (without, False)):
        titles = {panel["title"] for panel in panels_of(read_dashboards(files)["office-health"])}
        assert titles >= {panel.title for panels in ROWS.values() for panel in panels}
        assert (titles & node_titles == node_titles) == has_node
        assert ("node.example:9999" in files["prometheus/prometheus.yml"]) == has_node


def test_a_panel_over_a_label_that_a_metric_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match=re.escape("got the labels ('query',), expected some of")):
        HealthPanel("Lulls", (LULL_WATERMARKS,), ("query",))


def test_the_command_writes_the_files_and_keeps_those_that_the_user_changed(
    pipeline: PipelineFile, tmp_path: Path
) -> None:
    (tmp_path / "office.toml").write_text(PIPELINE)
    words = ("dashboards", "office.toml", "-o", "out")
    status, written, _ = run(*words, cwd=tmp_path)
    assert status == 0
    assert [Path(line).name for line in written.splitlines()] == [
        *("office-queries.json", "office-health.json"),
        *("prometheus.yml", "wiretide.yaml", "wiretide.yaml", "compose.yaml"),
    ]
    assert run(*words, cwd=tmp_path) == (0, written, "")
    changed = tmp_path / "out" / "compose.yaml"
    changed.write_text("mine")
    message = "wiretide: these files exist and differ: out/compose.yaml; expected --force, or another folder with -o\n"
    assert run(*words, cwd=tmp_path) == (1, "", message)
    assert changed.read_text() == "mine"
    assert run(*words, "--force", cwd=tmp_path) == (0, written, "")
    assert changed.read_text() != "mine"
