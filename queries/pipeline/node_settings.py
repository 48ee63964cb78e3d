"""Settings of the low-level node in a pipeline file: the links that it pre-aggregates into spools, and its limits.

[links.eth0]
capture = "interface:eth0"      # any input: an interface, a pipe, a file, a folder that is followed
spool = "spool/eth0"            # a folder; relative to the file, as all paths
promise = "late 2s"             # watermark rule; default: late 10s for a live input, otherwise exact
lull = "5s"                     # idle time after which the clock advances its watermark; default: never
clock_jump = "1h"               # a row further ahead than this moves the watermark only if the next rows agree

[node]
flush = "paced"                 # how entries of closed panes leave the tables
disorder = 1                    # an entry may stay in the table for this number of windows after its own
every = 1                       # packets per old entry that is flushed, only for flush = "slow"
memory = "256 MiB"              # for all tables of all links together
segment_bytes = "16 MiB"        # a segment of a spool is closed at this size
segment_time = "1s"             # or at this age
spool_bytes = "4 GiB"           # size limit of each link's spool
when_full = "stop"              # if a spool is full: "stop" drops new partials, "oldest" drops the oldest segment
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable
from pathlib import Path

from capture.files.byte_source import STANDARD_INPUT
from capture.interface_path import is_interface
from capture.lazy_dataclasses import dataclass
from capture.units import MEBIBYTE, SECOND, parse_size
from lowlevel.durations import parse_duration
from lowlevel.spool.limits import SpoolLimits, WhenFull
from lowlevel.table.flushing import Flushing, Policy
from lowlevel.watermarks.rule import WatermarkRule, parse_rule
from queries.pipeline.sections import PipelineError, Section

DEFAULT_LIVE_RULE = "late 10s"
"""Default watermark rule of a live input."""

MIN_SEGMENT_BYTES = 4096
"""Minimum size of a segment in bytes; smaller segments would consist mostly of headers."""


@dataclass(frozen=True, slots=True)
class SpooledLink:
    """A link whose partials a node writes to the folder `spool`. `spool` is an absolute path.

    The input `capture` is an absolute path, an interface or standard input.

    `lowlevel.watermarks.rule` defines the texts of `promise`, `lull` and `clock_jump`; they are checked here.
    """

    name: str
    capture: str
    spool: Path
    promise: str | None = None
    lull: str | None = None
    clock_jump: str | None = None

    def __post_init__(self) -> None:
        """Raise PipelineError for texts that are no watermark rule."""
        for live in (False, True):
            try:
                self.watermark_rule(live=live)
            except ValueError as error:
                raise PipelineError(f"links.{self.name}: {error}") from error

    def watermark_rule(self, *, live: bool) -> WatermarkRule:
        """Return the watermark rule. The default depends on `live`."""
        return parse_rule(self.promise or (DEFAULT_LIVE_RULE if live else "exact"), self.lull, self.clock_jump)

    def watermark_rule_text(self, *, live: bool) -> str:
        """Return the text of the watermark rule."""
        text = self.promise or (DEFAULT_LIVE_RULE if live else "exact")
        text += f", lull {self.lull}" if self.lull else ""
        return text + (f", clock jump {self.clock_jump}" if self.clock_jump else "")


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """Settings of a node. Sizes are in bytes, times in ns. `memory` limits all tables, other limits are per link."""

    flush: str = "paced"
    disorder: int = 1
    every: int = 1
    memory: int = 256 * MEBIBYTE
    segment_bytes: int = 16 * MEBIBYTE
    segment_time: int = SECOND
    spool_bytes: int = 4096 * MEBIBYTE
    when_full: str = "stop"

    def __post_init__(self) -> None:
        """Raise PipelineError for values that are too small or contradict each other."""
        if self.memory < MEBIBYTE:
            raise PipelineError(f"node.memory: got {self.memory:,} bytes, expected at least 1 MiB for the tables")
        if self.segment_bytes < MIN_SEGMENT_BYTES:
            raise PipelineError(
                f"node.segment_bytes: got {self.segment_bytes:,} bytes, expected at least {MIN_SEGMENT_BYTES:,}"
            )
        if self.every != 1 and self.flush != Policy.SLOW:
            raise PipelineError(
                f'node.every: got {self.every} with flush = "{self.flush}", expected flush = "slow", which uses it'
            )
        try:
            self.limits()
            self.flushing()
        except ValueError as error:
            raise PipelineError(f"node: {error}") from error

    def limits(self) -> SpoolLimits:
        """Return the limits of the spool of one link."""
        return SpoolLimits(self.segment_bytes, self.segment_time, self.spool_bytes, WhenFull(self.when_full))

    def flushing(self) -> Flushing:
        """Return the policy for flushing closed panes."""
        return Flushing(Policy(self.flush), self.disorder, self.every)

    def flushing_text(self) -> str:
        """Return the text of the policy."""
        rate_text = f", one entry for every {self.every:,} packets" if self.flush == Policy.SLOW else ""
        return f"{self.flush}, disorder {self.disorder}{rate_text}"


def node_settings(node: Section) -> NodeSettings:
    """Read `[node]`; every key has a default."""
    default = NodeSettings()
    return NodeSettings(
        flush=node.choice("flush", default.flush, Policy),
        disorder=node.number("disorder", int, default.disorder, "0 or more", lambda windows: windows >= 0),
        every=node.number("every", int, default.every, "1 or more", lambda packets: packets >= 1),
        memory=node.parsed_value("memory", default.memory, parse_size),
        segment_bytes=node.parsed_value("segment_bytes", default.segment_bytes, parse_size),
        segment_time=node.parsed_value("segment_time", default.segment_time, parse_duration),
        spool_bytes=node.parsed_value("spool_bytes", default.spool_bytes, parse_size),
        when_full=node.choice("when_full", default.when_full, WhenFull),
    )


NODE_KEYS = ("flush", "disorder", "every", "memory", "segment_bytes", "segment_time", "spool_bytes", "when_full")
WATERMARK_KEYS = ("promise", "lull", "clock_jump")
LINK_KEYS = ("capture", "spool", *WATERMARK_KEYS)


def spooled_link(name: str, table: Section, base: Path) -> SpooledLink | str:
    """Return the link of a TOML table: a spooled link, or the path of its capture if the table has no key `spool`."""
    if not table.value("capture", str, "").strip():
        raise PipelineError(f"{table.prefix}capture is missing: expected an input, such as interface:eth0 or a path")
    capture = absolute_path(table.value("capture", str, ""), base)
    if "spool" not in table.names:
        if unused_keys := [key for key in WATERMARK_KEYS if key in table.names]:
            raise PipelineError(
                f"{table.prefix}{unused_keys[0]} is for a link with a spool: expected {table.prefix}spool too"
            )
        return capture
    if not table.value("spool", str, ""):
        raise PipelineError(f"{table.prefix}spool: got '', expected a folder")
    return SpooledLink(
        name,
        capture,
        base / table.value("spool", str, ""),
        *(table.value(key, str, "") or None for key in WATERMARK_KEYS),
    )


def check_spools(links: Iterable[SpooledLink]) -> None:
    """Raise PipelineError for a spool of two links, and for a spool that is the folder that its own link follows."""
    link_names: dict[str, str] = {}
    for link in links:
        folder = os.path.realpath(link.spool)
        if folder in link_names:
            raise PipelineError(
                f"links.{link.name}.spool: got {link.spool}, also the spool of {link_names[folder]}; expected another"
            )
        link_names[folder] = link.name
        capture = Path(link.capture)
        # A link follows the files of one folder, or the files that match the last part of its path.
        followed = capture.parent if not capture.exists() and glob.has_magic(capture.name) else capture
        if folder == os.path.realpath(followed):
            raise PipelineError(f"links.{link.name}.spool: got the folder of its capture; expected another")


def absolute_path(path: str, base: Path) -> str:
    """Return an absolute path; standard input and interfaces are returned unchanged."""
    return path if path == STANDARD_INPUT or is_interface(path) else str(base / path)
