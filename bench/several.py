"""Several queries in one pass over the packets, and wide keys: decode + table on one core, with all counters on.

Each block is decoded once for all queries. Queries with the same groups share a table (`lowlevel.table.sharing`). The
five different queries cannot share a table, but the table of the 5-tuple feeds three other tables
(`lowlevel.table.feeding`). The thousand queries with different constants share a table, whose entries are divided by
the constant (`lowlevel.table.constants`). The workloads take turns, so that other processes of the machine disturb
all of them equally. They are compared with one query by address pair over the same packets, in the same turn.

The hundred queries of the catalogue are 41 texts and their variations. They are compared in three ways, in CPU seconds:

* As a user runs them: one process of `wiretide query` for all of them, against the mean of processes with one of them.
  This includes the start of a process.
* Runs of the inline engine in one process, without start, compilation and output: one run of all of them, against the
  sum of a hundred runs with one of them. So this judges only what is shared.
* The same run against the mean of these runs. It is not judged: the five costliest queries, which have separate
  tables and joins, take a multiple of the mean. This multiple is printed too.

The thousand queries with different constants are compared with one query by address pair, which keeps every packet. A
run with only one of the thousand is cheaper, because it keeps few packets. That ratio is printed too.
"""

from __future__ import annotations

import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import wiretide
from bench.command import wiretide as wiretide_command
from bench.figure import Figure, figure, quotient
from bench.one_core import core, on_one_core
from bench.process import run_timed
from bench.query_text import PAIRS
from bench.report import Report
from bench.setting import Setting
from bench.traffic import MILLION, address_pairs, generate_cached, read_into_cache
from bench.undisturbed import run_undisturbed, time_step
from highlevel.inline.engine import InlineRun, Input
from highlevel.plan.plan import Plan
from lowlevel.plan import LowLevelPlan
from queries.catalogue.catalogue import CATALOGUE
from queries.gsql import compile_query
from queries.plans.subquery_values import has_subqueries
from queries.text.parser import parse_query

PACKETS = 5 * MILLION

QUERIES = 100
"""Number of catalogue queries in one pass."""

CATALOGUE_PACKETS = MILLION
"""Packets of the capture for the catalogue."""

DIFFERENT_TEXTS = 41
"""Number of catalogue queries with different texts. The later queries are variations of these."""

PROCESS_STEP = 5
"""Every fifth catalogue query runs in a separate process; with `--quick` only two queries."""


def minute_query(select: str, keys: str, where: str = "") -> str:
    """Write a query by `keys` over windows of a minute."""
    return f"SELECT {keys}, {select} FROM packets [RANGE 1 minute, SLIDE 1 minute, WA ts] {where} GROUP BY {keys}"


TUPLE = "srcIP, destIP, srcPort, destPort, protocol"
VOLUME = "count(*) AS packets, sum(len) AS bytes"

DIFFERENT_QUERIES = (
    PAIRS,
    minute_query("min(len) AS least, max(len) AS most", "srcIP"),
    minute_query("count(*) AS packets", "destPort, protocol"),
    minute_query(VOLUME, TUPLE),
    minute_query("count(*) AS packets", "destIP", "WHERE protocol = 6 AND tcp_flags & 2 = 2"),
)
"""Five queries of which no two can share a table."""

SHARING_QUERIES = (
    PAIRS,
    minute_query("min(len) AS least, max(len) AS most", "srcIP, destIP"),
    minute_query("avg(len) AS mean", "srcIP, destIP"),
    minute_query("count(*) AS packets, max(ttl) AS hops", "srcIP, destIP"),
    minute_query("sum(len) AS bytes", "srcIP, destIP"),
)
"""Five queries with the groups of the first query. Together they have five sub-aggregates."""


CONSTANT_QUERIES = tuple(
    minute_query("count(*) AS packets", "srcIP", f"WHERE destPort = {port}") for port in range(1000)
)
"""A thousand queries that differ only in a constant. Ten of the constants occur in the capture."""


def receiver_queries(path: Path) -> tuple[str, ...]:
    """Return a query for each of the thousand addresses that receive most packets of a capture."""
    top = "SELECT destIP, count(*) AS packets FROM packets GROUP BY destIP ORDER BY packets DESC, destIP LIMIT 1000"
    addresses = [row["destIP"] for row in wiretide.query(top, path).to_pylist()]
    return tuple(minute_query("count(*) AS packets", "srcIP", f"WHERE destIP = '{address}'") for address in addresses)


@dataclass(frozen=True)
class Workload:
    """Queries over a capture with a share of IPv6, and the limit of their seconds as a multiple of the seconds of ONE.

    `queries`: the texts, or a function that returns them for the capture.
    """

    queries: tuple[str, ...] | Callable[[Path], tuple[str, ...]]
    target: str | None = None
    ipv6: float = 0.0

    def plans(self, path: Path) -> list[LowLevelPlan]:
        """Return the low-level plans of the queries over a capture."""
        texts = self.queries(path) if callable(self.queries) else self.queries
        return [compile_query(sql).leaves[0].low for sql in texts]


ONE = "one query by address pair"
WIDE = "1,000 queries that differ in a constant, for 95 % of the packets"
WORKLOADS = {
    ONE: Workload((PAIRS,)),
    "five different queries": Workload(DIFFERENT_QUERIES, "<= 4.5"),
    "five queries of one table": Workload(SHARING_QUERIES, "<= 2.2"),
    "1,000 queries that differ in a constant": Workload(CONSTANT_QUERIES, "<= 15"),
    WIDE: Workload(receiver_queries, "<= 15"),
    "IPv6, the 5-tuple": Workload((minute_query(VOLUME, TUPLE),), "<= 3.5", ipv6=1.0),
}


def run(setting: Setting) -> Report:
    """Measure the capture of the criteria of `decode`, and a capture with only IPv6."""
    packets = setting.packets(PACKETS)
    report = Report("several")
    paths = {ipv6: generate_cached(address_pairs(packets, ipv6), setting.data) for ipv6 in (0.0, 1.0)}
    for path in paths.values():
        read_into_cache(path)
    seconds, words, again = on_one_core(measure, paths, setting.runs(9))
    rates = {name: figure(each).rate(packets / MILLION) for name, each in seconds.items()}
    report.table(
        f"{packets:,} packets, decode + table",
        ("queries", "M packets/s (min..max)", "seconds / one query", "tables", "words of their entries"),
        [
            (
                name,
                str(rate),
                str(quotient(rates[ONE], rate)),
                str(len(words[name])),
                ", ".join(map(str, words[name][:8])),
            )
            for name, rate in rates.items()
        ],
    )
    bound = f"bound to core {core()}" if core() is not None else "not bound to a core: this system cannot"
    report.notes.append(f"one process, {bound}; {again} runs were repeated because other processes used the core")
    for name, work in WORKLOADS.items():
        report.add_information(f"{name}, one core, M packets/s", rates[name])
        if work.target:
            ratio = quotient(rates[ONE], rates[name]).median
            report.add_criterion(
                f"{name} / one query by address pair, seconds", ratio, work.target, judged=not setting.quick
            )
    small = generate_cached(address_pairs(min(packets, CATALOGUE_PACKETS)), setting.data)
    read_into_cache(small)
    single, whole = catalogue_processes(small, setting.runs(3), QUERIES // 2 if setting.quick else PROCESS_STEP)
    report.add_information(
        f"one catalogue query, mean of processes over {small.name.split('-')[0]} packets, CPU seconds", single
    )
    report.add_information(f"{QUERIES} catalogue queries in one process, CPU seconds", whole)
    ratio = min(whole.values) / min(single.values)
    report.add_criterion(
        f"{QUERIES} catalogue queries in one process / a process for one", ratio, "<= 8", judged=not setting.quick
    )
    for path, kind in ((small, "the same packets"), (paths[0.0], f"{packets:,} packets")):
        alone, together = on_one_core(measure_catalogue, path, setting.runs(2))
        mean = sum(alone) / QUERIES
        report.add_information(
            f"{QUERIES} catalogue queries / one, without the process, {kind}", f"{together / mean:.1f}"
        )
        costliest = sum(sorted(alone[:DIFFERENT_TEXTS])[-5:])
        report.add_information(f"five costliest catalogue queries alone / one, {kind}", f"{costliest / mean:.1f}")
        if kind == "the same packets":
            criterion = f"{QUERIES} catalogue queries in one run / the sum of {QUERIES} runs"
            report.add_criterion(criterion, together / sum(alone), "<= 0.4", judged=not setting.quick)
    for name in ("1,000 queries that differ in a constant", WIDE):
        one, alone_seconds, all_ = on_one_core(measure_run, paths[0.0], name, setting.runs(2))
        report.add_information(f"{name}: compiled and run / one by address pair", f"{all_ / one:.1f}")
        report.add_information(f"{name}: compiled and run / one of them", f"{all_ / alone_seconds:.1f}")
    return report


def catalogue_processes(path: Path, runs: int, step_size: int) -> tuple[Figure, Figure]:
    """Return the CPU seconds of a process for one catalogue query, the mean, and of a process for all of them.

    The mean is over every query number `step_size`.
    """
    texts = catalogue_queries()
    single, whole = [], []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(runs):
            chosen = texts[::step_size]
            seconds = [run_timed(wiretide_command("query", path, text, "--format", "csv")).processor for text in chosen]
            single.append(sum(seconds) / len(seconds))
            command = wiretide_command("query", path, *texts, "--format", "csv", "-o", folder)
            whole.append(run_timed(command).processor)
    return figure(single), figure(whole)


def catalogue_queries() -> list[str]:
    """Return QUERIES queries of the catalogue over packets: each query, then variations with other `n` and `window`.

    Queries with sub-queries in expressions are left out, because they read the capture twice, queries of DNS messages,
    because the generated packets contain none, and queries that read a file of arcs.
    """
    texts: dict[str, None] = {}
    for values in ({}, {"n": 5}, {"n": 20}, {"window": "10s"}):
        for query in CATALOGUE.values():
            names = {parameter.name for parameter in query.parameters}
            is_of_packets = query.input == "packets" and not query.name.startswith("dns-")
            if is_of_packets and names >= values.keys() and "ARCS FROM" not in query.text:
                text = query.sql(values)
                if not has_subqueries(parse_query(text)):
                    texts[text] = None
    return [*texts][:QUERIES]


def measure_catalogue(path: Path, runs: int) -> tuple[list[float], float]:
    """Return the CPU seconds of each catalogue query in a separate run, and of all in one run: the least of `runs`.

    The inline engine runs with one thread.
    """
    plans = [compile_query(text, f"q{number}") for number, text in enumerate(catalogue_queries())]

    def seconds(chosen: Sequence[Plan]) -> float:
        begin = time.process_time()
        for _ in InlineRun(chosen, [Input("link", path)], threads=1).results():
            pass
        return time.process_time() - begin

    seconds(plans)  # loads the kernels
    turns = [([seconds([plan]) for plan in plans], seconds(plans)) for _ in range(runs)]
    alone = [min(each) for each in zip(*(alone for alone, _ in turns), strict=True)]
    return alone, min(together for _, together in turns)


def measure_run(path: Path, name: str, runs: int) -> tuple[float, float, float]:
    """Return the CPU seconds to compile and run one query by address pair, one query of a workload, and all of them.

    Each is the least of `runs`.
    """
    queries = WORKLOADS[name].queries
    texts = queries(path) if callable(queries) else queries

    def seconds(chosen: Sequence[str]) -> float:
        begin = time.process_time()
        plans = [compile_query(text, f"q{number}") for number, text in enumerate(chosen)]
        for _ in InlineRun(plans, [Input("link", path)], threads=1).results():
            pass
        return time.process_time() - begin

    seconds(texts)  # loads the kernels
    turns = [(seconds((PAIRS,)), seconds(texts[:1]), seconds(texts)) for _ in range(runs)]
    one, single, all_ = map(min, zip(*turns, strict=True))
    return one, single, all_


def measure(paths: dict[float, Path], runs: int) -> tuple[dict[str, list[float]], dict[str, list[int]], int]:
    """Return the seconds of each workload in `runs` turns, the words of its table entries, and the repeated runs.

    Raises RuntimeError if a query did not process every packet, because the measurement would be wrong.
    """
    from capture.files.scan import scan
    from capture.open import open_mapped
    from lowlevel.node.node import Node
    from lowlevel.table.query_tables import QueryTables

    files = {ipv6: open_mapped(path, "a bench") for ipv6, path in paths.items()}
    indexes = {ipv6: scan(file) for ipv6, file in files.items()}
    plans = {name: work.plans(paths[work.ipv6]) for name, work in WORKLOADS.items()}

    def reduce(name: str) -> Node:
        ipv6 = WORKLOADS[name].ipv6
        node = Node("link", files[ipv6], plans[name])
        for block in indexes[ipv6].blocks:
            for _ in node.process(block):
                pass
        node.samples([(str(number),) for number in range(len(plans[name]))])
        return node

    words = {}
    for name, work in WORKLOADS.items():
        node = reduce(name)
        for query in node.reducers:
            if query.accepted + query.filtered != indexes[work.ipv6].records:
                raise RuntimeError(f"{name}: a query saw {query.accepted + query.filtered} packets, not all")
        distinct = [query for query in dict.fromkeys(node.reducers) if isinstance(query, QueryTables)]
        words[name] = [table.width for query in distinct for _, table in query.tables.values()]
    seconds: defaultdict[str, list[float]] = defaultdict(list)
    again = 0
    for _ in range(runs):
        for name in WORKLOADS:
            step_time, repeats = run_undisturbed(lambda name=name: time_step(lambda: reduce(name)))  # type: ignore[misc]
            seconds[name].append(step_time.seconds)
            again += repeats
    return dict(seconds), words, again
