"""What the command line says beside the answer, on standard error: progress, warnings, counters."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from capture.metrics import BYTES_READ, DECODED_BY_FALLBACK, PACKETS_DECODED, RECORDS_READ, Samples
from dashboards.wire_text import escaped

if TYPE_CHECKING:
    from capture.native import Kernel


def compile_kernels(*packages: str, idle: Callable[[Kernel], bool] | None = None) -> None:
    """Compile the kernels that the cache lacks, and say so: the first run on a machine takes seconds for it.

    Of those in `packages`, which have been imported; of all that a query may need where none is named. Those that are
    `idle` are left out.
    """
    from capture import native

    if not packages:
        from highlevel import inline  # noqa: F401  # importing is what declares them

    missing = [each for each in native.missing() if not packages or each.function.__module__.startswith(packages)]
    missing = [each for each in missing if idle is None or not idle(each)]
    if not missing:
        return
    kernels = f"{len(missing)} kernel{'s' if len(missing) > 1 else ''}"
    print(f"wiretide: first run on this machine: compiling {kernels} …", file=sys.stderr, flush=True)
    for kernel in missing:
        kernel.compile()


@contextmanager
def progress_bar(unit: str = "bytes", *, shown: bool = True) -> Iterator[Callable[[int, int | None], None] | None]:
    """Give a callback (done, of all `unit`, None if unknown) that moves a progress bar.

    None where standard error is no terminal.
    """
    if not (shown and sys.stderr.isatty()):
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = (BarColumn(), DownloadColumn() if unit == "bytes" else MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(unit)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def say_live(live: bool) -> None:
    """Tell whoever sits at the terminal how a run that does not end by itself is ended."""
    if live and sys.stderr.isatty():
        print("wiretide: reading live; Ctrl-C ends with what has been read", file=sys.stderr)


def report(samples: Samples, warnings: Sequence[str], *, stats: bool = False) -> None:
    """Say what is not in the answer; on a terminal, or with `stats`, what was read."""
    for warning in warnings:
        print(f"wiretide: warning: {escaped(warning)}", file=sys.stderr)
    if stats:
        for (name, labels), value in sorted(samples.items()):
            print(escaped(f"{name}{{{','.join(labels)}}} {value:.15g}"), file=sys.stderr)
    elif sys.stderr.isatty():
        records, read = samples.total(RECORDS_READ), samples.total(BYTES_READ) / 1e6
        text = f"{records:,.0f} records ({read:,.1f} MB)"
        if any(name == PACKETS_DECODED.name for name, _ in samples):  # not where the rows are of another kind
            decoded = samples.total(PACKETS_DECODED)
            text += f", {decoded:,.0f} IP packets, {records - decoded:,.0f} others"
        if by_fallback := samples.total(DECODED_BY_FALLBACK):
            text += f"; dpkt decoded {by_fallback:,.0f}"
        print(text, file=sys.stderr)
