"""ArcPlaces: adds and removes arcs in the arrays of a compiled automaton, without a new compilation.

    arcs        a  b  .  .  .  c  .  .  .      the places of two states; kernels do not read the unused ones
                ▲     ▲        ▲  ▲
      first_arcs      end_arcs

A new arc uses the first unused place of its state. The last arc of the state moves to the place of an arc that is
removed. So a change costs as much as its arcs, however many other arcs and rows in memory there are.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from highlevel.patterns.automaton import Arc

TARGET, BEGIN, END_TIME, CONDITION, FENCE, FENCE_END, TRANSFER, TRANSFER_END, KEY, ARC_WORDS = range(10)
"""Words of an arc: its target, its lifetime, its condition or NO_INDEX, its instructions, and its key in a key
group."""

SPARE_ARCS = 8
"""A state with n arcs has n + SPARE_ARCS unused places for new arcs."""


class ArcPlaces:
    """The arcs without a key of an automaton, each at a place in its arrays."""

    def __init__(
        self,
        words: npt.NDArray[np.int64],
        first_arcs: npt.NDArray[np.int64],
        end_arcs: npt.NDArray[np.int64],
        arcs: Iterable[tuple[Arc, int]],
    ) -> None:
        """Change the arrays `words` (`[places, ARC_WORDS]`) and `end_arcs`. `arcs`: each arc with its place.

        The places of the state s are `[first_arcs[s], first_arcs[s + 1])`, those in use end at `end_arcs[s]`.
        """
        self._words = words
        self._end_arcs = end_arcs
        bounds = first_arcs.tolist()
        self._limits, self._ends = bounds[1:], end_arcs.tolist()
        self._sources = np.repeat(np.arange(len(end_arcs)), np.diff(first_arcs)).tolist()
        self._arcs: list[Arc | None] = [None] * len(self._sources)
        self._places: dict[int, int] = {}
        """The place of each arc by its identity."""
        for arc, place in arcs:
            self._arcs[place], self._places[id(arc)] = arc, place

    def remove(self, arc: Arc) -> bool:
        """Remove an arc. Return False for an unknown arc."""
        place = self._places.pop(id(arc), None)
        if place is None:
            return False
        source = self._sources[place]
        self._ends[source] = last = self._ends[source] - 1
        if place != last:
            self._words[place], moved = self._words[last], self._arcs[last]
            self._arcs[place], self._places[id(moved)] = moved, place
        self._arcs[last] = None
        self._end_arcs[source] = last
        return True

    def add(self, arc: Arc, source: int, words: npt.NDArray[np.int64]) -> bool:
        """Add an arc. Return False if there is no room.

        `source`: the number of its state. `words`: its words; the times among them are replaced by those of the arc.
        """
        place = self._ends[source]
        if place == self._limits[source]:
            return False
        self._words[place] = words
        self._words[place, BEGIN], self._words[place, END_TIME] = arc.begin, arc.end
        self._arcs[place], self._places[id(arc)] = arc, place
        self._ends[source] = self._end_arcs[source] = place + 1
        return True
