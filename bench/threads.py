"""The gain of a second core: the inline engine with one and with two threads, in turns in one process.

The time is that of `InlineRun`, from the opened capture to the last window: index scan, reduction, operators. Runs with
one and with two threads take turns, so that changes of the machine affect both. A run is repeated if other processes
used the cores. The answers are compared after every run.

Two cores share their memory, and virtual machines share more. So the same turns measure the largest possible gain of a
second core: two independent processes with one thread each.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from bench.figure import figure, quotient
from bench.others import SharedMachineTime, time_with_others
from bench.query_text import PAIRS
from bench.report import Report
from bench.setting import Setting
from bench.traffic import MILLION, address_pairs, generate_cached, read_into_cache
from bench.undisturbed import run_undisturbed

PACKETS = 50 * MILLION
THREADS = (1, 2)
TARGET = ">= 0.7"
"""Required share of the rate of two processes. Processes need not merge their answers; threads must, because every
group is in the tables of both threads."""


@dataclass(frozen=True)
class AnswerTime:
    """A run: its seconds, the seconds of its index scan, and the CPU seconds of all threads."""

    crowd: SharedMachineTime
    scan: float
    processor: float

    @property
    def share(self) -> float:
        """The share of all cores that other processes did not use."""
        return self.crowd.share


def run(setting: Setting) -> Report:
    """Measure with the longest capture, which is in the page cache."""
    report = Report("threads")
    packets = setting.packets(PACKETS)
    path = generate_cached(address_pairs(packets), setting.data)
    read_into_cache(path)
    for threads in THREADS:
        answer(path, packets, threads)
    found: dict[int, list[AnswerTime]] = {threads: [] for threads in THREADS}
    again = 0
    apart: list[float] = []
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as processes:
        run_both_processes(processes, path, packets)
        for _ in range(setting.runs(5)):
            for threads in THREADS:
                one, more = run_undisturbed(partial(answer, path, packets, threads))
                found[threads].append(one)
                again += more
            apart.append(run_both_processes(processes, path, packets))
    seconds = {threads: figure(one.crowd.seconds for one in runs) for threads, runs in found.items()}
    report.table(
        f"{packets:,} packets in one file, packets and bytes of each address pair in each minute",
        ("threads", "seconds (min..max)", "M packets/s (min..max)", "of it scan, s", "processor, s"),
        [
            (
                str(threads),
                str(seconds[threads]),
                str(seconds[threads].rate(packets / MILLION)),
                str(figure(one.scan for one in runs)),
                str(figure(one.processor for one in runs)),
            )
            for threads, runs in found.items()
        ]
        + [
            (
                "two processes, twice the packets",
                str(figure(apart)),
                str(figure(apart).rate(2 * packets / MILLION)),
                "",
                "",
            )
        ],
    )
    report.notes.append(f"{again} runs were repeated because other processes used the cores")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    missing = "" if cores >= THREADS[-1] else f"this process may use {cores} core"
    gained = quotient(seconds[1], seconds[2]).median
    possible = 2 * quotient(seconds[1], figure(apart)).median
    report.notes.append(f"against one thread: two threads {gained:.2f} x, two processes {possible:.2f} x")
    ratio = None if missing else gained / possible
    name = "two threads against one on one big file, of what two processes reach"
    report.add_criterion(name, ratio, TARGET, judged=not setting.quick, why=missing)
    return report


def run_both_processes(processes: Executor, path: Path, packets: int) -> float:
    """Run the query in two processes at once, with one thread each. Return the seconds until both have ended."""
    begin = time.perf_counter()
    for each in [processes.submit(answer, path, packets, 1) for _ in range(2)]:
        each.result()
    return time.perf_counter() - begin


def answer(path: Path, packets: int, threads: int) -> AnswerTime:
    """Run the query once. Raises RuntimeError if the answer does not contain all packets of the capture."""
    from highlevel.inline.engine import InlineRun, Input
    from queries.gsql import compile_query

    engine = InlineRun([compile_query(PAIRS)], [Input("link", path)], threads=threads)
    scanned: list[float] = []

    def note(done: int, total: int) -> None:
        if not scanned and done >= total // 2:
            scanned.append(time.perf_counter())

    engine.progress = note
    results: list[pa.RecordBatch] = []
    begin, processor = time.perf_counter(), time.process_time()
    crowd = time_with_others(lambda: results.extend(rows for _, rows in engine.results()))
    spent = time.process_time() - processor
    counted = sum(pc.sum(rows.column("packets")).as_py() for rows in results)
    if counted != packets:
        raise RuntimeError(f"{path}: got {counted} packets in the answer, expected {packets}")
    return AnswerTime(crowd, scanned[0] - begin, spent)
