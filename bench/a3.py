"""Chattiness of Q1 over late quotes, by the speculation that is allowed (Chandramouli et al., 2010, Figures 10, 11).

5 % of the quotes are 1 to 5,000 places late, one quote per millisecond, with a watermark after 500 quotes. Cleanse
passes the quotes that are less than sigma after the watermark, and holds the others in order. With sigma = 0
nothing is corrected.

The operator returns the same corrections for batches and for single quotes (`same_as_single` compares both). SQL adds
up the changes of a batch, so another column counts the remaining changes of batches of 500 quotes. The growth without
waiting follows from the length of the matches. A late quote that runs use corrects at most the matches that span its
time: these are withdrawn, and about as many new matches are returned. An operator that also withdraws and returns
matches that stay has more changes.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from bench.a1 import count_results
from bench.one_core import on_one_core
from bench.quotes import PAYLOAD, SCHEMA, UNIT, Quotes, changes, vees
from bench.report import Report
from bench.setting import Setting
from highlevel.patterns.operator import MATCH_START, PatternOperator
from highlevel.speculation.consistency import WEIGHT
from highlevel.speculation.lifetimes.kernels.endpoints import CTI, INSERT
from highlevel.speculation.lifetimes.model import VS, concat, make_ctis, times_of, weighted
from lowlevel.punctuation import BEGINNING

COUNT, BATCH, WINDOW, DROP = 100_000, 500, 500, 0.25
SIGMAS = (0, 100, 300, 1000, 3000, 10_000)
"""Milliseconds. With 10,000 no quote waits."""

LATE, SINGLE = 0.05, 2_000
"""Share of the late quotes, and number of quotes that are also processed one by one."""

IGNORABLE = (0.7, 0.9)
PAPER = {0.7: "14", 0.9: "4.5"}
"""Output with sigma = 1000 ms / output with sigma = 0 in the paper."""


class Cleanse:
    """Holds changes until less than `sigma` ns after the last CTI, and then returns them in order (§3.6)."""

    def __init__(self, sigma: int) -> None:
        self._sigma = sigma
        self._cti = BEGINNING
        self._held = make_ctis([], PAYLOAD)

    def process(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the changes that may pass, and the CTI, which is the last row if there is one."""
        kind, start, *_ = times_of(batch)
        is_row, may_pass = kind != CTI, start < self._cti + self._sigma
        passed = [batch.filter(pa.array(is_row & may_pass))]
        self._held = concat([self._held, batch.filter(pa.array(is_row & ~may_pass))], SCHEMA)
        if not is_row.all():
            self._cti = max(self._cti, *start[~is_row].tolist())
            may_pass = times_of(self._held)[1] < self._cti + self._sigma
            passed += [self._held.filter(pa.array(may_pass)).sort_by(VS), make_ctis([self._cti], PAYLOAD)]
            self._held = self._held.filter(pa.array(~may_pass))
        return concat(passed, SCHEMA)


def run(setting: Setting) -> Report:
    """Count the changes of results for each sigma."""
    counts, length = on_one_core(measure, setting.packets(COUNT))
    report = Report("A3")
    rows = []
    for (ignorable, sigma), (single, added) in counts.items():
        of_single, of_added = counts[ignorable, 0]
        shown = f"{single:,}", f"{single / of_single:.2f}", f"{added:,}", f"{added / of_added:.2f}"
        rows.append((f"{ignorable:.0%}", f"{sigma:,}", *shown))
    report.table(
        "Q1, k = 1, W = 500, 5 % of the quotes late",
        ("ignorable", "sigma, ms", "changes", "/ sigma = 0", "added up by 500 quotes", "/ sigma = 0"),
        rows,
    )
    judged = not setting.quick
    growth = {each: counts[each, SIGMAS[-1]][0] / counts[each, 0][0] for each in IGNORABLE}
    for each in IGNORABLE:
        at_1000 = counts[each, 1000][0] / counts[each, 0][0]
        report.notes.append(
            f"{each:.0%} ignorable: {at_1000:.2f} times as many changes with sigma = 1000 ms, {growth[each]:.2f} times "
            f"without waiting; the paper {PAPER[each]}"
        )
        of_relevant, of_all = (1 + 2 * LATE * part * length[each] for part in (1 - each, 1))
        report.notes.append(
            f"{each:.0%} ignorable: a match is over {length[each]:.0f} quotes. Two changes for each match over a late "
            f"quote are {of_relevant:.2f} times, if the quote is relevant; {of_all:.1f} times for all late quotes"
        )
        needed = (float(PAPER[each]) - 1) / (2 * LATE * (1 - each))
        report.notes.append(f"{each:.0%} ignorable: the growth of the paper needs matches over {needed:.0f} quotes")
    report.add_criterion("changes of results, no wait / sigma 0, 70 % ignorable", growth[0.7], "<= 14", judged)
    report.add_criterion("changes of results, no wait / sigma 0, 90 % ignorable", growth[0.9], "<= 4.5", judged)
    return report


def measure(count: int) -> tuple[dict[tuple[float, int], tuple[int, int]], dict[float, float]]:
    """Return the changes by the share of ignorable quotes and sigma: one by one, and added up by 500 quotes.

    Also return the number of quotes of a match, on average.
    """
    counts, length = {}, {}
    for ignorable in IGNORABLE:
        batches = list(changes(Quotes(count, ignorable=ignorable, late=LATE), WINDOW, BATCH))
        assert same_as_single(batches[: SINGLE // BATCH]), "single quotes have other changes than batches"
        for sigma in SIGMAS:
            results = match(batches, sigma)
            counts[ignorable, sigma] = count_results(results), sum(count_net_changes(each) for each in results)
            if sigma == 0:
                spans = np.concatenate([spans_of(each) for each in results])
                length[ignorable] = float(spans.mean())
    return counts, length


def match(batches: list[pa.RecordBatch], sigma: int) -> list[pa.RecordBatch]:
    """Return the changes of results. `sigma` is in ms."""
    operator, cleanse = PatternOperator(SCHEMA, vees(1, DROP, WINDOW, with_ignorable=True)), Cleanse(sigma * UNIT)
    results = [operator.process(cleanse.process(batch)) for batch in batches]
    assert operator.late == 0
    return results


def same_as_single(batches: list[pa.RecordBatch]) -> bool:
    """Return whether batches have as many changes as their quotes one by one, without waiting."""
    single = [batch.slice(row, 1) for batch in batches for row in range(batch.num_rows)]
    return count_results(match(batches, SIGMAS[-1])) == count_results(match(single, SIGMAS[-1]))


def count_net_changes(results: pa.RecordBatch) -> int:
    """Return the number of changes that are left after equal results have been added up."""
    rows = pa.Table.from_batches([weighted(results)])
    names = [name for name in rows.column_names if name != WEIGHT]
    weights = rows.group_by(names).aggregate([(WEIGHT, "sum")])[f"{WEIGHT}_sum"].to_numpy()
    return int(np.abs(weights).sum())


def spans_of(results: pa.RecordBatch) -> np.ndarray:
    """Return the number of quotes of each match."""
    kind, start, *_ = times_of(results)
    firsts = results.column(MATCH_START).to_numpy(zero_copy_only=False)
    return (start[kind == INSERT] - firsts[kind == INSERT]) / UNIT + 1
