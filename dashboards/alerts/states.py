"""The states of a rule's groups: which alerts begin and end as windows close.

A window `[start, end)` says whether the condition was true during `[end - slide, end)`. A group is the set of rows with
equal labels. Windows arrive in the order of their ends; the watermark says that windows up to it have closed, also
those without rows.

    condition rule    true ──► pending ──(true for `hold`)──► firing ──(false for `keep`)──► ended
    absence rule      seen ──(no row for `absent`)──► firing ──(a row, or `keep`)──► ended
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any

from capture.lazy_dataclasses import dataclass
from queries.pipeline.alert_settings import AlertRule

MAX_GROUPS = 10_000
"""Largest number of groups of a rule that are pending, firing, or watched for absence."""

Labels = tuple[tuple[str, str], ...]
"""Names and texts of the labels of a group, in the order of the rule."""


@dataclass(slots=True)
class Group:
    """One group of a rule.

    `since`: the begin of the time in which the condition has been true, in ns. `last`: the end of the last window in
    which it was true. `fired`: the time at which the alert began, or None. `details`: the window and rows of evidence.
    """

    labels: Labels
    since: int
    last: int
    fired: int | None = None
    announced: bool = False
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Window:
    """The matching groups of a closed window that ends at `end` (ns): the details of each group by its labels."""

    end: int
    matches: Mapping[Labels, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Change:
    """An alert that began (`ended` is None) or that ended at this time, in ns, and its details at this time."""

    group: Group
    ended: int | None
    details: dict[str, Any]

    @classmethod
    def of(cls, group: Group, ended: int | None = None) -> Change:
        """Return a change with the details of the group."""
        return cls(group, ended, group.details)


class RuleStates:
    """The groups of one rule. `slide`: time between two windows, ns. State is kept in `groups`, by labels."""

    def __init__(self, rule: AlertRule, slide: int, most: int = MAX_GROUPS) -> None:
        self.rule, self.slide, self._most = rule, slide, most
        self.groups: dict[Labels, Group] = {}
        self.time: int | None = None
        """The time up to which windows have been examined, in ns."""
        self.dropped = 0
        """Number of groups that were not followed, because there were too many."""
        self.changed: set[Labels] = set()
        """Groups that have changed since the caller cleared the set; those not in `groups` were removed."""

    def add(self, windows: Iterable[Window], watermark: int | None) -> list[Change]:
        """Examine closed windows in the order of their ends, then all windows up to the watermark.

        A window whose end was examined before is added to the groups, but ends no alert.
        """
        changes: list[Change] = []
        for window in windows:
            changes += self._pass(window.end - self.slide)
            for labels, details in window.matches.items():
                changes += self._match(labels, window.end, details)
            changes += self._pass(window.end)
        if watermark is not None:
            changes += self._pass(watermark)
        return changes

    def _match(self, labels: Labels, end: int, details: dict[str, Any]) -> list[Change]:
        group = self.groups.get(labels)
        changes = []
        if group is None:
            if len(self.groups) >= self._most:
                self.dropped += 1
                return []
            group = self.groups[labels] = Group(labels, end - self.slide, end)
        elif end <= group.last:
            return []
        elif self.rule.absent is not None:
            if group.fired is not None:
                changes.append(Change.of(group, end))
            group = self.groups[labels] = Group(labels, end - self.slide, end)
        elif group.last + self.slide < end and group.fired is None:
            group.since = end - self.slide
        group.last, group.details = end, details
        self.changed.add(labels)
        if self.rule.absent is None and group.fired is None and end - group.since >= self.rule.hold:
            group.fired = end
            changes.append(Change.of(group))
        return changes

    def _pass(self, time: int) -> list[Change]:
        """End and begin alerts, knowing that all windows up to `time` have closed."""
        if self.time is not None and time <= self.time:
            return []
        is_first, self.time = self.time is None, time
        if self.rule.absent is None:
            return self._end_false(time)
        if is_first and self.rule.labels == () and () not in self.groups:
            # The group of all rows exists before its first row.
            self.groups[()] = Group((), time, time)
            self.changed.add(())
        return self._find_absent(time, self.rule.absent)

    def _end_false(self, time: int) -> list[Change]:
        changes = []
        for labels, group in list(self.groups.items()):
            false_from = group.last + self.slide  # the end of the first window without the group
            if time < false_from or (group.fired is not None and time < group.last + max(self.slide, self.rule.keep)):
                continue
            del self.groups[labels]
            self.changed.add(labels)
            if group.fired is not None:
                changes.append(Change.of(group, max(group.last + self.rule.keep, false_from)))
        return changes

    def _find_absent(self, time: int, absent: int) -> list[Change]:
        changes = []
        for labels, group in list(self.groups.items()):
            if group.fired is None and time >= group.last + absent:
                group.fired = group.last + absent
                self.changed.add(labels)
                changes.append(Change.of(group))
            if labels and group.fired is not None and time >= group.fired + self.rule.keep:
                del self.groups[labels]
                self.changed.add(labels)
                changes.append(Change.of(group, group.fired + self.rule.keep))
        return changes


def identity(rule: str, labels: Labels) -> str:
    """Return the ID of an alert: the same for the same rule and labels, in every process.

    >>> identity("scan", (("srcIP", "10.0.0.1"),))
    '7b7b7d5c21ec1ec1'
    """
    text = json.dumps([rule, sorted(labels)], ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
