"""Parallel links, each in order and with its own delay, as inputs of unions and joins.

Times are µs. A link sends one batch per TICK of arrival time, and after each batch the watermark of its clock. So no
reader waits because a link is idle. All links send in the same span of arrival time, so the sizes of states become
constant.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from bench.disorder import SECOND, Numbers
from lowlevel.punctuation import END, Item, Punctuation

TICK = SECOND // 4
"""Span of data times in a batch."""


@dataclass(frozen=True)
class Link:
    """Rows in the order of their column `ts`. A row arrives `delay` µs after its ts."""

    rows: pa.RecordBatch
    delay: int = 0

    def with_delay(self, delay: int) -> Link:
        """Return the same rows with a delay of `delay` µs."""
        return replace(self, delay=delay)

    @property
    def times(self) -> Numbers:
        """Times of the rows."""
        return np.asarray(self.rows.column("ts").to_numpy())


def events(links: Sequence[Link], seconds: int) -> Iterator[tuple[int, int, Item]]:
    """Yield (arrival time, link, batch or watermark) for each tick of these seconds, then the end of all links."""
    times = [link.times for link in links]
    last = seconds * SECOND
    for tick in range(TICK, last + TICK, TICK):
        for number, link in enumerate(links):
            first, end = np.searchsorted(times[number], [tick - TICK - link.delay, tick - link.delay]).tolist()
            if first < end:
                yield tick, number, link.rows.slice(first, end - first)
            yield tick, number, Punctuation(f"link{number}", tick - link.delay)
    for number in range(len(links)):
        yield last, number, Punctuation(f"link{number}", END)


def packets(seconds: int, rate: int, groups: int, seed: int) -> Link:
    """Return `rate` packets/s at random times, each of one of `groups` pairs: `ts, srcIP, destIP, packets`."""
    random = np.random.default_rng(seed)
    count = seconds * rate
    pairs = np.random.default_rng(groups).integers(1 << 32, size=(2, groups), dtype=np.uint32)
    chosen = pa.array(random.integers(groups, size=count))
    columns = {"ts": pa.array(np.sort(random.integers(seconds * SECOND, size=count)))}
    for name, words in zip(("srcIP", "destIP"), pairs, strict=True):
        fixed = pa.Array.from_buffers(pa.binary(4), groups, [None, pa.py_buffer(words.tobytes())])
        columns[name] = fixed.cast(pa.binary()).take(chosen)
    columns["packets"] = pa.array(np.ones(count, np.int64))
    return Link(pa.RecordBatch.from_pydict(columns))


def flows(seconds: int, rate: int, keys: int, seed: int) -> Link:
    """Return `rate` rows/s at random times: `ts, key, number`. All `keys` keys are equally frequent."""
    random = np.random.default_rng(seed)
    count = seconds * rate
    times = np.sort(random.integers(seconds * SECOND, size=count))
    columns = {"ts": times, "key": random.integers(keys, size=count), "number": np.arange(count)}
    return Link(pa.RecordBatch.from_pydict({name: pa.array(column) for name, column in columns.items()}))
