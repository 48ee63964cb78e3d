"""Reference implementation of landmark windows."""

from __future__ import annotations

from collections import defaultdict

from highlevel.windows.kind import LandmarkWindow
from tests.references.windows_oracle import Arrival


def kept_groups(window: LandmarkWindow, slides: list[tuple[int, list[Arrival]]]) -> set:
    """Return the groups in the order of their first slide, and of their value within a slide. None is last."""
    kept: set = set()
    for _, rows in slides:
        new = sorted({each.group for each in rows} - kept, key=lambda group: (group is None, group or 0))
        kept |= set(new[: window.cap - len(kept)])
    return kept


def definition(window: LandmarkWindow, arrivals: list[Arrival]) -> set[tuple]:
    """A row for each slide with rows and each group since the origin, from all rows before the end of the slide."""
    by_slide: dict[int, list[Arrival]] = defaultdict(list)
    for each in arrivals:
        if each.ts >= window.origin:
            by_slide[(each.ts - window.origin) // window.slide].append(each)
    found = set()
    for slide in by_slide:
        before = sorted((number, rows) for number, rows in by_slide.items() if number <= slide)
        for group in kept_groups(window, before):
            numbers = [each.number for _, rows in before for each in rows if each.group == group]
            bounds = (window.origin, window.origin + (slide + 1) * window.slide)
            found.add((*bounds, group, len(numbers), sum(numbers), min(numbers), max(numbers)))
    return found
