"""The rule of NetRows: the weights of equal rows in a change log are added up. A withdrawn row is not in the result.

    op      ts  host         op      ts  host
    insert   1  a            +I       1  a           result: 1 a,  3 b
    insert   2  b            +I       2  b
    delete   2  b            -U       2  b
    insert   3  b            +U       3  b

A withdrawal has the values and the time of the row that it withdraws. The withdrawal may arrive before this row. If a
row is withdrawn more often than it was inserted, it is dropped, and counted when the watermark has passed its time.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from capture.arrow_compute import array_of
from capture.errors import InputError
from highlevel.plan.revision_nodes import NetRows
from highlevel.speculation.keyed_rows import KeyedRows, Numbers, Settlement

SUM = ".weight"
"""Column of stored rows: the sum of the weights of equal rows."""

MAX_WEIGHT = 1 << 20
"""Maximum weight of a row. A row with the weight n is returned n times, so a wrong column as weight could use all
memory.
"""

INSERTS = ("+", "+i", "+u", "c", "r", "insert", "update_postimage")
WITHDRAWALS = ("-", "-u", "-d", "d", "delete", "update_preimage")
"""The names of operations, in lower case, that diff, Flink, Debezium and Delta Lake use."""


class NetRule:
    """Computes the rows that remain when a change log is added up."""

    within = 0

    def __init__(self, node: NetRows) -> None:
        """Read the changes of `node`."""
        self._change = node.change
        self._names = list(node.keys)

    def prepare(self, batch: pa.RecordBatch) -> pa.Table:
        """Return rows with weights. Raises InputError for an unknown operation or a weight above MAX_WEIGHT."""
        weights = _parse_weights(self._change, batch.column(self._change))
        return pa.Table.from_arrays([*map(batch.column, self._names), array_of(weights)], [*self._names, SUM])

    def results(self, keyed: KeyedRows) -> pa.Table:
        """Return the rows, each as often as the sum of its weights."""
        return self._repeat_by_weight(self._sum_weights(keyed))

    def settle(self, keyed: KeyedRows, decided: int, low: int, deadline: int) -> Settlement:
        """Return the rows below the watermark. The weights of equal remaining rows are added up."""
        summed = self._sum_weights(keyed)
        is_final = summed.times < low
        final = summed.take(np.flatnonzero(is_final))
        results = self._repeat_by_weight(final)
        weights = self._weights_of(final)
        unmatched = -int(weights[weights < 0].sum())
        return Settlement(results, summed.take(np.flatnonzero(~is_final)), unmatched)

    def bound(self, times: Numbers, low: int) -> int:
        """Return the watermark of the results.

        It is the watermark of the input, because a change has the time of its row.
        """
        return low

    def _weights_of(self, keyed: KeyedRows) -> Numbers:
        weights: Numbers = keyed.rows.column(SUM).to_numpy()
        return weights

    def _sum_weights(self, keyed: KeyedRows) -> KeyedRows:
        """Return each distinct row once, with the sum of its weights, without rows whose sum is 0."""
        firsts = np.flatnonzero(keyed.begins_key)
        if not len(firsts):
            return keyed
        weights = np.add.reduceat(self._weights_of(keyed), firsts)
        kept = firsts[weights != 0]
        taken = keyed.take(kept)
        rows = taken.rows.set_column(len(self._names), SUM, array_of(weights[weights != 0]))
        return KeyedRows(rows, taken.keys, taken.times)

    def _repeat_by_weight(self, summed: KeyedRows) -> pa.Table:
        counts = np.maximum(self._weights_of(summed), 0)
        return summed.rows.select(self._names).take(array_of(np.repeat(np.arange(len(counts)), counts)))


def _parse_weights(name: str, changes: pa.Array) -> Numbers:
    """Convert operations, or weights, to weights."""
    if changes.null_count:
        raise InputError(f"column {name}: got NULL, expected an operation or a weight in each row")
    if pa.types.is_integer(changes.type):
        weights: Numbers = changes.to_numpy()
        if (largest := int(weights.max(initial=0))) > MAX_WEIGHT:
            raise InputError(f"column {name}: got {largest}, expected weights of at most {MAX_WEIGHT:,}")
        return weights
    encoded = changes.dictionary_encode()
    signs = []
    for operation in encoded.dictionary.to_pylist():
        word = operation.strip().lower()
        if word not in INSERTS + WITHDRAWALS:
            listed = ", ".join((*INSERTS, *WITHDRAWALS))
            hint = "; an update is two rows, -U and +U, or an envelope with before and after" if word == "u" else ""
            raise InputError(f"column {name}: got {operation!r}, expected a weight, or one of {listed}{hint}")
        signs.append(1 if word in INSERTS else -1)
    codes = encoded.indices.to_numpy()
    return np.array(signs, np.int64)[codes] if len(codes) else np.zeros(0, np.int64)
