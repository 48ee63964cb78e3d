"""What a table counts: every packet that it takes in leaves in one of the entries counted here, or is in one still."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class Tally:
    """Counters of one table, or of several together.

    Packets that found their home slot taken by another entry (`collisions`), in a table with tags only those that began
    one. Entries that left: for another group, or
    for the same one in a later pane (`evicted`), because their pane was complete or the input ended (`flushed`), one by
    one beside the packets (`swept`), because their pane was too old or an order asked for it (`forced`). Packets that
    left as partials of their own, being too old or too far ahead (`direct`). `burst` is the most entries that left for
    up to AHEAD packets or for one promise; on an empty poll and at the end nothing waits for them. `resident` entries
    are in the table, of `panes` panes.
    """

    collisions: int = 0
    evicted: int = 0
    flushed: int = 0
    swept: int = 0
    forced: int = 0
    direct: int = 0
    burst: int = 0
    resident: int = 0
    panes: int = 0

    @property
    def left(self) -> int:
        """Partials that have left, in whatever way."""
        return self.evicted + self.flushed + self.swept + self.forced + self.direct


def together(tallies: Iterable[Tally]) -> Tally:
    """Sum up tables; of bursts and of panes the largest counts.

    >>> together([Tally(evicted=1, burst=3), Tally(evicted=2, burst=2)])
    Tally(collisions=0, evicted=3, flushed=0, swept=0, forced=0, direct=0, burst=3, resident=0, panes=0)
    """
    each = list(tallies)
    merged = {}
    for field in fields(Tally):
        values = [getattr(tally, field.name) for tally in each]
        merged[field.name] = max(values, default=0) if field.name in ("burst", "panes") else sum(values)
    return Tally(**merged)
