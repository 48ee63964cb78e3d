"""Describe a query: the columns of its answer, and the lateness of its rows, with suitable times for WAIT.

A query that counts rows reads the first rows of the inputs, as a live query would read them. Meanwhile the watermarks
of the links measure the lateness (`lowlevel.watermarks.lateness`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import pyarrow as pa

from capture import arrow_compute as pc
from capture.lazy_dataclasses import dataclass
from dashboards.answer import Answer, answer_all
from dashboards.output.table import align_table
from highlevel.inline.engine import Input
from highlevel.plan.nodes import Leaf
from highlevel.plan.plan import Plan
from highlevel.speculation.consistency import WEIGHT
from lowlevel.durations import duration_text
from lowlevel.metrics import ROWS_ACCEPTED, ROWS_FILTERED
from lowlevel.watermarks.lateness import Lateness
from queries.gsql import compile_query

MEASURED_ROWS = 1_000_000
"""The number of rows after which the measurement ends."""

SHARES = (0.95, 0.99, 0.999, 1.0)
"""The shares of the late rows for which a WAIT is printed."""

SUGGESTED_SHARE = 0.99
"""The share of the late rows that cause no correction with the suggested WAIT."""

COUNTING = "SELECT count(*) AS rows FROM {kind} [RANGE 1 second] WITH CONSISTENCY (WAIT 0, REMEMBER 1 day) EMIT CHANGES"
"""The query that counts rows. REMEMBER is long, so that rows from hours ago count as late, not as wrong."""


@dataclass(frozen=True)
class LinkLateness:
    """The rows of one kind that were read from a link, and their lateness."""

    link: str
    kind: str
    rows: int
    lateness: Lateness


def describe_columns(plan: Plan) -> str:
    """Return a table with a line for each column of the answer."""
    rows = [[column.name, str(column.type)] for column in plan.root.columns]
    return align_table(["column", "type"], rows, text_columns=("column", "type"))


def counting_plans(plan: Plan) -> list[Plan]:
    """Return one counting query for each kind of rows that `plan` reads."""
    kinds = dict.fromkeys(leaf.low.kind for leaf in plan.leaves)
    return [compile_query(COUNTING.format(kind=kind), kind) for kind in kinds]


@contextlib.contextmanager
def start_counting(plan: Plan, inputs: Sequence[Input]) -> Iterator[Answer[tuple[int, pa.RecordBatch]]]:
    """Open the inputs that `plan` reads, and count their rows."""
    read = [source for source in inputs if any(source.feeds(leaf) for leaf in plan.leaves)]
    with answer_all(counting_plans(plan), read) as counting:
        yield counting


def measure(
    plan: Plan, inputs: Sequence[Input], counting: Answer[tuple[int, pa.RecordBatch]], max_rows: int = MEASURED_ROWS
) -> tuple[list[LinkLateness], bool]:
    """Read rows until `max_rows` rows were read, the inputs end, or the user stops live inputs.

    Return the lateness of each link and kind of rows that `plan` reads, and whether some rows were not read.
    """
    rows, complete = 0, True
    for _, changes in counting.batches:
        weighted = pc.multiply(changes.column("rows"), changes.column(WEIGHT))
        rows += pc.sum(weighted).as_py() or 0
        if rows >= max_rows:
            complete = False
            break
    assert counting.run is not None, "the inline engine counts"
    samples = counting.run.samples()
    found = []
    for (link, kind), lateness in counting.run.lateness().items():
        if any(source.link == link and source.feeds(leaf) for source in inputs for leaf in leaves_of_kind(plan, kind)):
            labels = {"link": link, "query": kind}
            counted = samples.total(ROWS_ACCEPTED, **labels) + samples.total(ROWS_FILTERED, **labels)
            found.append(LinkLateness(link, kind, round(counted), lateness))
    return found, complete


def leaves_of_kind(plan: Plan, row_kind: str) -> list[Leaf]:
    """Return the leaves that read a kind of rows."""
    return [leaf for leaf in plan.leaves if leaf.low.kind == row_kind]


def describe_lateness(links: Sequence[LinkLateness], *, complete: bool) -> str:
    """Return a table of the lateness of each link, and a clause with the suggested WAIT and REMEMBER."""
    rows = []
    for link in links:
        late, share = link.lateness.late_rows, 100 * link.lateness.late_rows / max(1, link.rows)
        times = [duration_text(link.lateness.round_quantile(share)) if late else "0" for share in SHARES]
        rows.append([link.link, link.kind, f"{link.rows:,}", f"{share:.3g} %", *times])
    header = ["link", "kind", "rows", "late", *(f"{100 * share:g} %" for share in SHARES)]
    total = sum(link.rows for link in links)
    part = f"{'All' if complete else 'The first'} {total:,} rows: the smallest WAIT for a share of the late rows."
    return f"{part}\n\n{align_table(header, rows, text_columns=header[:2])}"


def suggestion(links: Sequence[LinkLateness]) -> str:
    """Return a clause with a WAIT that suffices for SUGGESTED_SHARE of the late rows, and a REMEMBER for all rows."""
    if not any(link.rows for link in links):
        return "There are no rows, so no times for WAIT and REMEMBER."
    late = [link.lateness for link in links if link.lateness.late_rows]
    if not late:
        return "No row is late: WITH CONSISTENCY (WAIT 0, REMEMBER 0) needs no corrections."
    wait = max(lateness.round_quantile(SUGGESTED_SHARE) for lateness in late)
    remember = max(wait, *(lateness.round_bound for lateness in late))
    return (
        f"WITH CONSISTENCY (WAIT {duration_text(wait)}, REMEMBER {duration_text(remember)})\n"
        f"needs no correction for {100 * SUGGESTED_SHARE:g} % of the late rows, and loses no row."
    )
