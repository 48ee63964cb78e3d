"""Rows of a batch as the words that arcs read, and fields of registers as Arrow columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from capture import arrow_compute as pc
from capture.arrow_compute import array_of
from highlevel.groups.keys import Keys
from highlevel.operators.batch_columns import BatchColumns
from highlevel.patterns.compiled_automaton import CONDITIONS_PER_WORD, NUMBERED, CompiledAutomaton, Floats, Words
from highlevel.patterns.kernels.expressions import NULL, NULL_BITS, NULL_FLOAT
from lowlevel.expressions.address_constants import Address
from lowlevel.expressions.arrow import arrow_column, macs_to_arrow
from lowlevel.expressions.columns import Columns, Vector
from lowlevel.expressions.evaluate import evaluate
from lowlevel.expressions.tree import Column, Expression, Literal
from lowlevel.expressions.types import Type
from lowlevel.plan import ARROW_TYPES


class ValueNumbers:
    """Numbers for texts, addresses and byte strings. Equal values of a type have equal numbers."""

    def __init__(self) -> None:
        """Begin without values."""
        self._keys = {kind: Keys([ARROW_TYPES[kind]]) for kind in NUMBERED}

    @property
    def bytes(self) -> int:
        """Memory of the values."""
        return sum(keys.bytes for keys in self._keys.values())

    @property
    def count(self) -> int:
        """Number of known values."""
        return sum(keys.count for keys in self._keys.values())

    def keep(self, kind: Type, places: Sequence[Words]) -> None:
        """Forget the values of a type whose numbers are not in `places`, and write new numbers into `places`.

        `places`: arrays of numbers.
        """
        numbers = np.concatenate([np.empty(0, np.int64), *places])
        used = np.unique(numbers[numbers != NULL])
        self._keys[kind] = self._keys[kind].copy_of(used)
        for place in places:
            known = place != NULL
            place[known] = np.searchsorted(used, place[known])

    def known(self, kind: Type) -> pa.Table:
        """Return the values of a type in the order of their numbers."""
        keys = self._keys[kind]
        values = keys.columns()[0] if keys.count else pa.nulls(0, ARROW_TYPES[kind])
        return pa.table({"value": values})

    def load(self, kind: Type, values: pa.Table) -> None:
        """Number the values of a type from 0 on, and forget others."""
        self._keys[kind] = Keys([ARROW_TYPES[kind]])
        if values.num_rows:
            self.numbers(values["value"].combine_chunks().cast(ARROW_TYPES[kind]), kind)

    def numbers(self, values: pa.Array, kind: Type) -> Words:
        """Return the number of each value; NULL for a NULL."""
        numbers = self._keys[kind].find_or_insert([values], len(values))
        return np.where(np.asarray(pc.is_valid(values)), numbers, NULL) if values.null_count else numbers

    def numbers_of(self, literals: Sequence[Literal]) -> Words:
        """Return the numbers of constants of one type, at least one. No constant is NULL."""
        values = [literal.value for literal in literals]
        contents = [
            value.value.to_bytes(4 if value.version == 4 else 16) if isinstance(value, Address) else value
            for value in values
        ]
        kind = literals[0].type
        return self.numbers(pa.array(contents, ARROW_TYPES[kind]), kind)

    def values(self, numbers: Words, kind: Type) -> pa.Array:
        """Return the values of numbers."""
        if not self._keys[kind].count:
            return pa.nulls(len(numbers), ARROW_TYPES[kind])
        (values,) = self._keys[kind].columns(np.where(numbers == NULL, 0, numbers))
        return pc.if_else(array_of(numbers != NULL), values, pa.scalar(None, values.type))


class Known(NamedTuple):
    """How many conditions, integers and floats have known words: the first ones of each kind."""

    conditions: int
    integers: int
    floats: int


NOTHING_KNOWN = Known(0, 0, 0)


class RowWords:
    """Evaluates the expressions over rows that a compiled automaton reads."""

    def __init__(self, compiled: CompiledAutomaton, numbers: ValueNumbers, macs: Sequence[str] = ()) -> None:
        """Evaluate for an automaton. `macs`: the columns of MAC addresses."""
        self._compiled = compiled
        self._numbers = numbers
        self._macs = macs

    def words(self, batch: pa.RecordBatch) -> tuple[Words, Floats]:
        """Return the words of each row, `[rows, words]`."""
        compiled, rows = self._compiled, batch.num_rows
        words, floats = np.zeros((rows, compiled.row_words), np.int64), np.empty((rows, len(compiled.row_floats)))
        self.write(batch, words, floats)
        return words, floats

    def write(self, batch: pa.RecordBatch, words: Words, floats: Floats, known: Known = NOTHING_KNOWN) -> None:
        """Write the words of each row, except those of known expressions. Bits that are not known are 0."""
        compiled, rows = self._compiled, batch.num_rows
        columns = BatchColumns(batch, self._macs)
        for index in range(known.conditions, len(compiled.conditions)):
            word, bit = divmod(compiled.condition_places[index], CONDITIONS_PER_WORD)
            words[:, word] |= self._is_true(compiled.conditions[index], columns).astype(np.int64) << bit
        for index in range(known.integers, len(compiled.row_integers)):
            expression = compiled.row_integers[index]
            words[:, compiled.integer_places[index]] = _integer_words(expression, columns, rows, self._numbers)
        for index in range(known.floats, len(compiled.row_floats)):
            floats[:, index] = _float_words(compiled.row_floats[index], columns)

    def _is_true(self, condition: Expression, columns: Columns) -> npt.NDArray[np.bool_]:
        vector = evaluate(condition, columns)
        assert isinstance(vector, Vector)
        return vector.data if vector.valid is None else vector.data & vector.valid


def _integer_words(expression: Expression, columns: Columns, rows: int, numbers: ValueNumbers) -> Words:
    """Return the word of an expression that is no float for each row."""
    vector = evaluate(expression, columns)
    if expression.type in NUMBERED:
        return numbers.numbers(arrow_column(vector, rows, expression.type), expression.type)
    assert isinstance(vector, Vector)
    data = vector.data.astype(np.int64)
    return data if vector.valid is None else np.where(vector.valid, data, NULL)


def _float_words(expression: Expression, columns: Columns) -> Floats:
    """Return the word of an expression that is a float for each row."""
    vector = evaluate(expression, columns)
    assert isinstance(vector, Vector)
    # A NaN of the data may have the bits of NULL.
    data: Floats = np.where(np.isnan(vector.data), np.nan, vector.data)
    return data if vector.valid is None else np.where(vector.valid, data, NULL_FLOAT)


class RegisterColumns:
    """Converts fields of registers to Arrow columns, and back."""

    def __init__(self, compiled: CompiledAutomaton, numbers: ValueNumbers) -> None:
        """Convert the registers of an automaton."""
        self._compiled = compiled
        self._numbers = numbers
        self._types = {field.name: field.initial.type for field in compiled.register}

    @property
    def schema(self) -> pa.Schema:
        """The fields of the register, in the order of the automaton."""
        return pa.schema([pa.field(name, ARROW_TYPES[kind]) for name, kind in self._types.items()])

    def initial(self) -> tuple[Words, Floats]:
        """Return the words of the register before the first row."""
        literals = {field.name: field.initial for field in self._compiled.register}
        words = [self._word(literals[name]) for name in self._compiled.integers]
        floats = [literals[name].value for name in self._compiled.floats]
        return np.array(words, np.int64), np.array(
            [NULL_FLOAT if each is None else each for each in floats], np.float64
        )

    def _word(self, literal: Literal) -> int:
        if literal.value is None:
            return NULL
        if literal.type in NUMBERED:
            return int(self._numbers.numbers_of([literal])[0])
        return int(literal.value)  # type: ignore[arg-type]

    def columns(self, words: Words, floats: Floats) -> list[pa.Array]:
        """Return the columns of registers: `words` is `[rows, integer fields]`, `floats` is `[rows, float fields]`."""
        return [self._column(name, kind, words, floats) for name, kind in self._types.items()]

    def words(self, registers: pa.RecordBatch, rows: int) -> tuple[Words, Floats]:
        """Return the words of `rows` registers, which have a column for each field. The reverse of `columns`."""
        compiled = self._compiled
        columns = BatchColumns(registers, [name for name, kind in self._types.items() if kind is Type.MAC])
        words, floats = np.zeros((rows, len(compiled.integers)), np.int64), np.zeros((rows, len(compiled.floats)))
        for index, name in enumerate(compiled.integers):
            words[:, index] = _integer_words(Column(name, self._types[name]), columns, rows, self._numbers)
        for index, name in enumerate(compiled.floats):
            floats[:, index] = _float_words(Column(name, self._types[name]), columns)
        return words, floats

    def _column(self, name: str, kind: Type, words: Words, floats: Floats) -> pa.Array:
        if kind is Type.FLOAT:
            values = np.ascontiguousarray(floats[:, self._compiled.floats.index(name)])
            return pa.array(values, mask=values.view(np.int64) == NULL_BITS)
        numbers = np.ascontiguousarray(words[:, self._compiled.integers.index(name)])
        if kind in NUMBERED:
            return self._numbers.values(numbers, kind)
        valid = numbers != NULL
        if kind is Type.MAC:
            return macs_to_arrow(numbers, None if valid.all() else valid)
        column = pa.array(np.where(valid, numbers, 0), mask=None if valid.all() else ~valid)
        return pc.cast(column, ARROW_TYPES[kind])
