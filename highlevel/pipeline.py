"""The operators of one query in a row: Meld, that of its windows, and the stages behind it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from capture.metrics import Samples
from highlevel.aggregation import QueryPlan
from highlevel.metrics import (
    LATE_PARTIALS,
    LATE_ROWS,
    OUTSIDE_WINDOWS,
    PARTIALS_BEYOND_CAP,
    PARTIALS_RECEIVED,
    RESULT_ROWS,
    ROWS_BEYOND_CAP,
    STATE_BYTES,
    WINDOWS_CLOSED,
    WINDOWS_OPEN,
    set_progress,
)
from highlevel.operators.meld import Meld
from highlevel.operators.operator import Operator
from highlevel.operators.state import restore_to, snapshot_of
from highlevel.operators.window_operator import beyond_cap
from highlevel.plan.operators.windowed import make_window_operator
from highlevel.results.stages import behind_windows
from highlevel.sliding.wid_ranges import Ranges, count
from lowlevel.punctuation import Item, Punctuation


class Pipeline:
    """Runs one query's high level over any number of links; itself an operator. Not thread safe.

    Partials of link i go to port i, whatever their order; results leave as windows become final.
    """

    def __init__(self, plan: QueryPlan, links: Sequence[str]) -> None:
        """Unite `links`; two ports may have the same name (several files of one link)."""
        self.plan = plan
        self.links = list(links)
        self.meld = Meld(len(links))
        self.windows = make_window_operator(plan)
        self.windows_closed = 0
        stages, self.finish = behind_windows(plan)
        self.stages: list[Operator] = [self.meld, self.windows, *stages]

    @property
    def state_bytes(self) -> int:
        """Bytes of the open windows."""
        return self.windows.bytes

    @property
    def pairs(self) -> int:
        """Pairs of rows that joins have found: there is no join here."""
        return 0

    def rows(self, port: int, batch: pa.RecordBatch) -> Iterator[Item]:
        """Take partials of one link."""
        yield from self._pass_on(0, port, batch)

    def punctuate(self, port: int, mark: Punctuation) -> Iterator[Item]:
        """Take a promise of one link."""
        yield from self._pass_on(0, port, mark)

    def _pass_on(self, stage: int, port: int, item: Item) -> Iterator[Item]:
        if stage == len(self.stages):
            yield item
            return
        operator = self.stages[stage]
        items = operator.punctuate(port, item) if isinstance(item, Punctuation) else operator.rows(port, item)
        for following in items:
            yield from self._pass_on(stage + 1, 0, following)

    def snapshot(self) -> dict[str, pa.Table]:
        """State of all stages."""
        return snapshot_of(self.stages)

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Take over the state of all stages."""
        restore_to(self.stages, tables)

    def samples(self, newest: int) -> Samples:
        """Return counters and gauges; `newest` is the largest packet time seen on any link, in ns."""
        query = self.plan.name
        samples = Samples()
        samples.add(PARTIALS_RECEIVED, self.windows.received, query)
        samples.add(OUTSIDE_WINDOWS, self.windows.outside, query)
        samples.add(LATE_PARTIALS, self.windows.late, query)
        samples.add(LATE_ROWS, self.windows.late_rows, query)
        partials, rows = beyond_cap(self.windows)
        samples.add(PARTIALS_BEYOND_CAP, partials, query)
        samples.add(ROWS_BEYOND_CAP, rows, query)
        self.windows_closed += number_of(self.windows.take_closed())
        samples.add(WINDOWS_CLOSED, self.windows_closed, query)
        samples.add(RESULT_ROWS, self.finish.results, query)
        samples.set(WINDOWS_OPEN, number_of(self.windows.open_windows()), query)
        samples.set(STATE_BYTES, self.windows.bytes, query)
        set_progress(samples, query, zip(self.links, self.meld.bounds, strict=True), newest)
        return samples


def number_of(windows: Ranges | int) -> int:
    """Count windows that an operator tells by their ids, or by how many there are."""
    return windows if isinstance(windows, int) else count(windows)
