"""Remote write against a server that decodes the requests: order, batches, attempts, and what is refused."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from dashboards.prometheus import remote_write
from dashboards.prometheus.access import AccessError
from dashboards.prometheus.backfill import BackfillError, SampleFamily, SeriesSamples
from dashboards.prometheus.remote_write import RemoteWrite
from tests.harness.command_line import run


class Receiver:
    """A server that stores requests and answers with given statuses, then with 204."""

    def __init__(self, statuses: list[int]) -> None:
        self.statuses = statuses
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self.url = ""


@contextmanager
def receiver(*statuses: int) -> Iterator[Receiver]:
    state = Receiver([*statuses])

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            state.requests.append((dict(self.headers), self.rfile.read(int(self.headers["Content-Length"]))))
            status = state.statuses.pop(0) if state.statuses else 204
            self.send_response(status)
            self.send_header("Location", "http://127.0.0.1:1/")
            self.end_headers()
            if status >= 400:
                self.wfile.write(b"out of bounds\n")

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_port}/write"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        number |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            return number, at


def fields(data: bytes) -> list[tuple[int, Any]]:
    """Decode one message of protobuf by hand: numbers of fields with bytes, integers, or the 8 bytes of a double."""
    at, found = 0, []
    while at < len(data):
        tag, at = varint(data, at)
        if tag & 7 == 0:
            value, at = varint(data, at)
            found.append((tag >> 3, value))
        else:
            length, at = varint(data, at) if tag & 7 == 2 else (8, at)
            found.append((tag >> 3, data[at : at + length]))
            at += length
    return found


def decoded(body: bytes) -> list[tuple[dict[str, str], list[tuple[int, float]]]]:
    """Return the series of a request: labels, and samples."""
    import struct

    size, _ = varint(body, 0)  # snappy begins with the length of the data
    data = pa.decompress(body, size, codec="snappy", asbytes=True)
    series = []
    for number, message in fields(data):
        assert number == 1
        labels, samples = {}, []
        for kind, inner in fields(message):
            values = dict(fields(inner))
            if kind == 1:
                labels[values[1].decode()] = values[2].decode()
            else:
                samples.append((values.get(2, 0), struct.unpack("<d", values.get(1, bytes(8)))[0]))
        series.append((labels, samples))
    return series


def family(name: str, **series: list[tuple[int, float]]) -> SampleFamily:
    of_labels = {
        (label,): SeriesSamples(array("q", [time for time, _ in samples]), array("d", [value for _, value in samples]))
        for label, samples in series.items()
    }
    return SampleFamily(name, "Help.", ("group",), of_labels)


@pytest.mark.parametrize("seed", range(5))
def test_all_samples_arrive_in_the_order_of_their_times(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_write, "MAX_BATCH_SAMPLES", 7)
    random = Random(seed)
    sent = {
        name: [(time, random.random()) for time in sorted(random.sample(range(100), random.randint(1, 30)))]
        for name in ("a", "b", "other")
    }
    with receiver() as server:
        count = RemoteWrite(server.url).send([family("m", **sent), family("n", a=[(5, 0.0)])], {"job": "j"})
    assert count == sum(map(len, sent.values())) + 1
    arrived: dict[tuple[str, str], list[tuple[int, float]]] = {}
    newest = -1
    for headers, body in server.requests:
        assert headers["Content-Encoding"] == "snappy"
        assert headers["X-Prometheus-Remote-Write-Version"] == "0.1.0"
        times = []
        for labels, samples in decoded(body):
            assert [*labels] == sorted(labels)
            assert labels["job"] == "j"
            arrived.setdefault((labels["__name__"], labels["group"]), []).extend(samples)
            times += [time for time, _ in samples]
        assert len(times) <= 7
        assert min(times) >= newest
        newest = max(times)
    assert arrived == {**{("m", name): samples for name, samples in sent.items()}, ("n", "a"): [(5, 0.0)]}


def test_a_receiver_that_is_busy_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_write, "RETRY_SECONDS", (0.0, 0.0, 0.0))
    with receiver(503, 429, 500) as server:
        assert RemoteWrite(server.url).send([family("m", a=[(1, 2.0)])], {}) == 1
        assert len(server.requests) == 4
        assert len({body for _, body in server.requests}) == 1


@pytest.mark.parametrize(("statuses", "tries"), [((400,), 1), ((302,), 1), ((500,) * 4, 4)])
def test_a_refusal_is_an_error(statuses: tuple[int, ...], tries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_write, "RETRY_SECONDS", (0.0, 0.0, 0.0))
    with receiver(*statuses) as server:
        with pytest.raises(BackfillError, match=rf"status {statuses[0]}.*; 0 samples were accepted before"):
            RemoteWrite(server.url).send([family("m", a=[(1, 2.0)])], {})
        assert len(server.requests) == tries


def test_the_token_is_sent_and_checked(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("0123456789abcdef\n")
    with receiver() as server:
        RemoteWrite(server.url, tmp_path / "token").send([family("m", a=[(1, 2.0)])], {})
    assert server.requests[0][0]["Authorization"] == "Bearer 0123456789abcdef"
    with pytest.raises(AccessError, match="none: cannot be read"):
        RemoteWrite("http://localhost/", tmp_path / "none")


def test_without_samples_nothing_is_sent() -> None:
    with receiver() as server:
        assert RemoteWrite(server.url).send([], {}) == 0
    assert server.requests == []


@pytest.mark.parametrize("url", ["localhost:9090", "ftp://a/b", "http://", "http://ann:secret@localhost/"])
def test_a_wrong_url_is_refused(url: str) -> None:
    with pytest.raises(BackfillError, match="--remote-write"):
        RemoteWrite(url)


@pytest.mark.slow("a process for each case")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "got no target, expected --output DIR or --remote-write URL"),
        (("--remote-write", "http://127.0.0.1:1/", "--blocks", "b"), "expected --output DIR too"),
    ],
)
def test_wrong_targets_of_backfill_are_errors(words: tuple[str, ...], message: str, tmp_path: Path) -> None:
    status, out, error = run("backfill", "pipeline.toml", *words, cwd=tmp_path)
    assert (status, out) == (2, "")
    assert message in error
