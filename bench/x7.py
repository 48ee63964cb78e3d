"""A join without order compared with a join that buffers its input to keep order (Li 2008, Figure 7-7, Q7-2).

The streams are those of X6. OPIB-Join delays left rows until all their possible partners have arrived, and stores the
right rows meanwhile. So it stores the rows of three ranges, and OA-Join the rows of two ranges.
"""

from __future__ import annotations

from bench.one_core import on_one_core
from bench.report import Report
from bench.setting import Setting
from bench.x6 import Joins, add_tables, measure, plot, workload_sizes
from highlevel.baselines.opib_join import OpibJoin
from highlevel.joins.oa_join import OAJoin

JOINS: Joins = {"OA": OAJoin, "OPIB": OpibJoin}


def run(setting: Setting) -> Report:
    """Compare the joins."""
    ranges, _, rate, _ = workload_sizes(setting)
    found = on_one_core(measure, JOINS, *workload_sizes(setting))
    report = Report("X7")
    add_tables(report, found, "OPIB", rate, {n: 3 * n * rate for n in ranges})
    ratios = [each["OPIB"].held.max_items / each["OA"].held.max_items for each in found.values()]
    judged = not setting.quick
    report.add_criterion("rows, OPIB / OA, the least of any n", min(ratios), ">= 1.3", judged)
    report.add_criterion("rows, OPIB / OA, the most of any n", max(ratios), "<= 1.6", judged)
    plot(setting, "x7", found, "Joins of two streams, RANGE of both")
    return report
