"""Difference between an answer and the exact answer: wrong rows, missing rows, and the error of the counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pyarrow as pa

from capture.lazy_dataclasses import dataclass
from highlevel.compare.question import Question

Row = tuple[object, ...]


@dataclass(frozen=True)
class Difference:
    """Differences of an answer from the exact answer.

    `results`: rows of the exact answer. `wrong`: rows of the other answer that are not exact. `missing`: exact rows
    that are missing in the other answer. `count_error`: the sum of the differences of counts (of pairs for a join), as
    a share of the sum of the exact counts.
    """

    results: int
    wrong: int
    missing: int
    count_error: float

    @property
    def is_exact(self) -> bool:
        """Return True if there is no difference."""
        return self.wrong == self.missing == 0


class Answer:
    """The result rows of an answer as a multiset of (key, values), and the sum of the counts by key."""

    def __init__(self, question: Question, batches: Sequence[pa.RecordBatch]) -> None:
        """Count all rows of an answer."""
        table = pa.Table.from_batches(batches, question.plan.schema)
        self.results = table.num_rows
        keys = _rows(table, question.keys)
        values = _rows(table, question.result_columns)
        self.shown = Counter(values)
        self.rows = Counter(zip(keys, values, strict=True))
        self.counts: Counter[Row] = Counter()
        counts = [1] * len(keys) if question.count_column is None else table.column(question.count_column).to_pylist()
        for key, count in zip(keys, counts, strict=True):
            self.counts[key] += count

    def difference(self, other: Answer) -> Difference:
        """Compare `other` with this exact answer.

        A row of `other` is wrong if this answer does not contain it. A row is missing if `other` has fewer rows with
        the key of the row. If `other` has a wrong row with this key, the row counts as wrong, not as missing.
        """
        wrong = (other.rows - self.rows).total()
        own_keys, other_keys = (Counter(key for key, _ in answer.rows.elements()) for answer in (self, other))
        keys = self.counts.keys() | other.counts.keys()
        count_error = sum(abs(self.counts[key] - other.counts[key]) for key in keys) / max(1, self.counts.total())
        return Difference(self.results, wrong, (own_keys - other_keys).total(), count_error)


def _rows(table: pa.Table, names: Sequence[str]) -> list[Row]:
    if not names:
        return [()] * table.num_rows
    return list(zip(*(map(_round_float, table.column(name).to_pylist()) for name in names), strict=True))


def _round_float(value: object) -> object:
    """Round a FLOAT, because the last bits of sums depend on the order of the rows."""
    return float(f"{value:.9g}") if isinstance(value, float) else value


def rows_of_answer(table: pa.Table, names: Sequence[str]) -> Counter[Row]:
    """Return the multiset of the rows of an answer, with the columns `names`."""
    return Counter(_rows(table, names))
