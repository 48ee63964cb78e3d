"""`wiretide` as a process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import wiretide


def environment(**more: str) -> dict[str, str]:
    """A terminal's width that does not break the lines that are looked for, and no colours."""
    return os.environ | {"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"} | more


def run(*words: str | Path, cwd: Path, **more: Any) -> tuple[int, str, str]:
    """Status, standard output and standard error of `wiretide WORDS`."""
    command = [sys.executable, wiretide.__file__, *map(str, words)]
    done = subprocess.run(command, cwd=cwd, capture_output=True, env=environment(), check=False, **more)
    return done.returncode, done.stdout.decode(), done.stderr.decode()
