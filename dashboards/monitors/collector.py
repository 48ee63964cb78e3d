"""The command that collects flow exports: start message, status line, metrics for Prometheus, summary."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from capture.collector.collector import MAX_BUFFER_BYTES, Collector
from capture.collector.inspection import ExportInspector
from capture.collector.metrics import (
    BYTES,
    DATAGRAMS,
    DROPPED,
    EXPORTERS,
    FILES,
    FILES_DELETED,
    METRICS,
    REFUSED,
    UNWRITTEN,
    WRITTEN,
)
from capture.collector.settings import Settings
from capture.flows.templates import DecoderLimits
from capture.metrics import METRICS as CAPTURE_METRICS
from capture.metrics import Samples
from capture.units import SECOND
from dashboards.output.console import format_bytes, warn
from dashboards.output.table import align_table
from dashboards.prometheus.exporter import Exporter
from dashboards.prometheus.server import serve

SERVED_METRICS = (
    *METRICS,
    *(metric for metric in CAPTURE_METRICS if metric.name.startswith(("wiretide_flow", "wiretide_sflow"))),
)
"""The metrics of the collector and of the flow decoder, which runs in parallel with the recording."""

STATUS_SECONDS = 1.0
"""Seconds between two updates of the status."""

MAX_SUMMARY_EXPORTERS = 20
"""Number of exporters in the summary: those with the most datagrams. All other exporters share one line."""

THREAD_SWITCH_SECONDS = 0.0005
"""Maximum time for which the receiving thread waits for the interpreter lock: a tenth of Python's default."""

PrintLine = Callable[[str], None]


def collect(settings: Settings, metrics: tuple[str, int] | None, print_line: PrintLine) -> None:
    """Record until SIGINT or SIGTERM, then print a summary. If the recording fails, its error is raised.

    A second signal ends the process at once.
    """
    stop = threading.Event()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(THREAD_SWITCH_SECONDS)
    try:
        with _handle_signals(stop):
            _collect(settings, metrics, print_line, stop)
    finally:
        sys.setswitchinterval(interval)


def _collect(settings: Settings, metrics: tuple[str, int] | None, print_line: PrintLine, stop: threading.Event) -> None:
    exporter = Exporter([], SERVED_METRICS)
    with contextlib.ExitStack() as stack:
        if metrics is not None:
            server = stack.enter_context(serve(exporter, *metrics, option="--metrics"))
            print_line(f"metrics at {server.url}metrics")
        collector = Collector(settings, ExportInspector(settings.folder, warn), stop)
        stack.callback(lambda: print_line(make_summary(collector.samples(), settings.folder)))
        stack.enter_context(collector)
        for line in make_start_lines(collector):
            print_line(line)
        datagrams = 0.0
        while not stop.wait(STATUS_SECONDS):
            samples = collector.samples()
            exporter.set_samples(samples)
            datagrams = _show_status(samples, datagrams)
        _clear_status()


def make_start_lines(collector: Collector) -> Iterator[str]:
    """Yield the lines of the start message: addresses, folder and bounds."""
    settings = collector.settings
    for udp in collector.sockets:
        yield f"listening on {udp.name}, receive buffer {format_bytes(udp.granted_bytes)}"
    if any(udp.is_smaller_than_requested for udp in collector.sockets):
        yield (
            f"the receive buffer is smaller than the requested {format_bytes(settings.receive_buffer)}: datagrams of "
            "bursts may be lost, and are counted; allow it with: sysctl -w "
            f"net.core.rmem_max={settings.receive_buffer}"
        )
    interval_text = f" or {settings.rotate_every / SECOND:g} s" if settings.rotate_every else ""
    kept_text = f"the newest {format_bytes(settings.keep)} of them" if settings.keep is not None else "all of them"
    files_text = f"files of up to {format_bytes(settings.rotate_size)}{interval_text}"
    yield f"recording into {settings.folder}: {files_text}, keeping {kept_text}"
    bounds = DecoderLimits()
    yield (
        f"decoding for counters: at most {bounds.sessions:,} sessions, {bounds.templates:,} templates, "
        f"{format_bytes(bounds.waiting_bytes)} of data that waits for its template"
    )
    yield f"memory of buffers: at most {format_bytes(MAX_BUFFER_BYTES)}, and the buffers of the sockets"


def make_summary(samples: Samples, folder: Path) -> str:
    """Return the summary as text."""
    datagrams_by_exporter = {labels[0]: value for (name, labels), value in samples.items() if name == DATAGRAMS.name}
    lost_text = "unknown on this system"
    if any(name == DROPPED.name for name, _ in samples):
        lost_text = _count_text(samples.total(DROPPED), "datagram")
    received_text = f"{_count_text(samples.total(DATAGRAMS), 'datagram')} ({format_bytes(samples.total(BYTES))})"
    files_text = f"{_count_text(samples.total(FILES), 'file')} ({format_bytes(samples.total(WRITTEN))})"
    exporters_text = _count_text(samples.total(EXPORTERS), "exporter")
    lines = [
        f"recorded {received_text} of {exporters_text} into {files_text} in {folder}",
        f"refused: {_count_text(samples.total(REFUSED), 'datagram')}; lost before they could be received: {lost_text}",
    ]
    if unwritten := samples.total(UNWRITTEN):
        lines.append(f"lost because the disk failed: {_count_text(unwritten, 'datagram')}")
    if deleted := samples.total(FILES_DELETED):
        lines.append(f"deleted to keep the limit: {_count_text(deleted, 'oldest file')}")
    if datagrams_by_exporter:
        lines += ["", align_table(["exporter", "datagrams", "bytes"], _exporter_rows(samples, datagrams_by_exporter))]
    return "\n".join(lines)


def _exporter_rows(samples: Samples, datagrams_by_exporter: dict[str, float]) -> list[list[str]]:
    ordered_names = sorted(datagrams_by_exporter, key=lambda name: (-datagrams_by_exporter[name], name))
    rows = [
        [name, f"{datagrams_by_exporter[name]:,.0f}", f"{samples.total(BYTES, exporter=name):,.0f}"]
        for name in ordered_names[:MAX_SUMMARY_EXPORTERS]
    ]
    if other_names := ordered_names[MAX_SUMMARY_EXPORTERS:]:
        sums = (
            sum(datagrams_by_exporter[name] for name in other_names),
            sum(samples.total(BYTES, exporter=name) for name in other_names),
        )
        rows.append([f"{len(other_names):,} more", *(f"{value:,.0f}" for value in sums)])
    return rows


def _show_status(samples: Samples, last_datagrams: float) -> float:
    """Show the status line on a terminal. Return the number of datagrams. `last_datagrams`: result of the last call."""
    datagrams = samples.total(DATAGRAMS)
    if sys.stderr.isatty():
        rate = (datagrams - last_datagrams) / STATUS_SECONDS
        amounts = f"{datagrams:,.0f} datagrams, {rate:,.0f}/s, {samples.total(EXPORTERS):,.0f} exporters"
        losses = f"{samples.total(REFUSED):,.0f} refused, {samples.total(DROPPED):,.0f} lost"
        print(f"\r{amounts}, {losses}\x1b[K", end="", file=sys.stderr, flush=True)
    return datagrams


def _clear_status() -> None:
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _count_text(number: float, noun: str) -> str:
    """Return a number of things as text.

    >>> _count_text(1, "file"), _count_text(2000, "file")
    ('1 file', '2,000 files')
    """
    return f"{number:,.0f} {noun}{'' if number == 1 else 's'}"


@contextlib.contextmanager
def _handle_signals(stop: threading.Event) -> Iterator[None]:
    """Set `stop` at the first SIGINT or SIGTERM; the second has its default effect."""
    signal_numbers = (signal.SIGINT, signal.SIGTERM)

    def on_first_signal(*_: object) -> None:
        for number in signal_numbers:
            signal.signal(number, signal.SIG_DFL)
        stop.set()

    previous_handlers = {number: signal.signal(number, on_first_signal) for number in signal_numbers}
    try:
        yield
    finally:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)
