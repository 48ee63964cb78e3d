"""A real Prometheus for tests: started on a free loopback port, asked over its HTTP API, stopped by its process id.

The Debian package `prometheus` has both programs that are needed, `prometheus` and `promtool`; `make servers` fetches
it.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.error import URLError
from urllib.parse import urlencode, urlsplit
from urllib.request import urlopen

import pytest

T = TypeVar("T")

POLLS = 3000
POLL_SECONDS = 0.2

CONFIG = """\
global:
  scrape_interval: 1s
  scrape_timeout: 1s
scrape_configs:
  - job_name: wiretide
    static_configs:
      - targets: {targets}
"""


def program(name: str) -> str:
    """Return the path of `prometheus` or `promtool`, or skip the test if it is not installed."""
    found = shutil.which(name)
    if found is None and (server := shutil.which("prometheus")):
        # The package's other program lies beside the real file, wherever a link to it may be.
        found = shutil.which(str(Path(server).resolve().with_name(name)))
    if found is None:
        pytest.skip(f"{name} is not installed; `make servers` fetches it (Debian package prometheus)")
    return found


class Prometheus:
    """A running Prometheus that scrapes its targets every second."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process = process
        self._log = log
        self.url = ""

    def until(self, look: Callable[[], T], what: str) -> T:
        """Poll `look` until its result is true and return it.

        Fail with the log if time runs out or Prometheus has ended.
        """
        seen = None
        for _ in range(POLLS):
            if seen := look():
                return seen
            try:
                status = self._process.wait(POLL_SECONDS)
            except subprocess.TimeoutExpired:
                continue
            raise AssertionError(f"prometheus ended with status {status} before {what}\n{self.log()}")
        raise AssertionError(f"after {POLLS} polls still not {what}, last seen: {seen!r}\n{self.log()}")

    def log(self) -> str:
        """Return the log of Prometheus."""
        return self._log.read_text("utf-8", errors="replace")

    def ask(self, endpoint: str, **parameters: str) -> Any:
        """The `data` of an answer of the HTTP API, such as `ask("query", query="up")`."""
        with urlopen(f"{self.url}/api/v1/{endpoint}?{urlencode(parameters)}") as answer:
            return json.load(answer)["data"]

    def values(self, promql: str) -> dict[tuple[tuple[str, str], ...], float]:
        """The instant vector of `promql`: labels of ours (sorted; without name, job and instance) and the value."""
        return {
            tuple(
                (label, text)
                for label, text in sorted(one["metric"].items())
                if label not in ("__name__", "job", "instance")
            ): float(one["value"][1])
            for one in self.ask("query", query=promql)["result"]
        }

    def target(self, url: str) -> dict[str, Any] | None:
        """The target as Prometheus describes it (`health`, `lastError`, …) once a scrape of it is stored, else None."""
        instance = urlsplit(url).netloc
        if not self.ask("query", query=f'up{{instance="{instance}"}}')["result"]:
            return None
        targets = self.ask("targets", state="active")["activeTargets"]
        return next(target for target in targets if target["labels"]["instance"] == instance)

    def listening(self) -> bool:
        """Return whether Prometheus has logged its port and is ready to answer."""
        found = re.search(r'msg="?Listening on"? address=([\d.:]+)', self.log())
        if not found:
            return False
        self.url = f"http://{found.group(1)}"
        try:
            with urlopen(f"{self.url}/-/ready"):
                return True
        except URLError:
            return False


@contextmanager
def prometheus(folder: Path, *urls: str, retention: str = "15d") -> Iterator[Prometheus]:
    """Run Prometheus on `/metrics` of the servers `urls`, with its configuration, data and log in `folder`."""
    binary = program("prometheus")
    config = folder / "prometheus.yml"
    config.write_text(CONFIG.format(targets=json.dumps([urlsplit(url).netloc for url in urls])))
    log = folder / "prometheus.log"
    command = [
        binary,
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--storage.tsdb.retention.time={retention}",
        "--web.listen-address=127.0.0.1:0",
    ]
    with log.open("wb") as out, subprocess.Popen(command, cwd=folder, stdout=out, stderr=out) as process:
        try:
            server = Prometheus(process, log)
            server.until(server.listening, "listening")
            yield server
        finally:
            process.terminate()
            process.wait()
