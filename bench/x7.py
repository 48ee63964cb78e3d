"""A join without order against one that keeps it by a buffer in front (Li 2008, Figure 7-7, Q7-2).

As X6. OPIB-Join delays left rows until all their possible partners have arrived, and stores the right rows meanwhile.
These are three ranges of rows. OA-Join stores two.
"""

from __future__ import annotations

from bench.one_core import on_one_core
from bench.report import Report
from bench.setting import Setting
from bench.x6 import Joins, measure, plot, sizes, tell
from highlevel.baselines.opib_join import OpibJoin
from highlevel.joins.oa_join import OAJoin

JOINS: Joins = {"OA": OAJoin, "OPIB": OpibJoin}


def run(setting: Setting) -> Report:
    """Compare the joins."""
    ranges, _, rate, _ = sizes(setting)
    found = on_one_core(measure, JOINS, *sizes(setting))
    report = Report("X7")
    tell(report, found, "OPIB", rate, {n: 3 * n * rate for n in ranges})
    ratios = [each["OPIB"].held.most / each["OA"].held.most for each in found.values()]
    judged = not setting.quick
    report.require("rows, OPIB / OA, the least of any n", min(ratios), ">= 1.3", judged)
    report.require("rows, OPIB / OA, the most of any n", max(ratios), "<= 1.6", judged)
    plot(setting, "x7", found, "Joins of two streams, RANGE of both")
    return report
