"""Every query of every panel and variable of the dashboards has data in a real Prometheus.

They detect a panel over a metric that does not exist, a legend over a missing label, and a variable without values.

* Files and flow exports: the inline engine replays them into the exporter of `wiretide run`.
* A node and its spool: `wiretide capture` and `wiretide run` are real, and their link stays open.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from capture.metrics import METRICS as CAPTURE_METRICS
from dashboards.grafana.health_dashboard import INTERFACE_ROWS
from dashboards.grafana.pipeline_files import make_files
from dashboards.monitors.node import SERVED_METRICS
from dashboards.monitors.pipeline import Monitor
from dashboards.prometheus.backfill import create_blocks
from dashboards.prometheus.comparison_samples import METRICS as COMPARISON_METRICS
from dashboards.prometheus.exporter import Exporter
from dashboards.prometheus.query_counters import counter_name, values_with_counters
from dashboards.prometheus.query_histograms import histogram_name
from dashboards.prometheus.server import serve
from highlevel.inline.engine import ALL_METRICS, InlineRun, Input
from highlevel.metrics import METRICS as HIGH_METRICS
from lowlevel.metrics import METRICS as LOW_METRICS
from queries.pipeline.file import PipelineFile, read_pipeline
from tests.conformance.traffic import LINKS, generate_links
from tests.harness.capture_process import node
from tests.harness.command_line import run
from tests.harness.grafana_panels import Object, empty_queries, panels_of, read_dashboards
from tests.harness.live_pipes import Pipe
from tests.harness.prometheus_server import Prometheus, program, prometheus
from tests.references.written_exports import write_exports

QUERIES = """
[queries.total]
sql = "SELECT count(*) AS packets, sum(len) AS bytes FROM packets [RANGE 10 s]"
[queries.top-talkers]
sql = "@top-talkers"
params = { window = "10 seconds" }
[queries.top-conversations]
sql = "@top-conversations"
params = { window = "10 seconds" }
[queries.protocols]
sql = "@protocols"
params = { window = "10 seconds" }
[queries.ports]
sql = "SELECT protocol, destPort, count(*) AS packets FROM packets [RANGE 10 s] GROUP BY protocol, destPort"
[queries.requests]
sql = "SELECT destIP, count(*) AS n FROM packets [RANGE 10 s] WHERE tcp_flags & 2 = 2 GROUP BY destIP"
[queries.entropy]
sql = "@entropy"
params = { window = "10 seconds" }
"""

FILES = (
    "[links]\n"
    + "".join(f'{link} = "{link}.pcap"\n' for link in LINKS)
    + 'exports = "exports.pcap"\n'
    + QUERIES
    + """
[queries.flow-talkers]
sql = "@flow-talkers"
params = { window = "1 minute" }
[queries.exporters]
sql = "SELECT exporter, count(*) AS flows, sum(bytes) AS bytes FROM flows [RANGE 1 minute] GROUP BY exporter"
[queries.sizes]
sql = "SELECT bucket(len, 64, 512, 1518) AS size, count(*) AS n FROM packets [RANGE 5 s] GROUP BY size"
histogram = "size"
[metrics]
top = 3
counters = true
"""
)

LIVE = f"""
[links.wire]
capture = "wire.pipe"
spool = "spool/wire"
promise = "late 1s"
{QUERIES}
[metrics]
port = 0
[spark]
master = "local[2]"
"""

KNOWN_METRICS = {
    metric.name
    for metrics in (CAPTURE_METRICS, LOW_METRICS, HIGH_METRICS, SERVED_METRICS, COMPARISON_METRICS)
    for metric in metrics
}


def replay(pipeline: PipelineFile) -> Exporter:
    """Return an exporter with all results, and the counters of the moment before the end: links have a lag then."""
    plans = pipeline.plans()
    inputs = [Input(link, Path(path), link) for link, paths in pipeline.links.items() for path in paths]
    replayed = InlineRun(plans, inputs)
    exporter = Exporter(
        plans, ALL_METRICS.values(), pipeline.top, pipeline.ranks, pipeline.counters, pipeline.histograms
    )
    samples = None
    for number, batch in replayed.results():
        samples = samples or replayed.samples()
        exporter.add_results(plans[number].name, pa.Table.from_batches([batch]))
    exporter.set_samples({**replayed.samples(), **(samples or {})})
    return exporter


@pytest.fixture
def pipeline(tmp_path: Path) -> PipelineFile:
    for name, path in zip(LINKS, generate_links(tmp_path)[0], strict=True):
        path.rename(tmp_path / f"{name}.pcap")
    write_exports(tmp_path / "exports.pcap", Random(3), 40)
    (tmp_path / "p.toml").write_text(FILES)
    return read_pipeline(tmp_path / "p.toml")


@pytest.fixture
def exporter(pipeline: PipelineFile) -> Iterator[str]:
    with serve(replay(pipeline), port=0) as server:
        yield server.url


def unknown_metrics(files: dict[str, str], exporter: Exporter) -> set[str]:
    """Return the metrics in queries that no process exposes. A query of a rare counter is 0 if it does not exist."""
    known = KNOWN_METRICS | {value.name for series in exporter.series for value in series.values}
    counted = {value for series in exporter.series for value in values_with_counters(series)}
    known |= {counter_name(value) for value in counted} | {f"{histogram_name(value)}_bucket" for value in counted}
    texts = [
        target["expr"]
        for dashboard in read_dashboards(files).values()
        for panel in panels_of(dashboard)
        for target in panel.get("targets", ())
    ]
    return {name for text in texts for name in re.findall(r"\bwiretide_\w+", text)} - known


@pytest.mark.slow("a real Prometheus")
def test_panels_of_files_and_flow_exports_have_data(pipeline: PipelineFile, exporter: str, tmp_path: Path) -> None:
    files = make_files(pipeline, "office", "127.0.0.1:9465", "wiretide")
    dashboards = read_dashboards(files)
    assert list(dashboards) == [f"office-{name}" for name in (
        *("overview", "talkers", "protocols", "handshakes", "security", "flows", "health", "disorder"),
    )]  # fmt: skip
    assert unknown_metrics(files, replay(pipeline)) == set()
    with prometheus(tmp_path, exporter) as server:
        server.until(lambda: server.values("rate(wiretide_records_read_total[5s])"), "scraped twice")
        empty = {name: list(empty_queries(each, server, "5s", "1h")) for name, each in dashboards.items()}
    assert empty == {name: [] for name in dashboards}


@pytest.mark.slow("a real Prometheus")
def test_panels_of_a_comparison_have_data(pipeline: PipelineFile, tmp_path: Path) -> None:
    promtool = program("promtool")
    links = [f"{link}.pcap" for link in LINKS]
    sql = "SELECT srcIP, count(*) AS n FROM packets [RANGE 5 s] GROUP BY srcIP"
    words = ("compare", *links, sql, "--disorder", "2s", "--slack", "0,5s", "--repeat", "1")
    status, output, errors = run(*words, "--openmetrics", "samples.om", cwd=tmp_path)
    assert (status, errors) == (0, "")
    samples = [line for line in (tmp_path / "samples.om").read_text().splitlines() if not line.startswith("#")]
    create_blocks(promtool, tmp_path / "samples.om", tmp_path / "data", len(samples))
    files = make_files(pipeline, "office", "", "wiretide", has_comparison=True)
    disorder = read_dashboards(files)["office-disorder"]
    last = max(float(line.split()[-1]) for line in samples)
    variants = [
        line.split("  ")[0] for line in output.splitlines()[2:] if line.startswith(("out of", "in order", "slack"))
    ]
    with prometheus(tmp_path, retention="20y") as server:
        comparison = {**disorder, "panels": [panel for panel in panels_of(disorder) if panel["title"] in COMPARED]}
        assert list(empty_queries(comparison, server, "5s", "1h", time=str(last + 1))) == []
        rates = server.ask("query", query="wiretide_compare_rows_per_cpu_second", time=str(last))["result"]
        assert {one["metric"]["variant"] for one in rates} == set(variants)
        assert {one["metric"]["order"] for one in rates} == {"in", "out"}


COMPARED = {
    *("Rows stored", "Bytes stored", "Median latency", "Largest latency", "Rows per second of CPU"),
    *("Wrong or missing results", "Late rows"),
}


def has_data(dashboard: Object, server: Prometheus) -> bool:
    return next(empty_queries(dashboard, server, "10s", "1h"), None) is None


@pytest.mark.spark
@pytest.mark.slow("a real Prometheus, a node and a run on Spark")
def test_panels_of_a_node_and_its_spool_have_data(tmp_path: Path) -> None:
    (tmp_path / "spool").mkdir(mode=0o700)
    (tmp_path / "p.toml").write_text(LIVE)
    pipe = Pipe(tmp_path / "wire.pipe")
    settings = read_pipeline(tmp_path / "p.toml")
    frames = [packet for path in generate_links(tmp_path)[0] for packet in frames_of(path)]
    with node(tmp_path) as capturing, Monitor(settings) as monitor:
        assert monitor.server is not None
        url = next(line.split()[-1] for line in capturing.first_lines if line.startswith("metrics at"))
        for second, frame in enumerate(frames):
            pipe.write(second / 4, frame=frame)
        files = make_files(settings, "wire", url.split("/")[2], "wiretide")
        dashboards = read_dashboards(files)
        assert unknown_metrics(files, monitor.exporter) == set()
        with prometheus(tmp_path, monitor.server.url, url.removesuffix("metrics")) as server:
            server.until(lambda: server.values("wiretide_punctuation_lag_seconds"), "windows have closed")
            # A rate has data after two scrapes that have the counter.
            for name, each in dashboards.items():
                server.until(partial(has_data, each, server), f"all panels of {name} have data")
    pipe.close()


@pytest.mark.slow("a real Prometheus and a node")
def test_panels_of_a_live_interface_have_data(tmp_path: Path) -> None:
    if not may_capture():
        pytest.skip("no permission to open interfaces: CAP_NET_RAW is missing")
    (tmp_path / "spool").mkdir(mode=0o700)
    (tmp_path / "p.toml").write_text(LIVE.replace("wire.pipe", "interface:lo"))
    files = make_files(read_pipeline(tmp_path / "p.toml"), "lo", "", "wiretide")
    health = read_dashboards(files)["lo-health"]
    titles = [panel.title for panels in INTERFACE_ROWS.values() for panel in panels]
    with node(tmp_path) as capturing:
        url = next(line.split()[-1] for line in capturing.first_lines if line.startswith("metrics at"))
        with prometheus(tmp_path, url.removesuffix("metrics")) as server:
            # The scrapes themselves are packets on the loopback interface.
            server.until(lambda: server.values("rate(wiretide_interface_received_total[5s]) > 0"), "scraped twice")
            panels = [panel for panel in panels_of(health) if panel["title"] in titles]
            assert len(panels) == len(titles)
            shown = {**health, "panels": panels, "templating": {}}
            assert list(empty_queries(shown, server, "5s", "1h")) == []


def may_capture() -> bool:
    try:
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close()
    except PermissionError:
        return False
    return True


def frames_of(path: Path) -> list[bytes]:
    """Return the IP packets of a capture of Ethernet frames."""
    data, frames, at = path.read_bytes(), [], 24
    while at < len(data):
        length = int.from_bytes(data[at + 8 : at + 12], "little")
        frames.append(data[at + 16 : at + 16 + length])
        at += 16 + length
    return [frame[14:] for frame in frames if frame[12:14] in (b"\x08\x00", b"\x86\xdd")]
