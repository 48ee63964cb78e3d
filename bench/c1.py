"""Compare the numbers of changes that snapshot operators return with those of a prototype of the same algorithms.

COUNT over 5 000 rows, one per unit of time, each true for 30, with a CTI after each 50 arrivals. A part of the rows
arrives 1 to D places late. The counts of rows in order are exact. The other counts depend on random numbers, which
differ from those of the prototype. So they are compared within a tolerance. For the last column, rows first wait for
20 units of time.
"""

from __future__ import annotations

import numpy as np

from bench.changes import SCHEMA, Workload, batches
from bench.report import Report
from bench.setting import Setting
from highlevel.speculation.lifetimes.aggregates import Aggregate
from highlevel.speculation.lifetimes.align import Align, Release
from highlevel.speculation.lifetimes.kernels.endpoints import INSERT, RETRACTION
from highlevel.speculation.lifetimes.model import times_of
from highlevel.speculation.lifetimes.snapshot import SnapshotOperator, Variant

Counts = tuple[int, int]
"""Numbers of inserts and of retractions."""

ROWS, TUMBLING_ROWS = 5_000, 6_000
WAIT = 20
WAITED = "waited"

SLIDING: dict[str, tuple[Workload, dict[str, Counts]]] = {
    "in order": (
        Workload(ROWS),
        {"PERFECT": (5_029, 0), "ORDERED": (5_128, 5_099), "EARLIEST": (149_565, 144_565), WAITED: (5_029, 0)},
    ),
    "5 % late, D = 20": (
        Workload(ROWS, late=0.05),
        {"PERFECT": (7_433, 2_405), "ORDERED": (7_734, 7_473), "EARLIEST": (147_482, 142_482), WAITED: (5_029, 0)},
    ),
    "5 % late, D = 200": (
        Workload(ROWS, late=0.05, delay=200),
        {
            "PERFECT": (11_360, 6_335),
            "ORDERED": (11_395, 11_141),
            "EARLIEST": (143_723, 138_914),
            WAITED: (10_660, 5_635),
        },
    ),
    "20 % late, D = 20": (
        Workload(ROWS, late=0.2),
        {"PERFECT": (13_695, 8_667), "ORDERED": (14_621, 13_682), "EARLIEST": (142_814, 137_813), WAITED: (5_029, 0)},
    ),
    "20 % late, D = 200": (
        Workload(ROWS, late=0.2, delay=200),
        {
            "PERFECT": (32_064, 27_131),
            "ORDERED": (32_210, 31_288),
            "EARLIEST": (127_798, 123_552),
            WAITED: (29_058, 24_100),
        },
    ),
    "all late, D = 20": (
        Workload(ROWS, late=1.0),
        {
            "PERFECT": (30_631, 25_624),
            "ORDERED": (34_044, 30_625),
            "EARLIEST": (138_984, 133_984),
            WAITED: (5_029, 0),
        },
    ),
    "20 % shortened later": (
        Workload(ROWS, shortened=0.2),
        {"PERFECT": (7_493, 2_468), "ORDERED": (7_967, 7_942), "EARLIEST": (145_200, 141_239), WAITED: (5_025, 0)},
    ),
    "tumbling 60, in order": (
        Workload(TUMBLING_ROWS, tumbling=60),
        {"PERFECT": (100, 0), "ORDERED": (6_000, 6_000), "EARLIEST": (6_000, 5_900)},
    ),
    "tumbling 60, 5 % late, D = 20": (
        Workload(TUMBLING_ROWS, tumbling=60, late=0.05),
        {"PERFECT": (157, 57)},
    ),
    "tumbling 60, 5 % late, D = 200": (
        Workload(TUMBLING_ROWS, tumbling=60, late=0.05, delay=200),
        {"PERFECT": (335, 235)},
    ),
}
"""Workloads, and the inserts and retractions of the prototype."""

EXACT = ("in order", "tumbling 60, in order")


def count_changes(work: Workload, variant: Variant, seed: int, wait: int | None = None) -> tuple[Counts, int]:
    """Return the inserts and retractions of a workload, and the maximum number of stored endpoints."""
    operator = SnapshotOperator(SCHEMA, [Aggregate("n", "count")], (), variant)
    align = Align(SCHEMA, wait, Release.PERFECT)
    inserts = retractions = most = 0
    for batch in batches(work, 50, seed, cti_every=50):
        # Single rows, as in the prototype: Align decides after each batch which rows have waited long enough.
        parts = [batch] if wait is None else [align.process(batch.slice(row, 1)) for row in range(batch.num_rows)]
        for part in parts:
            kind = times_of(operator.process(part))[0]
            inserts += int((kind == INSERT).sum())
            retractions += int((kind == RETRACTION).sum())
            most = max(most, operator.entries)
    return (inserts, retractions), most


def run(setting: Setting) -> Report:
    """Count the changes of each workload and variant."""
    report = Report("C1")
    seeds = range(1, 2) if setting.quick else range(1, 6)
    difference, farthest = 0, 0.0
    rows, stored = [], []
    for name, (work, known) in SLIDING.items():
        cells, entries = [], []
        for column in ("PERFECT", "ORDERED", "EARLIEST", WAITED):
            if column not in known or (column == WAITED and setting.quick):
                cells.append("")
                entries.append("")
                continue
            waits = column == WAITED
            variant, wait = (Variant.PERFECT, WAIT) if waits else (Variant[column], None)
            found = [count_changes(work, variant, seed, wait) for seed in (seeds[:1] if wait else seeds)]
            mean = np.mean([counts for counts, _ in found], axis=0)
            cells.append(f"{mean[0]:,.0f} / {mean[1]:,.0f} ({known[column][0]:,} / {known[column][1]:,})")
            entries.append(f"{max(most for _, most in found):,}")
            if name in EXACT:
                difference += int(np.abs(mean - known[column]).sum())
            else:
                farthest = max(farthest, float(abs(mean[0] / known[column][0] - 1)))
        rows.append((name, *cells))
        stored.append((name, *entries))
    columns = ("rows", "PERFECT", "ORDERED", "EARLIEST", f"PERFECT after waiting {WAIT}")
    report.table("inserts / retractions (of the prototype)", columns, rows)
    report.table("endpoints stored after a CTI, at most", columns, stored)
    report.add_criterion("changes of rows in order, difference to the prototype", float(difference), "<= 0")
    report.add_criterion(
        "inserts of late rows, farthest from the prototype, part", farthest, "<= 0.1", not setting.quick
    )
    return report
