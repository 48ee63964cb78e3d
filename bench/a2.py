"""Throughput of query Q3 while its arcs change (Chandramouli et al., 2010, Figure 9), and of a restart instead.

Q3 is linear: 8 arcs, each for a fall or a rise, without a register. After each `every` quotes a random arc is replaced
by its opposite. The old arc ends after the newest quote, and the new one begins there. A restart makes a new operator,
and passes the quotes of the last window to it.

The operator gets `every` quotes in each call, also without changes. So the ratio is the cost of the changes alone.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import zip_longest

import numpy as np
import pyarrow as pa

from bench.figure import figure, quotient
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

RESTARTS = 200
"""Largest number of restarts that are measured."""

FALL, RISE = (Binary(op, CHANGE, Literal(0.0, Type.FLOAT)) for op in (Op.LT, Op.GT))


def run(setting: Setting) -> Report:
    """Measure events per second."""
    rates, sizes = on_one_core(measure, setting.packets(COUNT), setting.runs(3))
    report = Report("A2")
    rows = []
    for every in EVERY:
        static, changed, restarted, ratio = rates[every]
        cells = (f"{rate / 1e6:.4f}" for rate in (static, changed, restarted))
        rows.append((f"{every:,}", *cells, f"{ratio:.2f}", f"{restarted / static:.3f}"))
    columns = ("quotes between changes", "static", "changed", "restarted", "changed / static", "restarted / static")
    report.table(f"Q3, {STEPS} arcs, W = {WINDOW}, p = 0.5, in order, M events/s", columns, rows)
    report.table("memory", ("arcs", "KiB"), [(name, f"{size / 1024:.0f}") for name, size in sizes.items()])
    report.notes.append(
        "the paper: 350 K events/s if static, less than 10 % lower with a change each 10 quotes, and orders of "
        "magnitude lower with restarts. Its operator gets one quote at a time, this one those between two changes"
    )
    judged = not setting.quick
    for every in EVERY:
        report.require(f"events/s, a change each {every} quotes / static", rates[every][-1], ">= 0.9", judged)
    return report


def measure(count: int, runs: int) -> tuple[dict[int, tuple[float, float, float, float]], dict[str, int]]:
    """Return figures by the quotes between two changes, and bytes of memory.

    The figures are events per second, static, with changes and restarted; and the second divided by the first, the
    median of turns.
    """
    rates, sizes = {}, {}
    for every in EVERY:
        batches, arcs = list(cut(count, every)), list(arcs_after(count, every))
        gc.collect()
        gc.freeze()  # a collection would otherwise search the prepared arcs
        few = RESTARTS + WINDOW // every
        turns = [
            (_seconds(partial(match, batches, [])), _seconds(partial(match, batches, arcs))) for _ in range(runs + 1)
        ]
        seconds = [figure(values) for values in zip(*turns[1:], strict=True)]
        restarted = min(few, len(batches)) * every / _seconds(partial(restart, batches[:few], every, arcs))
        static, changed = (count / min(each.values) for each in seconds)
        rates[every] = static, changed, restarted, quotient(*seconds).median
        sizes[f"static, {every:,} quotes in a call"] = match(batches, []).bytes
        sizes[f"a change each {every:,} quotes"] = match(batches, arcs).bytes
    return rates, sizes


def _seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


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
    """Return the arcs of Q3."""
    draw = np.random.default_rng(3)
    return [Arc(f"q{step}", f"q{step + 1}", FALL if draw.random() < 0.5 else RISE) for step in range(STEPS)]


def arcs_after(count: int, every: int) -> Iterator[list[Arc]]:
    """Yield the arcs after each `every` quotes: those that apply now, and those that late quotes may still use."""
    draw, now, ended = np.random.default_rng(5), steps(), list[Arc]()
    for quotes in range(every, count + 1, every):
        step, watermark = int(draw.integers(STEPS)), quotes // WINDOW * WINDOW * UNIT
        arc = now[step]
        ended = [each for each in (*ended, replace(arc, end=quotes * UNIT)) if each.end > max(watermark, each.begin)]
        now[step] = replace(arc, fence=RISE if arc.fence is FALL else FALL, begin=quotes * UNIT, end=END)
        yield [*now, *ended]


def query(arcs: Sequence[Arc]) -> Automaton:
    """Return Q3 with these arcs."""
    return Automaton("q0", (f"q{STEPS}",), tuple(arcs), (), WINDOW * UNIT)


def match(batches: list[pa.RecordBatch], arcs: list[list[Arc]]) -> PatternOperator:
    """Match, and change to the arcs of each batch after it, if there are any. Return the operator."""
    operator = PatternOperator(SCHEMA, query(steps()))
    for batch, after in zip_longest(batches, arcs):
        operator.process(batch)
        if after is not None:
            operator.change_arcs(after)
    return operator


def restart(batches: list[pa.RecordBatch], every: int, arcs: list[list[Arc]]) -> PatternOperator:
    """Match, and make a new operator after each batch, which gets the quotes of the last window again."""
    operator = PatternOperator(SCHEMA, query(steps()))
    for number, (batch, after) in enumerate(zip(batches, arcs, strict=False), 1):
        operator.process(batch)
        operator = PatternOperator(SCHEMA, query([replace(arc, begin=0) for arc in after[:STEPS]]))
        window = concat(batches[max(0, number - WINDOW // every) : number], SCHEMA)
        operator.process(window.filter(pa.array(times_of(window)[0] != CTI)))
    return operator
