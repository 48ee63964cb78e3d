"""A real Prometheus scrapes the exporter. It stores the values of the pipeline, and promtool finds no fault."""

import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from urllib.request import urlopen

import dpkt
import pyarrow as pa
import pytest

from capture.metrics import METRICS as CAPTURE_METRICS
from capture.metrics import PACKETS_DECODED, RECORDS_SKIPPED, Samples
from dashboards.prometheus.exporter import Exporter
from dashboards.prometheus.server import serve
from highlevel.inline.engine import ALL_METRICS, InlineRun, Input
from highlevel.metrics import LOW_WATERMARK
from highlevel.metrics import METRICS as HIGH_METRICS
from lowlevel.metrics import METRICS as LOW_METRICS
from queries.gsql import compile_query
from tests.harness.prometheus_server import Prometheus, program, prometheus
from tests.references.exporter_rows import plan, rows

pytestmark = pytest.mark.slow("a real Prometheus")

TALKERS = plan("srcIP, destPort, count(*) AS packets, max(len) AS largest, avg(len) AS mean", "srcIP, destPort")
TOTAL = plan("sum(len) AS bytes", name="total")
MOVING = plan("destIP, count(*) AS packets", "destIP", name="moving")
PACKETS = "wiretide_query_talkers_packets"


def fed() -> Exporter:
    """An exporter with counters, and with one window of each query, in the year 2001."""
    exporter = Exporter([TALKERS, TOTAL], [*CAPTURE_METRICS, *LOW_METRICS, *HIGH_METRICS], top=2)
    counted = Samples()
    counted.add(PACKETS_DECODED, 123456789, "Main1")
    counted.add(RECORDS_SKIPPED, 7, "Main1", "arp")
    counted.set(LOW_WATERMARK, 1e9 + 0.25, "talkers", "Main1")
    exporter.set_samples(counted)
    groups = [
        ("10.0.0.1", 80, 9, 1500, 750.25),
        ("2001:db8::1", None, 8, 60, 60.0),
        ("10.0.0.2", 22, 7, 90, 80.0),
        ("10.0.0.3", 22, 6, 91, 80.0),
    ]
    exporter.add_results("talkers", rows(TALKERS, 10**9, *groups))
    exporter.add_results("total", rows(TOTAL, 10**9, (2**53,)))
    return exporter


def replayed(folder: Path) -> Exporter:
    """An exporter fed by a real run over two links: some records are no packets, some packets fail the predicate."""
    inputs = []
    for link, records in (("a", 5), ("b", 3)):
        inputs.append(Input(link, folder / f"{link}.pcap"))
        with inputs[-1].path.open("wb") as file:
            writer = dpkt.pcap.Writer(file)
            for number in range(records):
                ip = dpkt.ip.IP(src=b"\n\0\0\1", dst=bytes([10, 0, 1, number]), p=17, data=bytes(number * 40))
                writer.writepkt(bytes(dpkt.ethernet.Ethernet(data=ip)), ts=number)
            writer.writepkt(bytes(dpkt.ethernet.Ethernet(type=dpkt.ethernet.ETH_TYPE_ARP, data=dpkt.arp.ARP())), ts=9)
    window = "[RANGE 4 seconds, SLIDE 2 seconds, WA ts]"
    sql = f"SELECT destIP, count(*) AS packets FROM packets {window} WHERE len > 50 GROUP BY destIP"
    plans = [compile_query(sql, "by_target"), compile_query("SELECT count(*) AS packets FROM packets", "all")]
    run = InlineRun(plans, inputs)
    exporter = Exporter(plans, ALL_METRICS.values())
    for plan_number, batch in run.results():
        exporter.add_results(plans[plan_number].name, pa.Table.from_batches([batch]))
    exporter.set_samples(run.samples())
    return exporter


class Nonsense(BaseHTTPRequestHandler):
    """Answers every request with a page that is no exposition."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"<html>")

    def log_message(self, *args: object, **named: object) -> None:
        pass


@dataclass
class Scraped:
    """One Prometheus and its targets: starting one takes seconds, so that the tests share it."""

    prometheus: Prometheus
    fixed: Exporter
    fixed_url: str
    replayed_url: str
    moving: Exporter
    nonsense_url: str


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    fixed, moving = fed(), Exporter([MOVING], [])
    with ExitStack() as stack:
        fixed_url = stack.enter_context(serve(fixed, port=0)).url
        moving_url = stack.enter_context(serve(moving, port=0)).url
        folder = tmp_path_factory.mktemp("prometheus")
        replayed_url = stack.enter_context(serve(replayed(folder), port=0)).url
        nonsense = stack.enter_context(HTTPServer(("127.0.0.1", 0), Nonsense))
        thread = Thread(target=nonsense.serve_forever)
        thread.start()
        stack.callback(thread.join)
        stack.callback(nonsense.shutdown)
        nonsense_url = f"http://127.0.0.1:{nonsense.server_port}/"
        seen = stack.enter_context(prometheus(folder, fixed_url, moving_url, replayed_url, nonsense_url))
        yield Scraped(seen, fixed, fixed_url, replayed_url, moving, nonsense_url)


def test_prometheus_stores_what_the_pipeline_said(scraped: Scraped) -> None:
    seen = scraped.prometheus
    target = seen.until(lambda: seen.target(scraped.fixed_url), "scraped")
    assert (target["health"], target["lastError"]) == ("up", "")
    assert seen.values(PACKETS) == {
        (("dest_port", "80"), ("src_ip", "10.0.0.1")): 9,
        (("src_ip", "2001:db8::1"),): 8,
        (("dest_port", "other"), ("src_ip", "other")): 13,
    }
    assert seen.values("wiretide_query_talkers_largest{src_ip='other'}") == {
        (("dest_port", "other"), ("src_ip", "other")): 91
    }
    assert seen.values("wiretide_query_talkers_mean") == {
        (("dest_port", "80"), ("src_ip", "10.0.0.1")): 750.25,
        (("src_ip", "2001:db8::1"),): 60,
    }
    assert seen.values("wiretide_query_total_bytes") == {(): 2**53}
    length = "wiretide_query_window_end_seconds{query='talkers'} - wiretide_query_window_start_seconds"
    assert seen.values(length) == {(("query", "talkers"),): 60}
    assert seen.values("wiretide_packets_decoded_total{link='Main1'}") == {(("link", "Main1"),): 123456789}
    assert seen.values("wiretide_records_skipped_total{link='Main1'}") == {(("cause", "arp"), ("link", "Main1")): 7}
    assert seen.values("wiretide_low_watermark_seconds") == {(("link", "Main1"), ("query", "talkers")): 1e9 + 0.25}


def test_prometheus_knows_the_kind_and_help_of_every_metric(scraped: Scraped) -> None:
    seen = scraped.prometheus
    seen.until(lambda: seen.target(scraped.fixed_url), "scraped")
    known = {name: [(one["type"], one["help"]) for one in entries] for name, entries in seen.ask("metadata").items()}
    # Prometheus requests OpenMetrics, in which the family of a counter has no suffix in its name.
    declared = {family.name: [(family.type, family.documentation)] for family in scraped.fixed.collect()}
    assert {name: known.get(name) for name in declared} == declared


def test_the_balance_equations_of_the_documentation_hold_for_a_real_run(scraped: Scraped) -> None:
    seen = scraped.prometheus
    seen.until(lambda: seen.target(scraped.replayed_url), "scraped")
    text = (Path(__file__).resolve().parents[3] / "docs" / "guide" / "metrics.md").read_text("utf-8")
    block = re.search(r"^```promql\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert block
    records, packets, partials, shown = [
        line for line in block.group(1).replace("\n  ", " ").splitlines() if line and line[0] != "#"
    ]
    # A comparison in PromQL leaves out what does not hold.
    assert seen.values(records) == {(("link", "a"),): 6, (("link", "b"),): 4}
    assert seen.values(packets) == {
        (("link", link), ("query", query)): count
        for link, count in (("a", 5), ("b", 3))
        for query in ("by_target", "all")
    }
    assert seen.values(partials).keys() == {(("query", "by_target"),), (("query", "all"),)}
    assert seen.values("wiretide_rows_filtered_total{query='by_target', link='a'}") == {
        (("link", "a"), ("query", "by_target")): 1
    }
    assert seen.values(shown).items() >= {(("query", "all"),): 1, (("query", "by_target"),): 1}.items()


def test_a_group_that_left_the_window_is_gone_after_the_next_scrape(scraped: Scraped) -> None:
    seen, exporter = scraped.prometheus, scraped.moving
    packets = "wiretide_query_moving_packets"
    exporter.add_results("moving", rows(MOVING, 60, ("10.0.0.1", 5), ("10.0.0.2", 4)))
    seen.until(lambda: len(seen.values(packets)) == 2, "two series")
    exporter.add_results("moving", rows(MOVING, 120, ("10.0.0.2", 3)))
    seen.until(lambda: seen.values(packets) == {(("dest_ip", "10.0.0.2"),): 3}, "the group of the new window alone")


def test_a_page_that_is_no_exposition_is_down_with_a_reason(scraped: Scraped) -> None:
    # A check of the tests above: Prometheus, with the queries used here, does report a fault.
    seen = scraped.prometheus
    target = seen.until(lambda: seen.target(scraped.nonsense_url), "scraped")
    assert target["health"] == "down"
    assert target["lastError"] != ""


def test_promtool_finds_no_fault_in_the_exposition() -> None:
    promtool = program("promtool")
    with serve(fed(), port=0) as server, urlopen(f"{server.url}metrics") as answer:
        checked = subprocess.run([promtool, "check", "metrics"], input=answer.read(), capture_output=True)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")


def test_a_prometheus_that_ends_fails_the_wait_with_its_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("cannot open the door")
    message = "^the server ended with status 1 before listening\ncannot open the door$"
    with subprocess.Popen(["false"]) as ended, pytest.raises(AssertionError, match=message):
        Prometheus(ended, log).until(lambda: False, "listening")
