"""How far the links of a query have come, as gauges."""

from __future__ import annotations

from collections.abc import Iterable

from capture.metrics import Samples
from capture.units import SECOND
from highlevel.metrics import LOW_WATERMARK, PUNCTUATION_LAG
from lowlevel.punctuation import BEGINNING, END


def set_progress(samples: Samples, query: str, bounds: Iterable[tuple[str, int]], newest: int) -> None:
    """Set the gauges of each link to the smallest of its `bounds`, (link, ns); of one without or at its end, to none.

    `newest` is the largest time seen on any link, ns.
    """
    lows: dict[str, int] = {}
    for link, bound in bounds:
        lows[link] = min(bound, lows.get(link, END))
    for link, low in lows.items():
        samples.pop((LOW_WATERMARK.name, (query, link)), None)
        samples.pop((PUNCTUATION_LAG.name, (query, link)), None)
        if low not in (BEGINNING, END):
            samples.set(LOW_WATERMARK, low / SECOND, query, link)
            samples.set(PUNCTUATION_LAG, max(0, newest - low) / SECOND, query, link)
