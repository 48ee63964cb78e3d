"""The whole process of `wiretide query`, from the start of Python to the last byte of the answer.

The answer is written to a CSV file and checked after every run: it must contain all packets of the capture. Criteria
are about the query on one core, and with its default threads. Both are compared with a process that imports numpy and
pyarrow and copies the same bytes once. All take turns. The first run on a machine compiles the kernels. It is measured
with an empty cache folder, and compared with the compilation of some plain kernels.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.csv

from bench.command import wiretide
from bench.figure import figure, quotient
from bench.process import Run, run_timed
from bench.query_text import PAIRS
from bench.report import Report
from bench.setting import Setting
from bench.traffic import MILLION, address_pairs, generate_cached, read_into_cache
from bench.undisturbed import run_undisturbed
from bench.yardsticks import KERNELS, compile_kernels, copy

LENGTHS = (5 * MILLION, 50 * MILLION)
"""Packets."""

CORE_NAMES = {True: "one core", False: "default threads"}
"""A process that is bound to one core, and a process with its default threads."""

TARGET = "<= 7"
"""Limits, as multiples of the seconds of a process that imports numpy and pyarrow and copies the same bytes once."""


@dataclass
class Turns:
    """Runs in turns: the query on one core, the query with default threads, the copy; and number of repeated runs."""

    query: dict[bool, list[Run]] = field(default_factory=lambda: {True: [], False: []})
    copy: list[Run] = field(default_factory=list)
    repeated_runs: int = 0


def run(setting: Setting) -> Report:
    """Measure both captures, on one core and with default threads, and then the first run with an empty cache."""
    report = Report("query")
    judged = not setting.quick
    rows = []
    memory: dict[int, float] = {}
    for full in LENGTHS:
        packets = setting.packets(full // 50 if setting.quick else full)
        path = generate_cached(address_pairs(packets), setting.data)
        read_into_cache(path)
        turns = measure_in_turns(path, packets, setting.runs(5))
        copied = figure(run.seconds for run in turns.copy)
        rows.append((f"{packets:,}", "copied on one core", str(copied), str(copied.rate(packets / MILLION)), "", ""))
        shown = []
        for one_core, where in CORE_NAMES.items():
            runs = turns.query[one_core]
            seconds = figure(run.seconds for run in runs)
            held = max((run.memory for run in runs if run.memory is not None), default=None)
            ratio = quotient(seconds, copied)
            told = "not known" if held is None else f"{held / MILLION:.0f} MB"
            rows.append((f"{packets:,}", where, str(seconds), str(seconds.rate(packets / MILLION)), str(ratio), told))
            name = f"whole process, {where}, {full:,} packets / a process that copies the bytes, seconds"
            report.add_criterion(name, ratio.median, TARGET, judged)
            rate = seconds.rate(packets / MILLION)
            report.add_information(f"whole process, {where}, {full:,} packets, M packets/s", rate)
            shown.append(f"{seconds.median:.3g} s")
            if one_core and held is not None:
                memory[full] = held
        report.add_headline(
            f"`wiretide query`, whole process, {full // MILLION} M packets", f"{shown[1]}; {shown[0]} on one core"
        )
        report.notes.append(
            f"{packets:,} packets: {turns.repeated_runs} runs on one core were repeated because other processes used it"
        )
    report.table(
        "wiretide query --format csv, start-up included, kernels compiled before",
        ("packets", "on", "seconds (min..max)", "M packets/s (min..max)", "/ copy, seconds", "own memory"),
        rows,
    )
    report.notes.append("own memory: the largest peak of anonymous memory")
    _judge_memory(report, memory, judged)
    _first_run(report, setting)
    return report


def measure_in_turns(path: Path, packets: int, turns: int) -> Turns:
    """Run the query and the copy once without measurement, and then in turns."""
    found = Turns()
    for turn in range(1 + turns):
        bound, more = run_undisturbed(lambda: answer(path, packets, one_core=True))
        free = answer(path, packets, one_core=False)
        copied, again = run_undisturbed(lambda: copy(path))
        if turn:
            found.query[True].append(bound)
            found.query[False].append(free)
            found.copy.append(copied)
            found.repeated_runs += more + again
    return found


def answer(path: Path, packets: int, one_core: bool, environment: dict[str, str] | None = None) -> Run:
    """Run the query once. Raises RuntimeError if the answer does not contain all packets of the capture."""
    with tempfile.TemporaryDirectory() as folder:
        csv = Path(folder) / "answer.csv"
        found = run_timed(wiretide("query", path, PAIRS, "--format", "csv", "-o", csv), one_core, environment)
        counted = pc.sum(pyarrow.csv.read_csv(csv)["packets"]).as_py()
    if counted != packets:
        raise RuntimeError(f"{path}: got {counted} packets in the answer, expected {packets}")
    return found


def _judge_memory(report: Report, memory: dict[int, float], judged: bool) -> None:
    missing = "" if memory else "this system does not tell (no /proc)"
    largest = max(memory.values(), default=None)
    report.add_criterion("own memory, MB", None if largest is None else largest / MILLION, "<= 600", judged, missing)
    short, long = (memory.get(packets) for packets in LENGTHS)
    growth = long / short if short and long else None
    report.add_criterion("own memory, 50 M packets against 5 M", growth, "<= 1.2", judged, missing)
    if short and long:
        both = f"{short / MILLION:.0f} MB and {long / MILLION:.0f} MB"
        report.add_headline("memory of its own, 5 M and 50 M packets, one core", both)


def _first_run(report: Report, setting: Setting) -> None:
    packets = setting.packets(5 * MILLION)
    path = generate_cached(address_pairs(packets), setting.data)
    before = compile_kernels()
    with tempfile.TemporaryDirectory() as folder:
        found = answer(path, packets, one_core=False, environment=os.environ | {"XDG_CACHE_HOME": folder})
    yardstick = before.processor if setting.quick else min(before.processor, compile_kernels().processor)
    first_run_line = next((line for line in found.errors.splitlines() if "first run" in line), None)
    report.notes.append(
        f"the first run, {packets:,} packets: {found.seconds:.3g} s; it says: {first_run_line or 'nothing'}"
    )
    report.add_information("first run, kernels compiled, s", f"{found.seconds:.3g}")
    report.add_headline("very first run, kernels compiled", f"{found.seconds:.3g} s")
    why = "a smoke run tells no time" if setting.quick else ""
    name = f"first run / compiling {KERNELS} plain kernels, processor seconds"
    report.add_criterion(name, found.processor / yardstick, "<= 15", judged=not setting.quick, why=why)
    report.add_criterion("first run, lines that say why", float(first_run_line is not None), ">= 1")
