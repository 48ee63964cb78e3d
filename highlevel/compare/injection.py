"""What is done to the order in which rows arrive. Times of rows stay what they are; only when they come changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from capture.errors import InputError
from highlevel.compare.recording import Numbers, Recording, first_arrival

EXPORT = 6
"""Rows of a block come within this part of its length behind its end: those of a minute in 10 s."""


@dataclass(frozen=True)
class Injection:
    """Delays of arrival, ns: of links by name, of links for a while, of single rows, and of whole blocks."""

    skews: Mapping[str, int] = field(default_factory=dict)
    lulls: Mapping[str, Sequence[tuple[int, int]]] = field(default_factory=dict)
    disorder: int = 0
    block: int = 0
    seed: int = 1

    def apply(self, recordings: Sequence[Recording]) -> list[Numbers]:
        """Return when the rows of each recording arrive now. Raises InputError for a link that there is none of.

        Blocks come first, then the delay of each row, then the skew of its link, then lulls: so a lull holds back what
        would arrive in it, whatever delayed that.
        """
        links = {each.link.lower() for each in recordings}
        for name in (*self.skews, *self.lulls):
            if name.lower() not in links:
                raise InputError(f"no link is called {name}; there are {', '.join(sorted(links))}")
        skews = {name.lower(): skew for name, skew in self.skews.items()}
        lulls = {name.lower(): lull for name, lull in self.lulls.items()}
        begin = first_arrival(recordings)
        found = []
        for number, each in enumerate(recordings):
            random = np.random.default_rng([self.seed, number])
            arrivals = each.arrivals.copy()
            if self.block:
                ends = (arrivals // self.block + 1) * self.block
                arrivals = ends + random.integers(max(1, self.block // EXPORT), size=len(arrivals))
            if self.disorder:
                arrivals += random.integers(self.disorder + 1, size=len(arrivals))
            arrivals += skews.get(each.link.lower(), 0)
            for start, length in lulls.get(each.link.lower(), ()):
                held = (arrivals >= begin + start) & (arrivals < begin + start + length)
                arrivals[held] = begin + start + length
            found.append(arrivals)
        return found
