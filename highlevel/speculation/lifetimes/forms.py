"""Changes in the formats of other systems: Debezium's envelopes and Flink's row kinds.

Both formats have no lifetimes, so the lifetime is part of the row: columns `vs` and `ve`. A retraction that shortens a
row is an update, a full retraction a deletion. These formats have no CTIs.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from capture import arrow_compute as pc
from capture.arrow_compute import array_of
from highlevel.speculation.lifetimes.kernels.endpoints import CTI, INSERT
from highlevel.speculation.lifetimes.model import VE, VS, Words, payload_of, times_of

OPERATION, BEFORE, AFTER = "op", "before", "after"
"""Fields of Debezium's envelope: the operation (c, u or d: create, update, delete), and the row before and after."""

ROW_KIND = "kind"
"""The column with Flink's row kind: +I, -U, +U or -D."""


def debezium(changes: pa.RecordBatch) -> pa.RecordBatch:
    """Return one envelope for each insert and retraction: `op`, `before`, `after`."""
    changes = pc.filter(changes, array_of(times_of(changes)[0] != CTI))
    kind, start, stop, new_stop = times_of(changes)
    is_insert, is_delete = kind == INSERT, (kind != INSERT) & (new_stop == start)
    rows = payload_of(changes)

    def struct(ends: Words, absent: np.ndarray) -> pa.Array:
        columns = [array_of(start), array_of(ends), *rows.columns]
        fields = [VS, VE, *rows.schema.names]
        return pa.StructArray.from_arrays(columns, fields, mask=pa.array(absent))

    names = np.where(is_insert, "c", np.where(is_delete, "d", "u"))
    after = struct(np.where(is_insert, stop, new_stop), is_delete)
    return pa.RecordBatch.from_arrays(
        [pa.array(names, pa.string()), struct(stop, is_insert), after], [OPERATION, BEFORE, AFTER]
    )


def flink(changes: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows with Flink's row kinds: the columns `kind`, `vs` and `ve`, and then the columns of the row."""
    kind, start, stop, new_stop = times_of(changes)
    is_update = (kind != INSERT) & (kind != CTI) & (new_stop > start)
    source = np.repeat(np.arange(len(kind)), np.where(kind == CTI, 0, 1 + is_update))
    is_second = np.append(False, source[1:] == source[:-1])[: len(source)]
    deleted = np.where(is_update[source], "-U", "-D")
    names = np.where(kind[source] == INSERT, "+I", np.where(is_second, "+U", deleted))
    ends = np.where(is_second, new_stop[source], stop[source])
    rows = pc.take(payload_of(changes), array_of(source))
    return pa.RecordBatch.from_arrays(
        [pa.array(names, pa.string()), array_of(start[source]), array_of(ends), *rows.columns],
        [ROW_KIND, VS, VE, *rows.schema.names],
    )
