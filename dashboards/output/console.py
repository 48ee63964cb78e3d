"""Messages of the command line on standard error: progress, warnings, counters."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO

from capture.metrics import BYTES_READ, DECODED_BY_FALLBACK, PACKETS_DECODED, RECORDS_READ, Samples
from dashboards.wire_text import escape

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer
    from rich.progress import Progress, TaskID

    from capture.native import Kernel


def format_bytes(amount: float) -> str:
    """Return an amount of bytes as text.

    >>> format_bytes(999), format_bytes(64 << 20), format_bytes(1500)
    ('999 bytes', '64.0 MiB', '1.5 KiB')
    """
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if amount >= 1 << power:
            return f"{amount / (1 << power):.1f} {unit}"
    return f"{amount:,.0f} bytes"


def compile_kernels(*packages: str, is_idle: Callable[[Kernel], bool] | None = None) -> None:
    """Compile the kernels that are not in the cache, with a message, because this takes seconds.

    With `packages`, only kernels of these packages are compiled; the caller must have imported them. Otherwise all
    kernels that a query may need are compiled. Kernels for which `is_idle` returns True are skipped.
    """
    from capture import native

    if not packages:
        import highlevel.inline.engine  # noqa: F401  # declares the kernels

    def is_needed(kernel: Kernel) -> bool:
        named = not packages or kernel.function.__module__.startswith(packages)
        return named and (is_idle is None or not is_idle(kernel))

    _compile(native.missing_kernels(is_needed), "first run on this machine: ")


def compile_all_kernels() -> None:
    """Compile every kernel that is not in the cache, with a message."""
    from capture.kernel_compilation import declare_kernels
    from capture.native import missing_kernels

    declare_kernels()
    _compile(missing_kernels(), "")


def _compile(kernels: Sequence[Kernel], reason: str) -> None:
    if not kernels:
        return
    from capture.kernel_compilation import compile_into_cache

    count = f"{len(kernels)} kernel{'s' if len(kernels) > 1 else ''}"
    print(f"wiretide: {reason}compiling {count} …", file=sys.stderr, flush=True)
    with progress_bar("kernels") as bar:
        compile_into_cache(kernels, lambda completed: bar(completed, len(kernels)) if bar is not None else None)


class ProgressBar:
    """A progress bar on standard error. It is called with the completed and the total amount."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        """Use `task` of `progress`, which is already shown."""
        self._progress = progress
        self._task = task
        self._shown = True

    def __call__(self, completed: int, total: int | None) -> None:
        """Move the bar; `total` is None if unknown."""
        self._progress.update(self._task, completed=completed, total=total)

    def warn(self, text: str) -> None:
        """Write a warning above the bar."""
        self._progress.console.print(
            f"wiretide: warning: {escape(text)}", markup=False, highlight=False, soft_wrap=True
        )

    def remove(self) -> None:
        """Erase the bar permanently."""
        if self._shown:
            self._shown = False
            self._progress.stop()


class BelowBar(io.RawIOBase):
    """Standard output on a terminal with a progress bar. The bar is removed before the first byte is written.

    Otherwise the text would begin in the line of the bar.
    """

    def __init__(self, sink: BinaryIO, bar: ProgressBar) -> None:
        """Write to `sink`."""
        self._sink = sink
        self._bar = bar

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: Buffer, /) -> int:
        """Write bytes."""
        self._bar.remove()
        return self._sink.write(data)

    def flush(self) -> None:
        """Flush standard output."""
        self._sink.flush()


@contextmanager
def progress_bar(
    unit: str = "bytes", *, is_shown: bool = True, detail: Callable[[], str] | None = None
) -> Iterator[ProgressBar | None]:
    """Show a progress bar while the body runs, and yield it; None if standard error is not a terminal.

    `detail` returns a text to show after the bar. Another thread calls it several times per second.
    """
    if not (is_shown and sys.stderr.isatty()):
        yield None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Detail(ProgressColumn):
        """A column with the text of `detail`."""

        def render(self, task: Task) -> Text:
            """Return the current text."""
            return Text(detail() if detail is not None else "")

    columns = (
        BarColumn(),
        DownloadColumn() if unit == "bytes" else MofNCompleteColumn(),
        TimeRemainingColumn(),
        Detail(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield ProgressBar(bar, bar.add_task(unit))


def warn(text: str) -> None:
    """Print a warning to standard error."""
    print(f"wiretide: warning: {escape(text)}", file=sys.stderr, flush=True)


def print_live_hint(live: bool) -> None:
    """Print how to end a live run, if standard error is a terminal."""
    if live and sys.stderr.isatty():
        print("wiretide: reading live; Ctrl-C ends the query and prints the open windows", file=sys.stderr)


def report(samples: Samples, warnings: Sequence[str], *, stats: bool = False) -> None:
    """Print warnings about missing data and, on a terminal or with `stats`, the counters of the input."""
    for warning in warnings:
        warn(warning)
    if stats:
        for (name, labels), value in sorted(samples.items()):
            print(escape(f"{name}{{{','.join(labels)}}} {value:.15g}"), file=sys.stderr)
    elif sys.stderr.isatty():
        records, megabytes = samples.total(RECORDS_READ), samples.total(BYTES_READ) / 1e6
        text = f"{records:,.0f} records ({megabytes:,.1f} MB)"
        if any(name == PACKETS_DECODED.name for name, _ in samples):  # only if the rows are packets
            decoded = samples.total(PACKETS_DECODED)
            text += f", {decoded:,.0f} IP packets, {records - decoded:,.0f} others"
        if by_fallback := samples.total(DECODED_BY_FALLBACK):
            text += f"; dpkt decoded {by_fallback:,.0f}"
        print(text, file=sys.stderr)
