"""The start-up time of commands without work, compared with the imports of numpy and pyarrow, which queries need.

A plain `import numpy` starts threads for matrices, which wait in a loop for their first work. Wiretide starts none. The
imports without these threads are measured too, and printed as information.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from bench.command import wiretide
from bench.figure import figure, quotient
from bench.process import timed
from bench.query_text import PAIRS
from bench.report import Report
from bench.setting import Setting
from bench.traffic import address_pairs
from capture.generate import generate

ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""The environment of the commands. Without bytecode files, each command would compile its modules again."""

IMPORTS = "python -c 'import numpy, pyarrow'"
"""The command with which the others are compared."""

WITHOUT_THREADS = f"OPENBLAS_NUM_THREADS=1 {IMPORTS}"

QUERY = "wiretide query, 10 packets"


def run(setting: Setting) -> Report:
    """Measure the commands in turns, so that a disturbance affects all of them."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ten.pcap"
        generate(address_pairs(10), path)
        commands: dict[str, list[str | Path]] = {
            "python -c pass": [sys.executable, "-c", "pass"],
            IMPORTS: [sys.executable, "-c", "import numpy, pyarrow"],
            WITHOUT_THREADS: ["env", "OPENBLAS_NUM_THREADS=1", sys.executable, "-c", "import numpy, pyarrow"],
            "wiretide --help": wiretide("--help"),
            "wiretide explain": wiretide("explain", PAIRS),
            QUERY: wiretide("query", path, PAIRS, "--format", "csv"),
        }
        for command in commands.values():
            timed(command, environment=ENVIRONMENT)
        seconds: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(setting.runs(9)):
            for name, command in commands.items():
                seconds[name].append(timed(command, environment=ENVIRONMENT).processor)
    figures = {name: figure(values) for name, values in seconds.items()}
    report = Report("startup")
    report.table(
        "CPU time from the start of the process to its end",
        ("command", "CPU seconds (min..max)", "against the imports"),
        [
            (name, str(measured), f"{measured.median / figures[IMPORTS].median:.2f} x")
            for name, measured in figures.items()
        ],
    )
    ratio = quotient(figures[QUERY], figures[IMPORTS]).median
    report.require("a query of 10 packets / the imports, CPU seconds", ratio, "<= 1.5", judged=not setting.quick)
    against = quotient(figures[QUERY], figures[WITHOUT_THREADS])
    report.inform("a query of 10 packets / the imports without threads of numpy, CPU seconds", against)
    return report
