"""The clock of a replay: the newest time on any of its links.

System time says nothing about packets that were recorded last year. In a replay the trace's own time drives the lull
rule: a silent link is behind when the others have gone on without it. Where all are silent, time stands still.
"""

from __future__ import annotations

from threading import Lock

from lowlevel.punctuation import BEGINNING


class TraceClock:
    """Time as the links of a replay tell it; any threads may call it. BEGINNING before the first of them has begun."""

    def __init__(self) -> None:
        """Begin before any row."""
        self._now = BEGINNING
        self._moving = Lock()

    def __call__(self) -> int:
        """Return the time, ns."""
        return self._now

    def advance(self, newest: int) -> None:
        """Take it that a link has come as far as `newest`, a time that its guard believes."""
        with self._moving:
            self._now = max(self._now, newest)
