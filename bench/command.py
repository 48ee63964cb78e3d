"""The command that users run, as it is installed beside this Python."""

from __future__ import annotations

import sys
from pathlib import Path


def wiretide(*arguments: str | Path) -> list[str | Path]:
    """Command line of `wiretide`: the installed script, or the module where this environment has none."""
    installed = Path(sys.executable).with_name("wiretide")
    return [installed, *arguments] if installed.exists() else [sys.executable, "-m", "wiretide", *arguments]
