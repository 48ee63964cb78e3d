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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from capture.lazy_dataclasses import dataclass
from dashboards.alerts.states import Labels
from queries.pipeline.sections import PipelineError, Section


@dataclass(frozen=True, slots=True)
class Silence:
    """Alerts of `rule` (None: of all rules) with these labels send nothing in `[start, end)`, packet time in ns."""

    comment: str
    end: int
    start: int | None = None
    rule: str | None = None
    labels: dict[str, str] = field(default_factory=dict)

    def covers(self, rule: str, labels: Labels, time: int) -> bool:
        """Return True if an alert with these labels is silenced at `time` (ns)."""
        is_in_time = (self.start is None or self.start <= time) and time < self.end
        return is_in_time and self.rule in (None, rule) and {*self.labels.items()} <= {*labels}


class Silences:
    """The silences of a file."""

    def __init__(
        self, path: Path | None, labels: Mapping[str, Sequence[str]], print_line: Callable[[str], None]
    ) -> None:
        """Read the file; None means no silences. `labels`: the names of the labels of each rule.

        Raises PipelineError if the file cannot be read or has a wrong value.
        """
        self._path, self._labels, self._print_line = path, labels, print_line
        self._identity = self._current_identity()
        self.silences = self._read()

    def refresh(self) -> None:
        """Read the file again if it has changed. An invalid file is reported once, and changes no silence."""
        identity = self._current_identity()
        if identity == self._identity:
            return
        self._identity = identity
        try:
            self.silences = self._read()
        except PipelineError as error:
            self._print_line(f"warning: {error}; the silences stay as they were")

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
            tables = Section("", values, ("silence",)).value("silence", list, [])
            return [self._parse_silence(number, item) for number, item in enumerate(tables, 1)]
        except PipelineError as error:
            raise PipelineError(f"{self._path}: {error}") from error

    def _parse_silence(self, number: int, value: Any) -> Silence:
        key = f"silence[{number}]."
        if not isinstance(value, dict):
            raise PipelineError(f"silence[{number}]: got {value!r}, expected a table [[silence]]")
        values = Section(key, value, ("rule", "labels", "from", "until", "comment"))
        comment, rule = values.value("comment", str, ""), values.value("rule", str, "")
        if not comment.strip():
            raise PipelineError(f"{key}comment is missing: expected a reason")
        if rule and rule not in self._labels:
            raise PipelineError(f"{key}rule: got {rule!r}, expected a rule of the pipeline: {', '.join(self._labels)}")
        labels = {name: str(text) for name, text in values.value("labels", dict, {}).items()}
        known = self._labels[rule] if rule else [name for names in self._labels.values() for name in names]
        if unknown := [name for name in labels if name not in known]:
            expected = f"labels of {rule or 'the rules'}: {', '.join(dict.fromkeys(known)) or 'none'}"
            raise PipelineError(f"{key}labels: got {unknown[0]!r}, expected {expected}")
        end, start = _parse_time(values, "until"), _parse_time(values, "from")
        if end is None:
            raise PipelineError(f"{key}until is missing: expected a time such as 2026-11-25T10:00:00Z")
        if start is not None and start >= end:
            raise PipelineError(f"{key}until: got a time that is not after `from`, expected a later one")
        return Silence(comment, end, start, rule or None, labels)


def _parse_time(values: Section, name: str) -> int | None:
    value = values.values.get(name)
    if value is None:
        return None
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise PipelineError(f"{values.prefix}{name}: got {value}, expected a time with zone: 2026-11-25T10:00:00Z")
    delta = value.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return (delta.days * 86_400 + delta.seconds) * 10**9 + delta.microseconds * 1000
