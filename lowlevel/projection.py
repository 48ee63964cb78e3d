"""Entries of a finer table as the rows of a coarser one (`lowlevel.feeding`): keys are laid out anew, panes joined.

entry of the finer table    pane 17 | srcIP destIP | srcPort destPort protocol | count  bytes
row for the coarser one     pane  2 |              protocol srcIP              |        bytes
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from capture.native import kernel, pointer
from lowlevel.feeding import word_of
from lowlevel.keys import TILE, KeyLayout
from lowlevel.plan import LowLevelPlan
from lowlevel.subaggregates import INT_MAX
from lowlevel.table import Table


@kernel("i64(i64*, i64, i64, i64, i64, i64*, i64, i64*, i64, i64*, i64*, i64, i64*)")
def project(  # type: ignore[no-untyped-def]
    entries, rows, width, shift, panes_of_one, moves, move_count, taken, taken_count, words, args, capacity, panes
):  # fmt: skip
    """Turn `rows` entries of `width` words into key words, arguments and panes of rows; return the smallest pane.

    Entry pane p becomes `(p + shift) // panes_of_one`. `moves` has five numbers for each piece of a key: the entry's
    word, its shift there, the mask of its bits, and the key word and shift it goes to; pieces of a word follow each
    other upwards. `taken` are the entry's words that become arguments. `words` and `args` have `capacity` columns.
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
    """From the entries of one table to the rows of another."""

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
        """Put up to a batch of entries where the table takes its rows from, and their panes into `panes`.

        Returns the smallest of these.
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
    """Return the pieces of keys that `project` lays out anew; neighbours that stay neighbours are one piece."""
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
