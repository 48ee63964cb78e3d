"""`wiretide capture`: run a low-level node (with a pipeline file) or a collector of flow exports (with `--udp`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from capture.errors import WiretideError
from dashboards.command_options import Argument, Option


class CaptureCommandError(WiretideError):
    """Options that are missing or cannot be combined."""

    status = 2


COLLECTOR_OPTION = "--udp"
NODE_OPTIONS = ("--link", "--metrics")
"""Options of a low-level node. A collector accepts all options except `--link`."""


def capture(
    context: typer.Context,
    pipeline: Annotated[
        Path | None,
        Argument(metavar="[PIPELINE.toml]", help="Run the low-level node for the links that have a spool."),
    ] = None,
    link: Annotated[
        list[str] | None, Option(metavar="NAME", help="Capture only this link of the pipeline. Repeatable.")
    ] = None,
    udp: Annotated[
        list[str] | None,
        Option(metavar="HOST:PORT", help="Receive datagrams here. *:PORT means all addresses. Repeatable."),
    ] = None,
    output: Annotated[
        Path | None, Option("--output", "-o", metavar="FOLDER", help="Record datagrams into this folder.")
    ] = None,
    allow: Annotated[
        list[str] | None, Option(metavar="CIDR", help="Accept only senders in this network. Repeatable.")
    ] = None,
    rotate_size: Annotated[str, Option(metavar="SIZE", help="Start a new file when a file has this size.")] = "256Mi",
    rotate_every: Annotated[
        str, Option(metavar="TIME", help="Start a new file at every multiple of this time; 0: never.")
    ] = "5m",
    keep: Annotated[
        str | None,
        Option(metavar="SIZE", help="Delete the oldest files if all files together exceed this. Default: never."),
    ] = None,
    buffer: Annotated[
        str, Option(metavar="SIZE", help="Receive buffer to request from the system for each socket.")
    ] = "32Mi",
    exporters: Annotated[
        int, Option(help="Maximum number of senders with separate counters. All other senders share counters.")
    ] = 256,
    metrics: Annotated[str | None, Option(metavar="HOST:PORT", help="Serve metrics for Prometheus here.")] = None,
) -> None:
    """Capture links into spools, or datagrams into files.

    Ctrl-C or SIGTERM ends it.

    With a pipeline file it runs the low-level node. The node pre-aggregates packets for the queries of the pipeline,
    in fixed memory, and writes the results into spools. `wiretide run PIPELINE.toml` reads the spools.

    \b
    wiretide capture pipeline.toml --metrics 127.0.0.1:9465

    With --udp it records NetFlow, IPFIX and sFlow datagrams. Queries can read the files at the same time.

    \b
    wiretide capture --udp *:2055 --udp *:4739 -o exports
    wiretide query exports "SELECT exporter, sum(bytes) FROM flows GROUP BY exporter"
    """  # noqa: D301  # click needs the character \b: the paragraph keeps its lines
    options = {option.name: option.opts[0] for option in context.command.params if option.name != "pipeline"}
    _check_options(
        pipeline,
        [
            option
            for name, option in options.items()
            if str(context.get_parameter_source(str(name))).endswith("COMMANDLINE")
        ],
    )
    if pipeline is not None:
        _run_node(pipeline, link or [], metrics)
        return
    assert output is not None, "checked"
    _run_collector(
        udp or [], output, allow=allow or [], rotate_size=rotate_size, rotate_every=rotate_every, keep=keep,
        buffer=buffer, exporters=exporters, metrics=metrics,
    )  # fmt: skip


def _check_options(pipeline: Path | None, given: Sequence[str]) -> None:
    """Raise CaptureCommandError if the options `given` are valid neither for a node nor for a collector."""
    if pipeline is not None:
        if others := [name for name in given if name not in NODE_OPTIONS]:
            raise CaptureCommandError(
                f"{pipeline} and {others[0]}: got a pipeline file (low-level node) and an option of the collector; "
                f"with a pipeline file only {', '.join(NODE_OPTIONS)} are allowed"
            )
        return
    if "--link" in given:
        raise CaptureCommandError("--link: needs the pipeline file with the link: wiretide capture PIPELINE.toml")
    missing = [name for name in (COLLECTOR_OPTION, "--output") if name not in given]
    if missing:
        raise CaptureCommandError(
            f"got no {missing[0]}: expected wiretide capture PIPELINE.toml (low-level node), or wiretide capture --udp "
            "HOST:PORT -o FOLDER (collector of flow exports)"
        )


def _run_node(pipeline: Path, links: Sequence[str], metrics: str | None) -> None:
    """Run the low-level node of a pipeline file."""
    from capture.collector.settings import parse_address
    from dashboards.monitors.node import run_node
    from dashboards.output.console import compile_kernels
    from dashboards.output.log_lines import print_line
    from queries.pipeline.file import read_pipeline

    settings = read_pipeline(pipeline)
    metrics_address = None if metrics is None else parse_address(metrics)
    compile_kernels()
    run_node(settings, links, metrics_address, print_line)


def _run_collector(
    udp: Sequence[str],
    output: Path,
    *,
    allow: Sequence[str],
    rotate_size: str,
    rotate_every: str,
    keep: str | None,
    buffer: str,
    exporters: int,
    metrics: str | None,
) -> None:
    """Run the collector of flow exports."""
    from capture.collector.settings import Settings, parse_address, parse_interval, parse_prefix
    from capture.units import parse_size
    from dashboards.monitors.collector import collect
    from dashboards.output.console import compile_kernels
    from dashboards.output.log_lines import print_line

    settings = Settings(
        listen=tuple(map(parse_address, udp)),
        folder=output,
        rotate_size=parse_size(rotate_size),
        rotate_every=parse_interval(rotate_every),
        keep=None if keep is None else parse_size(keep),
        allow=tuple(map(parse_prefix, allow)),
        receive_buffer=parse_size(buffer),
        exporters=exporters,
    )
    metrics_address = None if metrics is None else parse_address(metrics)
    compile_kernels("capture.collector", "capture.flows", "capture.sflow")
    collect(settings, metrics_address, print_line)
