"""Tables that other tables feed: the evicted and flushed entries of a finer table are the rows of a coarser table.

entry of the finer table    pane 17 | srcIP destIP | srcPort destPort protocol | count  bytes
row for the coarser one     pane  2 |              protocol srcIP              |        bytes
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from capture.native import kernel, pointer
from lowlevel.expressions.tree import Expression
from lowlevel.plan import LowLevelPlan
from lowlevel.subaggregates import INT_MAX, Kind, SubAggregate
from lowlevel.table.keys import TILE, KeyLayout
from lowlevel.table.table import Table

# A table is updated by packets, or by the entries that leave a finer table (its *feeder*):
#
#     finer      GROUP BY srcIP, destIP, srcPort, destPort, protocol   panes of 10 s   updated by packets
#     coarser    GROUP BY srcIP, destIP                                panes of 60 s   by entries of the finer table
#     coarsest   GROUP BY destIP                                       panes of 60 s   by entries of the coarser table
#
# Gigascope's authors feed queries from *phantoms* in the same way (Zhang, Koudas, Ooi, Srivastava 2005). A finer table
# can feed a coarser table if
#
# * both have the same rows (kind, predicate, sampling) and the same watermarks,
# * the keys and the sub-aggregates of the finer table contain those of the coarser table, and
# * panes of the coarser table consist of panes of the finer table. They must be equal if rows are spread over panes,
#   because the pieces of a row in several panes would be counted several times.
#
# Sub-aggregates are merged as at the high level: counts are added.
#
# A table that packets update **keeps more sub-aggregates for the tables that it feeds** (`widen`), if it then has at
# most MAX_SUBAGGREGATES. A longer entry costs a packet less time than a search in one more table.
#
# Tables with gradual flushes do not feed tables. Otherwise an entry could stay up to the bound in the finer table, and
# then up to the bound in the coarser table.
#
# If several tables could be the feeder, the table with the fewest keys is chosen, because the fewest entries leave it.
# Two plans that could feed each other have the same groups. Then the first plan feeds the second plan.


MERGEABLE = frozenset({Kind.COUNT, Kind.SUM, Kind.UPPER_SUM, Kind.LOWER_SUM, Kind.MIN, Kind.MAX})
"""Sub-aggregates that consist of one word, which is merged without other words."""

MAX_SUBAGGREGATES = 4
"""Maximum number of sub-aggregates of a table that stores additional ones for the tables that it feeds."""

Function = tuple[Kind, Expression | None]
"""The kind and the argument of a sub-aggregate, without its name."""


def function_of(sub: SubAggregate) -> Function:
    """Return the kind and the argument of a sub-aggregate."""
    return sub.kind, sub.argument


def can_feed(finer: LowLevelPlan, coarser: LowLevelPlan) -> bool:
    """Return whether the table of `finer` can feed the table of `coarser`."""
    return has_groups_of(finer, coarser) and missing_subaggregates(finer, coarser) == []


def has_groups_of(finer: LowLevelPlan, coarser: LowLevelPlan) -> bool:
    """Return whether each group of `coarser` in a pane is the union of groups of `finer`."""
    if not (finer.reduced and coarser.reduced):
        return False
    if (finer.kind, finer.where, finer.sampling, finer.spread) != (
        coarser.kind, coarser.where, coarser.sampling, coarser.spread,
    ):  # fmt: skip
        return False
    if (finer.provisional, finer.slack) != (coarser.provisional, coarser.slack):
        return False
    if coarser.pane % finer.pane or (coarser.origin - finer.origin) % finer.pane:
        return False
    if finer.spread and (coarser.pane, coarser.origin) != (finer.pane, finer.origin):
        return False
    return {key.expression for key in coarser.keys} <= {key.expression for key in finer.keys}


def missing_subaggregates(finer: LowLevelPlan, coarser: LowLevelPlan) -> list[Function] | None:
    """Return the sub-aggregates of `coarser` that `finer` lacks. Return None if one cannot be merged word by word."""
    existing = {function_of(sub) for sub in finer.subaggregates}
    required = dict.fromkeys(function_of(sub) for sub in coarser.subaggregates)
    if any(kind not in MERGEABLE for kind, _ in required):
        return None
    return [function for function in required if function not in existing]


def widen(plans: Sequence[LowLevelPlan]) -> list[LowLevelPlan]:
    """Return the plans in order. Some have additional sub-aggregates, so that their tables can feed other tables."""
    wide = list(plans)
    for indexes in _group_by_rows(plans):
        for index, plan in zip(indexes, _widen_plans([plans[index] for index in indexes]), strict=True):
            wide[index] = plan
    return wide


def _group_by_rows(plans: Sequence[LowLevelPlan]) -> Iterable[list[int]]:
    """Return the indexes of plans that aggregate the same rows. Only such plans can feed each other."""
    groups: dict[object, list[int]] = {}
    for index, plan in enumerate(plans):
        groups.setdefault((plan.kind, plan.where, plan.sampling, plan.spread), []).append(index)
    return groups.values()


def _widen_plans(plans: Sequence[LowLevelPlan]) -> list[LowLevelPlan]:
    wide = list(plans)
    feeder_of = find_feeders(wide)
    for index in sorted(range(len(wide)), key=lambda index: len(wide[index].keys)):
        if feeder_of[index] is not None:
            continue
        finer = [
            other
            for other, plan in enumerate(wide)
            if other != index and feeder_of[other] is None and _can_widen(plan, wide[index])
        ]
        if finer:
            chosen = min(finer, key=lambda other: _feeder_sort_key(other, wide))
            wide[chosen] = _widen(wide[chosen], wide[index])
            feeder_of = find_feeders(wide)
    return wide


def _can_widen(finer: LowLevelPlan, coarser: LowLevelPlan) -> bool:
    """Return whether `finer` can feed `coarser` with additional sub-aggregates, and has room for them."""
    missing = missing_subaggregates(finer, coarser)
    if missing is None or len(finer.subaggregates) + len(missing) > MAX_SUBAGGREGATES:
        return False
    return has_groups_of(finer, coarser)


def _widen(finer: LowLevelPlan, coarser: LowLevelPlan) -> LowLevelPlan:
    """Return `finer` with the sub-aggregates that it needs to feed `coarser`."""
    missing = enumerate(missing_subaggregates(finer, coarser) or (), len(finer.subaggregates))
    added = [SubAggregate(f"other{index}", *function) for index, function in missing]
    return replace(finer, subaggregates=(*finer.subaggregates, *added))


def _feeder_sort_key(index: int, plans: Sequence[LowLevelPlan]) -> tuple[int, int, int]:
    """Return a sort key for possible feeders. Few keys and long panes are first, because few entries leave."""
    return len(plans[index].keys), -plans[index].pane, index


def find_feeders(plans: Sequence[LowLevelPlan]) -> list[int | None]:
    """Return for each plan the index of the plan whose table feeds its table, or None if packets update it."""
    feeder_of: list[int | None] = [None] * len(plans)
    for indexes in _group_by_rows(plans):
        group = [plans[index] for index in indexes]
        for position, index in enumerate(indexes):
            feeder = _find_feeder(position, group)
            feeder_of[index] = None if feeder is None else indexes[feeder]
    return feeder_of


def _find_feeder(index: int, plans: Sequence[LowLevelPlan]) -> int | None:
    plan = plans[index]
    finer = [
        other
        for other, candidate in enumerate(plans)
        if can_feed(candidate, plan) and (other < index or not can_feed(plan, candidate))
    ]
    return min(finer, key=lambda other: _feeder_sort_key(other, plans), default=None)


def count_feeders(index: int, feeder_of: Sequence[int | None]) -> int:
    """Return the number of tables between the packets and the table of a plan."""
    feeder = feeder_of[index]
    return 0 if feeder is None else 1 + count_feeders(feeder, feeder_of)


@kernel("i64(i64*, i64, i64, i64, i64, i64*, i64, i64*, i64, i64*, i64*, i64, i64*)")
def project(  # type: ignore[no-untyped-def]
    entries, rows, width, shift, panes_per_pane, moves, move_count, argument_words, argument_count, words, args,
    capacity, panes
):  # fmt: skip
    """Convert entries of a finer table into rows for a coarser table. Return the smallest pane of these rows.

    * `entries`: `rows` entries of `width` words. Pane p of an entry becomes pane
      `(p + shift) // panes_per_pane` of the coarser table.
    * `moves`: five numbers for each piece of a key: its word and its shift in the entry, the mask of its bits, and its
      word and its shift in the new key. Pieces of one word are in ascending order.
    * `argument_words`: the words of the entry that become arguments.
    * `words`, `args`, `panes`: receive key words, arguments and panes of the rows. A column has `capacity` words.
    """
    smallest = np.int64(INT_MAX)
    last = np.int64(0)
    pane = shift // panes_per_pane
    begin = np.int64(0)
    while begin < rows:
        end = min(rows, begin + TILE)
        for row in range(begin, end):
            if entries[row * width] != last:
                last = entries[row * width]
                pane = (last + shift) // panes_per_pane
            panes[row] = pane
            smallest = min(smallest, pane)
        for move in range(move_count):
            word = moves[5 * move]
            down = np.uint64(moves[5 * move + 1])
            mask = np.uint64(moves[5 * move + 2])
            position = moves[5 * move + 3] * capacity
            up = np.uint64(moves[5 * move + 4])
            if up == np.uint64(0):
                for row in range(begin, end):
                    words[position + row] = np.int64((np.uint64(entries[row * width + word]) >> down) & mask)
            else:
                for row in range(begin, end):
                    bits = (np.uint64(entries[row * width + word]) >> down) & mask
                    words[position + row] |= np.int64(bits << up)
        for number in range(argument_count):
            word = argument_words[number]
            position = number * capacity
            for row in range(begin, end):
                args[position + row] = entries[row * width + word]
        begin = end
    return smallest


class Projection:
    """The conversion of one table's entries into the rows of another table."""

    def __init__(
        self, finer: LowLevelPlan, entries: KeyLayout, coarser: LowLevelPlan, rows: KeyLayout, table: Table
    ) -> None:
        """`entries`: layout of the entries of `finer`. `rows`: layout of the keys of `table`, for `coarser`."""
        self.entries = entries
        self.rows = rows
        self.table = table
        self.shift = (finer.origin - coarser.origin) // finer.pane
        self.panes_per_pane = coarser.pane // finer.pane
        finer_keys = [key.expression for key in finer.keys]
        self.sources = [finer_keys.index(key.expression) for key in coarser.keys]
        self.moves = np.array(_list_moves(entries, rows, self.sources), np.int64).reshape(-1)
        functions = [function_of(sub) for sub in finer.subaggregates]
        first = 1 + entries.words
        self.argument_words = np.array(
            [first + functions.index(function_of(sub)) for sub in coarser.subaggregates], np.int64
        )

    def fill(self, entries: npt.NDArray[np.int64], panes: npt.NDArray[np.int64]) -> int:
        """Write entries as rows into the columns of the table, and their panes to `panes`. Return the smallest pane.

        The number of entries is at most the capacity of the table.
        """
        for key, source in zip(self.rows.keys, self.sources, strict=True):
            name = self.entries.keys[source].name
            if name in self.entries.names:
                self.rows.names[key.name] = self.entries.names[name]
        table = self.table
        return project(
            pointer(entries, "i64"), len(entries), entries.shape[1], self.shift, self.panes_per_pane, self.moves,
            len(self.moves) // 5, self.argument_words, len(self.argument_words),
            table.words, table.args, table.stride, panes,
        )  # fmt: skip


def _list_moves(entries: KeyLayout, rows: KeyLayout, sources: Sequence[int]) -> list[tuple[int, int, int, int, int]]:
    """Return the `moves` of `project`. Pieces that are neighbours in the entry and in the new key are joined."""
    pieces: list[tuple[int, int, int, int, int]] = []  # word, shift, bits, word and shift in the new key
    targets = [piece for slices in rows.slices for piece in slices]
    origins = [piece for source in sources for piece in entries.slices[source]]
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
