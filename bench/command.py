"""The command that users run, as installed with this Python."""

from __future__ import annotations

import sys
from pathlib import Path


def wiretide(*arguments: str | Path) -> list[str | Path]:
    """Return the command line of `wiretide`: the installed script, or the module if there is no script."""
    installed = Path(sys.executable).with_name("wiretide")
    return [installed, *arguments] if installed.exists() else [sys.executable, "-m", "wiretide", *arguments]
