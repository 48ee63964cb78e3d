"""A live page over generated windows, in a separate process: `python -m bench.page_server FOLDER WINDOWS ROWS`.

It prints the URL as soon as the page is served. Each line of standard input adds a window to each query, and prints the
CPU seconds of the process so far. The end of standard input ends the process.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from capture.units import SECOND
from dashboards.page.history import History
from dashboards.page.site import Site
from dashboards.page.views import Views
from dashboards.prometheus.exporter import Exporter
from dashboards.prometheus.server import serve
from highlevel.inline.engine import ALL_METRICS
from highlevel.plan.plan import Plan
from queries.gsql import compile_query

QUERIES = 5
SQL = """SELECT srcIP, destIP, destPort, count(*) AS packets, sum(len) AS bytes
FROM Main [RANGE 10 seconds] GROUP BY srcIP, destIP, destPort"""
START = 1_700_000_000
HOSTS = 5_000
KEEP, SIZE = 10**6 * SECOND, 1 << 34


def make_window(plan: Plan, number: int, rows: int, random: np.random.Generator) -> pa.Table:
    """Return the rows of a window of 10 s: groups with a skewed size, some of which are in every window."""
    end = (START + 10 * number) * SECOND
    share = 1 / (1 + np.arange(rows))
    columns = {
        "window_start": np.full(rows, end - 10 * SECOND),
        "window_end": np.full(rows, end),
        "srcIP": _addresses(random.zipf(1.3, rows)),
        "destIP": _addresses(random.zipf(1.3, rows)),
        "destPort": random.integers(0, 65536, rows),
        "packets": (1e6 * share).astype(np.int64) + random.integers(1, 10, rows),
        "bytes": (1e9 * share).astype(np.int64) + random.integers(1, 1500, rows),
    }
    return pa.table(columns).cast(plan.schema)


def _addresses(ranks: np.ndarray) -> pa.Array:
    hosts = (10 << 24) + ranks % HOSTS
    return pa.array([value.tobytes() for value in hosts.astype(">u4")], pa.binary())


def main(folder: Path, windows: int, rows: int) -> None:
    """Fill a history, serve it, and add windows on request."""
    random = np.random.default_rng(7)
    plans = [compile_query(SQL, f"query{number}") for number in range(QUERIES)]
    exporter = Exporter(plans, ALL_METRICS.values())
    history = History(folder / "history.sqlite", plans, exporter.series, KEEP, SIZE, print)
    for number in range(windows):
        for plan in plans:
            history.add(number, plan.name, make_window(plan, number, rows, random))
    with serve(exporter, port=0, site=Site(history, Views(history, lambda: exporter.current_samples))) as server:
        print(server.url, flush=True)
        for _ in sys.stdin:
            for plan in plans:
                history.add(windows, plan.name, make_window(plan, windows, rows, random))
            windows += 1
            print(time.process_time(), flush=True)
    history.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
