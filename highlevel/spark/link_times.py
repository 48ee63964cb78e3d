"""The newest time of a link before each block of a capture, for queries WITH CONSISTENCY.

The watermark of such a query is computed from all rows of the link so far, but a task reads only some blocks. So the
planner reads the times of all rows once, as a node does (`lowlevel.watermarks.jumps`), and each task continues at the
time of the link before its first block. So watermarks do not depend on the division into tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from capture.files.blocks import Block
from capture.files.capture import Capture
from capture.lazy_dataclasses import dataclass
from lowlevel.expressions.columns import Vector
from lowlevel.plan import LowLevelPlan
from lowlevel.punctuation import BEGINNING
from lowlevel.rows.readers import make_reader
from lowlevel.watermarks.jumps import JumpGuard, LinkTime


@dataclass(frozen=True)
class LinkTimes:
    """The times of a link before each block and after the last block, by kind of rows."""

    by_kind: dict[str, list[LinkTime]]

    def before(self, block_number: int) -> dict[str, LinkTime]:
        """Return, for each kind of rows, the time before a block.

        `block_number` = number of blocks: after the last block.
        """
        return {kind: times[block_number] for kind, times in self.by_kind.items()}


def read_link_times(
    link: str, file: Capture, blocks: Sequence[Block], plans: Iterable[LowLevelPlan], capacity: int
) -> LinkTimes:
    """Read the times of a capture for those `plans` whose watermarks depend on rows. Without such plans, read nothing.

    `capacity`: maximum number of records of a block.
    """
    kinds = dict.fromkeys(plan.kind for plan in plans if plan.by_arrival)
    return LinkTimes({kind: _times_of(kind, link, file, blocks, capacity) for kind in kinds})


def _times_of(kind: str, link: str, file: Capture, blocks: Sequence[Block], capacity: int) -> list[LinkTime]:
    reader = make_reader(kind, link, file, frozenset({"ts"}), capacity)
    guard = JumpGuard()
    times = [guard.link_time]
    for block in blocks:
        for rows in reader.read(block):
            ts = rows.columns["ts"]
            assert isinstance(ts, Vector)
            guard.process(ts.data, BEGINNING, rows.arrivals)
        times.append(guard.link_time)
    return times
