"""Sketches: approximate aggregates in bounded memory, with the datasketches library.

    approx_count_distinct   HyperLogLog, 2^12 registers: relative standard error 1.6 %           at most 2 KB
    approx_quantile         KLL, k = 200: rank error 1.7 % of the rows at 99 % confidence        about 5 KB
    approx_top              frequent items, 768 values: counts too high by up to 0.35 % of rows  texts of the values

Sketches of parts of the values can be merged into a sketch of all values. Results may differ between two runs, within
the error bounds: the estimate of a HyperLogLog depends on the order of the values and on merges, KLL is randomised, and
a frequent-items sketch depends on the order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from highlevel.aggregation import DetailFunction, Folding
from highlevel.results.holistic import write_texts

REGISTERS_LOG2 = 12
KLL_SIZE = 200
FREQUENT_SIZE_LOG2 = 10

MAX_VALUES_PER_CALL = 1 << 16
"""Maximum values of one call of a KLL sketch."""


Values = Sequence[Any] | npt.NDArray[Any]


class Sketch(Protocol):
    """Common interface of the sketches."""

    def add(self, values: Values, counts: npt.NDArray[np.int64]) -> None:
        """Add values with their counts."""
        ...

    def merge(self, data: bytes) -> None:
        """Merge a serialised sketch of the same class."""
        ...

    def to_bytes(self) -> bytes:
        """Serialise the sketch."""
        ...

    def result(self, parameter: float) -> Any:
        """Return the result, or None without values."""
        ...


class Distinct:
    """Estimates the number of different values."""

    def __init__(self) -> None:
        """Create an empty sketch."""
        import datasketches

        self.library = datasketches
        self.sketch = datasketches.hll_sketch(REGISTERS_LOG2, datasketches.tgt_hll_type.HLL_4)

    def add(self, values: Values, counts: npt.NDArray[np.int64]) -> None:
        """Add values and ignore their counts."""
        for value in values:
            self.sketch.update(value)

    def merge(self, data: bytes) -> None:
        """Merge a serialised sketch."""
        union = self.library.hll_union(REGISTERS_LOG2)
        union.update(self.sketch)
        union.update(self.library.hll_sketch.deserialize(data))
        self.sketch = union.get_result(self.library.tgt_hll_type.HLL_4)

    def to_bytes(self) -> bytes:
        """Return the registers."""
        return bytes(self.sketch.serialize_compact())

    def result(self, parameter: float) -> int:
        """Return the estimate, as a whole number."""
        return round(self.sketch.get_estimate())


class Quantiles:
    """Estimates quantiles of values."""

    def __init__(self) -> None:
        """Create an empty sketch."""
        import datasketches

        self.library = datasketches
        self.sketch = datasketches.kll_doubles_sketch(KLL_SIZE)

    def add(self, values: Values, counts: npt.NDArray[np.int64]) -> None:
        """Add numbers, except NaN."""
        numbers = np.asarray(values, np.float64)
        while len(numbers):
            some = np.minimum(counts, MAX_VALUES_PER_CALL)
            fit = max(1, int(np.searchsorted(np.cumsum(some), MAX_VALUES_PER_CALL, side="right")))
            self.sketch.update(np.repeat(numbers[:fit], some[:fit]))
            counts = np.append(counts[:fit] - some[:fit], counts[fit:])
            numbers, counts = numbers[counts > 0], counts[counts > 0]

    def merge(self, data: bytes) -> None:
        """Merge a serialised sketch."""
        self.sketch.merge(self.library.kll_doubles_sketch.deserialize(data))

    def to_bytes(self) -> bytes:
        """Serialise the kept values."""
        return bytes(self.sketch.serialize())

    def result(self, parameter: float) -> float | None:
        """Return a value whose rank is about `parameter` (0 to 1) times the number of rows."""
        return None if self.sketch.is_empty() else float(self.sketch.get_quantile(parameter, True))


class Frequent:
    """Finds the most frequent values. The result contains all values that are more frequent than the error bound."""

    def __init__(self) -> None:
        """Create an empty sketch."""
        import datasketches

        self.library = datasketches
        self.sketch = datasketches.frequent_strings_sketch(FREQUENT_SIZE_LOG2)

    def add(self, values: Values, counts: npt.NDArray[np.int64]) -> None:
        """Add texts with their counts."""
        for value, count in zip(values, counts.tolist(), strict=True):
            self.sketch.update(value, count)

    def merge(self, data: bytes) -> None:
        """Merge a serialised sketch."""
        self.sketch.merge(self.library.frequent_strings_sketch.deserialize(data))

    def to_bytes(self) -> bytes:
        """Serialise the kept values with their counts."""
        return bytes(self.sketch.serialize())

    def result(self, parameter: float) -> str | None:
        """Return the most frequent values as `value=count value=count`, the largest estimate first."""
        errors = self.library.frequent_items_error_type.NO_FALSE_NEGATIVES
        items = sorted(self.sketch.get_frequent_items(errors), key=lambda each: (-each[1], each[0]))
        return " ".join(f"{value}={estimate}" for value, estimate, _, _ in items[: int(parameter)]) or None


SKETCH_TYPES: dict[DetailFunction, Callable[[], Sketch]] = {
    DetailFunction.APPROX_COUNT_DISTINCT: Distinct,
    DetailFunction.APPROX_QUANTILE: Quantiles,
    DetailFunction.APPROX_TOP: Frequent,
}
"""The type of the sketch for each function."""


def sketch_input(folding: Folding, column: pa.Array) -> Values:
    """Convert a column without NULLs to the form that the sketch of a folding needs."""
    if folding.function is DetailFunction.APPROX_QUANTILE:
        return column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    if folding.function is DetailFunction.APPROX_TOP:
        return write_texts(column, folding.kind).to_pylist()
    if pa.types.is_binary(column.type):
        return [value.decode("latin-1") for value in column.to_pylist()]
    if pa.types.is_boolean(column.type):
        return column.cast(pa.int64()).to_pylist()
    return column.to_pylist()
