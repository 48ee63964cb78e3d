"""`wiretide capture` as a process, a collector or a low-level node, talked to over real sockets and signals."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import wiretide
from tests.harness.command_line import environment

POLLS = 30_000
POLL_SECONDS = 0.02


class Running:
    """A process that is at work; `first_lines` are the lines that it began with."""

    last = "capturing"
    """How the last of these lines begins."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.first_lines: list[str] = []
        assert process.stdout is not None
        for line in process.stdout:
            self.first_lines.append(line.rstrip())
            if line.startswith(self.last):
                return
        raise AssertionError(f"it ended: {self.first_lines} {process.stderr and process.stderr.read()}")

    def metrics(self) -> str:
        """Return the text of the metrics page."""
        url = next(line.split()[-1] for line in self.first_lines if line.startswith("metrics at"))
        with urlopen(url) as page:
            return str(page.read().decode())

    def until(self, look: Callable[[], bool], what: str) -> None:
        """Wait until `look` returns True. Fail with `what` in the message if time runs out or the process has ended."""
        for _ in range(POLLS):
            if look():
                return
            assert self.process.poll() is None, f"it ended before {what}"
            time.sleep(POLL_SECONDS)
        raise AssertionError(f"after {POLLS} polls still not {what}")

    def until_metric(self, line: str) -> None:
        """Wait for a line of the metrics."""
        self.until(lambda: line in self.metrics(), line)

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str, str]:
        """Send a signal and wait: status, the rest of standard output, standard error."""
        self.process.send_signal(number)
        out, err = self.process.communicate()
        return self.process.returncode, out, err


class Collector(Running):
    """A collector that listens: `ports` in the order of its sockets."""

    last = "memory of buffers"

    @property
    def ports(self) -> list[int]:
        """Of all sockets."""
        return [int(found) for line in self.first_lines for found in re.findall(r"listening on .*:(\d+),", line)]

    @property
    def port(self) -> int:
        """Of the first socket."""
        return self.ports[0]


@contextmanager
def capturing(*words: str, **more: Any) -> Iterator[subprocess.Popen[str]]:
    """Run `wiretide capture WORDS` and kill the process at the end if it still runs."""
    with subprocess.Popen(
        [sys.executable, wiretide.__file__, "capture", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        **more,
    ) as process:
        try:
            yield process
        finally:
            process.kill()  # has no effect on a process that has already ended


@contextmanager
def collector(folder: Path, *options: str, udp: str = "127.0.0.1:0", **more: Any) -> Iterator[Collector]:
    """Run `wiretide capture --udp UDP -o FOLDER OPTIONS`."""
    with capturing("--udp", udp, "-o", str(folder), *options, **more) as process:
        yield Collector(process)


@contextmanager
def node(site: Path, *options: str) -> Iterator[Running]:
    """Run a node of the pipeline `p.toml` in a folder, which serves its metrics."""
    with capturing("p.toml", "--metrics", "127.0.0.1:0", *options, cwd=site) as process:
        yield Running(process)
