"""The first steps of a new user: from a clone to the first windows of a capture on the live page and in Prometheus.

Clone and set-up use the network and the caches of pip, so their time depends on the machine. The smoke run skips them.
`wiretide dashboards` writes the configuration of Prometheus.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar
from urllib.error import URLError
from urllib.parse import quote
from urllib.request import urlopen

from bench.report import Report
from bench.setting import Setting

ROOT = Path(__file__).resolve().parents[1]
QUERY = "wiretide_query_top_talkers_packets"
POLLS, POLL_SECONDS = 6000, 0.05

Found = TypeVar("Found")


def run(setting: Setting) -> Report:
    """Run all steps once, in a temporary folder, and measure the time of each step."""
    report, seconds = Report("newcomer"), dict[str, float]()

    @contextmanager
    def step(name: str) -> Iterator[None]:
        begun = time.perf_counter()
        yield
        seconds[name] = time.perf_counter() - begun

    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        wiretide = ROOT / ".venv" / "bin" / "wiretide"
        _call(wiretide, "generate", "own.pcap", "--duration", "600", "--rate", "200", "--groups", "200", cwd=folder)
        if not setting.quick:
            with step("git clone"):
                _call("git", "clone", "--quiet", ROOT, "wiretide", cwd=folder)
            with step("make setup"):
                _call("make", "setup", cwd=folder / "wiretide")
            wiretide = folder / "wiretide" / ".venv" / "bin" / "wiretide"
        with step("wiretide init own.pcap"):
            _call(wiretide, "init", "own.pcap", cwd=folder)
        file = folder / "pipeline.toml"
        file.write_text(file.read_text().replace("# port = 9464", "port = 0"))
        with _run_server([wiretide, "run", "pipeline.toml"], folder / "run.log") as process:
            with step("wiretide run: a window on the live page"):
                url = _poll(lambda: _url_in(folder / "run.log"), process)
                _poll(lambda: _get(f"{url}api/panel?query=top-talkers&seconds=3600&groups=8")["newest"], process)
            prometheus = shutil.which("prometheus", path=f"{ROOT}/.venv/bin:{os.environ['PATH']}")
            with step("wiretide dashboards"):
                _call(wiretide, "dashboards", "pipeline.toml", "-o", "monitoring", cwd=folder)
            if prometheus is not None:
                with step("Prometheus: data of the first panel"):
                    _await_prometheus(prometheus, folder, url)
    report.table("one walk", ("step", "seconds"), [(name, f"{value:.1f}") for name, value in seconds.items()])
    judged = not setting.quick and prometheus is not None
    why = "a smoke run leaves out clone and set-up" if setting.quick else "prometheus is not installed: make servers"
    report.add_criterion("from clone to the first panel, s", sum(seconds.values()), "<= 300", judged, why)
    return report


def _await_prometheus(program: str, folder: Path, url: str) -> None:
    """Start Prometheus with the generated configuration, and wait for the series of the first panel."""
    config = folder / "monitoring" / "prometheus" / "prometheus.yml"
    # The pipeline has a free port in this bench.
    config.write_text(re.sub(r"127\.0\.0\.1:\d+", url.split("/")[2], config.read_text()))
    words = [f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}", "--web.listen-address=127.0.0.1:0"]
    with _run_server([program, *words], folder / "prometheus.log") as process:
        server = _poll(lambda: _address_in(folder / "prometheus.log"), process)
        _poll(lambda: _get(f"http://{server}/api/v1/query?query={quote(QUERY)}")["data"]["result"], process)


def _call(*words: str | Path, cwd: Path) -> None:
    done = subprocess.run([*map(str, words)], cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))} ended with status {done.returncode}: {done.stderr[-2000:]}")


@contextmanager
def _run_server(words: list[str | Path], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as out:
        process = subprocess.Popen([*map(str, words)], cwd=log.parent, stdout=out, stderr=out)
        try:
            yield process
        finally:
            process.terminate()
            process.wait()


def _poll(look: Callable[[], Found | None], process: subprocess.Popen[bytes]) -> Found:
    """Poll until `look` returns a value. A server that does not listen yet returns no value."""
    for _ in range(POLLS):
        try:
            if found := look():
                return found
        except (URLError, KeyError):
            pass
        if process.poll() is not None:
            break
        time.sleep(POLL_SECONDS)
    sys.exit(f"{process.args!r}: no answer")


def _get(url: str) -> dict[str, dict[str, object]]:
    with urlopen(url) as answer:
        found: dict[str, dict[str, object]] = json.load(answer)
        return found


def _url_in(log: Path) -> str | None:
    found = re.search(r"live page at (http://\S+)", log.read_text())
    return found[1] if found else None


def _address_in(log: Path) -> str | None:
    found = re.search(r'msg="?Listening on"? address=([\d.:]+)', log.read_text())
    return found[1] if found else None
