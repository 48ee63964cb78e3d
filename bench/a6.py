"""Automata over traffic: Q1 and Q2 over loads of links, and a pattern over flow records that are exported late.

Chandramouli, Goldstein and Maier (2010) measure quotes of shares. Here a tick is the change of the load of a link in a
second. A flow record has the time of its first packet and arrives when the exporter sends it: 15 s after the last
packet, or at the active timeout. So the order of arrival differs from the order of the times for most records.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa

from bench.a1 import count_results, min_seconds
from bench.one_core import on_one_core
from bench.quotes import vees
from bench.report import Report
from bench.setting import Setting
from highlevel.patterns.automaton import Arc, Automaton, Field
from highlevel.patterns.operator import PatternOperator
from highlevel.speculation.lifetimes.kernels.endpoints import INSERT
from highlevel.speculation.lifetimes.model import change_schema, concat, make_changes, make_ctis
from lowlevel.expressions.tree import Binary, Column, Expression, Literal
from lowlevel.expressions.types import Op, Type
from lowlevel.punctuation import END

COUNT, BATCH, LINKS, CLIENTS = 200_000, 10_000, 50, 1000
SECOND = 1_000_000_000
DROP, VEES, TICKS_IN_WINDOW = 0.25, 2, 2000
RECORDS_PER_SECOND, INACTIVE = 1000, 15
"""Flow records that begin in a second, and the seconds without a packet after which a flow is exported."""

ACTIVE_TIMEOUTS = (15, 60, 300)
WAITS = (0, 1, 10, 60)
"""A record is used when its time is less than these seconds after the watermark. 0: it waits for the watermark."""

GUESSES, SHORT, LONG, WITHIN = 5, 5.0, 10.0, 600
LOADS = pa.schema([("change", pa.float64()), ("relevant", pa.int64()), ("symbol", pa.int64())])
FLOWS = pa.schema([("seconds", pa.float64()), ("client", pa.int64())])


def run(setting: Setting) -> Report:
    """Measure rows per second, and count the changes of results."""
    count = setting.packets(COUNT)
    loads, flows, chatter = on_one_core(measure, count, setting.runs(3))
    report = Report("A6")
    rows = [(name, f"{rate / 1e6:.3f}", f"{results:,}") for name, (rate, results) in loads.items()]
    report.table(f"loads of {LINKS} links, {count:,} ticks in order", ("query", "M ticks/s", "results"), rows)
    exported = [
        (f"{timeout} s", f"{displaced:.0%}", f"{ordered / 1e6:.3f}", f"{late / 1e6:.3f}", f"{late / ordered:.2f}")
        for timeout, (displaced, ordered, late) in flows.items()
    ]
    columns = ("active timeout", "out of order", "M records/s in order", "as exported", "/ in order")
    report.table(f"{count:,} flow records: {GUESSES} short flows of a client, then a long one", columns, exported)
    early = [(name, f"{changes:,}", f"{changes / results:.1f}") for name, (changes, results) in chatter.items()]
    report.table("active timeout 60 s", ("records used early", "changes of results", "/ results"), early)
    judged = not setting.quick
    report.add_criterion("ticks/s, Q1 over loads of links, one core", loads["Q1, k = 2"][0], ">= 500000", judged)
    report.add_criterion("records/s, active timeout 60 s, as exported, one core", flows[60][2], ">= 100000", judged)
    changes, results = chatter["0 s"]
    report.add_criterion("changes of results / results, records that wait", changes / results, "<= 1")
    return report


def measure(
    count: int, runs: int
) -> tuple[dict[str, tuple[float, int]], dict[int, tuple[float, float, float]], dict[str, tuple[int, int]]]:
    """Return rates and results by query, rates by active timeout, and changes and results by the time of waiting."""
    ticks = loads_of_links(count)
    loads = {}
    for name, automaton in (("Q1, k = 2", _q1()), ("Q2", q2())):
        found = _results(automaton, change_schema(LOADS), "symbol", ticks)
        work = partial(_results, automaton, change_schema(LOADS), "symbol", ticks)
        loads[name] = count / min_seconds(work, runs), found
    flows = {}
    for timeout in ACTIVE_TIMEOUTS:
        records = FlowRecords(count, timeout)
        ordered = count / min_seconds(partial(_guesses, records.batches(in_order=True)), runs)
        late = count / min_seconds(partial(_guesses, records.batches()), runs)
        flows[timeout] = records.displaced, ordered, late
    records = FlowRecords(count, 60)
    results = _guesses(records.batches(in_order=True))
    chatter = {f"{wait} s": (_guesses(records.batches(wait=wait)), results) for wait in WAITS}
    chatter["at once"] = _guesses(records.batches()), results
    return loads, flows, chatter


def _results(automaton: Automaton, schema: pa.Schema, partition: str, batches: list[pa.RecordBatch]) -> int:
    operator = PatternOperator(schema, automaton, [partition])
    return count_results([operator.process(batch) for batch in batches])


def _guesses(batches: list[pa.RecordBatch]) -> int:
    return _results(guesses(), change_schema(FLOWS), "client", batches)


def loads_of_links(count: int) -> list[pa.RecordBatch]:
    """Return changes of the load of links, as a share of their capacity, one for each link and second.

    The load returns to a mean of 0.6. In each second it drops by 0.4 with a probability of 1 %.
    """
    draw = np.random.default_rng(1)
    load, changes = np.full(LINKS, 0.6), []
    for _ in range(0, count, LINKS):
        drop = np.where(draw.random(LINKS) < 0.01, 0.4, 0.0)
        following = np.clip(load + 0.1 * (0.6 - load) + draw.normal(0, 0.08, LINKS) - drop, 0, 1)
        changes.append(following - load)
        load = following
    change = np.concatenate(changes)[:count]
    place = np.arange(count)
    columns = [change, np.ones(count, np.int64), place % LINKS]
    payload = pa.RecordBatch.from_arrays([pa.array(column) for column in columns], schema=LOADS)
    return _batches(payload, place // LINKS * SECOND + place % LINKS, place // LINKS * SECOND)


def _batches(payload: pa.RecordBatch, start: np.ndarray, watermark: np.ndarray) -> list[pa.RecordBatch]:
    """Return insertions in batches, with the watermark after the last row of each batch."""
    found = []
    for begin in range(0, payload.num_rows, BATCH):
        rows = payload.slice(begin, BATCH)
        end = begin + rows.num_rows
        stop = np.full(rows.num_rows, END)
        inserts = make_changes(np.full(rows.num_rows, INSERT), start[begin:end], stop, stop, rows)
        found.append(
            concat([inserts, make_ctis([int(watermark[end - 1])], payload.schema)], change_schema(payload.schema))
        )
    return found


class FlowRecords:
    """Flow records of clients, each with the time of its first packet and its length in seconds."""

    def __init__(self, count: int, active_timeout: int) -> None:
        """`active_timeout`: a longer flow is exported after these seconds, and its record has this length."""
        draw = np.random.default_rng(2)
        self.start = np.sort(draw.integers(0, count // RECORDS_PER_SECOND * SECOND, count))
        lengths = np.where(draw.random(count) < 0.1, draw.exponential(60, count), draw.exponential(2, count))
        self.seconds = np.minimum(lengths, active_timeout)
        self.client = draw.integers(0, CLIENTS, count)
        waited = np.where(lengths < active_timeout, INACTIVE, 0)
        self.exported = self.start + ((self.seconds + waited) * SECOND).astype(np.int64)
        self._latest = (active_timeout + INACTIVE) * SECOND

    @property
    def displaced(self) -> float:
        """The share of the records that arrive after a record with a later time."""
        start = self.start[np.argsort(self.exported, kind="stable")]
        return float(np.mean(start < np.maximum.accumulate(start)))

    def batches(self, *, in_order: bool = False, wait: int | None = None) -> list[pa.RecordBatch]:
        """Return the records in the order of export, or of their times.

        With `wait`, a record is returned when its time is less than `wait` s after the watermark, in the order of
        times.
        """
        watermark = self.exported - self._latest
        order = np.arange(len(self.start)) if in_order else np.argsort(self.exported, kind="stable")
        if in_order:
            watermark = self.start
        elif wait is not None:
            # Cleanse with sigma = wait: a record is returned when the watermark passes its time minus sigma.
            ready = np.maximum(self.exported, self.start - wait * SECOND + self._latest)
            order = np.lexsort((self.start, ready))
            watermark = ready - self._latest
        payload = pa.RecordBatch.from_arrays([pa.array(self.seconds), pa.array(self.client)], schema=FLOWS)
        return _batches(payload.take(pa.array(order)), self.start[order], np.maximum.accumulate(watermark[order]))


def guesses() -> Automaton:
    """Return the automaton of at least GUESSES short flows, and then a long one."""
    number, seconds = Field("number", Literal(0, Type.INT)), Column("seconds", Type.FLOAT, False)
    is_short, is_long = (
        Binary(op, seconds, Literal(limit, Type.FLOAT)) for op, limit in ((Op.LT, SHORT), (Op.GE, LONG))
    )
    enough = Binary(Op.GE, number.column, Literal(GUESSES, Type.INT))
    more = Binary(Op.LT, number.column, Literal(GUESSES, Type.INT))
    one, following = Literal(1, Type.INT), Binary(Op.ADD, number.column, Literal(1, Type.INT))
    arcs = (
        Arc("q0", "q1", is_short, (("number", one),)),
        Arc("q1", "q1", Binary(Op.AND, is_short, more), (("number", following),)),
        Arc("q1", "q1", Binary(Op.AND, is_short, enough)),
        Arc("q1", "q2", Binary(Op.AND, is_long, enough)),
    )
    return Automaton("q0", ("q2",), arcs, (number,), WITHIN * SECOND)


def _q1() -> Automaton:
    automaton = vees(VEES, DROP, 1)
    return Automaton(automaton.start, automaton.finals, automaton.arcs, automaton.register, TICKS_IN_WINDOW * SECOND)


def q2() -> Automaton:
    """Return query Q2: a drop of more than DROP, and the number of V until the load is what it was before the drop.

    `missing` is the load before the drop minus the load.
    """
    change = Column("change", Type.FLOAT, False)
    missing, found = Field("missing", Literal(0.0, Type.FLOAT)), Field("found", Literal(0, Type.INT))
    none = Literal(0.0, Type.FLOAT)
    falls, rises = Binary(Op.LT, change, none), Binary(Op.GT, change, none)
    left: Expression = Binary(Op.SUB, missing.column, change)
    is_below, is_back = Binary(Op.GT, left, none), Binary(Op.LE, left, none)
    still, counted = ("missing", left), ("found", Binary(Op.ADD, found.column, Literal(1, Type.INT)))
    arcs = (
        Arc(
            "q0", "q1", Binary(Op.LT, change, Literal(-DROP, Type.FLOAT)), (("missing", Binary(Op.SUB, none, change)),)
        ),
        Arc("q1", "q1", falls, (still,)),
        Arc("q1", "q2", Binary(Op.AND, rises, is_below), (still,)),
        Arc("q2", "q2", Binary(Op.AND, rises, is_below), (still,)),
        Arc("q2", "q1", falls, (still, counted)),
        *(Arc(state, "q3", Binary(Op.AND, rises, is_back), (still, counted)) for state in ("q1", "q2")),
    )
    return Automaton("q0", ("q3",), arcs, (missing, found), TICKS_IN_WINDOW * SECOND)
