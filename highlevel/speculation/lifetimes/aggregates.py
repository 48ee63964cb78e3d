"""Aggregates over the rows that are true at an instant, and the integers (words) in which a snapshot stores them.

    function            argument                    state
    count               none, or any column         words that are added: the number of rows, and the number of values
    sum avg             integers                    the number of values and their sum
    sum avg             floats                      the same; exact, because the sum is stored in limbs (`exact_sums`)
    var_pop variance    integers                    also the sum of squares, in three limbs, so that it is exact
    min max             numbers and times           a sorted multiset of the values (`multiset`)
    count_distinct      any type                    the same, with a number for each value
    median quantile     numbers                     the same
    smallest largest    numbers and times           the same; a row for each of the first k values

Sums of floats are not rounded: after a retraction, a rounded sum would differ from the sum of the remaining values.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from capture import arrow_compute as pc
from capture.lazy_dataclasses import dataclass
from highlevel.groups.keys import Keys
from highlevel.speculation.lifetimes.exact_sums import ExactSums, split
from highlevel.speculation.lifetimes.kernels.values import DIFFERENT, DOWNWARD, GREATEST, QUANTILE, SMALLEST, UPWARD
from highlevel.speculation.lifetimes.model import LifetimeError, Words, payload_of

ADDED = ("sum", "avg", "variance", "var_pop")
SORTED = {
    "min": SMALLEST,
    "max": GREATEST,
    "count_distinct": DIFFERENT,
    "median": QUANTILE,
    "quantile": QUANTILE,
    "smallest": UPWARD,
    "largest": DOWNWARD,
}
FUNCTIONS = ("count", *ADDED, *SORTED)
LISTS = ("smallest", "largest")
"""Functions that return several rows, one for each of their values."""

POSITION = "position"
"""The column with the position of a value in a list, from 1 on."""

MAX_VALUES = 1_000
LIMBS = 3
CALL = re.compile(r"\s*(\w+)\s*\(\s*(?:(\*)|([\w.]+))\s*(?:,\s*([\d.]+)\s*)?\)\s*")


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An aggregate with its name in the result. `column` is None for `count(*)`."""

    name: str
    function: str
    column: str | None = None
    parameter: float | None = None

    def __post_init__(self) -> None:
        """Raise LifetimeError for an unknown function, or for a wrong argument or parameter."""
        function, parameter = self.function, self.parameter
        if function not in FUNCTIONS:
            raise LifetimeError(f"got the aggregate {function}, expected one of {', '.join(FUNCTIONS)}")
        if self.column is None and function != "count":
            raise LifetimeError(f"got {function}(*), expected a column: {function}(bytes)")
        if (parameter is not None) != (function in ("quantile", *LISTS)):
            counted = "a number after the column" if parameter is None else "only a column"
            raise LifetimeError(f"got {self}, expected {counted}")
        if function == "quantile" and not 0 <= float(parameter or 0) <= 1:
            raise LifetimeError(f"got {self}, expected a quantile of 0 to 1")
        if function in LISTS and (parameter != int(parameter or 0) or not 1 <= int(parameter or 0) <= MAX_VALUES):
            raise LifetimeError(f"got {self}, expected 1 to {MAX_VALUES} values")

    def __str__(self) -> str:
        parameter = "" if self.parameter is None else f", {self.parameter:g}"
        return f"{self.function}({self.column or '*'}{parameter})"


def parse_aggregate(name: str, text: str) -> Aggregate:
    """Parse an aggregate such as `quantile(bytes, 0.99)`.

    >>> parse_aggregate("long", "quantile(bytes, 0.99)")
    Aggregate(name='long', function='quantile', column='bytes', parameter=0.99)
    """
    match = CALL.fullmatch(text)
    if match is None:
        raise LifetimeError(
            f"got the aggregate {text!r}, expected a call such as count(*), sum(bytes) or largest(bytes, 3)"
        )
    function, _, column, parameter = match.groups()
    return Aggregate(name, function.lower(), column, None if parameter is None else float(parameter))


class Layout:
    """The order of the words in which a snapshot stores some aggregates: first sums, then results of sorted values."""

    def __init__(self, aggregates: Sequence[Aggregate], payload: pa.Schema) -> None:
        """Assign words to the aggregates of rows with the columns `payload`.

        Raises LifetimeError for a wrong column.
        """
        if not aggregates:
            raise LifetimeError("got no aggregate, expected one or more, such as count(*)")
        lists = [aggregate for aggregate in aggregates if aggregate.function in LISTS]
        if len(lists) > 1:
            raise LifetimeError(f"got {lists[0]} and {lists[1]}, expected one list of values")
        self._aggregates = list(aggregates)
        self._list = lists[0] if lists else None
        self._types: dict[str, pa.DataType] = {}
        self._squared: set[str] = set()
        self._summed: list[str] = []
        self._float_sums: dict[str, ExactSums] = {}
        self._counted: list[str] = []
        self._sorted: list[tuple[str, bool]] = []  # columns; True if equal values get equal numbers, without an order
        functions, key_indexes, parameters, positions = [], [], [], []
        self.width = 0
        self._first_word: dict[str, int] = {}
        for aggregate in aggregates:
            column = aggregate.column
            if column is None:
                continue
            if column not in payload.names:
                raise LifetimeError(f"got {aggregate}, expected a column of {', '.join(payload.names)}")
            kind = self._types[column] = payload.field(column).type
            _check_type(aggregate, kind)
            self._add_counted(column)
            if aggregate.function in ADDED and pa.types.is_floating(kind):
                self._float_sums.setdefault(column, ExactSums())
            elif aggregate.function in ADDED:
                self._add_sum(column, squared=aggregate.function in ("variance", "var_pop"))
            if aggregate.function in SORTED:
                argument = (column, aggregate.function == "count_distinct" and not _is_ordered(kind))
                if argument not in self._sorted:
                    self._sorted.append(argument)
                functions.append(SORTED[aggregate.function])
                key_indexes.append(self._sorted.index(argument))
                parameters.append(0.5 if aggregate.function == "median" else aggregate.parameter or 0.0)
                positions.append(self.width)
                self._first_word[aggregate.name] = self.width
                listed = aggregate.function in LISTS
                self.width += int(aggregate.parameter or 0) if listed else 1 + (functions[-1] == QUANTILE)
        self.functions, self.key_indexes, self.first_words = (
            np.array(each, np.int64) for each in (functions, key_indexes, positions)
        )
        self.parameters = np.array(parameters, np.float64)
        self.keys = len(self._sorted)
        self._sum_word = {column: 1 + len(self._counted) + position for position, column in enumerate(self._summed)}
        first = 1 + len(self._counted) + len(self._summed)
        self._limb_word = {column: first + LIMBS * position for position, column in enumerate(sorted(self._squared))}
        self.words = first + LIMBS * len(self._squared)
        self._numbers = {column: Keys([self._types[column]]) for column, numbered in self._sorted if numbered}

    def _add_counted(self, column: str) -> None:
        if column not in self._counted:
            self._counted.append(column)

    def _add_sum(self, column: str, *, squared: bool) -> None:
        if column not in self._summed:
            self._summed.append(column)
        if squared:
            self._squared.add(column)

    @property
    def fields(self) -> list[pa.Field]:
        """The columns of the result, after those of the groups."""
        fields = [pa.field(POSITION, pa.int64())] if self._list else []
        return [*fields, *(pa.field(aggregate.name, self._type(aggregate)) for aggregate in self._aggregates)]

    def _type(self, aggregate: Aggregate) -> pa.DataType:
        if aggregate.function in ("min", "max", *LISTS):
            return self._types[aggregate.column or ""]
        if aggregate.column in self._float_sums and aggregate.function == "sum":
            return pa.float64()
        return pa.int64() if aggregate.function in ("count", "count_distinct", "sum") else pa.float64()

    def words_of(self, changes: pa.RecordBatch) -> tuple[Words, Words, Words]:
        """Return for each change its words to add, its values for the multisets, and a bit mask of the NULL values.

        A sum of floats may need more limbs than before. Then the attribute `words` grows; the new words are at the end.
        """
        rows = payload_of(changes)
        limbs = {column: split(rows.column(column)) for column in self._float_sums}
        for column, sums in self._float_sums.items():
            self.words = sums.assign_words(limbs[column], self.words)
        added = np.zeros((rows.num_rows, self.words), np.int64)
        for column, sums in self._float_sums.items():
            sums.write(limbs[column], added)
        added[:, 0] = 1
        for position, column in enumerate(self._counted):
            added[:, 1 + position] = rows.column(column).is_valid().to_numpy(zero_copy_only=False)
        for column, word in self._sum_word.items():
            values = _integers(rows.column(column))
            added[:, word] = values
            if column in self._squared:
                added[:, self._limb_word[column] : self._limb_word[column] + LIMBS] = _squares(values)
        ordered = np.zeros((rows.num_rows, self.keys), np.int64)
        nulls = np.zeros(rows.num_rows, np.int64)
        for key, (column, numbered) in enumerate(self._sorted):
            values = rows.column(column)
            if numbered:
                ordered[:, key] = self._numbers[column].find_or_insert([values], rows.num_rows)
            else:
                ordered[:, key] = _ordered_words(values)
            nulls |= values.is_null().to_numpy(zero_copy_only=False).astype(np.int64) << key
        return added.reshape(-1), ordered.reshape(-1), nulls

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the numbered values as a table for each column."""
        values = {
            f"values of {column}": pa.table(keys.columns(), names=[column]) for column, keys in self._numbers.items()
        }
        return values | {f"limbs of {column}": sums.snapshot() for column, sums in self._float_sums.items()}

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the values of a snapshot."""
        for column, sums in self._float_sums.items():
            self.words += sums.restore(tables[f"limbs of {column}"])
        for column, keys in self._numbers.items():
            for batch in tables[f"values of {column}"].to_batches():
                keys.find_or_insert(batch.columns, batch.num_rows)

    def finish(self, words: Words, is_cti: npt.NDArray[np.bool_]) -> tuple[Words, list[pa.Array]]:
        """Return for each row of the result the index of its row in `words`, and the columns of the result."""
        source = np.arange(len(words))
        position = np.zeros(len(words), np.int64)
        if self._list is not None:
            place = 1 + self._counted.index(self._list.column or "")
            copies = np.minimum(words[:, place], int(self._list.parameter or 0))
            copies[is_cti] = 1
            source = np.repeat(source, copies)
            position = np.arange(len(source)) - np.repeat(np.cumsum(copies) - copies, copies)
        is_absent = is_cti[source]
        columns = [pa.array(position + 1, mask=is_absent)] if self._list is not None else []
        rows = slice(None) if self._list is None else source  # a slice does not copy
        columns += [self._column(aggregate, words, rows, is_absent, position) for aggregate in self._aggregates]
        return source, columns

    def _column(
        self,
        aggregate: Aggregate,
        words: Words,
        rows: Words | slice,
        is_absent: npt.NDArray[np.bool_],
        position: Words,
    ) -> pa.Array:
        """Return the column of an aggregate, computed from some rows of `words`."""
        function, column = aggregate.function, aggregate.column
        if column is None:
            return pa.array(words[rows, 0], mask=is_absent)
        count = words[rows, 1 + self._counted.index(column)]
        if function == "count":
            return pa.array(count, mask=is_absent)
        if function in ADDED:
            return self._sum(function, column, words, rows, count, is_absent)
        word = self.words + self._first_word[aggregate.name]
        if function == "count_distinct":
            return pa.array(words[rows, word], mask=is_absent)
        is_missing = is_absent | (count == 0)
        kind = self._types[column]
        if function in ("median", "quantile"):
            lower, upper = (_floats(words[rows, word + side], kind) for side in range(2))
            exact = (0.5 if function == "median" else float(aggregate.parameter or 0)) * np.maximum(count - 1, 0)
            return pa.array(lower + (upper - lower) * (exact - np.floor(exact)), mask=is_missing)
        if function in LISTS:
            return _values(words[rows, word + position], kind, is_missing)
        return _values(words[rows, word], kind, is_missing)

    def _sum(
        self,
        function: str,
        column: str,
        words: Words,
        rows: Words | slice,
        count: Words,
        is_absent: npt.NDArray[np.bool_],
    ) -> pa.Array:
        """Return the column of a sum, a mean or a variance."""
        if column in self._float_sums:
            is_missing = is_absent | (count == 0)
            divisor = np.where(is_missing, 1, count) if function == "avg" else np.ones_like(count)
            return pa.array(self._float_sums[column].quotients(words[rows], divisor, is_missing), mask=is_missing)
        total = words[rows, self._sum_word[column]]
        is_missing = is_absent | (count <= (function == "variance"))
        if function == "sum":
            return pa.array(total, mask=is_missing)
        if function == "avg":
            return pa.array(total / np.where(is_missing, 1, count), mask=is_missing)
        limbs = words[rows, self._limb_word[column] : self._limb_word[column] + LIMBS].astype(object)
        n, sums = count.astype(object), total.astype(object)
        squares = limbs[:, 0] + (limbs[:, 1] << 32) + (limbs[:, 2] << 64)
        divisor = n * (n - (function == "variance"))
        divisor[is_missing] = 1
        variances = ((n * squares - sums * sums) / divisor).astype(np.float64)
        return pa.array(variances, mask=is_missing)


def _check_type(aggregate: Aggregate, arrow_type: pa.DataType) -> None:
    """Raise LifetimeError if an aggregate cannot have an argument of this type."""
    are_integers = pa.types.is_integer(arrow_type) or pa.types.is_boolean(arrow_type)
    are_numbers = are_integers or pa.types.is_floating(arrow_type)
    function = aggregate.function
    if function in ("sum", "avg") and not are_numbers:
        raise LifetimeError(f"got {aggregate} of {arrow_type} values, expected numbers")
    if function in ("variance", "var_pop") and not are_integers:
        raise LifetimeError(f"got {aggregate} of {arrow_type} values, expected integers")
    if function in ("median", "quantile") and not are_numbers:
        raise LifetimeError(f"got {aggregate} of {arrow_type} values, expected numbers")
    if function in ("min", "max", *LISTS) and not _is_ordered(arrow_type):
        raise LifetimeError(f"got {aggregate} of {arrow_type} values, expected numbers or times")


def _is_ordered(arrow_type: pa.DataType) -> bool:
    """Return True if values of a type are stored as words in the order of the values."""
    return bool(
        pa.types.is_integer(arrow_type) or pa.types.is_floating(arrow_type) or pa.types.is_timestamp(arrow_type)
    )


def _integers(column: pa.Array) -> Words:
    """Return the values of a column as int64, with 0 for NULL."""
    values = pc.fill_null(column.cast(pa.int64()), 0)
    return values.to_numpy(zero_copy_only=False)


def _squares(values: Words) -> Words:
    """Return the squares in limbs of 32, 32 and 64 bits, as rows."""
    size = np.abs(values).view(np.uint64)  # unsigned, for the smallest integer
    low, high = size & np.uint64(0xFFFFFFFF), size >> np.uint64(32)
    middle = low * high
    sum_low = low * low + ((middle & np.uint64(0x7FFFFFFF)) << np.uint64(33))
    carry = (sum_low < low * low).astype(np.uint64)
    sum_high = high * high + (middle >> np.uint64(31)) + carry
    limbs = [sum_low & np.uint64(0xFFFFFFFF), sum_low >> np.uint64(32), sum_high]
    return np.stack([limb.view(np.int64) for limb in limbs], axis=1)


def _ordered_words(column: pa.Array) -> Words:
    """Return words in the order of the values: NaN is the greatest, and both zeros are equal."""
    if not pa.types.is_floating(column.type):
        return _integers(column)
    floats = pc.fill_null(column.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False) + 0.0
    words = np.where(np.isnan(floats), np.nan, floats).view(np.int64)
    return words ^ ((words >> 63) & np.int64(2**63 - 1))


def _floats(words: Words, arrow_type: pa.DataType) -> npt.NDArray[np.float64]:
    """Return ordered words as floats."""
    if not pa.types.is_floating(arrow_type):
        return words.astype(np.float64)
    return (words ^ ((words >> 63) & np.int64(2**63 - 1))).view(np.float64)


def _values(words: Words, arrow_type: pa.DataType, is_missing: npt.NDArray[np.bool_]) -> pa.Array:
    """Return ordered words as values of a type."""
    if pa.types.is_floating(arrow_type):
        return pa.array(_floats(words, arrow_type), mask=is_missing).cast(arrow_type)
    return pa.array(np.where(is_missing, 0, words), mask=is_missing).cast(arrow_type)
