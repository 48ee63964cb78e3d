"""The rule of NetRows: rows of a change log are added up, so a row that was withdrawn is no result.

    op      ts  host         op      ts  host
    insert   1  a            +I       1  a           result: 1 a,  3 b
    insert   2  b            +I       2  b
    delete   2  b            -U       2  b
    insert   3  b            +U       3  b

A withdrawal has the values of the row that it withdraws, so also its time. It may arrive before the row. A row that is
withdrawn more often than it was inserted is left out, and counted when the watermark has passed it.
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
"""Largest weight of a row. A row is repeated that often, and a wrong column as weight would need all memory."""

INSERTS = ("+", "+i", "+u", "c", "r", "insert", "update_postimage")
WITHDRAWALS = ("-", "-u", "-d", "d", "delete", "update_preimage")
"""Operations in lower case, as in diff, Flink, Debezium and Delta Lake."""


class NetRule:
    """The rows that remain of a change log."""

    within = 0

    def __init__(self, node: NetRows) -> None:
        """Read the changes of `node`."""
        self._change = node.change
        self._names = list(node.keys)

    def prepare(self, batch: pa.RecordBatch) -> pa.Table:
        """Return rows with weights. Raises InputError for an unknown operation, and a too large weight."""
        weights = _weights(self._change, batch.column(self._change))
        return pa.Table.from_arrays([*map(batch.column, self._names), array_of(weights)], [*self._names, SUM])

    def results(self, keyed: KeyedRows) -> pa.Table:
        """Return the rows, each as often as the sum of its weights."""
        return self._repeated(self._summed(keyed))

    def settle(self, keyed: KeyedRows, decided: int, low: int, deadline: int) -> Settlement:
        """Return the rows below the watermark. The weights of the others are added up."""
        summed = self._summed(keyed)
        is_final = summed.times < low
        final = summed.take(np.flatnonzero(is_final))
        results = self._repeated(final)
        weights = self._weights_in(final)
        unmatched = -int(weights[weights < 0].sum())
        return Settlement(results, summed.take(np.flatnonzero(~is_final)), unmatched)

    def bound(self, times: Numbers, low: int) -> int:
        """Return the watermark of the rows: changes of a row have its time."""
        return low

    def _weights_in(self, keyed: KeyedRows) -> Numbers:
        weights: Numbers = keyed.rows.column(SUM).to_numpy()
        return weights

    def _summed(self, keyed: KeyedRows) -> KeyedRows:
        """Return each different row once, with the sum of its weights, unless this is 0."""
        firsts = np.flatnonzero(keyed.begins_key)
        if not len(firsts):
            return keyed
        weights = np.add.reduceat(self._weights_in(keyed), firsts)
        kept = firsts[weights != 0]
        taken = keyed.take(kept)
        rows = taken.rows.set_column(len(self._names), SUM, array_of(weights[weights != 0]))
        return KeyedRows(rows, taken.keys, taken.times)

    def _repeated(self, summed: KeyedRows) -> pa.Table:
        counts = np.maximum(self._weights_in(summed), 0)
        return summed.rows.select(self._names).take(array_of(np.repeat(np.arange(len(counts)), counts)))


def _weights(name: str, changes: pa.Array) -> Numbers:
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
