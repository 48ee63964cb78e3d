"""Chattiness of Q1 over late quotes, by the speculation that is allowed (Chandramouli et al., 2010, Figures 10, 11).

5 % of the quotes are 1 to 5,000 places late, one quote per millisecond. Cleanse passes on the quotes that are less than
sigma after the watermark, and holds the others in order. With sigma = 0 nothing is corrected.
"""

from __future__ import annotations

import pyarrow as pa

from bench.a1 import count_results
from bench.one_core import on_one_core
from bench.quotes import PAYLOAD, SCHEMA, UNIT, Quotes, changes, vees
from bench.report import Report
from bench.setting import Setting
from highlevel.patterns.operator import PatternOperator
from highlevel.speculation.lifetimes.kernels.endpoints import CTI
from highlevel.speculation.lifetimes.model import VS, concat, make_ctis, times_of
from lowlevel.punctuation import BEGINNING

COUNT, BATCH, WINDOW, DROP = 100_000, 500, 500, 0.25
SIGMAS = (0, 100, 300, 1000, 5000)
"""Milliseconds."""

IGNORABLE = (0.7, 0.9)
PAPER = {0.7: "14", 0.9: "4.5"}
"""Output with sigma = 1000 ms / output with sigma = 0 in the paper."""


class Cleanse:
    """Holds changes until less than `sigma` ns after the last CTI, in the order of their times (§3.6)."""

    def __init__(self, sigma: int) -> None:
        self._sigma = sigma
        self._cti = BEGINNING
        self._held = make_ctis([], PAYLOAD)

    def process(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the changes that may pass, and the CTI."""
        kind, start, *_ = times_of(batch)
        self._held = concat([self._held, batch.filter(pa.array(kind != CTI))], SCHEMA)
        self._cti = max([self._cti, *start[kind == CTI].tolist()])
        times = times_of(self._held)[1]
        passes = pa.array(times < self._cti + self._sigma)
        passed = self._held.filter(passes).sort_by(VS)
        self._held = self._held.filter(pa.array(times >= self._cti + self._sigma))
        return concat([passed, make_ctis([self._cti], PAYLOAD)], SCHEMA)


def run(setting: Setting) -> Report:
    """Count the changes of results for each sigma."""
    sizes = on_one_core(measure, setting.packets(COUNT))
    report = Report("A3")
    rows = [
        (f"{ignorable:.0%}", f"{sigma:,}", f"{size:,}", f"{size / sizes[ignorable, 0]:.1f}")
        for (ignorable, sigma), size in sizes.items()
    ]
    report.table(
        "Q1, k = 1, W = 500, 5 % of the quotes late",
        ("ignorable", "sigma, ms", "changes of results", "/ sigma = 0"),
        rows,
    )
    growth = {each: sizes[each, 1000] / sizes[each, 0] for each in IGNORABLE}
    for each in IGNORABLE:
        report.notes.append(f"{each:.0%} ignorable: {growth[each]:.1f} times as many changes, the paper {PAPER[each]}")
    judged = not setting.quick
    report.require("changes of results, sigma 1000 ms / 0, 70 % ignorable", growth[0.7], "<= 14", judged)
    report.require("changes of results, sigma 1000 ms / 0, 90 % ignorable", growth[0.9], "<= 4.5", judged)
    return report


def measure(count: int) -> dict[tuple[float, int], int]:
    """Return the number of changes of results by the part of ignorable quotes and sigma."""
    sizes = {}
    for ignorable in IGNORABLE:
        batches = list(changes(Quotes(count, ignorable=ignorable, late=0.05), WINDOW, BATCH))
        for sigma in SIGMAS:
            operator = PatternOperator(SCHEMA, vees(1, DROP, WINDOW, with_ignorable=True))
            cleanse = Cleanse(sigma * UNIT)
            sizes[ignorable, sigma] = count_results([operator.process(cleanse.process(batch)) for batch in batches])
            assert operator.late == 0
    return sizes
