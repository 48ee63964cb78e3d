"""A real Prometheus or Alertmanager for tests: on a free loopback port, asked over HTTP, stopped by its process id.

The Debian packages `prometheus`, with `prometheus` and `promtool`, and `prometheus-alertmanager` have the programs;
`make servers` fetches them.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
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
  evaluation_interval: 1s
rule_files: {rules}
scrape_configs:
  - job_name: wiretide
    static_configs:
      - targets: {targets}
"""


ALERTMANAGER_CONFIG = """\
route: {receiver: nobody}
receivers: [{name: nobody}]
"""


def program(name: str, package: str = "prometheus") -> str:
    """Return the path of a program, or skip the test if it is not installed."""
    found = shutil.which(name)
    if found is None and (server := shutil.which("prometheus")):
        # The package's other program lies beside the real file, wherever a link to it may be.
        found = shutil.which(str(Path(server).resolve().with_name(name)))
    if found is None:
        pytest.skip(f"{name} is not installed; `make servers` fetches it (Debian package {package})")
    return found


class RunningServer:
    """A running process that logs its address."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process = process
        self._log = log
        self.url = ""

    def until(self, look: Callable[[], T], what: str) -> T:
        """Poll `look` until its result is true and return it.

        Fail with the log if time runs out or the process has ended.
        """
        seen = None
        for _ in range(POLLS):
            if seen := look():
                return seen
            try:
                status = self._process.wait(POLL_SECONDS)
            except subprocess.TimeoutExpired:
                continue
            raise AssertionError(f"the server ended with status {status} before {what}\n{self.log()}")
        raise AssertionError(f"after {POLLS} polls still not {what}, last seen: {seen!r}\n{self.log()}")

    def log(self) -> str:
        """Return the log of the process."""
        return self._log.read_text("utf-8", errors="replace")

    def listening(self) -> bool:
        """Return whether the process has logged its port and is ready to answer."""
        found = re.search(r'msg="?Listening on"? address=([\d.:]+)', self.log())
        if not found:
            return False
        self.url = f"http://{found.group(1)}"
        try:
            with urlopen(f"{self.url}/-/ready"):
                return True
        except URLError:
            return False


class Prometheus(RunningServer):
    """A running Prometheus that scrapes its targets every second."""

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


class Alertmanager(RunningServer):
    """A running Alertmanager."""

    def alerts(self) -> list[dict[str, Any]]:
        """Return the alerts that are active, in the order of their names and labels."""
        with urlopen(f"{self.url}/api/v2/alerts") as answer:
            return sorted(json.load(answer), key=lambda alert: sorted(alert["labels"].items()))


@contextmanager
def alertmanager(folder: Path) -> Iterator[Alertmanager]:
    """Run an Alertmanager with its configuration, data and log in `folder`."""
    binary = program("prometheus-alertmanager", "prometheus-alertmanager")
    config, log = folder / "alertmanager.yml", folder / "alertmanager.log"
    config.write_text(ALERTMANAGER_CONFIG)
    templates = Path(binary).resolve().parents[1] / "share" / "prometheus" / "alertmanager"  # see the Makefile
    command = [
        binary,
        f"--config.file={config}",
        f"--storage.path={folder / 'alertmanager'}",
        "--web.listen-address=127.0.0.1:0",
        "--cluster.listen-address=",
    ]
    with log.open("wb") as out, subprocess.Popen(command, cwd=templates, stdout=out, stderr=out) as process:
        try:
            server = Alertmanager(process, log)
            server.until(server.listening, "listening")
            yield server
        finally:
            process.terminate()
            process.wait()


@contextmanager
def prometheus(
    folder: Path, *urls: str, retention: str = "15d", rules: Path | None = None, options: Sequence[str] = ()
) -> Iterator[Prometheus]:
    """Run Prometheus on `/metrics` of the servers `urls`, with its configuration, data and log in `folder`.

    It evaluates the file `rules` every second. `options` are further words of its command.
    """
    binary = program("prometheus")
    config = folder / "prometheus.yml"
    targets = json.dumps([urlsplit(url).netloc for url in urls])
    config.write_text(CONFIG.format(targets=targets, rules=json.dumps([str(rules)] if rules is not None else [])))
    log = folder / "prometheus.log"
    command = [
        binary,
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--storage.tsdb.retention.time={retention}",
        "--web.listen-address=127.0.0.1:0",
        *options,
    ]
    with log.open("wb") as out, subprocess.Popen(command, cwd=folder, stdout=out, stderr=out) as process:
        try:
            server = Prometheus(process, log)
            server.until(server.listening, "listening")
            yield server
        finally:
            process.terminate()
            process.wait()
