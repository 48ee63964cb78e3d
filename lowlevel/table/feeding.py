"""Tables fed from finer tables: entries that leave the finer table are rows of the coarser one.

entry of the finer table    pane 17 | srcIP destIP | srcPort destPort protocol | count  bytes
row for the coarser one     pane  2 |              protocol srcIP              |        bytes
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from capture.native import kernel, pointer
from lowlevel.expressions.tree import Expression
from lowlevel.plan import LowLevelPlan
from lowlevel.subaggregates import INT_MAX, Kind, SubAggregate
from lowlevel.table.keys import TILE, KeyLayout
from lowlevel.table.table import Table

# The entries that leave the finer table update the coarser one, instead of the packets.
#
#     finer      GROUP BY srcIP, destIP, srcPort, destPort, protocol   panes of 10 s   updated by every packet
#     coarser    GROUP BY srcIP, destIP                                panes of 60 s   by entries that leave the finer
#     coarsest   GROUP BY destIP                                       panes of 60 s   by entries that leave the coarser
#
# Gigascope's authors feed queries from *phantoms* in the same way (Zhang, Koudas, Ooi, Srivastava 2005). One table can
# feed another if both have the same rows (kind, predicate, sampling), its keys contain the other's keys, the other's
# panes consist of its panes, and it has the other's sub-aggregates. They merge as between the levels: counts by
# addition. If rows are spread over panes, pieces are counted, so the panes must be equal.
#
# A table that packets feed **also keeps a sub-aggregate for another table** (`widened`), up to MOST_KEPT of them: a
# longer entry costs each packet less than a search in one more table.
#
# Tables that are flushed gradually are not fed: an entry that leaves the finer table at the bound would stay in the
# coarser one for the same time again.
#
# Of several possible feeders the one with the fewest keys is used, because the fewest entries leave it. Two plans that
# could feed each other have the same groups: the first one feeds. So no table feeds itself.


ALONE = frozenset({Kind.COUNT, Kind.SUM, Kind.MIN, Kind.MAX})
"""Sub-aggregates that merge without any other word."""

MOST_KEPT = 4
"""Largest number of sub-aggregates of a table that keeps some for another table."""

Word = tuple[Kind, Expression | None]
"""The content of a sub-aggregate, without its name: kind and argument."""


def word_of(sub: SubAggregate) -> Word:
    """Return the content of a sub-aggregate."""
    return sub.kind, sub.argument


def can_feed(finer: LowLevelPlan, coarser: LowLevelPlan) -> bool:
    """Return whether the table of `finer` can feed the table of `coarser`."""
    return has_groups_of(finer, coarser) and lacking(finer, coarser) == []


def has_groups_of(finer: LowLevelPlan, coarser: LowLevelPlan) -> bool:
    """Return whether each group of `coarser` in a pane consists of whole groups of `finer`."""
    if not (finer.reduced and coarser.reduced):
        return False
    if (finer.kind, finer.where, finer.sampling, finer.spread) != (
        coarser.kind, coarser.where, coarser.sampling, coarser.spread,
    ):  # fmt: skip
        return False
    if coarser.pane % finer.pane or (coarser.origin - finer.origin) % finer.pane:
        return False
    if finer.spread and (coarser.pane, coarser.origin) != (finer.pane, finer.origin):
        return False
    return {key.expression for key in coarser.keys} <= {key.expression for key in finer.keys}


def lacking(finer: LowLevelPlan, coarser: LowLevelPlan) -> list[Word] | None:
    """Return the sub-aggregates of `coarser` that `finer` lacks; None if some cannot be merged word by word."""
    kept = {word_of(sub) for sub in finer.subaggregates}
    wanted = dict.fromkeys(word_of(sub) for sub in coarser.subaggregates)
    return None if any(kind not in ALONE for kind, _ in wanted) else [word for word in wanted if word not in kept]


def widened(plans: Sequence[LowLevelPlan]) -> list[LowLevelPlan]:
    """Return the plans, some with additional sub-aggregates for tables that they feed; fewest keys first."""
    wide = list(plans)
    feeder_of = feeders(wide)
    for place in sorted(range(len(wide)), key=lambda place: len(wide[place].keys)):
        if feeder_of[place] is not None:
            continue
        finer = [
            other
            for other, plan in enumerate(wide)
            if other != place and feeder_of[other] is None and _may_keep(plan, wide[place])
        ]
        if finer:
            chosen = min(finer, key=lambda other: _preference(other, wide))
            wide[chosen] = _keeping(wide[chosen], wide[place])
            feeder_of = feeders(wide)
    return wide


def _may_keep(finer: LowLevelPlan, coarser: LowLevelPlan) -> bool:
    """Return whether `finer` should keep what it lacks to feed `coarser`."""
    more = lacking(finer, coarser)
    return more is not None and len(finer.subaggregates) + len(more) <= MOST_KEPT and has_groups_of(finer, coarser)


def _keeping(finer: LowLevelPlan, coarser: LowLevelPlan) -> LowLevelPlan:
    """Return `finer` with the sub-aggregates that it lacks to feed `coarser`."""
    first = len(finer.subaggregates)
    more = [SubAggregate(f"other{number}", *word) for number, word in enumerate(lacking(finer, coarser) or (), first)]
    return replace(finer, subaggregates=(*finer.subaggregates, *more))


def _preference(place: int, plans: Sequence[LowLevelPlan]) -> tuple[int, int, int]:
    """Rank a plan among possible feeders: with few keys and long panes, few entries leave its table."""
    return len(plans[place].keys), -plans[place].pane, place


def feeders(plans: Sequence[LowLevelPlan]) -> list[int | None]:
    """Return for each plan the index of the plan that feeds its table; None if packets do."""
    return [_feeder(place, plans) for place in range(len(plans))]


def _feeder(place: int, plans: Sequence[LowLevelPlan]) -> int | None:
    plan = plans[place]
    finer = [
        other
        for other, candidate in enumerate(plans)
        if can_feed(candidate, plan) and (other < place or not can_feed(plan, candidate))
    ]
    return min(finer, key=lambda other: _preference(other, plans), default=None)


def depth(place: int, feeder_of: Sequence[int | None]) -> int:
    """Return the number of tables between the packets and the table of a plan."""
    feeder = feeder_of[place]
    return 0 if feeder is None else 1 + depth(feeder, feeder_of)


@kernel("i64(i64*, i64, i64, i64, i64, i64*, i64, i64*, i64, i64*, i64*, i64, i64*)")
def project(  # type: ignore[no-untyped-def]
    entries, rows, width, shift, panes_of_one, moves, move_count, taken, taken_count, words, args, capacity, panes
):  # fmt: skip
    """Convert `rows` entries of `width` words into key words, arguments and panes of rows; return the smallest pane.

    * Entry pane p becomes `(p + shift) // panes_of_one`.
    * `moves`: five numbers for each piece of a key: word and shift in the entry, mask of its bits, and word and shift
      in the key. Pieces of one word are in ascending order.
    * `taken`: the words of the entry that become arguments.
    * `words`, `args`: `capacity` columns.
    """
    smallest = np.int64(INT_MAX)
    last = np.int64(0)
    pane = shift // panes_of_one
    begin = np.int64(0)
    while begin < rows:
        end = min(rows, begin + TILE)
        for row in range(begin, end):
            if entries[row * width] != last:
                last = entries[row * width]
                pane = (last + shift) // panes_of_one
            panes[row] = pane
            smallest = min(smallest, pane)
        for move in range(move_count):
            word = moves[5 * move]
            down = np.uint64(moves[5 * move + 1])
            mask = np.uint64(moves[5 * move + 2])
            place = moves[5 * move + 3] * capacity
            up = np.uint64(moves[5 * move + 4])
            if up == np.uint64(0):
                for row in range(begin, end):
                    words[place + row] = np.int64((np.uint64(entries[row * width + word]) >> down) & mask)
            else:
                for row in range(begin, end):
                    bits = (np.uint64(entries[row * width + word]) >> down) & mask
                    words[place + row] |= np.int64(bits << up)
        for number in range(taken_count):
            word = taken[number]
            place = number * capacity
            for row in range(begin, end):
                args[place + row] = entries[row * width + word]
        begin = end
    return smallest


class Projection:
    """The conversion of one table's entries into the rows of another table."""

    def __init__(
        self, finer: LowLevelPlan, entries: KeyLayout, coarser: LowLevelPlan, rows: KeyLayout, table: Table
    ) -> None:
        """Prepare for entries laid out as `entries`, and for `table`, whose keys are laid out as `rows`."""
        self.entries = entries
        self.rows = rows
        self.table = table
        self.shift = (finer.origin - coarser.origin) // finer.pane
        self.panes_of_one = coarser.pane // finer.pane
        places = [key.expression for key in finer.keys]
        self.sources = [places.index(key.expression) for key in coarser.keys]
        self.moves = np.array(_moves(entries, rows, self.sources), np.int64).reshape(-1)
        words = [word_of(sub) for sub in finer.subaggregates]
        first = 1 + entries.words
        self.taken = np.array([first + words.index(word_of(sub)) for sub in coarser.subaggregates], np.int64)

    def fill(self, entries: npt.NDArray[np.int64], panes: npt.NDArray[np.int64]) -> int:
        """Write up to a batch of entries into the columns of the table, and their panes to `panes`.

        Returns the smallest pane.
        """
        for key, source in zip(self.rows.keys, self.sources, strict=True):
            name = self.entries.keys[source].name
            if name in self.entries.names:
                self.rows.names[key.name] = self.entries.names[name]
        table = self.table
        return project(
            pointer(entries, "i64"), len(entries), entries.shape[1], self.shift, self.panes_of_one, self.moves,
            len(self.moves) // 5, self.taken, len(self.taken), table.words, table.args, table.stride, panes,
        )  # fmt: skip


def _moves(entries: KeyLayout, rows: KeyLayout, sources: Sequence[int]) -> list[tuple[int, int, int, int, int]]:
    """Return the pieces of keys that `project` moves; pieces that stay neighbours are one piece."""
    pieces: list[tuple[int, int, int, int, int]] = []  # word, shift, bits, word and shift they go to
    targets = [place for each in rows.slices for place in each]
    origins = [place for source in sources for place in entries.slices[source]]
    paired = sorted(zip(targets, origins, strict=True), key=lambda pair: (pair[0].word, pair[0].shift))
    for target, origin in paired:
        if pieces:
            word, shift, bits, to_word, to_shift = pieces[-1]
            if (word, shift + bits, to_word, to_shift + bits) == (origin.word, origin.shift, target.word, target.shift):
                pieces[-1] = word, shift, bits + origin.bits, to_word, to_shift
                continue
        pieces.append((origin.word, origin.shift, origin.bits, target.word, target.shift))
    return [
        (1 + word, shift, (1 << bits) - 1 if bits < 64 else -1, to_word, to_shift)  # the pane is an entry's first word
        for word, shift, bits, to_word, to_shift in pieces
    ]
