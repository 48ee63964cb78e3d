"""`wiretide report`: write one document about captures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from dashboards.command_arguments import NO_INPUT, parse_bindings
from dashboards.command_options import Argument, Option, UsageError


def report(
    files: Annotated[
        list[str] | None, Argument(metavar="[FILE]...", help="Captures, folders or globs. Each is a link.")
    ] = None,
    stream: Annotated[
        list[str] | None,
        Option("--stream", "-s", metavar="NAME=PATH", help="Add an input as a link with this name. Repeatable."),
    ] = None,
    output: Annotated[Path, Option("--output", "-o", metavar="FILE", help="The document.")] = Path("report.html"),
    flows: Annotated[bool, Option("--flows", help="The inputs are flow exports.")] = False,
    window: Annotated[
        str | None,
        Option(metavar="TIME", help="Length of the windows of timelines. Default: about 120 windows."),
    ] = None,
) -> None:
    """Write one HTML document about captures.

    The document contains plots and tables of traffic over time, talkers, protocols, handshakes and latency, and scans.
    It also shows disorder, times without records, and undecoded records. It needs no network and no scripts.

    \b
    wiretide report trace.pcap
    wiretide report main1.pcap 'backup-*.pcap' -o both.html
    wiretide report exports/ --flows
    """  # noqa: D301  # click needs the character \b: the paragraph keeps its lines
    from dashboards import request
    from dashboards.output.console import compile_kernels, progress_bar
    from dashboards.output.writers import open_output
    from dashboards.plots.drawing import require_matplotlib
    from dashboards.report.report import make_report
    from lowlevel.durations import parse_duration

    if not (files or stream):
        raise UsageError(NO_INPUT.replace("before the query, ", ""))
    length = None
    if window is not None:
        try:
            length = parse_duration(window)
        except ValueError as error:
            raise UsageError(f"--window: {error}") from error
        if length < 10**6:
            raise UsageError(f"--window {window}: expected at least 1 ms")
    require_matplotlib("wiretide report")
    inputs = request.bind_inputs(files or [], parse_bindings(stream or []), follow=False)
    compile_kernels()
    text = make_report(inputs, "flows" if flows else "packets", length, progress_bar)
    with open_output(output) as sink:
        sink.write(text.encode())
    print(output)
