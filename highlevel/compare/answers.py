"""How far an answer is from the exact one: rows that are wrong, rows that are missing, and what their counts lack."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from highlevel.compare.question import Question

Row = tuple[object, ...]


@dataclass(frozen=True)
class Difference:
    """`results` of the exact answer; of the other one `wrong` rows, and those that are `missing` in it.

    `count_error` is the part of the counts, or of the pairs, that differ.
    """

    results: int
    wrong: int
    missing: int
    count_error: float

    @property
    def exact(self) -> bool:
        """Whether there is none."""
        return self.wrong == self.missing == 0


class Answer:
    """The rows of an answer by their keys, each with what the query shows of it, as often as it has them."""

    def __init__(self, question: Question, batches: Sequence[pa.RecordBatch]) -> None:
        """Take all rows of an answer."""
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
        """Tell how `other` differs from this, the exact one.

        A row of the other is wrong that is not in this. One of this is missing where the other has no row, or fewer,
        of its key: what is there and wrong is not missing as well.
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
    """Sums of FLOAT depend on the order of their parts in the last bits, which is no difference."""
    return float(f"{value:.9g}") if isinstance(value, float) else value


def shown_rows(table: pa.Table, names: Sequence[str]) -> Counter[Row]:
    """Return the rows of any answer to the same query."""
    return Counter(_rows(table, names))
