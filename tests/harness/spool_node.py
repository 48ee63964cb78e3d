"""Spools as a low-level node leaves them, made in one go: some starts of a writer, segments that end anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

from capture.files.blocks import Block
from capture.files.capture import Capture
from capture.files.scan import scan
from capture.open import open_capture
from highlevel.inline.engine import Input
from highlevel.plan.nodes import Leaf
from highlevel.plan.plan import Plan, named_leaves
from lowlevel.node.node import Node
from lowlevel.punctuation import BEGINNING
from lowlevel.spool.fingerprint import fingerprint
from lowlevel.spool.writer import SpoolWriter

SECOND = 1_000_000_000


def leaves(plans: Sequence[Plan]) -> list[Leaf]:
    """Return the leaves that a node runs for `plans`."""
    return [leaf for plan in plans for leaf in named_leaves(plan)]


def named(plans: Sequence[Plan]) -> list[tuple[str, str]]:
    """Return the names and fingerprints of plans, in the form of the spool writer."""
    return [(leaf.name, fingerprint(leaf.low)) for leaf in leaves(plans)]


def spool_of(folder: Path, link: str) -> Input:
    """The input that reads a spool."""
    return Input(link, folder, link, spool=True)


class SpoolNode:
    """The low-level node of one capture, block by block, at a clock of its own: one second per block."""

    def __init__(self, capture: Input, folder: Path, plans: Sequence[Plan], block_records: int = 50) -> None:
        """Start on `folder`, which may contain the files of another node. The capture is read from its beginning."""
        self.file = open_capture(capture.path)
        assert isinstance(self.file, Capture)
        self.link, self.plans, self.folder, self.records = capture.link, plans, folder, block_records
        self.index = scan(self.file, block_records)
        self.blocks: list[Block] = list(self.index.blocks)
        self.clock = SECOND
        self.start()

    def start(self) -> None:
        """Make the tables and the writer: the first time, or again, in place of those before."""
        self.node = Node(self.link, self.file, [leaf.low for leaf in leaves(self.plans)], 64, self.records)
        self.writer = SpoolWriter(self.folder, self.link, named(self.plans))
        self.has_progress = False

    def restart(self, plans: Sequence[Plan] | None = None) -> None:
        """End in order, with what is in the tables, and start again, perhaps with other plans."""
        for number, item in self.node.flush():
            self.writer.append(number, item)
        self.writer.close()
        self.plans = plans or self.plans
        self.start()

    def step(self, blocks: int = 1) -> bool:
        """Read some blocks into a segment, or more segments; False at the end of the capture, which ends the spool."""
        if not self.has_progress and self.index.watermark != BEGINNING and len(self.blocks) == len(self.index.blocks):
            self._write(self.node.declare_watermark(self.index.watermark))
        for _ in range(blocks):
            if not self.blocks:
                self._write(self.node.flush())
                self.writer.close(has_ended=True)
                return False
            block = self.blocks.pop(0)
            self._write(self.node.process(block))
        self.clock += SECOND
        self.writer.tick(self.clock)
        self.writer.flush()
        return True

    def _write(self, items) -> None:
        for number, item in items:
            self.writer.append(number, item)

    def finish(self, random: Random | None = None, restarts: float = 0.0) -> None:
        """Go on to the end, with segments of a few blocks each, and now and then a new start."""
        random = random or Random(0)
        while self.step(random.randrange(1, 6)):
            if random.random() < restarts:
                self.restart()


def write_spools(
    captures: Sequence[Input],
    folder: Path,
    plans: Sequence[Plan],
    random: Random | None = None,
    restarts: float = 0.0,
    block_records: int = 50,
) -> list[Input]:
    """A spool for each capture, in a folder of its own: a link may have several."""
    inputs = []
    for number, each in enumerate(captures):
        place = folder / f"{number}-{each.link}"
        SpoolNode(each, place, plans, block_records).finish(random, restarts)
        inputs.append(spool_of(place, each.link))
    return inputs
