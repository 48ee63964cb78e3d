"""Inputs of a table: key words and arguments from the columns of rows.

    destIP     is one key word: the table reads the column in place
    srcPort    and other narrow columns are packed into words
    len        is an argument: the table reads the column in place
    2 * len    is evaluated into a column

If columns keep their addresses (`lowlevel.expressions.columns`) this is decided only once.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

import numpy as np
import numpy.typing as npt

from capture.native import pointer
from lowlevel.expressions.columns import Columns, Numbers, SettledColumns
from lowlevel.expressions.evaluate import evaluate
from lowlevel.expressions.tree import Column
from lowlevel.expressions.types import Type
from lowlevel.plan import Key, LowLevelPlan
from lowlevel.subaggregates import Kind, SubAggregate
from lowlevel.table.entries import IDENTITIES, opcode
from lowlevel.table.keys import TOGETHER, KeyLayout, pack_word
from lowlevel.table.table import Table


def argument_values(sub: SubAggregate, columns: Columns, out: npt.NDArray[np.int64]) -> None:
    """Write one word per row to `out`: 1 or 0 for a count, the bits of a float64 if the type is FLOAT."""
    if sub.argument is None:
        out[:] = 1
        return
    rows = len(out)
    vector = evaluate(sub.argument, columns)
    argument = out.view(np.float64) if sub.type is Type.FLOAT else out
    if sub.kind is Kind.COUNT:
        argument[:] = True if vector.valid is None else vector.valid
        return
    if sub.kind in (Kind.EARLIEST, Kind.LATEST):
        vector = replace(columns["ts"], valid=vector.valid)
    argument[:] = vector.data  # type: ignore[union-attr]  # never an address: the compiler of queries excludes it
    if vector.valid is not None:
        argument[~np.broadcast_to(vector.valid, rows)] = IDENTITIES[opcode(sub)]


AS_THEY_ARE = frozenset({Kind.SUM, Kind.MIN, Kind.MAX, Kind.BIT_AND, Kind.BIT_OR, Kind.BIT_XOR})
"""Sub-aggregates whose argument is the value of a column."""

Piece = tuple[int, int, int]
"""A column to be packed into a word: its address, its first bit, and the number added to its values."""


def is_plain(plan: LowLevelPlan) -> bool:
    """Return whether all keys and arguments of a plan are columns, so that none must be evaluated."""
    keys = all(isinstance(key.expression, Column) and key.expression.type is not Type.TEXT for key in plan.keys)
    return keys and all(sub.argument is None or _is_column(sub) for sub in plan.subaggregates)


class Inlet:
    """Writes the rows of a plan into the inputs of one table, for its IP versions. Not thread safe."""

    def __init__(self, plan: LowLevelPlan, layout: KeyLayout, table: Table) -> None:
        """Prepare for any columns."""
        self.layout = layout
        self.table = table
        self.subaggregates = list(enumerate(plan.subaggregates))
        self._memory: Numbers | None = None  # addresses of the columns, if these are fixed
        self._packs: list[tuple[int, ...]] | None = None  # how keys are packed; None if they must be evaluated
        self._computed = self.subaggregates  # sub-aggregates whose arguments are evaluated

    def lay_out(self, columns: Columns, rows: int) -> None:
        """Prepare the next `rows` rows as inputs of the table."""
        if isinstance(columns, SettledColumns):
            if columns.memory is not self._memory:
                self._settle(columns)
        elif self._memory is not None:
            self._unsettle()
        if self._packs is None:
            self.layout.pack(columns, rows, self.table.words)
        else:
            for pack in self._packs:
                pack_word.at(*pack, rows)
        for number, sub in self._computed:
            if sub.argument is not None:
                argument_values(sub, columns, self.table.args[number, :rows])

    def _unsettle(self) -> None:
        """Make the table read its own buffers again."""
        self._memory, self._packs, self._computed = None, None, self.subaggregates
        for places in (self.table.word_at, self.table.arg_at):
            places[:] = np.arange(len(places)) * self.table.stride

    def _settle(self, columns: SettledColumns) -> None:
        """Look up the addresses of the columns."""
        self._unsettle()
        self._memory = columns.memory
        pieces = self._pieces(columns)
        if pieces is not None:
            self._packs = []
            for word, of_word in enumerate(pieces):
                self._settle_word(word, of_word)
        self._computed = []
        for number, sub in self.subaggregates:
            argument = _argument_column(sub, columns)
            if argument is None:
                self._computed.append((number, sub))
            else:
                self.table.arg_at[number] = _away(pointer(argument, "i64"), self.table.args)

    def _pieces(self, columns: SettledColumns) -> list[list[Piece]] | None:
        """Return the columns of each key word; None if a key is not a column."""
        words: list[list[Piece]] = [[] for _ in range(self.layout.words)]
        for key, version, slices in zip(self.layout.keys, self.layout.versions, self.layout.slices, strict=True):
            found = _key_columns(key, version, columns)
            if found is None or len(found) != len(slices):
                return None
            for each, (column, add) in zip(slices, found, strict=True):
                words[each.word].append((pointer(column, "i64"), each.shift, add))
        return words

    def _settle_word(self, word: int, pieces: list[Piece]) -> None:
        table = self.table
        if len(pieces) == 1 and pieces[0][1:] == (0, 0):
            table.word_at[word] = _away(pieces[0][0], table.words)
            return
        assert self._packs is not None
        place = pointer(table.words[word], "i64")
        first = pieces[:TOGETHER]
        unread = pieces[:1] * (TOGETHER - len(first))
        self._packs.append((place, False, *chain.from_iterable(first + unread), len(first)))
        self._packs += [(place, True, *piece * TOGETHER, 1) for piece in pieces[TOGETHER:]]


def _key_columns(key: Key, version: int, columns: SettledColumns) -> list[tuple[Numbers, int]] | None:
    """Return the columns with the codes of a key, each with the number added to it; None if there are none."""
    expression = key.expression
    if not isinstance(expression, Column):
        return None
    if expression.type is Type.ADDRESS:
        halves = columns.halves(expression.name)
        if halves is None:
            return None
        high, low = halves
        return {0: [], 4: [(low, 0)], 6: [(high, 0), (low, 0)]}[version]
    found = columns.integers(expression.name)
    if found is None:
        return None
    column, nullable = found
    return [(column, int(expression.nullable))] if nullable == expression.nullable else None


def _argument_column(sub: SubAggregate, columns: SettledColumns) -> Numbers | None:
    """Return the column that is the argument of a sub-aggregate; None if there is none."""
    if not isinstance(sub.argument, Column) or not _is_column(sub):
        return None
    found = columns.integers(sub.argument.name)
    return found[0] if found is not None and not found[1] else None


def _is_column(sub: SubAggregate) -> bool:
    """Return whether the argument of a sub-aggregate is a column without NULL."""
    return sub.kind in AS_THEY_ARE and isinstance(sub.argument, Column) and not sub.argument.nullable


def _away(address: int, base: npt.NDArray[np.int64]) -> int:
    """Return the offset of an address from the beginning of `base`, in words."""
    return (address - pointer(base, "i64")) // 8
