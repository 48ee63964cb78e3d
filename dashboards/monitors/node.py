"""The command that runs a low-level node: it captures links into spools, with status line, metrics and summary."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Sequence

from capture.errors import WiretideError
from capture.metrics import BYTES_READ, RECORDS_READ, Samples, by_name
from capture.metrics import METRICS as CAPTURE_METRICS
from dashboards.monitors.node_links import FAILED, RUNNING, STATES, Link, PrintLine, open_links, select_links
from dashboards.output.table import align_table
from dashboards.prometheus.exporter import Exporter
from dashboards.prometheus.server import serve
from dashboards.stop_signals import call_at_signal
from lowlevel.metrics import (
    LINK_STATE,
    NODE_METRICS,
    PARTIALS_WRITTEN,
    RECORDS_SHED,
    SPOOL_ROWS_DROPPED,
    SPOOL_ROWS_WRITTEN,
    SPOOL_SEGMENTS_WRITTEN,
)
from lowlevel.metrics import METRICS as LOW_METRICS
from queries.pipeline.file import PipelineFile
from queries.pipeline.inputs import check_names

SERVED_METRICS = (*CAPTURE_METRICS, *LOW_METRICS, *NODE_METRICS)
"""The metrics of a node."""

METRICS_BY_NAME = by_name(SERVED_METRICS)

STATUS_SECONDS = 0.5
"""Seconds between two updates of the status."""


class NodeFailedError(WiretideError):
    """Some links of a node have failed. Each failure has been printed, and the other links have continued."""


def run_node(
    pipeline: PipelineFile, names: Sequence[str], metrics: tuple[str, int] | None, print_line: PrintLine
) -> None:
    """Capture the links of a pipeline that have a spool, or only the links `names`.

    Returns when all links have ended, or after SIGINT or SIGTERM. Errors of the configuration are raised before the
    first packet is read. If a link fails, the other links continue, and NodeFailedError is raised at the end.
    """
    plans = pipeline.plans()
    check_names(plans, pipeline.link_names)  # files of other links may be missing
    links = list(open_links(pipeline, pipeline.leaves(plans), select_links(pipeline, names), print_line))
    if not links:
        return
    stop = threading.Event()
    exporter = Exporter([], SERVED_METRICS)
    with contextlib.ExitStack() as stack:
        if metrics is not None:
            print_line(f"metrics at {stack.enter_context(serve(exporter, *metrics, option='--metrics')).url}metrics")
        stack.enter_context(call_at_signal(stop.set))
        _run_links(links, exporter, stop, print_line)
    print_line(make_summary(links))
    if failed_links := [link.name for link in links if link.state == FAILED]:
        raise NodeFailedError(f"failed: link {', '.join(failed_links)}")


def _run_links(links: Sequence[Link], exporter: Exporter, stop: threading.Event, print_line: PrintLine) -> None:
    """Start all links. Update the status line and the metrics until the links end or `stop` is set."""
    for link in links:
        link.start()
    print_line(f"capturing {len(links)} link{'' if len(links) == 1 else 's'}; Ctrl-C ends with what has been read")
    try:
        status = _StatusLine()
        while any(link.state == RUNNING for link in links) and not stop.wait(STATUS_SECONDS):
            samples = add_up_samples(links)
            exporter.set_samples(samples)
            status.show(samples)
        status.clear()
    finally:
        for link in links:
            link.stop()
        for link in links:
            link.join()
    exporter.set_samples(add_up_samples(links))


def add_up_samples(links: Sequence[Link]) -> Samples:
    """Return the counters of all links."""
    samples = Samples()
    for link in links:
        samples.merge(link.worker.samples, METRICS_BY_NAME)
    for state in STATES:
        samples.set(LINK_STATE, sum(link.state == state for link in links), state)
    return samples


def make_summary(links: Sequence[Link]) -> str:
    """Return a table with the counters of each link."""
    samples = add_up_samples(links)
    rows = [
        [
            link.name,
            link.state,
            *(f"{samples.total(metric, link=link.name):,.0f}" for metric in _SUMMARY_COLUMNS.values()),
        ]
        for link in links
    ]
    return align_table(["link", "state", *_SUMMARY_COLUMNS], rows)


_SUMMARY_COLUMNS = {
    "records": RECORDS_READ,
    "shed": RECORDS_SHED,
    "bytes": BYTES_READ,
    "partials": PARTIALS_WRITTEN,
    "written": SPOOL_ROWS_WRITTEN,
    "dropped": SPOOL_ROWS_DROPPED,
    "segments": SPOOL_SEGMENTS_WRITTEN,
}


class _StatusLine:
    """The status line of a terminal."""

    def __init__(self) -> None:
        self.records = 0.0
        self.time = time.monotonic()

    def show(self, samples: Samples) -> None:
        """Print the number of records and their rate."""
        now, records = time.monotonic(), samples.total(RECORDS_READ)
        if sys.stderr.isatty():
            rate = (records - self.records) / max(now - self.time, 1e-9)
            shed_text = f", {samples.total(RECORDS_SHED):,.0f} shed" if samples.total(RECORDS_SHED) else ""
            partials_text = f"{samples.total(PARTIALS_WRITTEN):,.0f} partials"
            print(
                f"\r{records:,.0f} records, {rate:,.0f}/s, {partials_text}{shed_text}\x1b[K",
                end="",
                file=sys.stderr,
                flush=True,
            )
        self.records, self.time = records, now

    def clear(self) -> None:
        """Clear the line."""
        if sys.stderr.isatty():
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
