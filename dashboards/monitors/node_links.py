"""The links of a low-level node. Each link has a capture, tables, a spool, and a thread that reads the capture."""

from __future__ import annotations

import glob
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from capture.errors import WiretideError
from capture.files.positions import initial_position
from capture.files.stream import StreamedCapture
from capture.open import open_capture
from capture.units import SECOND
from dashboards.output.console import format_bytes
from dashboards.wire_text import escape
from highlevel.inline.engine import Input, check_one_input
from highlevel.plan.nodes import Leaf
from lowlevel.node.link_worker import LinkWorker
from lowlevel.node.memory import fit_slots, max_table_bytes
from lowlevel.node.node import Node
from lowlevel.spool.fingerprint import fingerprint
from lowlevel.spool.writer import SpoolWriter
from lowlevel.table.flushing import Flushing
from queries.pipeline.file import PipelineFile
from queries.pipeline.node_settings import NodeSettings, SpooledLink
from queries.pipeline.sections import PipelineError

RUNNING, ENDED, STOPPED, FAILED = "running", "ended", "stopped", "failed"
STATES = (RUNNING, ENDED, STOPPED, FAILED)

PrintLine = Callable[[str], None]


class Link:
    """One link and the thread that reads it."""

    def __init__(self, settings: SpooledLink, worker: LinkWorker) -> None:
        """Prepare the thread; `start` starts it."""
        self.name = settings.name
        self.settings = settings
        self.worker = worker
        self.state = RUNNING
        # A daemon thread: a second Ctrl-C ends the process without waiting for the thread.
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self._stop = threading.Event()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Request the end of the link, without waiting. Rows that were read before are written to the spool."""
        self._stop.set()

    def join(self) -> None:
        """Wait for the end of the link."""
        self._thread.join()

    def _run(self) -> None:
        state = FAILED
        try:
            self.worker.run(self._stop.is_set)
            state = ENDED if self.worker.has_ended else STOPPED
            if state == ENDED and self.worker.damage:
                _print_error(f"link {self.name}: {self.worker.damage_text}")
            if state == STOPPED and not self._stop.is_set():
                state = FAILED
                _print_error(
                    f"link {self.name}: {self.settings.capture} has disappeared; start the node again to continue its "
                    "spool"
                )
        except (WiretideError, OSError) as error:
            _print_error(f"link {self.name}: {error}")
        finally:
            self.state = state


def select_links(pipeline: PipelineFile, names: Sequence[str]) -> list[SpooledLink]:
    """Return the links with a spool whose names are in `names`, or all of them if `names` is empty.

    Raises PipelineError.
    """
    if not pipeline.spooled:
        raise PipelineError(
            "no link has a spool, so there is nothing to capture: expected at least one table [links.NAME] with "
            'capture = "…" and spool = "…"'
        )
    for name in names:
        if name not in pipeline.spooled:
            raise PipelineError(
                f"--link {name}: got no link with a spool, expected one of {', '.join(pipeline.spooled)}"
            )
    return [link for name, link in pipeline.spooled.items() if not names or name in names]


def open_links(
    pipeline: PipelineFile, leaves: Sequence[Leaf], links: Sequence[SpooledLink], print_line: PrintLine
) -> list[Link]:
    """Open captures and spools of links, and print the limits of their tables and spools.

    Links that no query reads, and links with an ended spool, are skipped. Raises PipelineError for limits that
    contradict each other, InputError or SpoolError if a link cannot be opened.
    """
    check_one_input(leaves, pipeline.spools)
    leaves_of_links = group_leaves_by_link(pipeline, leaves, links)
    for link in links:
        if not leaves_of_links[link.name]:
            print_line(f"link {link.name}: no query reads it, so it is not opened")
    links_to_open = [link for link in links if leaves_of_links[link.name]]
    opened_links: list[Link] = []
    try:
        for link in links_to_open:
            new_link = _open(
                link, pipeline.node, leaves_of_links[link.name], pipeline.node.memory // len(links_to_open), print_line
            )
            opened_links += [new_link] if new_link else []
    except BaseException:
        for opened_link in opened_links:
            opened_link.worker.spool.abandon()
        raise
    return opened_links


def _open(
    link: SpooledLink, node: NodeSettings, leaves: Sequence[Leaf], memory: int, print_line: PrintLine
) -> Link | None:
    """Open one link with `memory` bytes for its tables; None if its spool has ended."""
    plans = [leaf.low for leaf in leaves]
    flushing = node.flushing()
    slots = fit_table_slots(link, memory, leaves, flushing)
    table_bytes = max_table_bytes(slots, plans, flushing)
    is_followed_ = is_followed(link.capture)
    check_one_input(leaves, [Input(link.name, Path(link.capture), link.name, is_followed_)])
    capture = open_capture(link.capture, follow=is_followed_)
    is_live = isinstance(capture, StreamedCapture) and capture.live
    is_rereadable = initial_position(capture) is not None
    if is_rereadable and node.spool_bytes < (min_bytes := 4 * node.segment_bytes + 2 * table_bytes):
        raise PipelineError(
            f"node.spool_bytes, for link {link.name}: got {node.spool_bytes:,} bytes, expected at least "
            f"{min_bytes:,}, "
            "because one segment contains all tables of an input that can be read again. A smaller node.memory needs "
            "fewer bytes"
        )
    fingerprints = [(leaf.name, fingerprint(leaf.low)) for leaf in leaves]
    spool = SpoolWriter(link.spool, link.name, fingerprints, node.limits(), cuts=is_rereadable)
    if spool.ended:
        print_line(f"link {link.name}: its spool {link.spool} has ended: there is nothing left to do")
        spool.abandon()
        return None
    try:
        link_node = Node(
            link.name, capture, plans, slots, watermark_rule=link.watermark_rule(live=is_live), flushing=flushing
        )
        worker = LinkWorker(capture, link_node, [(leaf.name, leaf.low) for leaf in leaves], spool)
    except BaseException:
        spool.abandon()
        raise
    print_line(f"link {link.name}: {link.capture} into {link.spool}, for {', '.join(leaf.name for leaf in leaves)}")
    tables_text = (
        f"{slots:,} slots per table, at most {format_bytes(table_bytes)} for all tables"
        if table_bytes
        else "none, each row is passed on unchanged"
    )
    print_line(
        f"  tables: {tables_text}; flush {node.flushing_text()}; promise {link.watermark_rule_text(live=is_live)}"
    )
    print_line(f"  spool: {describe_spool_bounds(node)}")
    if worker.lost_sets:
        print_line(
            f"warning: link {link.name}: {worker.lost_sets:,} sets of flow records waited for their template when "
            "the node ended, and are lost"
        )
    return Link(link, worker)


def fit_table_slots(link: SpooledLink, memory: int, leaves: Sequence[Leaf], flushing: Flushing) -> int:
    """Return the slots per table if all tables of a link have `memory` bytes.

    Raises PipelineError if `memory` is too small.
    """
    try:
        return fit_slots(memory, [leaf.low for leaf in leaves], flushing)
    except ValueError as error:
        raise PipelineError(f"node.memory, for link {link.name}: {error}") from error


def describe_spool_bounds(node: NodeSettings) -> str:
    """Return the limits of the spools as text."""
    segments = f"segments of {format_bytes(node.segment_bytes)} or {node.segment_time / SECOND:g} s"
    return f"{segments}, {format_bytes(node.spool_bytes)} on the disk at most; when full: {node.when_full}"


def is_followed(capture: str) -> bool:
    """Return True if a capture is followed: it is a folder, or the last part of its path is a glob."""
    path = Path(capture)
    return path.is_dir() or (not path.exists() and glob.has_magic(path.name) and path.parent.is_dir())


def group_leaves_by_link(
    pipeline: PipelineFile, leaves: Sequence[Leaf], links: Iterable[SpooledLink]
) -> dict[str, list[Leaf]]:
    """Return the leaves that read each link, by the name of the link."""
    sources = {spool.link: spool for spool in pipeline.spools}
    return {link.name: [leaf for leaf in leaves if sources[link.name].feeds(leaf)] for link in links}


def _print_error(text: str) -> None:
    print(f"wiretide: {escape(text)}", file=sys.stderr, flush=True)
