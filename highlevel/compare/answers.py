"""Difference between an answer and the exact one: wrong rows, missing rows, and the error of the counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pyarrow as pa

from capture.lazy_dataclasses import dataclass
from highlevel.compare.question import Question

Row = tuple[object, ...]


@dataclass(frozen=True)
class Difference:
    """Number of `results` of the exact answer, of `wrong` rows of the other, and of exact rows `missing` in it.

    `count_error` is the share of the counts, or of the pairs, that differ.
    """

    results: int
    wrong: int
    missing: int
    count_error: float

    @property
    def exact(self) -> bool:
        """Return True if there is no difference."""
        return self.wrong == self.missing == 0


class Answer:
    """Multiset of result rows by key, with their values."""

    def __init__(self, question: Question, batches: Sequence[pa.RecordBatch]) -> None:
        """Count all rows of an answer."""
        table = pa.Table.from_batches(batches, question.plan.schema)
        self.results = table.num_rows
        keys = _rows(table, question.keys)
        values = _rows(table, question.shown)
        self.shown = Counter(values)
        self.rows = Counter(zip(keys, values, strict=True))
        self.counts: Counter[Row] = Counter()
        counts = [1] * len(keys) if question.count is None else table.column(question.count).to_pylist()
        for key, count in zip(keys, counts, strict=True):
            self.counts[key] += count

    def difference(self, other: Answer) -> Difference:
        """Compare `other` with this exact answer.

        A row of `other` is wrong if this answer does not contain it. A row is missing if `other` has no row, or fewer
        rows, of its key. A wrong row of the same key counts as wrong, not as missing.
        """
        wrong = (other.rows - self.rows).total()
        here, there = (Counter(key for key, _ in each.rows.elements()) for each in (self, other))
        keys = self.counts.keys() | other.counts.keys()
        off = sum(abs(self.counts[key] - other.counts[key]) for key in keys)
        return Difference(self.results, wrong, (here - there).total(), off / max(1, self.counts.total()))


def _rows(table: pa.Table, names: Sequence[str]) -> list[Row]:
    if not names:
        return [()] * table.num_rows
    return list(zip(*(map(_rounded, table.column(name).to_pylist()) for name in names), strict=True))


def _rounded(value: object) -> object:
    """Round a FLOAT, because the last bits of sums depend on the order of the rows."""
    return float(f"{value:.9g}") if isinstance(value, float) else value


def shown_rows(table: pa.Table, names: Sequence[str]) -> Counter[Row]:
    """Return the rows of any answer to the same query."""
    return Counter(_rows(table, names))
