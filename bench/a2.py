"""Throughput of query Q3 while its arcs change (Chandramouli et al., 2010, Figure 9), and of a restart instead.

Q3 is linear: 8 arcs, each for a fall or a rise, without a register. After each `every` quotes a random arc is replaced
by its opposite. The old arc ends after the newest quote, and the new one begins there. A restart makes a new operator,
and passes the quotes of the last window to it.

All operators get at most `every` quotes in each call. So the ratios show the cost of the changes and of the restarts.
Two operators take turns after BLOCK calls: one whose arcs stay, and one whose arcs change. The printed figures are
those of one repetition: that with the median quotient.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from bench.one_core import on_one_core
from bench.quotes import CHANGE, SCHEMA, UNIT, Quotes, changes
from bench.report import Report
from bench.setting import Setting
from highlevel.patterns.automaton import Arc, Automaton
from highlevel.patterns.operator import PatternOperator
from highlevel.speculation.lifetimes.kernels.endpoints import CTI
from highlevel.speculation.lifetimes.model import concat, times_of
from lowlevel.expressions.tree import Binary, Literal
from lowlevel.expressions.types import Op, Type
from lowlevel.punctuation import END

COUNT, WINDOW, STEPS = 100_000, 500, 8
EVERY = (10, 100, 1000)
"""Quotes between two changes."""

BLOCK = 50
"""Calls of an operator before the other one takes its turn."""

CALLS = 500
"""Smallest number of calls in a repetition."""

RESTARTS = 100
"""Largest number of restarts in a repetition."""

FALL, RISE = (Binary(op, CHANGE, Literal(0.0, Type.FLOAT)) for op in (Op.LT, Op.GT))

ArcChange = tuple[list[Arc], list[Arc]]
"""Arcs to remove, and arcs to add."""


class Times(NamedTuple):
    """Processor time of a quote in one repetition, in seconds: static, with changes, and restarted."""

    static: float
    changed: float
    restarted: float


class Memory(NamedTuple):
    """The most arcs at one time, and the largest memory in bytes: static and with changes."""

    arcs: int
    static: int
    changed: int


def run(setting: Setting) -> Report:
    """Measure events per second."""
    times, memory = on_one_core(measure, setting.packets(COUNT), setting.runs(5))
    report = Report("A2")
    rows = []
    for every, found in times.items():
        cells = (f"{1e-6 / seconds:.4f}" for seconds in found)
        ratios = f"{found.static / found.changed:.3f}", f"{found.static / found.restarted:.3f}"
        rows.append((f"{every:,}", *cells, f"{(found.changed - found.static) * every * 1e6:.0f}", *ratios))
    columns = ("static", "changed", "restarted", "µs for a change", "changed / static", "restarted / static")
    first = "quotes between changes"
    report.table(f"Q3, {STEPS} arcs, W = {WINDOW}, p = 0.5, in order, M events/s", (first, *columns), rows)
    sizes = [
        (f"{every:,}", f"{each.arcs}", f"{each.static / 1024:.0f}", f"{each.changed / 1024:.0f}")
        for every, each in memory.items()
    ]
    report.table("largest memory", (first, "arcs, with changes", "static, KiB", "changed, KiB"), sizes)
    report.notes.append(
        "the paper: 350 K events/s if static, less than 10 % lower with a change each 10 quotes, and orders of "
        "magnitude lower with restarts. Its operator gets one quote at a time, this one those between two changes"
    )
    judged = not setting.quick
    for every in EVERY:
        ratio = times[every].static / times[every].changed
        report.add_criterion(f"events/s, a change each {every} quotes / static", ratio, ">= 0.9", judged)
    return report


def measure(count: int, runs: int) -> tuple[dict[int, Times], dict[int, Memory]]:
    """Return the times of the repetition with the median quotient, and the memory, by the quotes between changes."""
    times, memory = {}, {}
    for every in EVERY:
        first, quotes = steps(), max(count, CALLS * every)
        batches, arcs = list(cut(quotes, every)), list(arc_changes(first, quotes, every))
        memory[every] = memory_of(batches, first, arcs)  # also loads the kernels
        gc.collect()
        gc.freeze()  # a collection would otherwise search the prepared arcs
        found = []
        for _ in range(runs):
            static, changed = match_in_turn(batches, first, arcs)
            found.append(Times(static / quotes, changed / quotes, restart(batches, first, every, arcs)))
        found.sort(key=lambda each: each.static / each.changed)
        times[every] = found[len(found) // 2]
    return times, memory


def cut(count: int, every: int) -> Iterator[pa.RecordBatch]:
    """Yield quotes in batches of `every`, with a CTI after each window."""
    for batch in changes(Quotes(count), WINDOW, max(every, WINDOW)):
        if every >= WINDOW:
            yield batch
            continue
        pieces = [batch.slice(begin, every) for begin in range(0, WINDOW, every)]
        yield from pieces[:-1]
        yield concat([pieces[-1], batch.slice(WINDOW)], SCHEMA)


def steps() -> list[Arc]:
    """Return the first arcs of Q3."""
    draw = np.random.default_rng(3)
    return [Arc(f"q{step}", f"q{step + 1}", FALL if draw.random() < 0.5 else RISE) for step in range(STEPS)]


def arc_changes(first: Sequence[Arc], count: int, every: int) -> Iterator[ArcChange]:
    """Yield the change of the arcs after each `every` quotes.

    Arcs that have ended are removed when the watermark has passed their end: late quotes may use them until then.
    """
    draw, now, ended = np.random.default_rng(5), list(first), list[Arc]()
    for quotes in range(every, count + 1, every):
        step, newest, watermark = int(draw.integers(STEPS)), quotes * UNIT, quotes // WINDOW * WINDOW * UNIT
        old = now[step]
        now[step] = replace(old, fence=RISE if old.fence is FALL else FALL, begin=newest)
        passed = [arc for arc in ended if arc.end <= watermark]
        added = [replace(old, end=newest)] if newest > watermark else []
        ended = [*(arc for arc in ended if arc.end > watermark), *added]
        yield [old, *passed], [now[step], *added]


def query(arcs: Sequence[Arc]) -> PatternOperator:
    """Return an operator for Q3 with these arcs."""
    return PatternOperator(SCHEMA, Automaton("q0", (f"q{STEPS}",), tuple(arcs), (), WINDOW * UNIT))


def match_in_turn(
    batches: Sequence[pa.RecordBatch], first: Sequence[Arc], arcs: Sequence[ArcChange]
) -> tuple[float, float]:
    """Return the processor time in seconds of matching without changes, and with a change after each batch."""
    static, changed, seconds, seconds_changed = query(first), query(first), 0.0, 0.0
    for number, begin in enumerate(range(0, len(batches), BLOCK)):
        block = batches[begin : begin + BLOCK]
        # The second one finds the batches in the caches, so they change places.
        for is_static in (True, False) if number % 2 else (False, True):
            began = time.process_time()
            if is_static:
                for batch in block:
                    static.process(batch)
                seconds += time.process_time() - began
            else:
                for batch, change in zip(block, arcs[begin : begin + BLOCK], strict=True):
                    changed.process(batch)
                    changed.change_arcs(*change)
                seconds_changed += time.process_time() - began
    return seconds, seconds_changed


def memory_of(batches: Sequence[pa.RecordBatch], first: Sequence[Arc], arcs: Sequence[ArcChange]) -> Memory:
    """Match without and with changes, and return the memory."""
    static, changed, most, of_arcs = query(first), query(first), Memory(STEPS, 0, 0), STEPS
    for batch, (removed, added) in zip(batches, arcs, strict=True):
        static.process(batch)
        changed.process(batch)
        changed.change_arcs(removed, added)
        of_arcs += len(added) - len(removed)
        most = Memory(max(most.arcs, of_arcs), max(most.static, static.bytes), max(most.changed, changed.bytes))
    return most


def restart(batches: Sequence[pa.RecordBatch], first: Sequence[Arc], every: int, arcs: Sequence[ArcChange]) -> float:
    """Return the processor time of a quote in seconds, if each change makes a new operator.

    The new operator gets the quotes of the last window again, in calls of at most `every`. Measured from the end of the
    first window on.
    """
    quotes = [batch.filter(pa.array(times_of(batch)[0] != CTI)) for batch in batches[: RESTARTS + WINDOW // every]]
    operator, now, seconds, restarts = query(first), list(first), 0.0, 0
    for number, (batch, (removed, added)) in enumerate(zip(batches[: len(quotes)], arcs, strict=False), 1):
        gone = set(map(id, removed))
        now = [*(arc for arc in now if id(arc) not in gone), *(arc for arc in added if arc.end == END)]
        if every < WINDOW:
            window = quotes[max(0, number - WINDOW // every) : number]
        else:
            window = [quotes[number - 1].slice(every - WINDOW)]
        began = time.process_time()
        operator.process(batch)
        operator = query([replace(arc, begin=0) for arc in now])
        for part in window:
            operator.process(part)
        if number * every >= WINDOW:
            seconds, restarts = seconds + time.process_time() - began, restarts + 1
    return seconds / restarts / every
