"""The figures of a measured run, node by node: `wiretide explain --analyze`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from capture.metrics import Metric, Samples
from dashboards.output.console import format_bytes
from dashboards.output.run_warnings import run_warnings
from highlevel.inline.engine import InlineRun, Input
from highlevel.plan.nodes import Leaf
from highlevel.plan.plan import Plan, leaf_names
from lowlevel.metrics import ROWS_ACCEPTED, ROWS_FILTERED, TABLE_BYTES, TABLE_COLLISIONS, TABLE_EVICTIONS, TABLE_FLUSHED
from queries.explain.drawing import Figures, draw
from queries.explain.plan import explain

ENTRIES = (
    (TABLE_FLUSHED, "flushed at the end of a pane"),
    (TABLE_EVICTIONS, "evicted by other groups"),
    (TABLE_COLLISIONS, "collisions"),
)
"""The counters of entries that left a table, and what they count."""

HEADER = ("node", "rows in", "rows out", "bytes out", "seconds", "state")


class Analysis:
    """One run of a query with measurements. `lines` are complete after the run."""

    def __init__(self, plan: Plan, inputs: Sequence[Input], threads: int | None = None) -> None:
        """Open the inputs. Raises InputError for one that cannot be read."""
        self.run = InlineRun([plan], inputs, threads=threads, measure=True)
        self.plan = self.run.plans[0]
        self.seconds = 0.0

    def complete(self) -> None:
        """Run the query to the end. Its results are not kept."""
        begin = time.perf_counter()
        try:
            for _ in self.run.results():
                pass
            self.seconds = time.perf_counter() - begin
            self._samples, self._readings = self.run.samples(), self.run.readings()
        finally:
            self.run.close()

    def warnings(self) -> list[str]:
        """Return warnings about data that could not be read."""
        return list(run_warnings(self._samples, self._readings))

    def text(self) -> str:
        """Return the plan and the figures."""
        return "\n".join([explain(self.plan), "", *self.lines()])

    def drawing(self) -> str:
        """Return the plan with the figures as SVG."""
        nodes, figures = self.run.nodes, {}
        for node in self.plan.nodes:
            measured = nodes.measurements[nodes.positions[node]]
            returned = f"{measured.rows:,} rows, {format_bytes(measured.bytes)}"
            figures[node] = Figures(returned, None if isinstance(node, Leaf) else measured.seconds)
        return draw(self.plan, figures)

    def lines(self) -> Iterator[str]:
        """Yield the figures: the time of both levels, a table of the nodes, and the work of each leaf."""
        samples, busy = self._samples, self.run.low_level_seconds or []
        operators = sum(measurement.seconds for measurement in self.run.nodes.measurements)
        threads = f" in {len(busy)} threads" if len(busy) > 1 else ""
        yield (
            f"measured: {self.seconds:.2f} s; low level {sum(busy):.2f} s{threads}, high level {operators:.2f} s;"
            f" {self.run.nodes.results[0]:,} rows of results"
        )
        if self.run.has_ended_early:
            yield "the query ended before the end of its inputs: rows that the low level had read were not used"
        yield from _aligned([HEADER, *self._rows(samples)])
        for leaf, name in zip(self.plan.leaves, leaf_names(self.plan), strict=True):
            accepted, filtered = (_of(samples, metric, name) for metric in (ROWS_ACCEPTED, ROWS_FILTERED))
            entries = ", ".join(f"{_of(samples, metric, name):,} {what}" for metric, what in ENTRIES)
            table = f"; entries of the table: {entries}" if leaf.low.reduced else ""
            yield f"{name}: {accepted:,} of {accepted + filtered:,} rows pass WHERE{table}"

    def _rows(self, samples: Samples) -> Iterator[tuple[str, ...]]:
        """Yield a row for each node, in the order of the plan."""
        nodes = self.run.nodes
        for node, name in zip(self.plan.nodes, self.plan.node_names, strict=True):
            measured = nodes.measurements[nodes.positions[node]]
            if isinstance(node, Leaf):
                received = _of(samples, ROWS_ACCEPTED, name) + _of(samples, ROWS_FILTERED, name)
                seconds, state = "", format_bytes(_of(samples, TABLE_BYTES, name))
            else:
                received = sum(nodes.measurements[nodes.positions[source]].rows for source in node.inputs)
                seconds, state = f"{measured.seconds:.3f}", format_bytes(measured.state_bytes)
            yield name, f"{received:,}", f"{measured.rows:,}", format_bytes(measured.bytes), seconds, state


def _of(samples: Samples, metric: Metric, leaf: str) -> int:
    return int(samples.total(metric, query=leaf))


def _aligned(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Yield rows with columns of equal widths: the first on the left, the others on the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        yield "  " + "  ".join([row[0].ljust(widths[0]), *cells]).rstrip()
