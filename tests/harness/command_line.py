"""`wiretide` as a process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
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


def until_mapped(process: subprocess.Popen[bytes], file: Path) -> None:
    """Wait until a process has mapped a file; AssertionError if it ends before. Linux only."""
    maps = Path(f"/proc/{process.pid}/maps")
    while str(file) not in maps.read_text():
        assert process.poll() is None, f"it ended before it read {file}"
        time.sleep(0.02)
