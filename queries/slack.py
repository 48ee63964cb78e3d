"""What people say of the progress of inputs: how late their rows may be, and when they are silent."""

from __future__ import annotations

from highlevel.inline.engine import EXACT
from lowlevel.durations import parse_duration
from lowlevel.promises.knowledge import parse_lull as parse_threshold
from lowlevel.promises.lull import LullRule, TraceClock

EXACTLY = "exact"
"""The word for: promise nothing before the end, so that nothing can be late."""

TRACE = "trace"
"""The word for: the clock of lulls is that of the other links."""


def parse_slack(text: str) -> int:
    """Return a slack in ns, or EXACT. Raises ValueError for what is neither a duration nor the word `exact`.

    >>> parse_slack("10s"), parse_slack("1.5 minutes"), parse_slack("exact") == EXACT
    (10000000000, 90000000000, True)
    """
    if text.strip().lower() == EXACTLY:
        return EXACT
    try:
        return parse_duration(text)
    except ValueError as error:
        raise ValueError(f"got a slack of {text!r}, {error}, or {EXACTLY}: answer at the end of the input") from error


def parse_lull(text: str) -> LullRule:
    """Return when an input is silent: a duration by the system's clock, or by the trace's with the word `trace` behind.

    Raises ValueError for anything else.

    >>> parse_lull("5s").threshold, type(parse_lull("5s trace").clock).__name__
    (5000000000, 'TraceClock')
    """
    duration, _, last = text.strip().rpartition(" ")
    if last.lower() == TRACE and duration:
        return LullRule(parse_threshold(duration), TraceClock())
    return LullRule(parse_threshold(text))
