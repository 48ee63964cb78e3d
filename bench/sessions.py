"""Sessions per 5-tuple on one core: partials are merged while watermarks close sessions, against Arrow's group_by.

Flows begin and end continuously. Each flow is one session of one 5-tuple, and consists of partials of many panes. A
watermark follows each batch, so that sessions close all the time. Arrow's `group_by` merges the same partials, in
batches of the same size, by 5-tuple only: a merge that ignores time.
"""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa

from bench.figure import figure, quotient
from bench.one_core import on_one_core
from bench.report import Report
from bench.setting import Setting
from bench.traffic import MILLION
from capture.units import SECOND
from lowlevel.punctuation import END, Punctuation

GAP = 30 * SECOND
KEYS = ("srcIP", "destIP", "srcPort", "destPort", "protocol")
OPEN_FLOWS = 100_000
"""Number of open flows at a time."""

BATCH = 65_536
"""Partials of a batch."""
SESSIONS, ARROW = "sessions", "Arrow's group_by"


def run(setting: Setting) -> Report:
    """Measure partials per second with both methods."""
    rows = setting.packets(4 * MILLION)
    step_time, closed, most, held = on_one_core(measure, rows, setting.runs(3))
    report = Report("sessions")
    rates = {name: figure(seconds).rate(rows / MILLION) for name, seconds in step_time.items()}
    report.table(
        f"{rows:,} partials of {closed:,} sessions per 5-tuple, {most:,} open at most",
        ("what", "M partials/s (min..max)"),
        [(name, str(rate)) for name, rate in rates.items()],
    )
    report.notes.append(f"{held / most:.0f} bytes of state for each of the sessions that were open at most")
    judged = not setting.quick
    ratio = quotient(rates[SESSIONS], rates[ARROW]).median
    report.add_criterion("partials per second, sessions / Arrow's group_by", ratio, ">= 0.5", judged)
    report.add_information("sessions per 5-tuple, one core, M partials/s", rates[SESSIONS])
    return report


def measure(rows: int, runs: int) -> tuple[dict[str, list[float]], int, int, int]:
    """Return seconds, number of sessions, maximum number of open sessions, and bytes of state at that time."""
    from highlevel.operators.session import TS, SessionAggregate
    from highlevel.windows.kind import SessionWindow
    from lowlevel.subaggregates import Kind, SubAggregate

    subs = [
        SubAggregate("packets", Kind.COUNT),
        SubAggregate("bytes", Kind.SUM, TS),
        SubAggregate("first", Kind.MIN, TS),
        SubAggregate("last", Kind.MAX, TS),
    ]
    batches = partials(rows)
    step_time: dict[str, list[float]] = {SESSIONS: [], ARROW: []}
    closed = most = held = 0
    for turn in range(runs + 1):  # the first run loads the kernels
        operator = SessionAggregate(SessionWindow(GAP), KEYS, subs)
        most = 0
        began = time.process_time()
        for low, batch in batches:
            list(operator.process_rows(0, batch))
            list(operator.punctuate(0, Punctuation("link", low)))
            if operator.open_windows() > most:
                most, held = operator.open_windows(), operator.bytes
        list(operator.punctuate(0, Punctuation("link", END)))
        closed = operator.take_closed_windows()
        middle = time.process_time()
        for _, batch in batches:
            table = pa.Table.from_batches([batch])
            aggregates = [("packets", "sum"), ("bytes", "sum"), ("first", "min"), ("last", "max")]
            table.group_by(KEYS, use_threads=False).aggregate(aggregates)
        if turn:
            step_time[SESSIONS].append(middle - began)
            step_time[ARROW].append(time.process_time() - middle)
    return step_time, closed, most, held


def partials(rows: int) -> list[tuple[int, pa.RecordBatch]]:
    """Return batches of partials in the order of their panes, each with the watermark that follows it.

    A flow has a partial in each of 20 panes, whose distance is below GAP. A twentieth of the open flows ends with each
    pane.
    """
    random = np.random.default_rng(1)
    per_pane = OPEN_FLOWS
    batches = []
    for pane in range(-(-rows // per_pane)):
        first = pane * (OPEN_FLOWS // 20)
        flows = random.permutation(OPEN_FLOWS) + first  # IDs of flows; it is the last pane of the oldest OPEN / 20
        flows = flows[: min(per_pane, rows - pane * per_pane)]
        starts = pane * GAP + random.integers(0, GAP // 2, len(flows))
        ends = pane * GAP + GAP // 2 + random.integers(0, GAP // 2, len(flows))
        hashed = (flows.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(1)
        for begin in range(0, len(flows), BATCH):
            part = slice(begin, begin + BATCH)
            words = hashed[part].view(np.int64)
            columns = [
                _addresses((flows[part] // 50).astype(np.uint32)),
                _addresses((words & 0xFFFFFFFF).astype(np.uint32)),
                pa.array(words >> 40 & 0xFFFF),
                pa.array(np.full(len(words), 443)),
                pa.array(np.full(len(words), 6)),
                pa.array(np.full(len(words), 10)),
                pa.array(words & 0xFFFF),
                pa.array(starts[part]),
                pa.array(ends[part]),
            ]
            names = [*KEYS, "packets", "bytes", "first", "last"]
            batches.append((pane * GAP - GAP // 2, pa.RecordBatch.from_arrays(columns, names)))
    return batches


def _addresses(numbers: np.ndarray[tuple[int], np.dtype[np.uint32]]) -> pa.Array:
    offsets = pa.py_buffer(np.arange(len(numbers) + 1, dtype=np.int32) * 4)
    return pa.Array.from_buffers(pa.binary(), len(numbers), [None, offsets, pa.py_buffer(numbers)])
