"""How many slots each table gets where many exist at once: their memory shall not grow with the number of inputs."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from threading import Lock

TABLES_IN_FULL = 4
"""Lanes that have tables at the same time before these are made smaller."""

FEWEST_SLOTS = 1024


def most_at_once(spans: Iterable[tuple[int, int]]) -> int:
    """How many of the spans of time, first and last instant, overlap at most: so many lanes have tables at once."""
    edges = [edge for first, last in spans for edge in ((first, 1), (last + 1, -1))]
    return max(itertools.accumulate(step for _, step in sorted(edges)), default=0)


def shared_slots(slots: int, lanes: int) -> int:
    """Slots of each table where `lanes` lanes have tables at once: the memory of TABLES_IN_FULL whole ones, shared."""
    while lanes > TABLES_IN_FULL and slots > FEWEST_SLOTS:
        slots //= 2
        lanes = (lanes + 1) // 2
    return slots


class TableShares:
    """Says how large the tables of each lane are, as lanes begin and end; any threads may call it.

    Lanes whose overlap is known beforehand (`expected`) share the memory of TABLES_IN_FULL whole tables. Of others,
    which begin when they do, the first TABLES_IN_FULL have whole ones, as many more have halves, twice as many
    quarters, and so on: whenever their number doubles, half the memory of the whole ones is added.
    """

    def __init__(self, slots: int) -> None:
        """Give whole tables `slots` slots."""
        self.slots = slots
        self.expected = 0
        self._open = 0
        self._lock = Lock()

    def take(self) -> int:
        """Begin a lane; returns the slots of each of its tables."""
        with self._lock:
            self._open += 1
            return shared_slots(self.slots, max(self.expected, self._open))

    def give(self) -> None:
        """End a lane that had begun."""
        with self._lock:
            self._open -= 1
