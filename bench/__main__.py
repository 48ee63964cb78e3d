"""Run benches: `python -m bench [NAME]…`, all of them without a name.

Each bench prints its tables and one line of JSON per criterion when it ends. So a killed run has printed the verdicts
of the benches that had ended. Exit status: 0 if all criteria hold, 1 if one does not, 2 for a wrong command line.
A criterion that cannot be judged (a smoke run, a missing tool) has `"pass": null` and a reason. It does not change the
exit status.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

from bench.machine import machine
from bench.record import record
from bench.report import Report
from bench.setting import Setting
from bench.traffic import default_folder

BENCHES = {
    "decode": "records to columns to partials on one core",
    "several": "several queries in one pass, those of one table, and wide keys of IPv6, on one core",
    "pcapng": "pcapng against classic pcap, the same packets on one core",
    "compressed": "a query over compressed captures against their decompressor alone",
    "flows": "exports of NetFlow and IPFIX to columns to partials on one core",
    "query": "the whole process of `wiretide query`: rate, memory, the first run",
    "threads": "the inline engine with two threads against one, on one big file",
    "peers": "the installed tools that answer the same question, side by side",
    "spark": "Spark batch on two cores against the inline engine on one; the streaming engine",
    "spark_stream": "a replay of three captures through the streaming engine; the start of a session",
    "spark_sql": "Spark batch against plain Spark SQL over Parquet; the cost of more groups and more queries",
    "ring": "a live interface at rising rates through a veth pair: packets counted, dropped, and neither",
    "collector": "the UDP collector on loopback: bursts, losses, and whether they are counted",
    "X1": "WID, and panes, against a buffer of tuples that is scanned for each window, in order, on one core",
    "X2": "delay against error in a band of disorder: slack of two kinds, punctuation",
    "X3": "delay against error in blocks that are sorted: slack of two kinds, punctuation",
    "X4": "windows made of panes against windows made of tuples, and the model of their cost, on one core",
    "X5": "AdaptWID against always eager and always lazy: memory, time, delay, on one core",
    "X6": "a join without order against one whose results are sorted: stored rows, delay, time, on one core",
    "X7": "a join without order against one whose inputs are sorted in a buffer: stored rows, delay, time, on one core",
    "X8": "flush policies: how fast a link loses nothing, on the real table and a ring of a stated size",
    "X9": "a minute's counts over two skewed links, out of order and in order: stored rows, on one core",
    "X10": "a tumbling join of two unions of skewed links, out of order and in order: stored rows, on one core",
    "X11": "a tumbling join with a union that has a late link, out of order and in order: stored rows, on one core",
    "X12": "sliding counts over a union that has a late link, out of order and in order: stored rows, on one core",
    "C1": "changes that snapshot operators return, beside the counts of a prototype",
    "C2": "snapshot operators and a join over 1 M changes of rows with lifetimes, on one core",
    "C3": "latency, corrections and memory for each WAIT and REMEMBER, on a replay with late packets",
    "C4": "state of windows that are corrected: flat under watermarks, in proportion to REMEMBER",
    "C5": "cost of snapshot operators over the size of their input, on one core",
    "C6": "a pipeline of three consistencies on Spark, killed again and again: the changes add up to the exact answer",
    "A1": "query Q1 of the automata paper in order, against a loop of joins and other engines, on one core",
    "A2": "query Q3 while its arcs change, against static arcs and a restart at each change, on one core",
    "A3": "how many changes of results late quotes make, by the speculation that is allowed",
    "A4": "throughput of Q1 over late quotes, on one core",
    "A5": "throughput and stored runs of Q1 over quotes that runs ignore, on one core",
    "A6": "automata over loads of links, and over flow records that are exported late, on one core",
    "slow_link": "state of automata over four links of which one is slow, with and without watermarks of links",
    "flood": "ten million sources through a table of 64 K slots: memory, stalls, exactness",
    "spool": "partials through a spool against plain Arrow files; taking over a spool of many segments",
    "probes": "how many slots of the table a packet should look at",
    "watchlist": "the search in a million prefixes against decode + table on one core, and the time to load them",
    "filter_join": "a filter join against decode + table on one core; the keys that it misses if its memory is full",
    "rollup": "partials merged by group, tumbling and sliding, against Arrow, on one core; memory of a group",
    "slide_by_tuple": "windows that slide by rows: one sweep against the bins of the thesis, on one core",
    "sessions": "sessions per 5-tuple out of partials, against Arrow's group_by, on one core",
    "join": "joins over windows as rows come, against Arrow's hash join of all rows at once, on one core",
    "kills": "kill -9 of `wiretide run` at a hundred random moments while its spool is written",
    "state": "state of a stream on Spark: bytes written when 1 % of a large open window changes",
    "driver_memory": "memory of the driver of a run on Spark over 1e4 to 1e7 result rows",
    "soak": "five queries over three live links for --minutes: memory, lag, loss, latency",
    "startup": "the start-up time of commands",
    "page": "the live page in Chromium: a reload, frames per second, memory",
    "exporter": "the exporter with a hundred queries of fifty series: CPU of a scrape",
    "newcomer": "from a clone to the first windows on the live page and in Prometheus, step by step",
}
"""Names and subjects of benches. The lower-case name is that of a module here with `run(setting) -> Report`."""


def main(arguments: list[str] | None = None) -> int:
    """Run the requested benches. Return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure Wiretide.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"any of {', '.join(BENCHES)}; all without one")
    parser.add_argument("--list", action="store_true", help="name the benches and end")
    parser.add_argument("--quick", action="store_true", help="a smoke run: little work, sizes not judged")
    parser.add_argument(
        "--data", type=Path, default=default_folder(), help="folder of generated captures (%(default)s)"
    )
    parser.add_argument("--plots", type=Path, metavar="DIR", help="write plots into this folder (needs matplotlib)")
    parser.add_argument("--minutes", type=float, default=5.0, help="length of the bench soak (%(default)s)")
    parser.add_argument(
        "--record", action="store_true", help="write the figures into docs/figures and README.md (no smoke run)"
    )
    asked = parser.parse_args(arguments)
    if asked.list:
        print("\n".join(f"{name:10} {what}" for name, what in BENCHES.items()))
        return 0
    unknown = [name for name in asked.names if name not in BENCHES]
    if unknown:
        parser.error(f"no bench is named {', '.join(unknown)}; expected any of {', '.join(BENCHES)}")
    if asked.record and asked.quick:
        parser.error("--record writes measured figures, but a smoke run (--quick) measures none")
    described = machine()
    print(described, flush=True)
    setting = Setting(asked.data, asked.quick, asked.plots, asked.minutes)
    failed = False
    for name in asked.names or BENCHES:
        report = run(name, setting)
        print(report.text())
        if report.criteria:
            print(f"\n{report.verdicts()}")
        sys.stdout.flush()
        failed |= any(criterion.passed is False for criterion in report.criteria)
        if asked.record:
            record(report, described)
    return 1 if failed else 0


def run(name: str, setting: Setting) -> Report:
    """Run one bench."""
    report: Report = importlib.import_module(f"bench.{name.lower()}").run(setting)
    return report


if __name__ == "__main__":
    sys.exit(main())
