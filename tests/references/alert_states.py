"""A slow reference of the states of alerts: it examines every window of every group, and counts windows.

It has no code in common with `dashboards.alerts.states`. It detects an alert that begins or ends at a wrong window:
over gaps without rows, over jumps of the watermark, after a restart, for times that are no multiples of the slide.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from fractions import Fraction
from math import ceil

Labels = tuple[tuple[str, str], ...]

Alert = tuple[Labels, int, int | None, str]
"""Labels, begin, end (None: it is firing), and the reason of the end, or of the begin without an end."""


def condition_alerts(
    windows: Mapping[int, Collection[Labels]], ends: Sequence[int], hold: int, keep: int
) -> list[Alert]:
    """Return the alerts of a condition rule.

    `windows`: the labels of the matching rows by the end of their window. `ends`: the ends of all windows that have
    closed, without gaps.
    """
    slide = ends[1] - ends[0] if len(ends) > 1 else 1
    needed, allowed = max(1, ceil(Fraction(hold, slide))), max(1, ceil(Fraction(keep, slide)))
    alerts: list[Alert] = []
    for labels in {labels for matching in windows.values() for labels in matching}:
        began, true_windows, false_windows = None, 0, 0
        for end in ends:
            is_true = labels in windows.get(end, ())
            true_windows = true_windows + 1 if is_true else 0
            false_windows = 0 if is_true else false_windows + 1
            if began is None and true_windows == needed:
                began = end
            if began is not None and false_windows == allowed:
                alerts.append((labels, began, end, "false"))
                began = None
        if began is not None:
            alerts.append((labels, began, None, "true"))
    return sorted(alerts, key=_order)


def absence_alerts(
    windows: Mapping[int, Collection[Labels]],
    ends: Sequence[int],
    absent: int,
    keep: int,
    watched_from: int | None = None,
) -> list[Alert]:
    """Return the alerts of an absence rule.

    `watched_from`: the end of the window after which the group of all rows is watched; None for groups with labels,
    which are watched after their first row, and forgotten.
    """
    slide = ends[1] - ends[0] if len(ends) > 1 else 1
    allowed, forgotten = ceil(Fraction(absent, slide)), max(1, ceil(Fraction(keep, slide)))
    alerts: list[Alert] = []
    every = {labels for matching in windows.values() for labels in matching}
    for labels in every if watched_from is None else every | {()}:
        began: int | None = None
        missing: int | None = None  # the number of windows without a row; None: the group is not watched
        for end in ends:
            if labels in windows.get(end, ()):
                if began is not None:
                    alerts.append((labels, began, end, "returned"))
                began, missing = None, 0
            elif end == watched_from:
                missing = 0
            elif missing is not None:
                missing += 1
                if missing == allowed:
                    began = end
                if labels and began is not None and missing == allowed + forgotten:
                    alerts.append((labels, began, end, "forgotten"))
                    began = missing = None
        if began is not None:
            alerts.append((labels, began, None, "absent"))
    return sorted(alerts, key=_order)


def _order(alert: Alert) -> tuple[int, Labels]:
    return alert[1], alert[0]
