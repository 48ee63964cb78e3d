"""Changes of rows with lifetimes for benches: rows of windows in order or late, in batches, with valid CTIs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from highlevel.speculation.lifetimes.kernels.endpoints import CTI, INSERT, RETRACTION
from highlevel.speculation.lifetimes.model import Words, change_schema, make_changes
from lowlevel.punctuation import END

PAYLOAD = pa.schema([pa.field("key", pa.int64()), pa.field("x", pa.int64())])
SCHEMA = change_schema(PAYLOAD)


@dataclass(frozen=True)
class Workload:
    """`rows` inserts, one per unit of time, each true for `lifetime`.

    The share `late` of them arrives 1 to `delay` places later. The share `shortened` of them ends earlier, by a later
    retraction.
    """

    rows: int
    lifetime: int = 30
    late: float = 0.0
    delay: int = 20
    shortened: float = 0.0
    tumbling: int = 0
    keys: int = 1


def batches(work: Workload, size: int, seed: int = 1, cti_every: int | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the changes in batches of `size` rows, with a CTI after each `cti_every` (by default each batch)."""
    random = np.random.default_rng(seed)
    times = np.arange(work.rows)
    kind, start, stop, new_stop = _rows(work, times)
    x, keys = random.integers(40, 1500, work.rows), random.integers(0, work.keys, work.rows)
    places = times + np.where(random.random(work.rows) < work.late, random.integers(1, work.delay + 1, work.rows), 0.0)
    if work.shortened:
        chosen = np.flatnonzero(random.random(work.rows) < work.shortened)
        ends = start[chosen] + random.integers(1, work.lifetime, len(chosen))
        kind = np.append(kind, np.full(len(chosen), RETRACTION))
        start, stop = np.append(start, start[chosen]), np.append(stop, stop[chosen])
        new_stop = np.append(new_stop, ends)
        x, keys = np.append(x, x[chosen]), np.append(keys, keys[chosen])
        places = np.append(places, places[chosen] + random.integers(1, work.delay + 1, len(chosen)) + 0.5)
    order = np.argsort(places, kind="stable")
    kind, start, stop, new_stop, x, keys = (each[order] for each in (kind, start, stop, new_stop, x, keys))
    sync = np.where(kind == RETRACTION, new_stop, start)
    least = np.append(np.minimum.accumulate(sync[::-1])[::-1], END)  # of the changes from each place on
    every = cti_every or size
    for begin in range(0, len(kind), size):
        end = min(begin + size, len(kind))
        after = [place for place in range(begin + every, end + 1, every) if place < len(kind)]
        after += [end] if end == len(kind) else []
        yield _with_ctis(begin, end, after, least, kind, start, stop, new_stop, keys, x)


def _rows(work: Workload, times: Words) -> tuple[Words, Words, Words, Words]:
    start = times // work.tumbling * work.tumbling if work.tumbling else times
    stop = start + (work.tumbling or work.lifetime)
    return np.full(len(times), INSERT), start, stop, stop.copy()


def _with_ctis(begin: int, end: int, after: list[int], least: Words, *columns: Words) -> pa.RecordBatch:
    """Return the changes `[begin, end)` with a CTI before each place of `after`."""
    kind, start, stop, new_stop, keys, x = (
        np.insert(column[begin:end], np.array(after, np.int64) - begin, least[after] if number == 1 else 0)
        for number, column in enumerate(columns)
    )
    places = np.array(after, np.int64) - begin + np.arange(len(after))
    kind[places] = CTI
    nulls = kind == CTI
    payload = pa.RecordBatch.from_arrays([pa.array(keys, mask=nulls), pa.array(x, mask=nulls)], schema=PAYLOAD)
    return make_changes(kind, start, stop, new_stop, payload)
