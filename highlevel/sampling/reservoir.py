"""Reservoir sampling: `size` groups of each supergroup, all with equal probability.

Each row draws a random ticket. The sample is the `size` groups with the smallest tickets of all rows (bottom-k; Fan,
Muller and Rezucha, JASA 1962). It is uniform, because the tickets are independent of the rows.

A row is a candidate if its ticket is at most `limit`: the ticket with the rank `size` among the groups at the last
cleaning. The limit only decreases, so a row above it cannot belong to the final sample. So neither the limit nor the
times of cleanings change the result. As in Vitter's algorithms (TOMS 1985), row t is a candidate with probability about
size/t, so n rows have about size * (1 + ln(n/size)) candidates.
"""

from __future__ import annotations

from typing import Self

import numpy as np

from capture.lazy_dataclasses import dataclass
from highlevel.sampling.state import Numbers, SampleState, random_hashes
from lowlevel.expressions.columns import Mask

TOLERANCE = 2
"""Cleaning is due if there are more than TOLERANCE times `size` groups."""

TICKETS = 0
"""The purpose of the random numbers, see `random_hashes`."""


@dataclass
class ReservoirState(SampleState):
    """The state of rsample, rsdo_clean, rsclean_with and rsfinal_clean."""

    limit: int = 2**63 - 1

    @classmethod
    def start_window(cls, size: int, seed: int, previous: Self | None) -> Self:  # noqa: ARG003 - windows are independent
        """Return a state without a limit."""
        return cls(size, seed)

    def admit(self, weights: Numbers | None, count: int) -> tuple[Mask, Numbers]:
        """Admit rows with a ticket up to the limit."""
        tickets = np.asarray(random_hashes(self.seed, TICKETS, self.rows, count).data)
        return tickets <= self.limit, tickets

    def is_due(self, group_counts: Numbers) -> Mask:
        """Return a mask of the numbers of groups above TOLERANCE times `size`."""
        return np.asarray(group_counts > TOLERANCE * self.size)

    def clean(self, weights_or_tickets: Numbers) -> Mask:
        """Return a mask of the groups with the smallest tickets, and lower the limit."""
        kept = self.finish(weights_or_tickets)
        if len(weights_or_tickets) >= self.size:
            self.limit = int(weights_or_tickets[kept].max())
        return kept

    def finish(self, weights_or_tickets: Numbers) -> Mask:
        """Return a mask of the `size` groups with the smallest tickets."""
        kept = np.zeros(len(weights_or_tickets), np.bool_)
        kept[np.argsort(weights_or_tickets, kind="stable")[: self.size]] = True
        return kept
