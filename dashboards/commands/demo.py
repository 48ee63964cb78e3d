"""`wiretide demo`: monitor a replay of generated links."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from dashboards.command_options import Option, UsageError
from dashboards.commands.run import choose_allocator, monitor_pipeline

if TYPE_CHECKING:
    from queries.pipeline.file import PipelineFile

LINKS = ("Main1", "Main2", "Control")
WINDOW_PARAMETERS = {"window": "10 seconds"}
QUERIES: dict[str, tuple[str, Mapping[str, object]]] = {
    "total": ("@packets", WINDOW_PARAMETERS),
    "links": ("@links", WINDOW_PARAMETERS),
    "talkers": ("@pairs", WINDOW_PARAMETERS),
    "syn_targets": ("@syn-floods", WINDOW_PARAMETERS),
    "sources": ("@sources", {"range": "100 seconds", "slide": "10 seconds"}),
}
"""The queries of the demonstration: ready queries and their parameters."""


def demo_pipeline(folder: Path, *, seconds: float, rate: float, speed: float, port: int) -> PipelineFile:
    """Write generated captures of the links and the pipeline file `pipeline.toml` into `folder`.

    Return the pipeline file.
    """
    from capture.generate import three_links
    from queries.catalogue.catalogue import ready_query
    from queries.pipeline.file import read_pipeline

    captures = folder / "captures"
    three_links(captures, seconds, rate)  # equal options give equal files, so a stopped run can continue
    text = [
        'folder = "state"',
        f"speed = {speed}",
        "",
        "[links]",
        *(f'{link} = "captures/{link}.pcap"' for link in LINKS),
        "",
        "[metrics]",
        f"port = {port}",
    ]
    for name, (ready, params) in QUERIES.items():
        query = ready_query(ready)
        text += ["", f"[queries.{name}]", f"# {query.sentence}", f'sql = """\n{query.sql(params)}"""']
    path = folder / "pipeline.toml"
    path.write_text("\n".join(text) + "\n", encoding="utf-8")
    return read_pipeline(path)


def demo(
    folder: Annotated[
        Path | None, Option(help="The folder for captures, state and results. Default: a temporary folder.")
    ] = None,
    seconds: Annotated[float, Option(help="Length of the generated captures.")] = 600,
    rate: Annotated[float, Option(help="Packets per second of the busiest link.")] = 2000,
    speed: Annotated[float, Option(help="Speed of the replay: seconds of capture per second.")] = 20,
    port: Annotated[int, Option(help="Port of the metrics; 0: any free port.")] = 9464,
    until_done: Annotated[bool, Option("--until-done", help="Exit at the end of the replay.")] = False,
) -> None:
    """Run a demonstration: five queries over three generated links.

    It serves metrics for Prometheus.

    Main1 and Main2 are busy, their packets are out of order, and their clocks differ. Control is nearly idle and late.
    In the middle of the replay, Main1 receives a SYN flood.
    """
    choose_allocator()
    from capture.interrupts import uninterrupted
    from dashboards.output.console import compile_kernels
    from highlevel.spark.session.scratch import ScratchFolder

    compile_kernels()
    scratch: ScratchFolder | None = None
    try:
        if folder is None:
            with uninterrupted():
                scratch = ScratchFolder.create("wiretide-demo-")
            folder = scratch.path
        try:
            pipeline = demo_pipeline(folder, seconds=seconds, rate=rate, speed=speed, port=port)
        except (ValueError, OverflowError) as error:
            raise UsageError(str(error)) from error
        # Without a terminal, a user cannot press Ctrl-C.
        monitor_pipeline(pipeline, until_done or not sys.stdin.isatty(), port_option="--port")
    finally:
        if scratch is not None:
            with uninterrupted():
                scratch.remove()
