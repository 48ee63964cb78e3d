"""Write the packets that an answer comes from into a capture (`wiretide query --packets-to`).

    the query ───────────────────► rows                     one pass over the captures
    the query for its packets ───► identities of packets
    identities ──► records of the captures with them ──► pcap or pcapng       a second pass

An identity consists of the time, the link and the headers of a packet (`queries.plans.evidence`). So the second pass
does not need positions from the first pass, and can read compressed files too. If several records have the same
identity, all of them are copied.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from capture.errors import InputError
from capture.extract.frames import frames_of
from capture.extract.packet_file import SUFFIXES, PacketFile, packet_file
from capture.files.blocks import BLOCK_RECORDS, Block
from capture.files.capture import Capture
from capture.files.scan import scan
from capture.files.stream import StreamedCapture
from capture.open import open_capture
from dashboards.answer import Answer, answer_all
from dashboards.output.run_warnings import count
from highlevel.groups.ids import NO_GROUP
from highlevel.groups.keys import Keys
from highlevel.inline.engine import Input
from highlevel.plan.answer_nodes import Sort
from highlevel.plan.automaton_nodes import AcceptedRuns
from highlevel.plan.nodes import Apply, Filter, Leaf
from highlevel.plan.pattern_nodes import Matches
from highlevel.plan.plan import Plan, leaves_of
from lowlevel.kinds import row_kind_of
from lowlevel.plan import ARROW_TYPES
from lowlevel.rows.batches import row_batch
from lowlevel.rows.readers import make_reader
from queries.pipeline.input_options import Slack
from queries.plans.evidence import EXPECTED, IDENTITY_COLUMNS

MAX_PACKETS = 10_000_000
"""Maximum number of packets that are collected, because their identities are stored in memory."""


class Evidence:
    """The identities of packets, and the captures that contain the packets."""

    def __init__(self, path: Path, plans: Sequence[Plan], inputs: Sequence[Input], layer: str) -> None:
        """Prepare the collection. `plans`: the query, and the query for its packets. `inputs`: the captures of both.

        Raises InputError for a wrong path, and for a query whose rows do not come from single packets.
        """
        _check_plan(plans[0].with_final_rows())
        if path.suffix.lower() not in SUFFIXES:
            raise InputError(f"--packets-to {path}: expected a name with {' or '.join(SUFFIXES)}")
        for source in inputs:
            if path.exists() and source.path.exists() and path.samefile(source.path):
                raise InputError(f"--packets-to {path}: got an input of the query, expected another file")
        self._path = path
        self._plans = plans
        self._inputs = inputs
        columns = [row_kind_of("frames").column(name, layer) for name in IDENTITY_COLUMNS]
        self._columns = [column for column in columns if column is not None]
        self._packets = Keys([ARROW_TYPES[column.type] for column in self._columns])
        self._times = np.empty(0, np.int64)

    @contextlib.contextmanager
    def answer(self, slots: int | None, threads: int | None, slack: Slack | None) -> Iterator[Answer[pa.RecordBatch]]:
        """Answer the query, and collect the identities of packets.

        The arguments are those of `dashboards.answer.answer`.
        """
        with answer_all(self._plans, self._inputs, slots, threads, slack) as both:
            yield Answer(self._split(both.batches), both.samples, both.readings, both.run, both.remedy)

    def _split(self, batches: Iterable[tuple[int, pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
        for number, batch in batches:
            if number == 0:
                yield batch
            else:
                self._add(batch)

    def _add(self, batch: pa.RecordBatch) -> None:
        self._packets.find_or_insert(self._identities(batch), batch.num_rows)
        if self._packets.count > MAX_PACKETS:
            raise InputError(
                f"--packets-to {self._path}: got more than {MAX_PACKETS:,} packets, expected fewer: a narrower WHERE"
            )

    def _identities(self, batch: pa.RecordBatch) -> list[pa.Array]:
        return [column.cast(ARROW_TYPES[kind.type]) for column, kind in zip(batch.columns, self._columns, strict=True)]

    def write(self) -> str:
        """Copy the packets from the captures into the file. Return a sentence for the user.

        Raises InputError for a file that cannot be written.
        """
        place = IDENTITY_COLUMNS.index("ts")
        times = self._packets.columns()[place].cast(pa.int64()) if self._packets.count else pa.array([], pa.int64())
        self._times = np.unique(times.to_numpy())
        try:
            with packet_file(self._path) as written:
                for source in self._inputs:
                    self._copy(source, written)
            return f"{self._path}: {count(written.frames, 'packet')}"
        except (OSError, ValueError) as error:
            raise InputError(f"--packets-to {self._path}: {error}") from error

    def _copy(self, source: Input, written: PacketFile) -> None:
        """Copy the packets of one input."""
        capture = open_capture(source.path)
        names = {column.name for column in self._columns}
        reader = make_reader("frames", source.link, capture, names, BLOCK_RECORDS)
        for block in _blocks(capture):
            if not self._may_contain(block):
                continue
            for rows in reader.read(block):
                batch = row_batch(rows, self._columns)
                found = np.flatnonzero(self._packets.find(batch.columns, batch.num_rows) != NO_GROUP)
                if not len(found):
                    continue
                times, lengths, captured = (
                    np.asarray(batch.column(IDENTITY_COLUMNS.index(name)).cast(pa.int64()))
                    for name in ("ts", "len", "caplen")
                )
                frames = frames_of(capture, block, found.tolist(), captured)
                for record, frame in zip(found.tolist(), frames, strict=True):
                    written.add(source.link, frame, int(times[record]), int(lengths[record]))
        if isinstance(capture, StreamedCapture):
            capture.close()

    def _may_contain(self, block: Block) -> bool:
        first, end = np.searchsorted(self._times, [block.min_ts, block.max_ts + 1])
        return bool(first < end)


def _blocks(capture: Capture | StreamedCapture) -> Iterator[Block]:
    if isinstance(capture, Capture):
        return iter(scan(capture).blocks)
    return (block for block in capture.blocks() if block is not None)


def _check_plan(plan: Plan) -> None:
    """Raise InputError for a query whose rows do not come from single packets."""
    for leaf in leaves_of([plan]):
        if leaf.low.kind not in ("packets", "frames"):
            raise InputError(f"--packets-to: got a query over {leaf.low.kind}, expected packets or frames")
    for node in plan.nodes:
        if not isinstance(node, Leaf | Apply | Filter | Matches | AcceptedRuns | Sort) or (
            isinstance(node, Leaf) and node.low.reduced
        ):
            raise InputError(f"--packets-to: got a query with groups or aggregates, expected {EXPECTED}")
