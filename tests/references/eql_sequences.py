"""Sequences of EQL by their definition: at most one open sequence of a key in each state, and a newer one replaces it.

The rows of a key are sets of events (numbers from 1 on, `UNTIL`, or texts for missing events) with their times.
"""

from collections.abc import Sequence
from dataclasses import dataclass

UNTIL = "until"
Row = tuple[int, frozenset[int | str]]
"""Time, and the events that the row is."""


@dataclass(frozen=True)
class Rule:
    """`events`: number of events. `span`: longest time from the first to the last.

    `before`, `between`, `after`: whether the event `before`, … must be missing there; `between` needs two events.
    """

    events: int
    span: int | None = None
    before: bool = False
    between: bool = False
    after: bool = False


def sequences(rule: Rule, rows: Sequence[Row]) -> list[tuple[int, ...]]:
    """Return the times of the rows of each match, in the order of their last rows. Times ascend."""
    open_in: dict[int, tuple[int, ...]] = {}
    found = []
    for time, events in rows:
        if UNTIL in events:
            open_in.clear()
        for state, times in list(open_in.items()):
            if rule.span is not None and time - times[0] > rule.span:
                del open_in[state]
        if rule.events == 1 and 1 in events:
            found.append((time,))
            continue
        for state in range(rule.events, 0, -1):  # a row is at most one event of each sequence
            if state in events and (state == 1 or state - 1 in open_in):
                times = (*(() if state == 1 else open_in.pop(state - 1)), time)
                if state == rule.events:
                    found.append(times)
                else:
                    open_in[state] = times
            elif rule.between and state == 2 and "between" in events:
                open_in.pop(1, None)
    return [times for times in found if not _happened(rule, rows, times)]


def _happened(rule: Rule, rows: Sequence[Row], times: tuple[int, ...]) -> bool:
    """Return whether an event before or after a match happened that must be missing."""
    for time, events in rows:
        if rule.before and "before" in events and times[-1] - (rule.span or 0) <= time < times[0]:
            return True
        if rule.after and "after" in events and times[-1] < time <= times[0] + (rule.span or 0):
            return True
    return False
