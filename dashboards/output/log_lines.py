"""The lines of a process that runs for months: text for people, or one JSON document per line for log collectors."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum

from dashboards.wire_text import escape_lines

WARNING = "warning: "
"""The prefix of a line that is a warning."""


class LogFormat(StrEnum):
    """The formats of lines."""

    TEXT = "text"
    JSON = "json"


def make_printer(log_format: LogFormat) -> Callable[[str], None]:
    """Return a thread-safe function that prints lines to standard output in a format, and flushes them."""
    return print_line if log_format is LogFormat.TEXT else print_document


def print_line(line: str) -> None:
    """Print lines, and flush them, so that a pipe receives them immediately.

    Thread safe, because each call is one write.
    """
    sys.stdout.write(f"{escape_lines(line)}\n")
    sys.stdout.flush()


def print_document(line: str, level: str = "info") -> None:
    """Print lines as one JSON document with `time` (UTC), `level` (info, warning or error) and `message`."""
    sys.stdout.write(f"{make_document(line, level, time.time_ns())}\n")
    sys.stdout.flush()


def make_document(line: str, level: str, now: int) -> str:
    r"""Return lines as JSON. A line that begins with `warning: ` has the level warning. `now` is in ns.

    >>> make_document("warning: a\nb", "info", 1_500_000_000)
    '{"time": "1970-01-01T00:00:01.500Z", "level": "warning", "message": "a\\nb"}'
    """
    if line.startswith(WARNING):
        line, level = line.removeprefix(WARNING), "warning"
    moment = datetime.fromtimestamp(now / 1e9, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return json.dumps({"time": moment, "level": level, "message": line.strip("\n")}, ensure_ascii=True)
