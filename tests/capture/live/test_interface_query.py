"""Queries over a live interface: what they count, and how Ctrl-C ends them. As in `test_interface.py`, root is needed.

The tests detect packets that a query loses although the capture has them, drops that are not reported, and a Ctrl-C
that loses rows.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import wiretide
from bench.frame_sender import udp_frame
from bench.ring import has_handler
from bench.veth import Pair, in_namespace, ip, veth_obstacle, veth_pair
from capture.metrics import INTERFACE_DROPPED, RECORDS_READ
from dashboards.output.console import compile_kernels
from highlevel.inline.engine import InlineRun, Input
from queries.gsql import compile_query
from queries.pipeline.input_options import parse_lull
from tests.harness.command_line import environment

pytestmark = [
    pytest.mark.skipif(veth_obstacle() is not None, reason=str(veth_obstacle())),
    pytest.mark.slow("real network interfaces"),
]


@pytest.fixture
def pair() -> Iterator[Pair]:
    with veth_pair() as made:
        yield made


@pytest.mark.parametrize(("packets", "rate"), [(2_000, 10_000), (10_000, 50_000), (40_000, 0)])
def test_a_query_counts_what_was_sent_but_for_what_the_kernel_dropped(pair: Pair, packets: int, rate: int) -> None:
    plan = compile_query("SELECT srcIP, count(*) AS n FROM packets GROUP BY srcIP")
    with in_namespace(pair.receiving):
        run = InlineRun([plan], [Input("veth", Path(f"interface:{pair.receiver}?ring=4MiB"))], threads=1)
    command = ["ip", "netns", "exec", pair.sending, sys.executable, "-m", "bench.frame_sender", pair.sender]

    def send_and_stop() -> None:
        subprocess.run([*command, str(packets), str(rate), "100"], check=True, stdout=subprocess.DEVNULL)
        run.stop()

    sender = threading.Thread(target=send_and_stop)
    sender.start()
    counted = sum(sum(batch.column("n").to_pylist()) for _, batch in run.results())
    sender.join()
    samples = run.samples()
    dropped = samples.total(INTERFACE_DROPPED) + pair.dropped_before()
    assert counted + dropped == packets
    assert counted == samples.total(RECORDS_READ)
    assert [each.dropped for each in run.readings()] == [samples.total(INTERFACE_DROPPED)]


def test_an_idle_interface_does_not_hold_back_the_windows_of_a_busy_one(pair: Pair) -> None:
    plan = compile_query("SELECT count(*) AS n FROM Busy UNION Idle [RANGE 200 milliseconds]")
    done, given_up = threading.Event(), threading.Event()
    with veth_pair() as idle:
        ip("-n", idle.receiving, "link", "set", idle.receiver, "netns", pair.receiving)
        ip("-n", pair.receiving, "link", "set", idle.receiver, "up")
        links = {"Busy": pair.receiver, "Idle": idle.receiver}
        with in_namespace(pair.receiving):
            inputs = [Input(link, Path(f"interface:{name}?ring=4MiB"), link) for link, name in links.items()]
            run = InlineRun([plan], inputs, slack=10**8, lull=parse_lull("200ms"))

        def send() -> None:
            with in_namespace(pair.sending), socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sender:
                sender.bind((pair.sender, 0))
                for n in range(100_000):  # given up after minutes
                    sender.send(udp_frame(n % 3000, 100))
                    if done.wait(0.005):
                        return
            given_up.set()
            run.stop()

        busy = threading.Thread(target=send)
        busy.start()
        results = run.results()
        try:
            windows = [next(results)[1] for _ in range(3)]
        finally:
            done.set()
            busy.join()
            results.close()
    assert not given_up.is_set()
    assert all(batch.column("n").to_pylist() > [0] for batch in windows)


def test_ctrl_c_of_the_command_line_gives_the_answer(pair: Pair, tmp_path: Path) -> None:
    compile_kernels("capture.live")
    command = [
        "ip", "netns", "exec", pair.receiving, sys.executable, wiretide.__file__, "query", "--format", "csv", "-s",
        f"Main1=interface:{pair.receiver}", "SELECT link, vlan, count(*) AS n FROM Main1 GROUP BY link, vlan",
    ]  # fmt: skip
    with subprocess.Popen(command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE) as process:
        try:
            while not has_handler(process.pid, signal.SIGTERM):  # then it listens
                time.sleep(0.02)
            with in_namespace(pair.sending), socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sender:
                sender.bind((pair.sender, 0))
                for n in range(500):
                    sender.send(udp_frame(n, 100, b"\x81\x00\x00\x07"))
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate()
            assert process.returncode == 0
        finally:
            process.kill()
    assert out.decode().splitlines() == ["link,vlan,n", "Main1,7,500"]
