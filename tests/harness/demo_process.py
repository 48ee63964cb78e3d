"""The demo as a process of its own, and the lines that it prints."""

import re
import subprocess
import sys
from pathlib import Path

WIRETIDE = Path(sys.prefix) / "bin" / "wiretide"


def lines_until(process: subprocess.Popen[str], pattern: str) -> list[str]:
    """Lines of standard output up to the first that matches."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line.rstrip())
        if re.search(pattern, line):
            return lines
    raise AssertionError(f"{pattern} was never printed; got {lines} and {process.stderr and process.stderr.read()}")
