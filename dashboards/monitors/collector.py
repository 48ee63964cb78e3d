"""The collector command: start message, status line, metrics for Prometheus, summary."""

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
from capture.flows.templates import Bounds
from capture.metrics import METRICS as CAPTURE_METRICS
from capture.metrics import Samples
from capture.units import SECOND
from dashboards.output.console import format_bytes, warn
from dashboards.output.table import align_table
from dashboards.prometheus.exporter import Exporter
from dashboards.prometheus.server import serve

SERVED = (
    *METRICS,
    *(metric for metric in CAPTURE_METRICS if metric.name.startswith(("wiretide_flow", "wiretide_sflow"))),
)
"""The metrics of the collector and of the flow decoder, which runs in parallel with the recording."""

TICK = 1.0
"""Seconds between two updates of the status."""

SHOWN = 20
"""Number of exporters in the summary: those with the most datagrams. The others share one line."""

SWITCH_SECONDS = 0.0005
"""Longest time that the receiving thread waits for the interpreter lock: a tenth of Python's default."""

Say = Callable[[str], None]


def collect(settings: Settings, metrics: tuple[str, int] | None, say: Say) -> None:
    """Record until SIGINT or SIGTERM, then print a summary. Raises the error with which the recording failed.

    A second signal ends the process at once.
    """
    stop = threading.Event()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        with _signals(stop):
            _collect(settings, metrics, say, stop)
    finally:
        sys.setswitchinterval(interval)


def _collect(settings: Settings, metrics: tuple[str, int] | None, say: Say, stop: threading.Event) -> None:
    exporter = Exporter([], SERVED)
    with contextlib.ExitStack() as stack:
        if metrics is not None:
            server = stack.enter_context(serve(exporter, *metrics, option="--metrics"))
            say(f"metrics at {server.url}metrics")
        collector = Collector(settings, ExportInspector(settings.folder, warn), stop)
        stack.callback(lambda: say(summary(collector.samples(), settings.folder)))
        stack.enter_context(collector)
        for line in start_lines(collector):
            say(line)
        datagrams = 0.0
        while not stop.wait(TICK):
            samples = collector.samples()
            exporter.samples(samples)
            datagrams = _show_status(samples, datagrams)
        _wipe_status()


def start_lines(collector: Collector) -> Iterator[str]:
    """Yield the lines of the start message: addresses, folder and bounds."""
    settings = collector.settings
    for udp in collector.sockets:
        yield f"listening on {udp.name}, receive buffer {format_bytes(udp.granted)}"
    if any(udp.smaller_than_requested for udp in collector.sockets):
        yield (
            f"the receive buffer is smaller than the requested {format_bytes(settings.receive_buffer)}: datagrams of "
            f"bursts may be lost, and are counted; allow it with: sysctl -w net.core.rmem_max={settings.receive_buffer}"
        )
    every = f" or {settings.rotate_every / SECOND:g} s" if settings.rotate_every else ""
    kept = f"the newest {format_bytes(settings.keep)} of them" if settings.keep is not None else "all of them"
    files = f"files of up to {format_bytes(settings.rotate_size)}{every}"
    yield f"recording into {settings.folder}: {files}, keeping {kept}"
    bounds = Bounds()
    yield (
        f"decoding for counters: at most {bounds.sessions:,} sessions, {bounds.templates:,} templates, "
        f"{format_bytes(bounds.waiting_bytes)} of data that waits for its template"
    )
    yield f"memory of buffers: at most {format_bytes(MAX_BUFFER_BYTES)}, and the buffers of the sockets"


def summary(samples: Samples, folder: Path) -> str:
    """Return the summary as text."""
    datagrams = {labels[0]: value for (name, labels), value in samples.items() if name == DATAGRAMS.name}
    lost = "unknown on this system"
    if any(name == DROPPED.name for name, _ in samples):
        lost = _count(samples.total(DROPPED), "datagram")
    received = f"{_count(samples.total(DATAGRAMS), 'datagram')} ({format_bytes(samples.total(BYTES))})"
    files = f"{_count(samples.total(FILES), 'file')} ({format_bytes(samples.total(WRITTEN))})"
    lines = [
        f"recorded {received} of {_count(samples.total(EXPORTERS), 'exporter')} into {files} in {folder}",
        f"refused: {_count(samples.total(REFUSED), 'datagram')}; lost before they could be received: {lost}",
    ]
    if unwritten := samples.total(UNWRITTEN):
        lines.append(f"lost because the disk failed: {_count(unwritten, 'datagram')}")
    if deleted := samples.total(FILES_DELETED):
        lines.append(f"deleted to keep the limit: {_count(deleted, 'oldest file')}")
    if datagrams:
        lines += ["", align_table(["exporter", "datagrams", "bytes"], _exporters(samples, datagrams))]
    return "\n".join(lines)


def _exporters(samples: Samples, datagrams: dict[str, float]) -> list[list[str]]:
    ordered = sorted(datagrams, key=lambda name: (-datagrams[name], name))
    rows = [
        [name, f"{datagrams[name]:,.0f}", f"{samples.total(BYTES, exporter=name):,.0f}"] for name in ordered[:SHOWN]
    ]
    if rest := ordered[SHOWN:]:
        sums = sum(datagrams[name] for name in rest), sum(samples.total(BYTES, exporter=name) for name in rest)
        rows.append([f"{len(rest):,} more", *(f"{value:,.0f}" for value in sums)])
    return rows


def _show_status(samples: Samples, last: float) -> float:
    """Show the status line on a terminal; return the number of datagrams. `last` is the number in the last status."""
    datagrams = samples.total(DATAGRAMS)
    if sys.stderr.isatty():
        amounts = (
            f"{datagrams:,.0f} datagrams, {(datagrams - last) / TICK:,.0f}/s, {samples.total(EXPORTERS):,.0f} exporters"
        )
        losses = f"{samples.total(REFUSED):,.0f} refused, {samples.total(DROPPED):,.0f} lost"
        print(f"\r{amounts}, {losses}\x1b[K", end="", file=sys.stderr, flush=True)
    return datagrams


def _wipe_status() -> None:
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _count(number: float, thing: str) -> str:
    """Return a number of things as text.

    >>> _count(1, "file"), _count(2000, "file")
    ('1 file', '2,000 files')
    """
    return f"{number:,.0f} {thing}{'' if number == 1 else 's'}"


@contextlib.contextmanager
def _signals(stop: threading.Event) -> Iterator[None]:
    """Set `stop` at the first SIGINT or SIGTERM; the second has its default effect."""
    numbers = (signal.SIGINT, signal.SIGTERM)

    def on_first_signal(*_: object) -> None:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)
        stop.set()

    previous = {number: signal.signal(number, on_first_signal) for number in numbers}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
