"""Changes of rows with lifetimes as tuples: the definitions, random valid streams, and conversions to and from Arrow.

('I', vs, ve, p), ('R', vs, ve, vnew, p) and ('C', t); `inf` is a lifetime without end.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import pairwise
from random import Random

import numpy as np
import pyarrow as pa

from highlevel.speculation.lifetimes.model import make_changes
from lowlevel.punctuation import BEGINNING, END

inf = float("inf")


def I(vs, ve, p):  # noqa: E743
    return ("I", vs, ve, p)


def R(vs, ve, vnew, p):
    return ("R", vs, ve, vnew, p)


def C(t):
    return ("C", t)


def sync(event) -> float:
    return event[3] if event[0] == "R" else event[1]


def canon(events: Iterable) -> Counter:
    """The canonical history: (vs, ve, p) with how often it is true. Fails for an invalid stream."""
    rows: Counter = Counter()
    promised = -inf
    for event in events:
        assert sync(event) >= promised, f"{event} is below C({promised})"
        if event[0] == "C":
            promised = event[1]
        elif event[0] == "I":
            assert event[1] < event[2], f"{event} is empty"
            rows[event[1:]] += 1
        else:
            _, vs, ve, vnew, p = event
            assert vs <= vnew < ve, f"{event} does not shorten"
            assert rows[vs, ve, p] > 0, f"{event} retracts no row"
            rows[vs, ve, p] -= 1
            if vnew > vs:
                rows[vs, vnew, p] += 1
    return +rows


def endpoints(history: Counter) -> list:
    return sorted({time for vs, ve, _ in history for time in (vs, ve)})


def denote(history: Counter, results: Callable) -> Counter:
    """The snapshot operator by its definition: rows of each pair of neighbouring endpoints."""
    rows: Counter = Counter()
    points = endpoints(history)
    for v, following in pairwise(points):
        true = [p for (vs, ve, p), count in history.items() if vs <= v and ve >= following for _ in range(count)]
        for result in results(sorted(true)) if true else []:
            rows[v, following, result] += 1
    return rows


def at_each_instant(history: Counter) -> dict:
    """The rows that are true from each endpoint on, where they differ from those before."""
    snapshots, before = {}, Counter()
    for point in endpoints(history):
        now: Counter = Counter()
        for (vs, ve, p), count in history.items():
            if vs <= point < ve:
                now[p] += count
        if now != before:
            snapshots[point] = before = now
    return snapshots


def is_ordered(events: Iterable) -> bool:
    times = [sync(event) for event in events if event[0] != "C"]  # a CTI may be held back
    return times == sorted(times)


def is_perfect(events: list) -> bool:
    return is_ordered(events) and all(event[0] != "R" for event in events)


def random_stream(
    random: Random, kind: str = "any", *, full: bool = True, payloads: int = 4, closed: bool = True
) -> list:
    """A valid stream of up to eight chains: in `any` order, `ordered`, or `perfect`; with `full` retractions or not."""
    chains = []
    for _ in range(random.randint(1, 8)):
        vs, p = random.randrange(12), random.randrange(payloads)
        ve = inf if random.random() < 0.15 else vs + random.randint(1, 12)
        chain = [I(vs, ve, p)]
        for _ in range(0 if kind == "perfect" else random.choice([0, 0, 1, 2])):
            least = vs if full else vs + 1
            highest = (vs + 14 if ve == inf else ve) - 1
            if highest < least:
                break
            vnew = random.randint(least, highest)
            chain.append(R(vs, ve, vnew, p))
            ve = vnew
            if vnew == vs:
                break
        chains.append(chain)
    events = interleaved(random, chains)
    if kind != "any":
        events = [chain[-1] if len(chain) == 1 else merged for chain in chains for merged in _one_retraction(chain)]
        events.sort(key=sync)
    return with_ctis(random, events, closed=closed)


def _one_retraction(chain: list) -> list:
    if len(chain) == 1:
        return chain
    insert, last = chain[0], chain[-1]
    return [insert, R(insert[1], insert[2], last[3], insert[3])]


def interleaved(random: Random, chains: list) -> list:
    """The events of the chains in random order; each chain keeps its own."""
    order = [number for number, chain in enumerate(chains) for _ in chain]
    random.shuffle(order)
    remaining = [iter(chain) for chain in chains]
    return [next(remaining[number]) for number in order]


def merged(random: Random, streams: list[list], *, late: float = 6) -> list:
    """Many streams as one, each with payloads (number, p), roughly in the order of their times, with CTIs that hold."""
    keyed = []
    for number, stream in enumerate(streams):
        newest: dict = {}
        for event in stream:
            if event[0] != "C":
                chain = (event[1], event[-1])
                newest[chain] = max(sync(event) + random.random() * late, newest.get(chain, 0) + 1e-6)
                keyed.append((newest[chain], (*event[:-1], (number, event[-1]))))
    events = [event for _, event in sorted(keyed, key=lambda each: each[0])]
    least = inf
    reversed_stream = [C(inf)]
    for event in reversed(events):
        if random.random() < 0.05 and 0 < least < inf:
            reversed_stream.append(C(least))
        reversed_stream.append(event)
        least = min(least, sync(event))
    return reversed_stream[::-1]


def with_ctis(random: Random, events: list, *, closed: bool = True) -> list:
    """The events with CTIs that hold."""
    stream = []
    promised = -inf
    for place, event in enumerate(events):
        stream.append(event)
        least = min((sync(later) for later in events[place + 1 :]), default=inf)
        if random.random() < 0.3 and least > max(promised, 0) and least != inf:
            promised = random.randint(max(0, int(max(promised, 0))), int(least))
            stream.append(C(promised))
    return [*stream, C(inf)] if closed else stream


def to_time(time: float) -> int:
    return END if time == inf else BEGINNING if time == -inf else int(time)


def from_time(time: int) -> float:
    return inf if time == END else time


def to_batch(events: list, names: tuple = ("x",), kinds: tuple = (pa.int64(),)) -> pa.RecordBatch:
    """Events as a batch of changes. A payload is the value of the one column, or a tuple with one value per column."""
    kind = np.array(["IRC".index(event[0]) for event in events], np.int64)
    start = np.array([to_time(event[1]) for event in events], np.int64)
    stop = np.array([0 if event[0] == "C" else to_time(event[2]) for event in events], np.int64)
    new_stop = np.array([to_time(event[3]) if event[0] == "R" else 0 for event in events], np.int64)
    rows = [(None,) * len(names) if event[0] == "C" else event[-1] for event in events]
    rows = [row if isinstance(row, tuple) else (row,) for row in rows]
    columns = [pa.array([row[place] for row in rows], kind) for place, kind in enumerate(kinds)]
    return make_changes(kind, start, stop, new_stop, pa.RecordBatch.from_arrays(columns, list(names)))


def to_events(batch: pa.RecordBatch) -> list:
    """A batch of changes as events. The payload is the value of the one column, or a tuple."""
    events = []
    for kind, vs, ve, vnew, *row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
        payload = row[0] if len(row) == 1 else tuple(row)
        if kind == 2:
            events.append(C(from_time(vs)))
        elif kind == 0:
            events.append(I(vs, from_time(ve), payload))
        else:
            events.append(R(vs, from_time(ve), vnew, payload))
    return events
