"""The live page in Chromium: the time of a reload, frames per second while windows close, and memory.

The page has five queries with 10,000 rows per window. A reload shows the windows of the last hour. Frames are counted
while the table of a query and the page scroll, and a window of each query closes every second. The memory of the page
is the private memory of its process, without that of an empty page, and the heap of its scripts.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from bench.figure import Figure, figure
from bench.report import Report
from bench.setting import Setting

WINDOWS, ROWS = 360, 10_000
SECONDS = 10
"""Seconds of scrolling."""

DRAWN = "() => performance.getEntriesByName('drawn').length > 0"
DRAWN_AT = "() => performance.getEntriesByName('drawn')[0].startTime"
COUNT_FRAMES = """async (seconds) => {
  const table = document.querySelector("#queries .scroll");
  const times = [];
  const end = performance.now() + 1000 * seconds;
  await new Promise((done) => {
    const frame = (now) => {
      times.push(now);
      table.scrollTop = (table.scrollTop + 37) % Math.max(1, table.scrollHeight - table.clientHeight);
      window.scrollTo(0, (window.scrollY + 11) % (document.body.scrollHeight - window.innerHeight));
      if (now < end) requestAnimationFrame(frame); else done();
    };
    requestAnimationFrame(frame);
  });
  const gaps = times.slice(1).map((time, at) => time - times[at]).sort((a, b) => a - b);
  return { frames: gaps.length / (times[times.length - 1] - times[0]) * 1000, longest: gaps[gaps.length - 1],
           median: gaps[gaps.length >> 1] };
}"""


def run(setting: Setting) -> Report:
    """Measure a page in a new browser. Its server is a separate process."""
    report = Report("page")
    windows, rows = (20, 500) if setting.quick else (WINDOWS, ROWS)
    program = shutil.which("chromium")
    measured: dict[str, float] = {}
    if program is not None:
        with _serve(windows, rows) as (process, url), _browser(program) as browser:
            reloads, measured = _measure(browser, url, process, setting)
        report.table(
            f"{windows} windows of five queries, {rows:,} rows per window",
            ("what", "measured"),
            [
                ("reload until all visible panels are drawn, ms", str(reloads)),
                ("frames/s while scrolling, a window of each query per second", f"{measured['frames']:.1f}"),
                (
                    "median and longest time between two frames, ms",
                    f"{measured['median']:.1f}, {measured['longest']:.0f}",
                ),
                ("private memory of the page, without that of an empty page, MB", f"{measured['memory']:.1f}"),
                ("heap of its scripts, MB", f"{measured['heap']:.1f}"),
                ("CPU of the server while frames were counted, of one core", f"{measured['server']:.0%}"),
            ],
        )
    judged, why = not setting.quick, "" if program else "chromium is not installed: make servers"
    report.add_criterion(
        "reload until all visible panels are drawn, ms", measured.get("reload"), "<= 1000", judged, why
    )
    report.add_criterion("frames/s while scrolling", measured.get("frames"), ">= 58", judged, why)
    report.add_criterion("private memory of the page, MB", measured.get("memory"), "<= 100", judged, why)
    return report


def _measure(
    browser: Any, url: str, process: subprocess.Popen[str], setting: Setting
) -> tuple[Figure, dict[str, float]]:
    page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
    devtools = page.context.new_cdp_session(page)
    empty = _private_megabytes(browser)
    reloads = []
    for _ in range(setting.runs(7)):
        page.goto(url)
        page.wait_for_function(DRAWN)
        reloads.append(page.evaluate(DRAWN_AT))
    seconds = 1 if setting.quick else SECONDS
    before = _add(process)
    page.evaluate(_ADD_FRAMES, seconds)
    for _ in range(seconds):
        page.wait_for_timeout(1000)
        after = _add(process)
    measured: dict[str, float] = page.evaluate("() => window.counted")
    devtools.send("HeapProfiler.collectGarbage")
    usage = devtools.send("Runtime.getHeapUsage")
    measured["heap"] = usage["usedSize"] / 1e6
    measured["memory"] = _private_megabytes(browser) - empty
    measured["server"] = (after - before) / seconds
    measured["reload"] = figure(reloads).median
    return figure(reloads), measured


_ADD_FRAMES = f"(seconds) => {{ window.counted = ({COUNT_FRAMES})(seconds); }}"
"""Begin to count; `window.counted` is a promise of the result."""


@contextlib.contextmanager
def _serve(windows: int, rows: int) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Serve a page in a separate process. Yield the process and the URL."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "bench.page_server", folder, str(windows), str(rows)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            yield process, _pipe(process.stdout).readline().strip()
        finally:
            _pipe(process.stdin).close()
            process.wait()


def _add(process: subprocess.Popen[str]) -> float:
    """Add a window to each query; return the CPU seconds of the server."""
    print(file=process.stdin, flush=True)
    return float(_pipe(process.stdout).readline())


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None, "opened with PIPE"
    return pipe


@contextlib.contextmanager
def _browser(program: str) -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path=program, args=arguments)
        try:
            yield browser
        finally:
            browser.close()


def _private_megabytes(browser: Any) -> float:
    """Return the private memory of the renderer processes of the browser."""
    session = browser.new_browser_cdp_session()
    processes = session.send("SystemInfo.getProcessInfo")["processInfo"]
    session.detach()
    total = 0
    for number in (process["id"] for process in processes if process["type"] == "renderer"):
        text = Path(f"/proc/{number}/smaps_rollup").read_text()
        total += sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Private_"))
    return total * 1024 / 1e6
