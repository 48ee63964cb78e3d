"""`wiretide capture`: a low-level node where a pipeline file is given, a collector where addresses are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from capture.errors import WiretideError


class CaptureCommandError(WiretideError):
    """Options that do not go together, or too few of them: say the command otherwise."""

    status = 2


COLLECTOR = "--udp"
NODE_OPTIONS = ("--link", "--metrics")
"""Which options a node knows; a collector knows all but the first."""


def capture(
    context: typer.Context,
    pipeline: Annotated[
        Path | None, typer.Argument(metavar="[PIPELINE.toml]", help="Run the low-level node for links with a spool.")
    ] = None,
    link: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Capture this link of the pipeline alone; repeatable.")
    ] = None,
    udp: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST:PORT", help="Receive datagrams here; *:PORT is every address of this host."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FOLDER", help="Record datagrams into this folder.")
    ] = None,
    allow: Annotated[
        list[str] | None, typer.Option(metavar="CIDR", help="Refuse all senders but these; repeatable.")
    ] = None,
    rotate_size: Annotated[str, typer.Option(metavar="SIZE", help="Begin another file after so many bytes.")] = "256Mi",
    rotate_every: Annotated[
        str, typer.Option(metavar="TIME", help="Begin another file at every multiple of this; 0 for never.")
    ] = "5m",
    keep: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Delete the oldest files beyond so many bytes; by default none.")
    ] = None,
    buffer: Annotated[
        str, typer.Option(metavar="SIZE", help="Receive buffer to ask the system for, per socket.")
    ] = "32Mi",
    exporters: Annotated[int, typer.Option(help="Senders to count one by one; the others are counted together.")] = 256,
    metrics: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Serve metrics for Prometheus here.")] = None,
) -> None:
    """Capture links into spools, or datagrams into files.

    Ctrl-C or SIGTERM ends it.

    With a pipeline file this is the low-level node: packets are reduced by the pipeline's queries in fixed memory, and
    `wiretide run PIPELINE.toml` reads what it leaves in the spools:

        wiretide capture pipeline.toml --metrics 127.0.0.1:9465

    With --udp NetFlow, IPFIX and sFlow datagrams are recorded as they come, and can be queried meanwhile:

        wiretide capture --udp *:2055 --udp *:4739 -o exports --metrics 127.0.0.1:9465
        wiretide query exports "SELECT exporter, sum(bytes) AS bytes FROM flows GROUP BY exporter"
    """
    named = {each.name: each.opts[0] for each in context.command.params if each.name != "pipeline"}
    _check(
        pipeline,
        [
            option
            for name, option in named.items()
            if str(context.get_parameter_source(str(name))).endswith("COMMANDLINE")
        ],
    )
    if pipeline is not None:
        _node(pipeline, link or [], metrics)
        return
    assert output is not None, "checked"
    _collector(
        udp or [], output, allow=allow or [], rotate_size=rotate_size, rotate_every=rotate_every, keep=keep,
        buffer=buffer, exporters=exporters, metrics=metrics,
    )  # fmt: skip


def _check(pipeline: Path | None, given: Sequence[str]) -> None:
    """Raise CaptureCommandError where the options `given` are not those of one of the two."""
    if pipeline is not None:
        if others := [name for name in given if name not in NODE_OPTIONS]:
            raise CaptureCommandError(
                f"{pipeline} and {others[0]}: got a pipeline file for the low-level node and an option of the "
                f"collector, expected one of the two; a node has {', '.join(NODE_OPTIONS)}"
            )
        return
    if "--link" in given:
        raise CaptureCommandError(
            "--link: expected the pipeline file that has the link: wiretide capture PIPELINE.toml"
        )
    missing = [name for name in (COLLECTOR, "--output") if name not in given]
    if missing:
        raise CaptureCommandError(
            f"got no {missing[0]}: expected a pipeline file for the low-level node, wiretide capture PIPELINE.toml, or "
            "an address and a folder for the collector of flow exports, wiretide capture --udp HOST:PORT -o FOLDER"
        )


def _node(pipeline: Path, links: Sequence[str], metrics: str | None) -> None:
    """Run the low-level node of a pipeline file."""
    from capture.collector.settings import address
    from dashboards.monitors.node import run_node
    from dashboards.monitors.pipeline import say_line
    from dashboards.output.console import compile_kernels
    from queries.pipeline.file import read_pipeline

    described = read_pipeline(pipeline)
    at = None if metrics is None else address(metrics)
    compile_kernels()
    run_node(described, links, at, say_line)


def _collector(
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
    from capture.collector.settings import Settings, address, duration, prefix, size
    from dashboards.monitors.collector import collect
    from dashboards.monitors.pipeline import say_line
    from dashboards.output.console import compile_kernels

    settings = Settings(
        listen=tuple(address(each) for each in udp),
        folder=output,
        rotate_size=size(rotate_size),
        rotate_every=duration(rotate_every),
        keep=None if keep is None else size(keep),
        allow=tuple(prefix(each) for each in allow),
        receive_buffer=size(buffer),
        exporters=exporters,
    )
    at = None if metrics is None else address(metrics)
    compile_kernels("capture.collector", "capture.flows", "capture.sflow")
    collect(settings, at, say_line)
