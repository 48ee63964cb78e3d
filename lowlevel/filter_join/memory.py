"""What one filter join remembers of one stream of rows: keys and when each was last seen, in fixed memory.

Exact as long as no key was given up: then a row has seen a key if, and only if, a row that came before it told it with
a time not below its own less the duration. A key may be given up where more than WAYS keys meet in a bucket; the oldest
of them is. `alive` counts those that were within the duration of the newest time then: each may be missed by
rows to come, which then take as unseen what was seen, never the other way about. `over` counts those that were not:
only a row that comes late can miss them.
"""

from __future__ import annotations

import numpy as np

from lowlevel.conditions import Condition
from lowlevel.expressions import Binary, Expression
from lowlevel.filter_join.kernels import AHEAD, ALIVE, EMPTY, HELD, NEWEST, OVER, TALLIES, WAYS, recall
from lowlevel.filter_join.keys import key_words, words_of
from lowlevel.filter_join.seen_within import SeenWithin
from lowlevel.operations import Op
from lowlevel.vectors import Columns, Vector

KEYS = 1 << 18
"""Keys that are kept of each filter join on a link, at most."""


class Memory:
    """Remembers for one `seen_within`. Not thread safe."""

    def __init__(self, join: SeenWithin, keys: int = KEYS) -> None:
        """Make room for `keys` keys, a power of two and at least WAYS."""
        self.join = join
        pairs = list(_pairs(join.matches))
        self.asked = [one for one, _ in pairs]
        self.told = [other for _, other in pairs]
        self.condition = None if join.condition is None else Condition(join.condition)
        self.width = 1 + words_of(self.asked)
        self.mask = keys // WAYS - 1
        self.entries = np.zeros(keys * self.width, np.int64)
        self.entries[:: self.width] = EMPTY
        self.homes = np.zeros(2 * AHEAD, np.int64)
        self.tally = np.zeros(TALLIES, np.int64)
        self.tally[NEWEST] = EMPTY

    @property
    def held(self) -> int:
        """Keys that are remembered."""
        return int(self.tally[HELD])

    @property
    def alive(self) -> int:
        """Keys that were given up and might have been asked for."""
        return int(self.tally[ALIVE])

    @property
    def over(self) -> int:
        """Keys that were given up, and that only late rows could have asked for."""
        return int(self.tally[OVER])

    @property
    def bytes(self) -> int:
        """Memory held."""
        return self.entries.nbytes

    def recall(self, columns: Columns, rows: int) -> Vector:
        """Return which of the next rows have seen their key, NULL where a part of it is; and remember theirs."""
        times = columns["ts"]
        assert isinstance(times, Vector)
        asked, ask = key_words(self.asked, columns, rows)
        told, tell = key_words(self.told, columns, rows)
        if self.condition is not None:
            tell &= self.condition.true_rows(columns, rows)
        seen = np.empty(rows, np.bool_)
        recall(
            *(self.entries, self.mask, self.width, asked.reshape(-1), ask.view(np.uint8), told.reshape(-1)),
            *(tell.view(np.uint8), np.ascontiguousarray(times.data), rows, self.join.duration, self.homes),
            *(seen.view(np.uint8), self.tally),
        )
        return Vector(seen, None if ask.all() else ask)


def bytes_of(join: SeenWithin) -> int:
    """Return the memory that a `seen_within` takes on a link."""
    return 8 * KEYS * (1 + words_of([one for one, _ in _pairs(join.matches)]))


def _pairs(matches: Expression) -> list[tuple[Expression, Expression]]:
    """Return what is to be equal: of the row that asks, and of the one before."""
    assert isinstance(matches, Binary)
    if matches.op is Op.AND:
        return _pairs(matches.left) + _pairs(matches.right)
    return [(matches.left, matches.right)]
