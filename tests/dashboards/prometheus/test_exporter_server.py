"""The exporter over HTTP: the answer of every path, and no threads or sockets remain after a stop."""

import gzip
import re
import socket
import threading
from collections.abc import Iterator
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from dashboards.prometheus.exporter import Exporter
from dashboards.prometheus.server import Server, serve
from tests.references.exporter_rows import exposition, plan, rows

SYNS = plan("destIP, count(*) AS packets", "destIP", name="<syn> & flood")
METRIC = "wiretide_query_syn_flood_packets"


@pytest.fixture
def exporter() -> Exporter:
    exporter = Exporter([SYNS], [])
    exporter.add_results("<syn> & flood", rows(SYNS, 60, ("10.0.0.1", 5)))
    return exporter


@pytest.fixture
def server(exporter: Exporter) -> Iterator[Server]:
    with serve(exporter, port=0) as server:
        yield server


def test_metrics_are_the_exposition_of_this_moment(exporter: Exporter, server: Server) -> None:
    with urlopen(f"{server.url}metrics") as answer:
        text = answer.read().decode()
        assert sorted(text.splitlines()) == sorted(exposition(exporter).splitlines())
        assert answer.headers["Content-Type"].startswith("text/plain; version=")
    names = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(names) == len(set(names))
    with urlopen(f"{server.url}metrics") as answer:  # the text of the window is stored
        again = [line for line in answer.read().decode().splitlines() if "wiretide_http" not in line]
    assert again == [line for line in text.splitlines() if "wiretide_http" not in line]
    exporter.add_results("<syn> & flood", rows(SYNS, 120, ("10.0.0.1", 6)))
    with urlopen(f"{server.url}metrics") as answer:
        assert f'{METRIC}{{dest_ip="10.0.0.1"}} 6.0\n' in answer.read().decode()


def test_openmetrics_and_compression_are_spoken_when_asked_for(server: Server) -> None:
    headers = {"Accept": "application/openmetrics-text; version=1.0.0", "Accept-Encoding": "gzip"}
    for _ in range(2):  # the second answer has the stored text of the window
        with urlopen(Request(f"{server.url}metrics", headers=headers)) as answer:
            assert answer.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
            text = gzip.decompress(answer.read()).decode()
        assert text.endswith("# EOF\n")
        families = {family.name: family.samples for family in text_string_to_metric_families(text)}
        assert [sample.value for sample in families[METRIC]] == [5.0]


def test_a_collector_that_is_registered_later_is_served(exporter: Exporter, server: Server) -> None:
    class Later:
        def collect(self) -> Iterator[GaugeMetricFamily]:
            yield GaugeMetricFamily("later", "Help.", 7)

    exporter.registry.register(Later())
    with urlopen(f"{server.url}metrics") as answer:
        assert "\nlater 7.0\n" in answer.read().decode()


def test_before_the_first_window_a_metric_has_its_help() -> None:
    with serve(Exporter([SYNS], []), port=0) as server, urlopen(f"{server.url}metrics") as answer:
        assert f"# TYPE {METRIC} gauge\n" in answer.read().decode()


def test_one_metric_can_be_asked_for_by_name(server: Server) -> None:
    with urlopen(f"{server.url}metrics?name[]={METRIC}") as answer:
        lines = answer.read().decode().splitlines()
    assert [line for line in lines if not line.startswith("#")] == [f'{METRIC}{{dest_ip="10.0.0.1"}} 5.0']
    assert len(lines) == 3


def test_the_index_page_names_the_queries_and_links_to_the_metrics(server: Server) -> None:
    with urlopen(server.url) as answer:
        page = answer.read().decode()
    assert "<h2>&lt;syn&gt; &amp; flood</h2>\n<p>from packets</p>" in page
    assert "<pre>SELECT destIP, count(*) AS packets FROM packets" in page
    assert re.findall(r'href="(.*?)"', page) == ["/metrics"]


def test_any_other_path_says_what_there_is(server: Server) -> None:
    with pytest.raises(HTTPError, match="404") as caught:
        urlopen(f"{server.url}metrix")
    with caught.value as answer:
        assert answer.read() == b"unknown path: expected / or /metrics\n"


def test_after_closing_the_port_is_free_and_no_thread_is_left(exporter: Exporter) -> None:
    before = threading.enumerate()
    with serve(exporter, port=0) as first:
        urlopen(f"{first.url}metrics").close()
    first.close()
    with serve(exporter, port=first.port) as second:
        assert second.url == first.url
        urlopen(f"{second.url}metrics").close()
    assert threading.enumerate() == before


def test_closing_does_not_wait_for_silent_clients(exporter: Exporter, capfd: pytest.CaptureFixture[str]) -> None:
    before = threading.enumerate()
    server = serve(exporter, port=0)
    with socket.create_connection(("127.0.0.1", server.port)) as silent:
        # Once a later request is answered, the thread of the earlier connection waits for its request.
        urlopen(f"{server.url}metrics").close()
        server.close()
        assert silent.recv(1) == b""
    assert threading.enumerate() == before
    assert capfd.readouterr() == ("", "")


def test_a_client_that_goes_away_is_no_news(exporter: Exporter, capfd: pytest.CaptureFixture[str]) -> None:
    with serve(exporter, port=0) as server:
        with socket.create_connection(("127.0.0.1", server.port)) as rude:
            # Linger of no time: the close resets the connection, whatever has been sent.
            rude.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            rude.sendall(b"GET /metrics HTTP/1.0\r\n")
        urlopen(f"{server.url}metrics").close()
    assert capfd.readouterr() == ("", "")


def test_a_port_that_is_taken_is_named_with_what_to_do(exporter: Exporter, server: Server) -> None:
    with pytest.raises(OSError, match=rf"127\.0\.0\.1 port {server.port}: .*another port with port .*, or 0 for any"):
        serve(exporter, port=server.port)


def test_an_address_that_is_not_ours_is_named(exporter: Exporter) -> None:
    with pytest.raises(OSError, match=r"cannot serve metrics on 192\.0\.2\.1 port 0: .*choose another address"):
        serve(exporter, host="192.0.2.1", port=0)


def test_a_name_without_an_address_is_named(exporter: Exporter) -> None:
    with pytest.raises(OSError, match=r"cannot serve metrics on no\.such\.invalid port 0: "):
        serve(exporter, host="no.such.invalid", port=0)


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_number_that_is_no_port_is_refused(exporter: Exporter, port: int) -> None:
    with pytest.raises(ValueError, match=f"got the port {port}, expected 0"):
        serve(exporter, port=port)


def test_all_interfaces_are_reached_by_loopback(exporter: Exporter) -> None:
    with serve(exporter, host="0.0.0.0", port=0) as server:
        assert server.url == f"http://127.0.0.1:{server.port}/"
        urlopen(f"{server.url}metrics").close()


def test_ipv6_addresses_are_served_and_spelled_in_brackets(exporter: Exporter) -> None:
    if not socket.has_ipv6:
        pytest.skip("this Python has no IPv6")
    try:
        server = serve(exporter, host="::1", port=0)
    except OSError as error:
        pytest.skip(f"no IPv6 loopback on this machine: {error}")
    with server:
        assert server.url == f"http://[::1]:{server.port}/"
        urlopen(f"{server.url}metrics").close()
