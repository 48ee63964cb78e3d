"""Changes of the arrival order of rows. The times of rows do not change, only their arrivals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

import numpy as np

from capture.errors import InputError
from capture.lazy_dataclasses import dataclass
from highlevel.compare.recording import Numbers, Recording, first_arrival

EXPORT_DIVISOR = 6
"""The rows of a block arrive within (block length / EXPORT_DIVISOR) after its end, for example 10 s for one minute."""


@dataclass(frozen=True)
class Injection:
    """Delays of arrivals. All times are in ns, 0 for no delay.

    `skews`: delay of each link. `lulls`: idle times of a link, (start after the first arrival, length). `disorder`:
    maximum random delay of a row. `block`: length of blocks whose rows arrive together, after the end of the block.
    """

    skews: Mapping[str, int] = field(default_factory=dict)
    lulls: Mapping[str, Sequence[tuple[int, int]]] = field(default_factory=dict)
    disorder: int = 0
    block: int = 0
    seed: int = 1

    def apply(self, recordings: Sequence[Recording]) -> list[Numbers]:
        """Return the new arrival times of the rows of each recording. Raise InputError for an unknown link.

        The order is: blocks, delay of each row, skew of its link, idle times. So an idle time delays all rows that
        would arrive in it.
        """
        links = {recording.link.lower() for recording in recordings}
        for name in (*self.skews, *self.lulls):
            if name.lower() not in links:
                raise InputError(f"unknown link {name}; links are {', '.join(sorted(links))}")
        skews = {name.lower(): skew for name, skew in self.skews.items()}
        lulls = {name.lower(): lull for name, lull in self.lulls.items()}
        first = first_arrival(recordings)
        arrivals_of_links = []
        for index, recording in enumerate(recordings):
            random = np.random.default_rng([self.seed, index])
            arrivals = recording.arrivals.copy()
            if self.block:
                ends = (arrivals // self.block + 1) * self.block
                arrivals = ends + random.integers(max(1, self.block // EXPORT_DIVISOR), size=len(arrivals))
            if self.disorder:
                arrivals += random.integers(self.disorder + 1, size=len(arrivals))
            arrivals += skews.get(recording.link.lower(), 0)
            for start, length in lulls.get(recording.link.lower(), ()):
                is_in_lull = (arrivals >= first + start) & (arrivals < first + start + length)
                arrivals[is_in_lull] = first + start + length
            arrivals_of_links.append(arrivals)
        return arrivals_of_links
