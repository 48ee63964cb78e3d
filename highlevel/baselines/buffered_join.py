"""The base class of joins that use a buffer and an OA-Join to keep results in order (Li 2008, §7.3)."""

from __future__ import annotations

import pyarrow as pa

from highlevel.baselines.sort_buffer import SortBuffer
from highlevel.joins.oa_join import OAJoin
from highlevel.joins.spec import JoinKind, JoinSpec, WatermarkForm

WAITING = "waiting"
"""Snapshot table of the rows in the buffer, in addition to the tables of the join."""


class BufferedJoin:
    """OA-Join with watermarks of the left time, and a buffer that sorts rows by the column `buffered`."""

    def __init__(self, spec: JoinSpec, buffered: str) -> None:
        """Join by `spec`."""
        self.join = OAJoin(spec, WatermarkForm.LEFT)
        self.buffer = SortBuffer(buffered)

    @property
    def rows_held(self) -> int:
        """Number of rows in the join and in the buffer."""
        return self.join.rows_held + self.buffer.rows

    @property
    def bytes(self) -> int:
        """Bytes of the rows in the join and in the buffer."""
        return self.join.bytes + self.buffer.bytes

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the state of the join, and the rows that wait."""
        waiting = self.buffer.runs()
        return self.join.snapshot() | ({WAITING: pa.Table.from_batches(waiting)} if waiting else {})

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the state of a snapshot."""
        self.join.restore(tables)
        for batch in tables[WAITING].to_batches() if WAITING in tables else []:
            self.buffer.add(batch)


def left_time_name(spec: JoinSpec) -> str:
    """Return the output name of the left time, which defines the order.

    Raises ValueError if rows may lack this time.
    """
    if spec.kind in (JoinKind.RIGHT, JoinKind.FULL):
        raise ValueError(f"got a {spec.kind} join, expected a join whose rows all have a left time: INNER or LEFT")
    (name,) = spec.time_columns(WatermarkForm.LEFT)
    return name
