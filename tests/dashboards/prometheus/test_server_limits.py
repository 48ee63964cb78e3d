"""The metrics server against clients that mean harm: real sockets, in this process and in one without descriptors."""

import contextlib
import resource
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from dashboards.prometheus.exporter import Exporter
from dashboards.prometheus.server import (
    MAX_CONNECTIONS,
    MAX_HEAD_BYTES,
    MAX_PER_CLIENT,
    MAX_REQUEST_LINE_BYTES,
    Server,
    serve,
)

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere loopback is 127.0.0.1 only")
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def server() -> Iterator[Server]:
    with serve(Exporter([], []), port=0) as server:
        yield server


def scrape(server: Server) -> dict[str, float]:
    """The counters of the server."""
    with urlopen(f"{server.url}metrics") as answer:
        lines = answer.read().decode().splitlines()
    values = [line.rpartition(" ") for line in lines if not line.startswith("#")]
    return {name.removeprefix("wiretide_http_"): float(value) for name, _, value in values}


def connect(server: Server, source: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), source_address=(source, 0))


def everything(connection: socket.socket) -> bytes:
    """Return the bytes that the server sends until it closes the connection."""
    parts = []
    while part := connection.recv(65536):
        parts.append(part)
    return b"".join(parts)


@LINUX
def test_one_client_cannot_take_all_connections_and_what_it_is_refused_is_counted(server: Server) -> None:
    with ExitStack() as stack:
        held = [stack.enter_context(connect(server, "127.0.0.2")) for _ in range(MAX_PER_CLIENT)]
        refused = [stack.enter_context(connect(server, "127.0.0.2")) for _ in range(5)]
        answers = [everything(each) for each in refused]
        assert {answer.splitlines()[0] for answer in answers} == {b"HTTP/1.0 503 Service Unavailable"}
        counted = scrape(server)  # from another address
        assert counted['connections_refused_total{cause="client"}'] == 5
        assert counted["connections_total"] == MAX_PER_CLIENT + 5 + 1
        assert sum(thread.name.endswith("(process_request_thread)") for thread in threading.enumerate()) < len(held) + 2
    # They are free again once the server has seen that they are closed.
    answer, end = b"", time.monotonic() + 60
    while not answer.startswith(b"HTTP/1.0 200 OK") and time.monotonic() < end:
        with connect(server, "127.0.0.2") as again:
            again.sendall(b"GET / HTTP/1.0\r\n\r\n")
            answer = everything(again)
    assert answer.startswith(b"HTTP/1.0 200 OK")


@LINUX
@pytest.mark.slow("1,500 connections")
def test_a_thousand_slow_clients_and_500_scrapes_harm_nobody() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 4096:
        pytest.skip(f"a process may open only {hard} files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4096), hard))
    exporter = Exporter([], [])
    try:
        with serve(exporter, port=0) as server:
            answers: Counter[bytes] = Counter()

            def ask(number: int) -> None:
                with contextlib.suppress(ConnectionError), connect(server, f"127.0.1.{number % 200 + 1}") as one:
                    one.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
                    answers[everything(one)[:12]] += 1

            with ExitStack() as stack:
                for number in range(1000):  # a request that never ends
                    slow = stack.enter_context(connect(server, f"127.0.2.{number % 200 + 1}"))
                    with contextlib.suppress(ConnectionError):
                        slow.sendall(b"GET /metrics HTTP/1.0\r\n")
                clients = [threading.Thread(target=ask, args=(number,)) for number in range(500)]
                for client in clients:
                    client.start()
                names = [thread.name for thread in threading.enumerate()]
                assert sum("process_request_thread" in name for name in names) <= MAX_CONNECTIONS
                exporter.set_samples({})  # the pipeline goes on
                for client in clients:
                    client.join()
            assert set(answers) <= {b"HTTP/1.0 200", b"HTTP/1.0 503"}
            counts, end = {}, time.monotonic() + 60
            while "connections_total" not in counts and time.monotonic() < end:
                with contextlib.suppress(HTTPError, ConnectionError):
                    counts = scrape(server)
            assert counts["connections_total"] >= 1500
            # On a busy machine the time of a slow client ends before the others arrive. Then its place is free again.
            refused = counts['connections_refused_total{cause="connections"}']
            ended = counts.get('requests_rejected_total{cause="deadline"}', 0)
            assert refused + ended >= 1000 - MAX_CONNECTIONS
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@LINUX
def test_all_clients_together_are_bounded(server: Server) -> None:
    with ExitStack() as stack:
        for number in range(MAX_CONNECTIONS):
            stack.enter_context(connect(server, f"127.0.1.{number + 1}"))
        with connect(server) as one_more:
            assert everything(one_more).startswith(b"HTTP/1.0 503 ")
    # The connections have gone, and their threads note it soon.
    while True:
        try:
            counted = scrape(server)
            break
        except OSError as error:  # still refused, or reset because the request arrived after the answer
            if isinstance(error, HTTPError):
                error.close()
    assert counted['connections_refused_total{cause="connections"}'] >= 1


def test_a_request_that_arrives_byte_by_byte_ends_at_its_deadline() -> None:
    with serve(Exporter([], []), port=0, connection_seconds=1.0) as server, connect(server) as slow:
        begin = time.monotonic()
        head = iter(b"GET /metrics HTTP/1.0\r\n" + b"X: y\r\n" * 1000)
        with contextlib.suppress(OSError):
            for byte in head:
                slow.sendall(bytes([byte]))
                time.sleep(0.1)
        assert list(head)  # there was more to send
        assert time.monotonic() - begin >= 0.9
        assert scrape(server)['requests_rejected_total{cause="deadline"}'] == 1


def test_a_client_that_does_not_read_its_answer_is_closed_at_the_deadline() -> None:
    with serve(Exporter([], []), port=0, connection_seconds=0.5) as server, connect(server) as silent:
        silent.sendall(b"GET /metrics HTTP/1.0\r\n")  # and never the end
        assert silent.recv(1) == b""
        assert scrape(server)['requests_rejected_total{cause="deadline"}'] == 1


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /" + b"a" * MAX_REQUEST_LINE_BYTES + b" HTTP/1.0\r\n\r\n", b"414"),
        (b"GET / HTTP/1.0\r\nX: " + b"a" * MAX_HEAD_BYTES + b"\r\n\r\n", b"431"),
        (b"GET / HTTP/1.0\r\n" + b"X: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n" * 500 + b"\r\n", b"431"),
    ],
)
def test_a_head_that_is_too_long_is_refused_and_counted(head: bytes, status: bytes, server: Server) -> None:
    with connect(server) as client:
        client.sendall(head)
        with contextlib.suppress(ConnectionResetError):  # the rest of the head was on its way when the server closed
            assert everything(client).startswith(b"HTTP/1.0 " + status)
    assert scrape(server)['requests_rejected_total{cause="size"}'] == 1


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "HEAD", "TRACE"])
def test_only_get_is_answered(method: str, server: Server) -> None:
    with pytest.raises(HTTPError, match="405") as caught:
        urlopen(Request(f"{server.url}metrics", method=method))
    with caught.value as answer:
        assert answer.headers["Allow"] == "GET"
    assert scrape(server)['requests_rejected_total{cause="method"}'] == 1


@pytest.mark.parametrize("path", ["", "metrics", "nowhere"])
def test_every_answer_forbids_scripts_frames_and_guesses_and_names_no_version(path: str, server: Server) -> None:
    try:
        answer = urlopen(f"{server.url}{path}")
    except HTTPError as error:
        answer = error
    with answer:
        headers = answer.headers
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Content-Security-Policy"].startswith("default-src 'none'; ")
    assert headers.get_all("Server") == ["wiretide"]
    assert headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize(
    "path", ["<script>", "..%2f..%2fetc/passwd", "%1b[2J", "metrics/../x", "%00", "metrics%0d%0aX:y"]
)
def test_no_path_but_ours_is_served_and_none_is_repeated(path: str, server: Server) -> None:
    with pytest.raises(HTTPError, match="404") as caught:
        urlopen(f"{server.url}{path}")
    with caught.value as answer:
        assert answer.read() == b"unknown path: expected / or /metrics\n"


@pytest.mark.parametrize(
    "name", ["attacker.example", "attacker.example:9464", "127.0.0.1.attacker.example", "", "[evil]"]
)
def test_a_name_that_was_rebound_to_loopback_reads_nothing(name: str, server: Server) -> None:
    with connect(server) as client:
        client.sendall(b"GET /metrics HTTP/1.1\r\nHost: " + name.encode() + b"\r\n\r\n")
        answer = everything(client)
    assert answer.startswith(b"HTTP/1.0 403 Forbidden\r\n")
    assert b"# HELP" not in answer
    assert scrape(server)['requests_rejected_total{cause="host"}'] == 1


@pytest.mark.parametrize("name", ["localhost", "LocalHost.:9464", "127.0.0.1:9464", "[::1]:9464", "wiretide.localhost"])
def test_names_of_this_machine_are_answered(name: str, server: Server) -> None:
    with urlopen(Request(f"{server.url}metrics", headers={"Host": name})) as answer:
        assert b"# HELP" in answer.read()


def test_a_server_that_other_machines_can_reach_is_asked_under_any_name() -> None:
    with serve(Exporter([], []), "0.0.0.0", port=0) as server:
        request = Request(f"{server.url}metrics", headers={"Host": "monitor.example.org"})
        with urlopen(request) as answer:
            assert answer.status == 200


WITHOUT_DESCRIPTORS = """
import os, resource, socket, sys, time
from urllib.request import urlopen
from dashboards.prometheus.exporter import Exporter
from dashboards.prometheus.server import serve

with serve(Exporter([], []), port=0) as server:
    idle = len(os.listdir("/proc/self/fd"))
    client = socket.create_connection(("127.0.0.1", server.port))
    client.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
    assert client.recv(8) == b"HTTP/1.0"
    client.close()
    while len(os.listdir("/proc/self/fd")) > idle:  # one that is closed later would serve the next client
        time.sleep(0.01)
    one = socket.socket()
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    taken = []
    try:
        while True:
            taken.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        pass
    one.connect(("127.0.0.1", server.port))
    one.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
    before = time.process_time()
    time.sleep(1.5)
    spent = time.process_time() - before
    for each in taken:
        os.close(each)
    answer = one.recv(15)
    one.close()
    with urlopen(server.url + "metrics") as metrics:
        text = metrics.read().decode()
    retries = [line for line in text.splitlines() if line.startswith("wiretide_http_accept_retries_total ")]
print(answer.decode(), spent < 0.5, float(retries[0].split()[1]) >= 1)
"""


@LINUX
def test_without_a_free_descriptor_the_server_waits_without_spinning_and_answers_later() -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert soft > 64
    command = [sys.executable, "-W", "error", "-c", WITHOUT_DESCRIPTORS]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (ended.stdout, ended.stderr, ended.returncode) == ("HTTP/1.0 200 OK True True\n", "", 0)
