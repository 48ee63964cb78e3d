"""What a pipeline file says of the low-level node: links that leave their partials in a spool, and its bounds.

[links.eth0]
capture = "interface:eth0"      # any input: an interface, a pipe, a file, a folder that is followed
spool = "spool/eth0"            # a folder; relative to the file, as all paths
promise = "late 2s"             # what is known of the order of its rows; left out: late 10s of a live input, else exact
lull = "5s"                     # silence after which the clock speaks for it; left out: never
clock_jump = "1h"               # a row further ahead than this may be a wrong clock, and waits for others that agree

[node]
flush = "paced"                 # how entries of closed panes leave the tables
disorder = 1                    # windows that an entry may stay behind its own
every = 1                       # packets for one old entry that leaves, of flush = "slow" alone
memory = "256 MiB"              # of all tables of all links together
segment_bytes = "16 MiB"        # a segment of a spool is closed when it has so many bytes
segment_time = "1s"             # or is so old
spool_bytes = "4 GiB"           # of each link's spool
when_full = "stop"              # or "oldest": what goes when a spool is full, the new or the oldest
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from capture.collector.settings import size
from capture.files.byte_source import STANDARD_INPUT
from capture.interface_path import is_interface
from capture.units import MEBIBYTE, SECOND
from lowlevel.durations import parse_duration
from lowlevel.promises.knowledge import Knowledge, parse_knowledge
from lowlevel.spool.limits import SpoolLimits, WhenFull
from lowlevel.table.flushing import Flushing, Policy
from queries.pipeline.sections import PipelineError, Section

LIVE_PROMISE = "late 10s"
"""What is known of a live input unless told otherwise."""

LEAST_SEGMENT = 4096
"""Bytes below which a segment is mostly its own header."""


@dataclass(frozen=True, slots=True)
class SpooledLink:
    """A link whose partials a node leaves in `spool`, an absolute path; `capture` is the input, its path absolute too.

    `promise`, `lull` and `clock_jump` are as `lowlevel.promises.knowledge` reads them, and checked by it when this is
    made.
    """

    name: str
    capture: str
    spool: Path
    promise: str | None = None
    lull: str | None = None
    clock_jump: str | None = None

    def __post_init__(self) -> None:
        """Refuse what no promise can be made of."""
        for live in (False, True):
            try:
                self.knowledge(live=live)
            except ValueError as error:
                raise PipelineError(f"links.{self.name}: {error}") from error

    def knowledge(self, *, live: bool) -> Knowledge:
        """Return what is known of the order of its rows, by default what its being live or not says."""
        return parse_knowledge(self.promise or (LIVE_PROMISE if live else "exact"), self.lull, self.clock_jump)

    def knowledge_text(self, *, live: bool) -> str:
        """Return the same as people read it."""
        said = self.promise or (LIVE_PROMISE if live else "exact")
        said += f", lull {self.lull}" if self.lull else ""
        return said + (f", clock jump {self.clock_jump}" if self.clock_jump else "")


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """How the node goes about it. Sizes are in bytes, times in ns; `memory` is of all tables, the rest of each link."""

    flush: str = "paced"
    disorder: int = 1
    every: int = 1
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
        if self.every != 1 and self.flush != Policy.SLOW:
            raise PipelineError(
                f'node.every: got {self.every} with flush = "{self.flush}", expected flush = "slow", which heeds it'
            )
        try:
            self.limits()
            self.flushing()
        except ValueError as error:
            raise PipelineError(f"node: {error}") from error

    def limits(self) -> SpoolLimits:
        """Return the bounds of each link's spool."""
        return SpoolLimits(self.segment_bytes, self.segment_time, self.spool_bytes, WhenFull(self.when_full))

    def flushing(self) -> Flushing:
        """Return how entries of closed panes leave the tables."""
        return Flushing(Policy(self.flush), self.disorder, self.every)

    def flushing_text(self) -> str:
        """Return the same as people read it."""
        each = f", one entry for every {self.every:,} packets" if self.flush == Policy.SLOW else ""
        return f"{self.flush}, disorder {self.disorder}{each}"


def node_settings(node: Section) -> NodeSettings:
    """Read `[node]`, of which everything may be left out."""
    usual = NodeSettings()
    return NodeSettings(
        flush=node.choice("flush", usual.flush, Policy),
        disorder=node.number("disorder", int, usual.disorder, "0 or more", lambda windows: windows >= 0),
        every=node.number("every", int, usual.every, "1 or more", lambda packets: packets >= 1),
        memory=node.parsed("memory", usual.memory, size),
        segment_bytes=node.parsed("segment_bytes", usual.segment_bytes, size),
        segment_time=node.parsed("segment_time", usual.segment_time, parse_duration),
        spool_bytes=node.parsed("spool_bytes", usual.spool_bytes, size),
        when_full=node.choice("when_full", usual.when_full, WhenFull),
    )


NODE_KEYS = ("flush", "disorder", "every", "memory", "segment_bytes", "segment_time", "spool_bytes", "when_full")
ORDER_KEYS = ("promise", "lull", "clock_jump")
LINK_KEYS = ("capture", "spool", *ORDER_KEYS)


def spooled_link(name: str, table: Section, base: Path) -> SpooledLink | str:
    """Read a link that is a table: a spooled one, or, without a `spool`, the path that it is another way to write."""
    if not table.value("capture", str, "").strip():
        raise PipelineError(f"{table.prefix}capture is missing: expected an input, such as interface:eth0 or a path")
    capture = place(table.value("capture", str, ""), base)
    if "spool" not in table.names:
        if idle := [key for key in ORDER_KEYS if key in table.names]:
            raise PipelineError(f"{table.prefix}{idle[0]} is for a link with a spool: expected {table.prefix}spool too")
        return capture
    if not table.value("spool", str, ""):
        raise PipelineError(f"{table.prefix}spool: got '', expected a folder")
    return SpooledLink(
        name,
        capture,
        base / table.value("spool", str, ""),
        *(table.value(key, str, "") or None for key in ORDER_KEYS),
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
        capture = Path(link.capture)
        # Only the files of a folder itself are followed, or those of a glob in the last part of a path.
        followed = capture.parent if not capture.exists() and glob.has_magic(capture.name) else capture
        if folder == os.path.realpath(followed):
            raise PipelineError(f"links.{link.name}.spool: got the folder of its capture; expected another")


def place(path: str, base: Path) -> str:
    """Make a path absolute; standard input and interfaces have none."""
    return path if path == STANDARD_INPUT or is_interface(path) else str(base / path)
