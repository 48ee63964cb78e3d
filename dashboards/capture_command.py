"""`wiretide capture`: a low-level node where a pipeline file is given, a collector where addresses are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from capture.collector.settings import Settings, address, duration, prefix, size
from capture.errors import WiretideError
from dashboards.console import compile_kernels
from dashboards.monitor import say_line


class CaptureCommandError(WiretideError):
    """Options that do not go together, or too few of them: say the command otherwise."""

    status = 2


COLLECTOR = "--udp"
NODE_OPTIONS = ("--link", "--metrics")
"""Which options a node knows; a collector knows all but the first."""


def check(pipeline: Path | None, given: Sequence[str]) -> None:
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


def node(pipeline: Path, links: Sequence[str], metrics: str | None) -> None:
    """Run the low-level node of a pipeline file."""
    from dashboards.node_monitor import run_node
    from queries.pipeline_file import read_pipeline

    described = read_pipeline(pipeline)
    at = None if metrics is None else address(metrics)
    compile_kernels()
    run_node(described, links, at, say_line)


def collector(
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
    from dashboards.collector_monitor import collect

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
