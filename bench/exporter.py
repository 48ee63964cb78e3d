"""The exporter with 100 queries of 50 series each: CPU time of a scrape, with and without new windows.

A client in another process scrapes over HTTP. The CPU time of this process is the cost of the server and of new
windows. With one scrape per second, the CPU seconds of a scrape are the share of one core.
"""

from __future__ import annotations

import subprocess
import sys
import time
from random import Random

import pyarrow as pa

from bench.figure import figure
from bench.report import Report
from bench.setting import Setting
from dashboards.prometheus.exporter import Exporter
from dashboards.prometheus.server import serve
from highlevel.plan.plan import Plan
from queries.gsql import compile_query

QUERIES, SERIES, GROUPS = 100, 50, 200
"""Number of queries, of series per query, and of groups per window."""

CLIENT = """
import sys
from urllib.request import urlopen
for line in sys.stdin:
    with urlopen(sys.argv[1]) as answer:
        print(len(answer.read()), flush=True)
"""


def run(setting: Setting) -> Report:
    """Measure scrapes in turns: after new windows of no query, of a tenth of the queries, and of all queries."""
    queries = 5 if setting.quick else QUERIES
    plans = [
        compile_query(f"SELECT srcIP, count(*) AS n FROM p [RANGE {1 + number} s] GROUP BY srcIP", f"q{number}")
        for number in range(queries)
    ]
    exporter, random = Exporter(plans, [], top=SERIES - 1), Random(1)
    cases = {"none": 0, "a tenth": max(1, queries // 10), "all": queries}
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    size = 0
    with serve(exporter, port=0) as server:
        command = [sys.executable, "-c", CLIENT, f"{server.url}metrics"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
            assert client.stdin is not None
            assert client.stdout is not None
            for number, name in enumerate([*cases] * setting.runs(15)):
                new = plans if number == 0 else plans[: cases[name]]
                windows = {plan.name: _window(plan, number, random) for plan in new}
                start = time.process_time()
                for query, rows in windows.items():
                    exporter.add_results(query, rows)
                print(file=client.stdin, flush=True)
                size = int(client.stdout.readline())
                seconds[name].append(time.process_time() - start)
            client.stdin.close()
    figures = {name: figure(values[1:] or values) for name, values in seconds.items()}
    report = Report("exporter")
    report.table(
        f"{queries} queries of {SERIES} series, {GROUPS} groups in a window; {size / 1e6:.2f} MB of text",
        ("queries with a new window", "CPU ms of a scrape (min..max)"),
        [(name, str(figure([1000 * value for value in seconds[name][1:] or seconds[name]]))) for name in cases],
    )
    judged = not setting.quick
    report.add_criterion("CPU of one core with a scrape per second, %", 100 * figures["none"].median, "<= 2", judged)
    return report


def _window(plan: Plan, number: int, random: Random) -> pa.Table:
    """Return the window `number`."""
    length = plan.window.range  # type: ignore[union-attr]
    start = (number + 1) * length
    groups = range(GROUPS)
    return pa.table(
        {
            "window_start": [start] * GROUPS,
            "window_end": [start + length] * GROUPS,
            "srcIP": [bytes([10, 0, 0, group]) for group in groups],
            "n": [1000 * GROUPS // (group + 1) + random.randrange(100) for group in groups],
        },
        plan.schema,
    )
