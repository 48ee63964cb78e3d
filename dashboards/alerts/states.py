"""The states of a rule's groups: which alerts begin and end as windows close.

Windows of a query end at `origin + k * slide`. The window that ends at `e` decides whether the condition is true in
`[e - slide, e)`, its last slide. The condition is true for a group if a row with the labels of the group satisfies it.
So all times of alerts are ends of windows, and the times of a rule are rounded up to slides.

    condition rule    true ──► pending ──(true for `hold`)──► firing ──(false for `keep`)──► ended
    absence rule      watched ──(no row for `absent`)──► firing ──(a row, or `keep`)──► ended

The states depend only on the rows of the closed windows, not on the division into micro-batches. One exception: the
group of all rows of an absence rule is watched from the first window or watermark that is examined.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from enum import StrEnum
from typing import Any

from capture.lazy_dataclasses import dataclass
from lowlevel.punctuation import END
from queries.pipeline.alert_settings import AlertRule

MAX_GROUPS = 10_000
"""Maximum number of groups of a rule that are pending, firing, or watched for absence."""

Labels = tuple[tuple[str, str], ...]
"""Names and texts of the labels of a group, in the order of the rule."""


class Reason(StrEnum):
    """Why an alert began or ended."""

    TRUE = "true"
    """Rows satisfied the condition."""
    ABSENT = "absent"
    """No row satisfied the condition."""
    FALSE = "false"
    """Rows do not satisfy the condition any more."""
    RETURNED = "returned"
    """Rows satisfy the condition again."""
    FORGOTTEN = "forgotten"
    """An absent group was absent for the time `keep`."""
    WITHDRAWN = "withdrawn"
    """Corrections removed the rows that satisfied the condition."""
    RULE_CHANGED = "rule changed"
    """The rule was removed, or has another query or other labels."""


@dataclass(frozen=True, slots=True)
class Group:
    """One group of a rule. Times are in ns.

    `since`: the time since which the condition has been true; for an absence rule, the time since which no row matched.
    `last`: the end of the last window with a matching row. `began`: the time at which the alert began, or None.
    `details`: the bounds and rows of the last window with a matching row.
    """

    labels: Labels
    since: int
    last: int
    began: int | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Window:
    """The matching groups of a closed window that ends at `end` (ns): the details of each group by its labels."""

    end: int
    matches: Mapping[Labels, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Change:
    """An alert that began, or that ended at the time `ended`, in ns. `group` has its state before the end."""

    group: Group
    reason: Reason
    ended: int | None = None

    @property
    def time(self) -> int:
        """The time of the change in ns."""
        assert self.group.began is not None, "a change belongs to an alert that has begun"
        return self.group.began if self.ended is None else self.ended


class RuleStates:
    """The groups of one rule, by labels. `slide` (ns): the time between the ends of two windows.

    `origin` (ns): the end of one window.
    """

    def __init__(self, rule: AlertRule, slide: int, origin: int = 0, limit: int = MAX_GROUPS) -> None:
        self._rule, self._slide, self._origin, self._limit = rule, slide, origin, limit
        self._hold = rule.hold
        self._keep = max(slide, self._round_up(rule.keep))
        self._absent = None if rule.absent is None else self._round_up(rule.absent)
        self._is_single = rule.labels == ()
        self.groups: dict[Labels, Group] = {}
        self.time: int | None = None
        """The end (ns) of the last window that was examined."""
        self.dropped = 0
        """Number of matching groups that were ignored, because there were MAX_GROUPS groups."""
        self.changed: set[Labels] = set()
        """Groups that have changed since the caller cleared the set. A changed group that is not in `groups` was
        removed."""

    def copy(self) -> RuleStates:
        """Return states that can change independently. Groups are immutable."""
        other = RuleStates(self._rule, self._slide, self._origin, self._limit)
        other.groups, other.time = dict(self.groups), self.time
        return other

    def add(self, windows: Iterable[Window], watermark: int | None, newest: int = END) -> list[Change]:
        """Examine closed windows in the order of their ends, then all windows that end by the watermark (ns).

        A window is ignored if a window with the same or a later end was examined before. A window that ends after
        `newest` (ns) has not ended. A group without a matching row in this window may still get a row, so no alert ends
        in this window.
        """
        changes: list[Change] = []
        for window in windows:
            if self.time is not None and window.end <= self.time:
                continue
            changes += self._advance(window.end - self._slide)
            known = [labels for labels in window.matches if labels in self.groups]
            for labels in known:
                changes += self._match(labels, window.end, window.matches[labels])
            if window.end <= newest:
                changes += self._advance(window.end)  # before new groups, because it makes room for them
            for labels, details in window.matches.items():
                if labels not in self.groups:
                    changes += self._match(labels, window.end, details)
        if watermark is not None:
            changes += self._advance(watermark - (watermark - self._origin) % self._slide)
        return changes

    def _round_up(self, time: int) -> int:
        return -(-time // self._slide) * self._slide

    def _match(self, labels: Labels, end: int, details: Mapping[str, Any]) -> list[Change]:
        """Examine the rows of a group in the window that ends at `end`."""
        group = self.groups.get(labels)
        if group is None and len(self.groups) >= self._limit:
            self.dropped += 1
            return []
        changes = []
        if self._absent is not None:
            if group is not None and group.began is not None:
                changes.append(Change(group, Reason.RETURNED, end))
            group = Group(labels, end, end, None, details)
        else:
            group = group or Group(labels, end - self._slide, end)
            group = replace(group, last=end, details=details)
            if group.began is None and end - group.since >= self._hold:
                group = replace(group, began=end)
                changes.append(Change(group, Reason.TRUE))
        self._set(group)
        return changes

    def _advance(self, time: int) -> list[Change]:
        """Begin and end alerts. All windows that end by `time` (ns) have closed."""
        if self.time is not None and time <= self.time:
            return []
        is_first, self.time = self.time is None, time
        if self._absent is None:
            return self._end_false(time)
        if is_first and self._is_single:
            self._set(Group((), time, time))  # the group of all rows exists before its first row
        return self._find_absent(time, self._absent)

    def _end_false(self, time: int) -> list[Change]:
        changes = []
        for group in list(self.groups.values()):
            if group.began is None and time > group.last:
                self._remove(group)
            elif group.began is not None and time >= group.last + self._keep:
                self._remove(group)
                changes.append(Change(group, Reason.FALSE, group.last + self._keep))
        return changes

    def _find_absent(self, time: int, absent: int) -> list[Change]:
        changes = []
        for watched in list(self.groups.values()):
            group = watched
            if group.began is None and time >= group.last + absent:
                group = replace(group, began=group.last + absent)
                self._set(group)
                changes.append(Change(group, Reason.ABSENT))
            if group.labels and group.began is not None and time >= group.began + self._keep:
                self._remove(group)
                changes.append(Change(group, Reason.FORGOTTEN, group.began + self._keep))
        return changes

    def _set(self, group: Group) -> None:
        self.groups[group.labels] = group
        self.changed.add(group.labels)

    def _remove(self, group: Group) -> None:
        del self.groups[group.labels]
        self.changed.add(group.labels)


def alert_id(rule: str, labels: Labels) -> str:
    """Return the ID of an alert. It depends only on the rule and the labels.

    >>> alert_id("scan", (("srcIP", "10.0.0.1"),))
    '5cda1e63cd98c2a1'
    """
    text = json.dumps([rule, sorted(labels)], ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
