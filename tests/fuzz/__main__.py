"""Fuzz all targets, or some: `make fuzz`, `python -m tests.fuzz [TARGET…] [--runs N | --seconds S] [--jobs J]`.

Prints a table; exits 1 when an input broke something, which is then in `tests/fuzz/found`. `--input FILE` gives one
target one input, without atheris.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from capture.native import kernels, missing_kernels
from tests.fuzz.guided import write_paths
from tests.fuzz.targets import FOUND, TARGETS, Target

SCRATCH = Path(sys.prefix) / "fuzz"
"""Results of guided runs: for each target a folder with inputs that reached new code, and the logs."""

KERNELS = SCRATCH / "kernels.json"
"""File with the paths of this run's compiled kernels."""

HANG = 30
"""Seconds after which one input is a hang."""

MEMORY = 2048
"""MiB above which a target uses too much."""


@dataclass(frozen=True)
class Outcome:
    """Result of one target's run. `found` are the inputs that made it fail."""

    target: Target
    inputs: int
    edges: int
    seconds: float
    found: list[Path]
    log: Path
    status: int

    @property
    def failed(self) -> bool:
        """Whether something broke, the run itself included."""
        return bool(self.found) or self.status != 0


def prepare() -> None:
    """Compile the kernels of the targets before they are instrumented.

    All targets are imported, because one may import later than another.
    """
    for target in TARGETS.values():
        target.load()
    for number, kernel in enumerate(missing_kernels()):
        print(f"compiling kernel {number + 1}: {kernel.name}, one of {len(kernels)}", flush=True)
        kernel.compile()
    SCRATCH.mkdir(exist_ok=True)
    write_paths(kernels, KERNELS)


def run(target: Target, runs: int, seconds: int) -> Outcome:
    """Run one target to its end."""
    learned = SCRATCH / target.name
    learned.mkdir(parents=True, exist_ok=True)
    FOUND.mkdir(exist_ok=True)
    log = SCRATCH / f"{target.name}.log"
    before = set(FOUND.glob(f"{target.name}-*"))
    options = [f"-runs={runs}", f"-max_total_time={seconds}", f"-max_len={target.longest}", f"-timeout={HANG}"]
    options += [f"-rss_limit_mb={MEMORY}", f"-artifact_prefix={FOUND}/{target.name}-", "-print_final_stats=1"]
    options += [str(learned), str(target.corpus()[0].parent)]
    begin = time.monotonic()
    with log.open("wb") as file:
        command = [sys.executable, "-m", "tests.fuzz.guided", target.name, str(KERNELS), *options]
        status = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, check=False).returncode
    spent = time.monotonic() - begin
    text = log.read_text("utf-8", "replace")
    executed = re.findall(r"number_of_executed_units: (\d+)", text) or re.findall(r"^#(\d+)", text, re.MULTILINE)
    edges = re.findall(r" cov: (\d+)", text)
    found = sorted(set(FOUND.glob(f"{target.name}-*")) - before)
    last = int(executed[-1]) if executed else 0
    return Outcome(target, last, int(edges[-1]) if edges else 0, spent, found, log, status)


def table(outcomes: list[Outcome]) -> str:
    """The outcomes, a line for each."""
    rows = [("target", "inputs", "per second", "edges", "crashes", "seconds")]
    for each in outcomes:
        rate = round(each.inputs / max(each.seconds, 0.001))
        numbers = (each.inputs, rate, each.edges, len(each.found), round(each.seconds))
        rows.append((each.target.name, *(f"{number:,}" for number in numbers)))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in rows
    )


def describe(outcome: Outcome) -> str:
    """Describe the failures and how to reproduce them."""
    text = outcome.log.read_text("utf-8", "replace")
    exception = re.search(r"=== Uncaught Python exception: ===\n(.*?)\n(?:\n|==)", text, re.DOTALL)
    lines = (exception.group(1) if exception else text).splitlines()[-25:]
    name = outcome.target.name
    again = [f"again: {sys.executable} -m tests.fuzz {name} --input {path}" for path in outcome.found]
    return "\n".join(
        [f"\n{name}: exit status {outcome.status}, {outcome.log}", *(f"    {line}" for line in lines), *again]
    )


def main() -> int:
    """Parse the command line, and run."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description="Fuzz everything that reads bytes or text."
    )
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"some of {', '.join(TARGETS)}; all by default")
    parser.add_argument("--runs", type=int, default=1_000_000, help="inputs of each target (%(default)s)")
    parser.add_argument("--seconds", type=int, default=0, help="stop each target after so long; 0: never (%(default)s)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="targets at a time (%(default)s)")
    parser.add_argument("--input", type=Path, help="give one target this input, in this process")
    options = parser.parse_args()
    unknown = sorted(set(options.targets) - TARGETS.keys())
    if unknown or (options.input and len(options.targets) != 1):
        parser.error(f"got {' '.join(unknown) or 'an input'}, expected one or more of {', '.join(TARGETS)}")
    targets = [TARGETS[name] for name in options.targets or TARGETS]
    if options.input:
        targets[0].load().check(options.input.read_bytes())
        print(f"{options.input}: nothing is wrong")
        return 0
    prepare()
    with ThreadPoolExecutor(options.jobs) as threads:
        outcomes = list(threads.map(lambda target: run(target, options.runs, options.seconds), targets))
    print(table(outcomes))
    for outcome in outcomes:
        if outcome.failed:
            print(describe(outcome))
    return int(any(outcome.failed for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
