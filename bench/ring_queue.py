"""A model of the ring buffer between a link and the low level: the largest rate of the link without losses.

    link ──r packets/s──►  [ ring of R packets ]  ──chunks of k──►  low level, s_n seconds for chunk n

While a chunk is processed, r · s_n packets arrive. The packets that wait meanwhile must fit the ring. So one long
flush limits the rate to the size of the ring divided by the time of the flush, even if the processor is idle
otherwise (Li 2008, §8.3.1).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class LossFreeRate:
    """The largest rate without losses (packets/s), and the share of time in which the low level is then busy."""

    rate: float
    utilisation: float


def largest_backlog(services: npt.NDArray[np.float64], chunk: int, rate: float) -> float:
    """Return the maximum number of packets in the ring. `services`: seconds for each `chunk` packets."""
    arrived = rate * services
    grown = np.cumsum(arrived - chunk)
    # If no packets wait, the low level waits, so the backlog is never negative.
    before = np.concatenate(([0.0], grown[:-1] - np.minimum(0.0, np.minimum.accumulate(grown))[:-1]))
    return float(np.max(before + arrived))


def find_loss_free_rate(services: npt.NDArray[np.float64], chunk: int, ring: int) -> LossFreeRate:
    """Find the largest rate at which a ring of `ring` packets never overflows, with an accuracy of a thousandth."""
    if ring < chunk:
        raise ValueError(f"got a ring of {ring} packets, expected at least one chunk of {chunk}")
    low, high = 0.0, chunk / float(services.mean())  # no queue is stable at a higher rate
    while high - low > high / 1000:
        rate = (low + high) / 2
        low, high = (rate, high) if largest_backlog(services, chunk, rate) <= ring else (low, rate)
    return LossFreeRate(low, low * float(services.mean()) / chunk)
