"""Rows that runs ignore: stored again with each row, or once (Chandramouli et al., 2010, Figures 16, 17).

Q1 with a growing part of ignorable quotes. Its runs end after few relevant quotes, so each quote changes or keeps about
four runs. In the second query runs wait for a rare quote: each quote keeps many runs.

Matching without and with sharing takes turns. The printed figures are those of one turn: that with the median quotient.
"""

from __future__ import annotations

import time
from itertools import takewhile

import pyarrow as pa

from bench.a1 import count_results
from bench.one_core import on_one_core
from bench.quotes import SCHEMA, Quotes, changes, vees, waits
from bench.report import Report
from bench.setting import Setting
from highlevel.patterns.automaton import Automaton
from highlevel.patterns.operator import PatternOperator

COUNT, BATCH, WINDOW, DROP, VEES = 100_000, 10_000, 500, 0.25, 1
IGNORABLE = (0.0, 0.2, 0.4, 0.6, 0.8, 0.9)
LONG_WINDOW = 2000
PAPER_CROSSING = 0.8
"""Share of ignorable quotes from which sharing is faster in the paper."""

FASTER = 1.01
"""Quotient from which on sharing counts as faster: smaller differences also occur if nothing is shared."""

Rates = tuple[float, float, int, int]
"""Quotes per second without and with sharing, and the maximum number of stored runs, without and with sharing."""


def run(setting: Setting) -> Report:
    """Measure events per second and stored runs, without and with sharing."""
    count, runs = setting.packets(COUNT), setting.runs(9)
    measured = on_one_core(measure, count, runs)
    waiting = on_one_core(measure_waits, count, min(runs, 3))
    report = Report("A5")
    ratio, speed, memory = "/ plain", "M events/s", "most runs stored"
    columns = (
        "ignorable",
        f"plain, {speed}",
        f"sharing, {speed}",
        ratio,
        f"plain, {memory}",
        f"sharing, {memory}",
        ratio,
    )
    rows = [_row(f"{ignorable:.0%}", rates) for ignorable, rates in measured.items()]
    report.table(f"Q1, k = {VEES}, W = {WINDOW}, in order, {count:,} quotes", columns, rows)
    report.table(
        f"runs that wait for a rare quote, W = {LONG_WINDOW:,}", ("query", *columns[1:]), [_row("waits", waiting)]
    )
    faster = list(takewhile(lambda each: measured[each][1] >= FASTER * measured[each][0], reversed(measured)))
    crossing = f"from {faster[-1]:.0%} ignorable quotes on" if faster else "for no part of ignorable quotes"
    report.notes.append(f"sharing is faster {crossing}, in the paper from about {PAPER_CROSSING:.0%} on")
    judged = not setting.quick
    plain, shared, most_plain, most_shared = measured[0.9]
    report.add_criterion("events/s, sharing / plain, 90 % ignorable", shared / plain, ">= 1", judged)
    report.add_criterion(
        "most runs stored, sharing / plain, 90 % ignorable", most_shared / most_plain, "<= 0.2", judged
    )
    report.add_criterion("events/s, sharing / plain, runs that wait", waiting[1] / waiting[0], ">= 2", judged)
    return report


def _row(name: str, rates: Rates) -> tuple[str, ...]:
    plain, shared, most_plain, most_shared = rates
    speeds = f"{plain / 1e6:.3f}", f"{shared / 1e6:.3f}", f"{shared / plain:.2f}"
    return (name, *speeds, f"{most_plain:,}", f"{most_shared:,}", f"{most_shared / most_plain:.2f}")


def measure(count: int, runs: int) -> dict[float, Rates]:
    """Return the rates of Q1 by the share of ignorable quotes."""
    automaton = vees(VEES, DROP, WINDOW, with_ignorable=True)
    return {ignorable: _rates(Quotes(count, ignorable=ignorable), automaton, runs) for ignorable in IGNORABLE}


def measure_waits(count: int, runs: int) -> Rates:
    """Return the rates of runs that wait."""
    return _rates(Quotes(count), waits(LONG_WINDOW), runs)


def _rates(quotes: Quotes, automaton: Automaton, runs: int) -> Rates:
    batches = list(changes(quotes, WINDOW, BATCH))
    found = [count_results(_match(batches, automaton, shares_runs=shares)) for shares in (False, True)]
    assert found[0] == found[1], "sharing changes the number of results"
    turns = [[_seconds(batches, automaton, shares_runs=shares) for shares in (False, True)] for _ in range(runs)]
    turns.sort(key=lambda turn: turn[0] / turn[1])
    plain, shared = (quotes.count / seconds for seconds in turns[runs // 2])
    most_plain, most_shared = (_max_stored_runs(quotes, automaton, shares_runs=shares) for shares in (False, True))
    return plain, shared, most_plain, most_shared


def _seconds(batches: list[pa.RecordBatch], automaton: Automaton, *, shares_runs: bool) -> float:
    began = time.process_time()
    _match(batches, automaton, shares_runs=shares_runs)
    return time.process_time() - began


def _match(batches: list[pa.RecordBatch], automaton: Automaton, *, shares_runs: bool) -> list[pa.RecordBatch]:
    """Return the changes of results."""
    operator = PatternOperator(SCHEMA, automaton, shares_runs=shares_runs)
    return [operator.process(batch) for batch in batches]


def _max_stored_runs(quotes: Quotes, automaton: Automaton, *, shares_runs: bool) -> int:
    """Return the maximum number of runs that are stored before a CTI."""
    operator, most = PatternOperator(SCHEMA, automaton, shares_runs=shares_runs), 0
    for batch in changes(quotes, WINDOW, WINDOW):
        operator.process(batch.slice(0, batch.num_rows - 1))
        most = max(most, operator.matches.node_count)
        operator.process(batch.slice(batch.num_rows - 1))
    return most
