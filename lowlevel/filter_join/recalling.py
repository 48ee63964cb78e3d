"""The filter joins of a stream of rows: what each has seen is a column of its own, beside those of the rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from capture.metrics import Samples
from lowlevel.expressions import parts_of
from lowlevel.filter_join.memory import Memory, bytes_of
from lowlevel.filter_join.seen_within import SeenWithin
from lowlevel.metrics import FILTER_JOIN_BYTES, FILTER_JOIN_EVICTIONS, FILTER_JOIN_KEYS
from lowlevel.plan import LowLevelPlan
from lowlevel.readers import Rows
from lowlevel.vectors import AnyVector, Columns


def filter_joins(plans: Iterable[LowLevelPlan]) -> list[SeenWithin]:
    """Return every different `seen_within` of some plans."""
    wheres = [plan.where for plan in plans if plan.where is not None]
    return list(dict.fromkeys(part for where in wheres for part in parts_of(where) if isinstance(part, SeenWithin)))


def memory_of(plans: Iterable[LowLevelPlan]) -> int:
    """Return the bytes that the filter joins of plans take on a link, each by kind of rows."""
    kinds: dict[object, list[LowLevelPlan]] = {}
    for plan in plans:
        kinds.setdefault((plan.kind, plan.sampling), []).append(plan)
    return sum(bytes_of(join) for of_kind in kinds.values() for join in filter_joins(of_kind))


@dataclass(frozen=True, slots=True)
class RecalledRows:
    """Rows with what they have seen."""

    count: int
    earliest: int
    columns: Columns
    arrivals: npt.NDArray[np.int64] | None


class Recalling:
    """Takes all rows of one kind on a link, in the order in which they come. Not thread safe."""

    def __init__(self, plans: Iterable[LowLevelPlan]) -> None:
        """Make the memories of plans of one kind."""
        self.memories = [Memory(join) for join in filter_joins(plans)]

    def add(self, rows: Rows) -> Rows:
        """Return the next rows with a column for each filter join."""
        if not self.memories:
            return rows
        seen = {memory.join.column: memory.recall(rows.columns, rows.count) for memory in self.memories}
        return RecalledRows(rows.count, rows.earliest, _Beside(rows.columns, seen), rows.arrivals)

    def add_samples(self, samples: Samples, link: str, kind: str) -> None:
        """Add what was counted, all filter joins together."""
        if self.memories:
            samples.set(FILTER_JOIN_KEYS, sum(memory.held for memory in self.memories), link, kind)
            samples.set(FILTER_JOIN_BYTES, sum(memory.bytes for memory in self.memories), link, kind)
            samples.add(FILTER_JOIN_EVICTIONS, sum(memory.alive for memory in self.memories), link, kind, "alive")
            samples.add(FILTER_JOIN_EVICTIONS, sum(memory.over for memory in self.memories), link, kind, "over")


class _Beside(Mapping[str, AnyVector]):
    """Columns, and a few more."""

    def __init__(self, columns: Columns, more: Mapping[str, AnyVector]) -> None:
        self._columns = columns
        self._more = more

    def __getitem__(self, name: str) -> AnyVector:
        return self._more[name] if name in self._more else self._columns[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._columns
        yield from self._more

    def __len__(self) -> int:
        return len(self._columns) + len(self._more)
