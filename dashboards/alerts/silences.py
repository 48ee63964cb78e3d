"""Silences: a TOML file that may change while a pipeline runs. A silenced alert sends no message.

[[silence]]
rule = "scan"                          # left out: all rules
labels = { srcIP = "10.0.0.5" }        # left out: all labels
from = 2026-11-24T10:00:00Z            # left out: since ever
until = 2026-11-25T10:00:00Z
comment = "penetration test"
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Collection
from dataclasses import field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from capture.lazy_dataclasses import dataclass
from dashboards.alerts.states import Labels
from queries.pipeline.sections import PipelineError, Section


@dataclass(frozen=True, slots=True)
class Silence:
    """Alerts of `rule` (None: all) with these labels send nothing in `[start, end)`, a time of windows in ns."""

    comment: str
    end: int
    start: int | None = None
    rule: str | None = None
    labels: dict[str, str] = field(default_factory=dict)

    def covers(self, rule: str, labels: Labels, time: int) -> bool:
        """Return True if an alert with these labels is silenced at a time."""
        if self.rule not in (None, rule) or not (self.start is None or self.start <= time) or time >= self.end:
            return False
        return all((name, text) in labels for name, text in self.labels.items())


class Silences:
    """The silences of a file. `refresh` reads it again if it has changed."""

    def __init__(self, path: Path | None, rules: Collection[str], say: Callable[[str], None]) -> None:
        """Read the file; None means no silences. Raises PipelineError if it cannot be read."""
        self._path, self._rules, self._say = path, rules, say
        self._identity = self._current_identity()
        self.silences = self._read()

    def refresh(self) -> None:
        """Read a changed file. An invalid one is reported once, and the silences stay as they were."""
        identity = self._current_identity()
        if identity == self._identity:
            return
        self._identity = identity
        try:
            self.silences = self._read()
        except PipelineError as error:
            self._say(f"warning: {error}; the silences stay as they were")

    def covers(self, rule: str, labels: Labels, time: int) -> bool:
        """Return True if a silence covers an alert at a time (ns)."""
        return any(silence.covers(rule, labels, time) for silence in self.silences)

    def _current_identity(self) -> tuple[int, int, int] | None:
        try:
            status = self._path.stat() if self._path is not None else None
        except OSError:
            return None
        return status and (status.st_mtime_ns, status.st_size, status.st_ino)

    def _read(self) -> list[Silence]:
        if self._path is None:
            return []
        try:
            values = tomllib.loads(self._path.read_text("utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise PipelineError(f"{self._path}: cannot be read as silences in TOML: {error}") from error
        try:
            listed = Section("", values, ("silence",)).value("silence", list, [])
            return [self._silence(number, item) for number, item in enumerate(listed, 1)]
        except PipelineError as error:
            raise PipelineError(f"{self._path}: {error}") from error

    def _silence(self, number: int, item: Any) -> Silence:
        key = f"silence[{number}]."
        if not isinstance(item, dict):
            raise PipelineError(f"{key}: got {item!r}, expected a table [[silence]]")
        values = Section(key, item, ("rule", "labels", "from", "until", "comment"))
        comment, rule = values.value("comment", str, ""), values.value("rule", str, "")
        if not comment.strip():
            raise PipelineError(f"{key}comment is missing: expected a reason")
        if rule and rule not in self._rules:
            raise PipelineError(f"{key}rule: got {rule!r}, expected one of: {', '.join(self._rules)}")
        labels = {name: str(text) for name, text in values.value("labels", dict, {}).items()}
        end, start = _time(values, "until"), _time(values, "from")
        if end is None:
            raise PipelineError(f"{key}until is missing: expected a time such as 2026-11-25T10:00:00Z")
        return Silence(comment, end, start, rule or None, labels)


def _time(values: Section, name: str) -> int | None:
    value = values.values.get(name)
    if value is None:
        return None
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise PipelineError(f"{values.prefix}{name}: got {value}, expected a time with zone: 2026-11-25T10:00:00Z")
    delta = value.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return (delta.days * 86_400 + delta.seconds) * 10**9 + delta.microseconds * 1000
