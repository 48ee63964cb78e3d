"""What a pipeline file says of the low-level node: links that leave their partials in a spool, and its bounds.

[links.eth0]
capture = "interface:eth0"      # any input: an interface, a pipe, a file, a folder that is followed
spool = "spool/eth0"            # a folder; relative to the file, as all paths
promise = "late 2s"             # what is known of the order of its rows; left out: what the input allows
lull = "5s"                     # silence after which the clock goes on for it; left out: never

[node]
flush = "paced"                 # how entries of closed panes leave the tables
disorder = 1                    # windows that an entry may stay behind its own
memory = "256 MiB"              # of all tables of all links together
segment_bytes = "16 MiB"        # a segment of a spool is closed when it has so many bytes
segment_time = "1s"             # or is so old
spool_bytes = "4 GiB"           # of each link's spool
when_full = "stop"              # or "oldest": what goes when a spool is full, the new or the oldest
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from capture.collector.settings import MEBIBYTE, SECOND, duration, size
from capture.files.byte_source import STANDARD_INPUT
from queries.sections import PipelineError, Section

INTERFACE = "interface:"
"""What a live input begins with; the rest is its name."""

POLICIES = ("paced", "lazy", "slow", "at_once", "iop_slow", "iop_two_slot")

WHEN_FULL = ("stop", "oldest")

LEAST_SEGMENT = 4096
"""Bytes below which a segment is mostly its own header."""


@dataclass(frozen=True, slots=True)
class SpooledLink:
    """A link whose partials a node leaves in `spool`, an absolute path; `capture` is the input, its path absolute too.

    `lull` is in ns; None for either of the last two is the input's own way.
    """

    name: str
    capture: str
    spool: Path
    promise: str | None = None
    lull: int | None = None


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """How the node goes about it. Sizes are in bytes, times in ns; `memory` is of all tables, the rest of each link."""

    flush: str = "paced"
    disorder: int = 1
    memory: int = 256 * MEBIBYTE
    segment_bytes: int = 16 * MEBIBYTE
    segment_time: int = SECOND
    spool_bytes: int = 4096 * MEBIBYTE
    when_full: str = "stop"

    def __post_init__(self) -> None:
        """Refuse what contradicts itself."""
        if self.memory < MEBIBYTE:
            raise PipelineError(f"node.memory: got {self.memory:,} bytes, expected at least 1 MiB for the tables")
        if self.segment_bytes < LEAST_SEGMENT:
            raise PipelineError(
                f"node.segment_bytes: got {self.segment_bytes:,} bytes, expected at least {LEAST_SEGMENT:,}"
            )
        if self.segment_time <= 0:
            raise PipelineError(
                f"node.segment_time: got {self.segment_time} ns, expected more than 0: a reader waits so long"
            )
        if self.spool_bytes < 2 * self.segment_bytes:
            raise PipelineError(
                f"node.spool_bytes: got {self.spool_bytes:,} bytes for segments of up to {self.segment_bytes:,}, "
                "expected room for at least two of them"
            )


def node_settings(node: Section) -> NodeSettings:
    """Read `[node]`, of which everything may be left out."""
    usual = NodeSettings()
    return NodeSettings(
        flush=node.choice("flush", usual.flush, POLICIES),
        disorder=node.number("disorder", int, usual.disorder, "0 or more", lambda windows: windows >= 0),
        memory=node.parsed("memory", usual.memory, size),
        segment_bytes=node.parsed("segment_bytes", usual.segment_bytes, size),
        segment_time=node.parsed("segment_time", usual.segment_time, duration),
        spool_bytes=node.parsed("spool_bytes", usual.spool_bytes, size),
        when_full=node.choice("when_full", usual.when_full, WHEN_FULL),
    )


NODE_KEYS = ("flush", "disorder", "memory", "segment_bytes", "segment_time", "spool_bytes", "when_full")
LINK_KEYS = ("capture", "spool", "promise", "lull")


def spooled_link(name: str, table: Section, base: Path) -> SpooledLink | str:
    """Read a link that is a table: a spooled one, or, without a `spool`, the path that it is another way to write."""
    if not table.value("capture", str, "").strip():
        raise PipelineError(f"{table.prefix}capture is missing: expected an input, such as interface:eth0 or a path")
    capture = _place(table.value("capture", str, ""), base)
    if "spool" not in table.names:
        if idle := [key for key in ("promise", "lull") if key in table.names]:
            raise PipelineError(f"{table.prefix}{idle[0]} is for a link with a spool: expected {table.prefix}spool too")
        return capture
    if not table.value("spool", str, ""):
        raise PipelineError(f"{table.prefix}spool: got '', expected a folder")
    return SpooledLink(
        name,
        capture,
        base / table.value("spool", str, ""),
        table.value("promise", str, "") or None,
        table.parsed("lull", None, duration) or None,
    )


def check_spools(links: Iterable[SpooledLink]) -> None:
    """Refuse two links that would write to one spool, or a spool among the files that its own link follows."""
    seen: dict[str, str] = {}
    for link in links:
        folder = os.path.realpath(link.spool)
        if folder in seen:
            raise PipelineError(
                f"links.{link.name}.spool: got {link.spool}, which is that of {seen[folder]} too; expected one for each"
            )
        seen[folder] = link.name
        if folder == os.path.realpath(link.capture):
            raise PipelineError(f"links.{link.name}.spool: got the folder of its capture; expected another")


def _place(path: str, base: Path) -> str:
    """Make a path absolute; standard input and interfaces have none."""
    return path if path == STANDARD_INPUT or path.startswith(INTERFACE) else str(base / path)
