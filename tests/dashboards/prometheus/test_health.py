"""`/healthz` and `/readyz`: what a supervisor is told while a run starts, computes, restarts, hangs, and has ended."""

from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from dashboards.prometheus.exporter import Exporter
from dashboards.prometheus.health import MAX_BEAT_INTERVAL, Health
from dashboards.prometheus.server import serve
from tests.references.exporter_rows import plan


def status(health: Health, path: str) -> int:
    answer = health.respond(path)
    assert answer is not None
    return int(answer[0].split()[0])


def test_the_life_of_a_run() -> None:
    now = [0.0]
    health = Health(lambda: now[0])
    now[0] = 10 * MAX_BEAT_INTERVAL  # pulling an image may take long
    assert (status(health, "/healthz"), status(health, "/readyz")) == (200, 503)
    health.beat()
    assert (status(health, "/healthz"), status(health, "/readyz")) == (200, 200)
    health.set_obstacle("Spark restarts")
    now[0] += MAX_BEAT_INTERVAL
    assert (status(health, "/healthz"), status(health, "/readyz")) == (200, 503)
    assert health.respond("/readyz") == ("503 Service Unavailable", "not ready: Spark restarts\n")
    now[0] += 1
    assert health.respond("/healthz") == ("503 Service Unavailable", "the run has not moved for 301 s\n")
    assert status(health, "/readyz") == 503
    health.beat()
    assert (status(health, "/healthz"), status(health, "/readyz")) == (200, 200)
    health.end()
    now[0] += 100 * MAX_BEAT_INTERVAL
    assert (status(health, "/healthz"), status(health, "/readyz")) == (200, 200)


def test_the_server_answers_for_a_run() -> None:
    health = Health()
    exporter = Exporter([plan("destIP, count(*) AS packets", "destIP", name="q")], [])
    with serve(exporter, port=0, health=health) as server:
        with urlopen(f"{server.url}healthz") as answer:
            assert (answer.status, answer.read()) == (200, b"ok\n")
        with pytest.raises(HTTPError, match="503"):
            urlopen(f"{server.url}readyz")
        health.beat()
        with urlopen(f"{server.url}readyz") as answer:
            assert answer.headers["Content-Type"].startswith("text/plain")
            assert (answer.status, answer.read()) == (200, b"ok\n")


def test_a_server_without_a_run_has_no_such_paths() -> None:
    exporter = Exporter([plan("destIP, count(*) AS packets", "destIP", name="q")], [])
    with serve(exporter, port=0) as server, pytest.raises(HTTPError, match="404"):
        urlopen(f"{server.url}healthz")
