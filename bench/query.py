"""The whole process of `wiretide query`, from the start of Python to the last byte of the answer.

The answer goes to a CSV file and is checked after every run: packets must add up to those of the capture. The first
run on a machine, which compiles the kernels, is made with an empty cache folder.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.csv

from bench.command import wiretide
from bench.figure import figure
from bench.process import Run, timed
from bench.query_text import PAIRS
from bench.report import Report
from bench.setting import Setting
from bench.traffic import MILLION, address_pairs, cached, warm
from bench.undisturbed import undisturbed

TARGETS = {5 * MILLION: ">= 5", 50 * MILLION: ">= 15"}
"""M packets/s promised of one core, start-up included, by the packets of the capture."""


def run(setting: Setting) -> Report:
    """Measure both lengths, bound to one core and free, then the first run of all."""
    report = Report("query")
    judged = not setting.quick
    rows = []
    memory: list[tuple[int, float]] = []
    for full, target in TARGETS.items():
        packets = setting.packets(full // 50 if setting.quick else full)
        path = cached(address_pairs(packets), setting.data)
        warm(path)
        for one_core in (True, False):
            runs, again = repeated(path, packets, setting.runs(5), one_core)
            seconds = figure(run.seconds for run in runs)
            rate = seconds.rate(packets / MILLION)
            busy = figure(run.processor for run in runs).rate(packets / MILLION)
            held = max((run.memory for run in runs if run.memory is not None), default=None)
            where = "one core" if one_core else "all cores"
            told = "not known" if held is None else f"{held / MILLION:.0f} MB"
            rows.append((f"{packets:,}", where, str(seconds), str(rate), f"{busy.median:.3g}", told, str(again)))
            if one_core:
                report.require(f"whole process, one core, {full:,} packets, M packets/s", rate.median, target, judged)
                if held is not None:
                    memory.append((full, held))
    report.table(
        "wiretide query --format csv, start-up included, kernels compiled before",
        ("packets", "on", "seconds (min..max)", "M packets/s (min..max)", "per busy s", "own memory", "made again"),
        rows,
    )
    report.notes += [
        "per busy s: M packets per second of processor time, which leaves out the time that others had the core",
        "own memory: the largest peak; made again: runs on one core that others had a part of, and that do not count",
    ]
    _judge_memory(report, memory, judged)
    _first_run(report, setting)
    return report


def repeated(path: Path, packets: int, runs: int, one_core: bool) -> tuple[list[Run], int]:
    """Run several times after an unmeasured time; returns the runs and how many were made again."""

    def once() -> Run:
        return answer(path, packets, one_core)

    once()
    found = [undisturbed(once) if one_core else (once(), 0) for _ in range(runs)]
    return [run for run, _ in found], sum(again for _, again in found)


def answer(path: Path, packets: int, one_core: bool, environment: dict[str, str] | None = None) -> Run:
    """Run the query once; raises RuntimeError where the packets of the answer are not those of the capture."""
    with tempfile.TemporaryDirectory() as folder:
        csv = Path(folder) / "answer.csv"
        found = timed(wiretide("query", path, PAIRS, "--format", "csv", "-o", csv), one_core, environment)
        counted = pc.sum(pyarrow.csv.read_csv(csv)["packets"]).as_py()
    if counted != packets:
        raise RuntimeError(f"{path}: got {counted} packets in the answer, expected {packets}")
    return found


def _judge_memory(report: Report, memory: list[tuple[int, float]], judged: bool) -> None:
    missing = "" if memory else "this system does not tell (no /proc)"
    largest = max((held for _, held in memory), default=None)
    report.require("own memory, MB", None if largest is None else largest / MILLION, "<= 600", judged, missing)
    growth = memory[-1][1] / memory[0][1] if memory else None
    report.require("own memory, 50 M packets against 5 M", growth, "<= 1.2", judged, missing)


def _first_run(report: Report, setting: Setting) -> None:
    packets = setting.packets(5 * MILLION)
    path = cached(address_pairs(packets), setting.data)
    with tempfile.TemporaryDirectory() as folder:
        found = answer(path, packets, one_core=False, environment=os.environ | {"XDG_CACHE_HOME": folder})
    said = next((line for line in found.errors.splitlines() if "first run" in line), None)
    report.notes.append(f"the first run, {packets:,} packets: {found.seconds:.1f} s; it says: {said or 'nothing'}")
    why = "a smoke run tells no time" if setting.quick else ""
    report.require("first run, kernels compiled, s", found.seconds, "<= 20", judged=not setting.quick, why=why)
    report.require("first run, lines that say why", float(said is not None), ">= 1")
