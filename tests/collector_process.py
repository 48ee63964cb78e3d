"""`wiretide capture` as a process, talked to over real sockets and signals."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import wiretide

POLLS = 3000
POLL_SECONDS = 0.02


class Running:
    """A collector that listens: `ports` in the order of its sockets; `said` are the lines it began with."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self.process = process
        self.folder = folder
        self.said: list[str] = []
        assert process.stdout is not None
        for line in process.stdout:
            self.said.append(line.rstrip())
            if line.startswith("memory of buffers"):
                break
        else:
            raise AssertionError(f"the collector ended: {self.said} {process.stderr and process.stderr.read()}")
        self.ports = [int(found) for line in self.said for found in re.findall(r"listening on .*:(\d+),", line)]
        self.metrics = next((line.split()[-1] for line in self.said if line.startswith("metrics at")), "")

    @property
    def port(self) -> int:
        """Of the first socket."""
        return self.ports[0]

    def size(self) -> int:
        """Bytes in the folder's files."""
        return sum(path.stat().st_size for path in self.folder.glob("*.pcap"))

    def until(self, look: Callable[[], bool], what: str) -> None:
        """Wait for something; fails, saying `what`, if it never comes or the collector has ended."""
        for _ in range(POLLS):
            if look():
                return
            assert self.process.poll() is None, f"the collector ended before {what}"
            time.sleep(POLL_SECONDS)
        raise AssertionError(f"after {POLLS} polls still not {what}")

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str, str]:
        """Send a signal and wait: status, the rest of standard output, standard error."""
        self.process.send_signal(number)
        out, err = self.process.communicate()
        return self.process.returncode, out, err


@contextmanager
def collector(folder: Path, *options: str, udp: str = "127.0.0.1:0", **more: object) -> Iterator[Running]:
    """Run `wiretide capture --udp UDP -o FOLDER OPTIONS`; killed at the end where it has not ended."""
    command = [sys.executable, wiretide.__file__, "capture", "--udp", udp, "-o", str(folder), *options]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"},
        **more,  # type: ignore[call-overload]
    ) as process:
        try:
            yield Running(process, folder)
        finally:
            if process.poll() is None:
                process.kill()
