"""Select the groups of a query that have separate series, so that the selection rarely changes.

If only the values of the current window counted, the smallest selected groups would change in almost every window.
Two groups of nearly equal size would alternate, and both series would have gaps. So a group keeps its series until
another group is clearly larger over several windows.

* The **score** of a group is the sum of its values over all windows. Each new window multiplies earlier scores by
  DECAY, so about the last ten windows matter.
* A group without a series replaces the shown group with the smallest score if its own score is MARGIN times larger. If
  the shown group has no row in the window, any larger score is enough.
* Scores are stored for at most `size` shown groups, and for the `2 * size` other groups with the largest scores.

The values of a window do not depend on the selection: groups without series are part of `other`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from math import inf, isnan

DECAY = 0.9
MARGIN = 1.2

MAX_SCORE_VALUE = 1e300
"""Values are limited to this in a score, so that an infinite value also decays."""


class StableGroups:
    """The shown groups of one query, at most `size`. Not thread safe."""

    def __init__(self, size: int) -> None:
        """Begin without groups."""
        self.size = size
        self.shown: tuple[Hashable, ...] = ()
        self._scores: dict[Hashable, float] = {}
        self._time: int | None = None
        self._before: tuple[tuple[Hashable, ...], dict[Hashable, float]] = ((), {})

    @property
    def candidates(self) -> int:
        """The number of largest groups of a window that `update` needs, in addition to the shown groups."""
        return 2 * self.size

    def update(self, time: int, values: Mapping[Hashable, float | None]) -> tuple[Hashable, ...]:
        """Add a window, and return the groups to show.

        `values` contains the shown groups that are in the window, and the `candidates` largest groups, the largest
        first. NULL and NaN are less than all numbers. `time` is the end of the window. A call with the same `time` as
        the last call replaces the last call. If `time` is earlier, because another scrape was faster, the state does
        not change. The result is then the shown groups that are in the window, and the largest other groups.
        """
        if self._time is not None and time < self._time:
            present = [group for group in self.shown if group in values]
            others = [group for group in values if group not in self.shown]
            return tuple([*present, *others][: self.size])
        if time == self._time:
            self.shown, scores = self._before
        else:
            scores = self._scores
        self._time, self._before = time, (self.shown, scores)
        scores = {group: score * DECAY for group, score in scores.items()}
        for group, value in values.items():
            score = scores.setdefault(group, -inf)
            if value is not None and not isnan(value):
                number = max(-MAX_SCORE_VALUE, min(value, MAX_SCORE_VALUE))
                scores[group] = number if score == -inf else score + number
        ranked = sorted(scores, key=lambda group: -scores[group])  # stable: equal scores keep the order of `values`
        shown = list(self.shown)
        others = [group for group in ranked if group not in shown]
        while others and len(shown) < self.size:
            shown.append(others.pop(0))
        while others and shown:
            smallest = min(shown, key=lambda group: scores[group])
            margin = (MARGIN - 1) * abs(scores[smallest]) if smallest in values and scores[smallest] > -inf else 0.0
            if not scores[others[0]] > scores[smallest] + margin:
                break
            shown[shown.index(smallest)] = others.pop(0)
        kept = {*shown, *others[: self.candidates]}
        self._scores = {group: score for group, score in scores.items() if group in kept}
        self.shown = tuple(shown)
        return self.shown
