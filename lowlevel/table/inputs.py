"""Inputs of a table: read or compute key words and arguments from the columns of rows.

    destIP     is one key word: the table reads the column in place
    srcPort    is packed into a word with other narrow columns
    len        is an argument: the table reads the column in place
    2 * len    is evaluated into a column

If the columns of all batches have the same memory addresses (`lowlevel.expressions.columns`), the addresses are looked
up only once.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

import numpy as np
import numpy.typing as npt

from capture.native import pointer
from lowlevel.expressions.columns import AnyVector, BufferColumns, Columns, Numbers, Vector
from lowlevel.expressions.evaluate import evaluate
from lowlevel.expressions.tree import Column, Expression
from lowlevel.expressions.types import Type
from lowlevel.plan import Key, LowLevelPlan
from lowlevel.subaggregates import Kind, SubAggregate
from lowlevel.table.entries import IDENTITIES, opcode
from lowlevel.table.keys import CODES_PER_PASS, KeyLayout, pack_word
from lowlevel.table.table import Table


def write_argument(
    sub: SubAggregate, columns: Columns, out: npt.NDArray[np.int64], vector: AnyVector | None = None
) -> None:
    """Write the argument of each row to `out`, one word per row: 1 or 0 for a count, the bits of a float64 for FLOAT.

    `vector`: the values of the argument, if they are already evaluated.
    """
    if sub.argument is None:
        out[:] = 1
        return
    rows = len(out)
    if vector is None:
        vector = evaluate(sub.argument, columns)
    argument = out.view(np.float64) if sub.type is Type.FLOAT else out
    if sub.kind is Kind.COUNT:
        argument[:] = True if vector.valid is None else vector.valid
        return
    if sub.kind in (Kind.EARLIEST, Kind.LATEST):
        vector = replace(columns["ts"], valid=vector.valid)
    if sub.kind in (Kind.UPPER_SUM, Kind.LOWER_SUM):
        assert isinstance(vector, Vector)
        data = vector.data >> 32 if sub.kind is Kind.UPPER_SUM else vector.data & 0xFFFFFFFF
        vector = Vector(data, vector.valid)
    argument[:] = vector.data  # type: ignore[union-attr]  # never an address: the compiler of queries excludes it
    if vector.valid is not None:
        argument[~np.broadcast_to(vector.valid, rows)] = IDENTITIES[opcode(sub)]


COLUMN_KINDS = frozenset({Kind.SUM, Kind.MIN, Kind.MAX, Kind.BIT_AND, Kind.BIT_OR, Kind.BIT_XOR})
"""Sub-aggregates that can read the values of a column as their arguments."""

Piece = tuple[int, int, int]
"""A column packed into a word: its memory address, its first bit in the word, and the number added to its values."""


def reads_only_columns(plan: LowLevelPlan) -> bool:
    """Return whether all keys and arguments of a plan are columns, so that no expression must be evaluated."""
    keys = all(isinstance(key.expression, Column) and key.expression.type is not Type.TEXT for key in plan.keys)
    return keys and all(sub.argument is None or _is_column(sub) for sub in plan.subaggregates)


class RowWriter:
    """Writer of key words and arguments of rows into the columns of one table. Not thread safe."""

    def __init__(self, plan: LowLevelPlan, layout: KeyLayout, table: Table) -> None:
        """`layout`: the layout of the keys of `table`."""
        self.layout = layout
        self.table = table
        self.subaggregates = list(enumerate(plan.subaggregates))
        self._memory: Numbers | None = None  # memory of the columns that the table reads in place
        self._packs: list[tuple[int, ...]] | None = None  # arguments of `pack_word`; None if keys must be evaluated
        self._evaluated = self.subaggregates  # sub-aggregates whose arguments must be evaluated

    def write(self, columns: Columns, rows: int) -> None:
        """Write the key words and arguments of the next `rows` rows, except those that the table reads in place."""
        if isinstance(columns, BufferColumns):
            if columns.memory is not self._memory:
                self._use_columns(columns)
        elif self._memory is not None:
            self._use_buffers()
        if self._packs is None:
            self.layout.pack(columns, rows, self.table.words)
        else:
            for pack in self._packs:
                pack_word.at(*pack, rows)
        argument: Expression | None = None
        vector: AnyVector | None = None
        for index, sub in self._evaluated:
            if sub.argument is not None:
                if sub.argument != argument:  # sum(x) and count(x) of one x follow each other
                    argument, vector = sub.argument, evaluate(sub.argument, columns)
                write_argument(sub, columns, self.table.args[index, :rows], vector)

    def _use_buffers(self) -> None:
        """Make the table read its own buffers."""
        self._memory, self._packs, self._evaluated = None, None, self.subaggregates
        for offsets in (self.table.key_offsets, self.table.arg_offsets):
            offsets[:] = np.arange(len(offsets)) * self.table.stride

    def _use_columns(self, columns: BufferColumns) -> None:
        """Look up the addresses of the columns, and make the table read columns in place if possible."""
        self._use_buffers()
        self._memory = columns.memory
        pieces = self._key_pieces(columns)
        if pieces is not None:
            self._packs = []
            for word, pieces_of_word in enumerate(pieces):
                self._use_key_columns(word, pieces_of_word)
        self._evaluated = []
        for index, sub in self.subaggregates:
            argument = _argument_column(sub, columns)
            if argument is None:
                self._evaluated.append((index, sub))
            else:
                self.table.arg_offsets[index] = _word_offset(pointer(argument, "i64"), self.table.args)

    def _key_pieces(self, columns: BufferColumns) -> list[list[Piece]] | None:
        """Return the columns of each key word, or None if a key is not a column."""
        words: list[list[Piece]] = [[] for _ in range(self.layout.words)]
        for key, version, slices in zip(self.layout.keys, self.layout.versions, self.layout.slices, strict=True):
            codes = _key_columns(key, version, columns)
            if codes is None or len(codes) != len(slices):
                return None
            for code, (column, add) in zip(slices, codes, strict=True):
                words[code.word].append((pointer(column, "i64"), code.shift, add))
        return words

    def _use_key_columns(self, word: int, pieces: list[Piece]) -> None:
        table = self.table
        if len(pieces) == 1 and pieces[0][1:] == (0, 0):
            table.key_offsets[word] = _word_offset(pieces[0][0], table.words)
            return
        assert self._packs is not None
        word_address = pointer(table.words[word], "i64")
        first = pieces[:CODES_PER_PASS]
        padding = pieces[:1] * (CODES_PER_PASS - len(first))
        self._packs.append((word_address, False, *chain.from_iterable(first + padding), len(first)))
        self._packs += [(word_address, True, *piece * CODES_PER_PASS, 1) for piece in pieces[CODES_PER_PASS:]]


def _key_columns(key: Key, version: int, columns: BufferColumns) -> list[tuple[Numbers, int]] | None:
    """Return the columns with the codes of a key, each with the number to add, or None if the key is no column."""
    expression = key.expression
    if not isinstance(expression, Column):
        return None
    if expression.type is Type.ADDRESS:
        halves = columns.halves(expression.name)
        if halves is None:
            return None
        high, low = halves
        return {0: [], 4: [(low, 0)], 6: [(high, 0), (low, 0)]}[version]
    integers = columns.integers(expression.name)
    if integers is None:
        return None
    column, nullable = integers
    return [(column, int(expression.nullable))] if nullable == expression.nullable else None


def _argument_column(sub: SubAggregate, columns: BufferColumns) -> Numbers | None:
    """Return the column that is the argument of a sub-aggregate, or None if the argument must be evaluated."""
    if not isinstance(sub.argument, Column) or not _is_column(sub):
        return None
    integers = columns.integers(sub.argument.name)
    return integers[0] if integers is not None and not integers[1] else None


def _is_column(sub: SubAggregate) -> bool:
    """Return whether the argument of a sub-aggregate is the value of a column without NULL."""
    return sub.kind in COLUMN_KINDS and isinstance(sub.argument, Column) and not sub.argument.nullable


def _word_offset(address: int, base: npt.NDArray[np.int64]) -> int:
    """Return the offset of an address from the beginning of `base`, in words."""
    return (address - pointer(base, "i64")) // 8
