"""The start-up time of commands without work, compared with the imports of numpy and pyarrow, which queries need.

Users wait by the wall clock, so it is judged: the median of turns, in which all commands run one after the other. The
CPU time is printed as information. A plain `import numpy` starts threads for matrices, which wait in a loop for their
first work. Wiretide starts none. So the imports without these threads are measured too.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from bench.command import wiretide
from bench.figure import figure, quotient
from bench.process import Run, run_timed
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
HELP = "wiretide --help"


def run(setting: Setting) -> Report:
    """Measure the commands in turns, so that a disturbance affects all of them."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ten.pcap"
        generate(address_pairs(10), path)
        commands: dict[str, list[str | Path]] = {
            "python -c pass": [sys.executable, "-c", "pass"],
            IMPORTS: [sys.executable, "-c", "import numpy, pyarrow"],
            WITHOUT_THREADS: ["env", "OPENBLAS_NUM_THREADS=1", sys.executable, "-c", "import numpy, pyarrow"],
            HELP: wiretide("--help"),
            "wiretide explain": wiretide("explain", PAIRS),
            QUERY: wiretide("query", path, PAIRS, "--format", "csv"),
        }
        for command in commands.values():
            run_timed(command, environment=ENVIRONMENT)
        runs: dict[str, list[Run]] = {name: [] for name in commands}
        for _ in range(setting.runs(21)):
            for name, command in commands.items():
                runs[name].append(run_timed(command, environment=ENVIRONMENT))
    seconds = {name: figure(run.seconds for run in values) for name, values in runs.items()}
    processor = {name: figure(run.processor for run in values) for name, values in runs.items()}
    report = Report("startup")
    report.table(
        "from the start of the process to its end",
        ("command", "seconds (min..max)", "against the imports", "CPU seconds (min..max)"),
        [
            (name, str(measured), f"{measured.median / seconds[IMPORTS].median:.2f} x", str(processor[name]))
            for name, measured in seconds.items()
        ],
    )
    judged = not setting.quick
    ratio = quotient(seconds[QUERY], seconds[IMPORTS]).median
    report.add_criterion("a query of 10 packets / the imports, seconds", ratio, "<= 1.6", judged=judged)
    report.add_criterion("wiretide --help, seconds", seconds[HELP].median, "<= 0.15", judged=judged)
    against = quotient(processor[QUERY], processor[IMPORTS])
    report.add_information("a query of 10 packets / the imports, CPU seconds", against)
    against = quotient(processor[QUERY], processor[WITHOUT_THREADS])
    report.add_information("a query of 10 packets / the imports without threads of numpy, CPU seconds", against)
    return report
