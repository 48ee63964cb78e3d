"""The start-up time of commands without work, compared with that of Python."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from bench.command import wiretide
from bench.figure import Figure, figure
from bench.process import timed
from bench.query_text import PAIRS
from bench.report import Report
from bench.setting import Setting
from bench.traffic import address_pairs
from capture.generate import generate


def run(setting: Setting) -> Report:
    """Measure by turns, so that a disturbance does not hit one command alone."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ten.pcap"
        generate(address_pairs(10), path)
        commands: dict[str, list[str | Path]] = {
            "python -c pass": [sys.executable, "-c", "pass"],
            "wiretide --help": wiretide("--help"),
            "wiretide explain": wiretide("explain", PAIRS),
            "wiretide query, 10 packets": wiretide("query", path, PAIRS, "--format", "csv"),
        }
        for command in commands.values():
            timed(command)
        seconds: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(setting.runs(9)):
            for name, command in commands.items():
                seconds[name].append(timed(command).seconds)
    figures = {name: figure(values) for name, values in seconds.items()}
    report = Report("startup")
    report.table(
        "from the start of the process to its end",
        ("command", "seconds (min..max)", "against python -c pass"),
        [_row(name, each, figures["python -c pass"]) for name, each in figures.items()],
    )
    return report


def _row(name: str, measured: Figure, least: Figure) -> tuple[str, ...]:
    return name, str(measured), f"{measured.median / least.median:.1f} x"
