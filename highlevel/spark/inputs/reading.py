"""The tasks of the stream source: read blocks of one input, and return packed partials, watermarks and counters.

The low level runs inside the task. At the end of the block range its tables are flushed; the operators merge the
partials later. A task has no state from earlier tasks, so it can be repeated: the same blocks give the same rows.

    part      operator partition, or COUNTERS
    query     number of the query; COUNTERS for counters, and for a partition without data, which only has to run
    port      the query's port for this input
    sequence  order of the rows of one port
    low       watermark of the port after the payload, ns; BEGINNING for none
    second    watermark of the second time column, if the rows have two; the newest time of the rows so far, if the
              results are changes; otherwise BEGINNING
    payload   packed partials, or NULL; for counters JSON

A watermark is sent to *every* partition, in the same Spark row as the partials before it. So it cannot arrive before
them, and it also reaches partitions without partials.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path

import pyarrow as pa

from capture import arrow_compute as pc
from capture.errors import InputError
from capture.files.blocks import Block
from capture.files.formats import FileFormat
from capture.lazy_dataclasses import dataclass
from capture.metrics import Samples
from capture.open import open_mapped
from highlevel.spark.inputs.assignment import InputAssignment, SourcePort
from highlevel.spark.inputs.quarantine import Damage
from highlevel.spark.tasks.repartition import make_repartition
from lowlevel.integer_ranges import Ranges
from lowlevel.metrics import TABLE_BYTES
from lowlevel.node.node import Node, budget_of
from lowlevel.plan import NEWEST_COLUMN
from lowlevel.punctuation import BEGINNING, END, Punctuation
from lowlevel.watermarks.jumps import LinkTime

COUNTERS = -1
"""Value instead of a partition or a query, in rows without data of a query."""

SPARK_SCHEMA = "part int, query int, port int, sequence long, low long, second long, payload binary"
ARROW_SCHEMA = pa.schema(
    {
        "part": pa.int32(),
        "query": pa.int32(),
        "port": pa.int32(),
        "sequence": pa.int64(),
        "low": pa.int64(),
        "second": pa.int64(),
        "payload": pa.binary(),
    }
)

ArrivalRow = tuple[int, int, int, int, int, int, bytes | None]
"""The values of one row."""


@dataclass(frozen=True)
class BlockRange:
    """A range of blocks of one input, with everything that the task needs to read it.

    `first_block` is the number of its first block, and `block_count` the number of blocks of the whole input.
    `watermark` is the watermark before the first block, or BEGINNING if an earlier range has sent this watermark.
    `file_size` is the length of the file when it was scanned. `damage` describes the end of a damaged file, in the last
    range only. `file_format` is the record format that the scan found: the headers that define it may be outside this
    range. `link_times`: the time of the link before the first block, by kind of rows, for queries that need it.
    `newest`: the newest time after the last block, by kind of rows.
    """

    input_number: int
    first_block: int
    block_count: int
    watermark: int
    blocks: tuple[Block, ...]
    file_size: int
    damage: str | None
    file_format: FileFormat
    link_times: Mapping[str, LinkTime]
    newest: Mapping[str, int]


def read_block_range(
    assignment: InputAssignment, block_range: BlockRange, slots: int, capacity: int, *, measure: bool = False
) -> Iterator[pa.RecordBatch]:
    """Read a block range and yield its rows as one batch. Raise InputError if the file has changed since the scan.

    With `measure` there is only one query. Then counters are labelled with the name of their leaf in the plan instead
    of the query, and they contain the figures of the leaves.
    """
    begin = time.perf_counter()
    readers = assignment.readers(block_range.input_number)
    leaves = [assignment.leaf(reader) for reader in readers]
    input_ = assignment.inputs[block_range.input_number]
    file = open_mapped(input_.path, "the stream engine")
    if len(file.data) != block_range.file_size:
        raise InputError(
            f"{input_.path}: changed while it was read: got {len(file.data)} bytes, expected {block_range.file_size}"
        )
    file = replace(file, format=block_range.file_format)
    # Provisional partials are sent only at the end of the range: earlier ones would be merged in the same micro-batch
    # anyway.
    plans = [replace(leaf.low, provisional=False) for leaf in leaves]
    node = Node(
        *(input_.link, file, plans, slots, capacity),
        link_times=block_range.link_times,
        budget=budget_of(slots),
    )
    # If no maximum disorder is stated, provisional rows have no watermark before the end of the input.
    ends_only = [leaf.low.provisional and leaf.low.slack is None for leaf in leaves]
    scanned = block_range.watermark
    watermarks = [scanned if leaf.low.has_record_watermarks or scanned == END else BEGINNING for leaf in leaves]
    partials: list[list[pa.RecordBatch]] = [[] for _ in leaves]
    end = block_range.blocks[-1].end if block_range.blocks else 0
    for block in file.prefault_blocks(block_range.blocks, end):
        for leaf_index, item in node.process(block):
            if not isinstance(item, Punctuation):
                partials[leaf_index].append(item)
            elif item.watermark == END or not ends_only[leaf_index]:
                watermarks[leaf_index] = item.watermark
    for leaf_index, item in node.flush():
        if not isinstance(item, Punctuation):
            partials[leaf_index].append(item)
    labels = [assignment.counter_label(reader, measure=measure) for reader in readers]
    samples = node.samples([(label,) for label in labels], block_range.damage)
    output = TaskOutput(
        input_number=block_range.input_number,
        sequence=block_range.first_block,
        leaf_outputs={
            reader: LeafOutput(watermark, batches, block_range.newest.get(leaf.low.kind, END))
            for reader, leaf, watermark, batches in zip(readers, leaves, watermarks, partials, strict=True)
        },
        samples=samples,
        newest_time=max((block.max_ts for block in block_range.blocks), default=None),
        position=block_range.first_block + len(block_range.blocks),
        input_size=block_range.block_count,
        warnings=() if block_range.damage is None else (describe_damage(input_.path, block_range),),
        damages=() if block_range.damage is None else (damage_of(input_.path, block_range),),
        partial_bytes=sum(batch.nbytes for batches in partials for batch in batches),
    )
    if measure:
        figures = []
        for reader, batches in zip(readers, partials, strict=True):
            rows, bytes_ = (sum(getattr(batch, name) for batch in batches) for name in ("num_rows", "nbytes"))
            figures.append(leaf_figures(assignment, reader, rows, bytes_, samples))
        output = replace(output, measured=figures, seconds=time.perf_counter() - begin)
    yield pack_output(assignment, output)


def leaf_figures(
    assignment: InputAssignment, reader: int, rows: int, bytes_: int, samples: Samples
) -> tuple[int, tuple[int, int, float, int]]:
    """Return the position of a leaf in the only plan, and its figures (`Measurement`).

    Its state consists of its tables.
    """
    table_bytes = samples.total(TABLE_BYTES, query=assignment.counter_label(reader, measure=True))
    return assignment.plans[0].nodes.index(assignment.leaf(reader)), (rows, bytes_, 0.0, int(table_bytes))


def damage_of(path: Path, block_range: BlockRange) -> Damage:
    """Return the damage of a capture, with its place."""
    return Damage(str(path), f"byte {_damaged_byte(block_range):,}", (block_range.damage or "").replace("_", " "))


def _damaged_byte(block_range: BlockRange) -> int:
    return block_range.blocks[-1].end if block_range.blocks else block_range.file_format.first_record


def describe_damage(path: Path, block_range: BlockRange) -> str:
    """Return the warning about a damaged capture, with the position of the damage."""
    position = _damaged_byte(block_range)
    unread = block_range.file_size - position
    rest = f"the last {unread:,} bytes are not read" if unread else "the rest of the compressed file cannot be read"
    return f"{path}: damaged ({(block_range.damage or '').replace('_', ' ')}) at byte {position:,}; {rest}"


@dataclass(frozen=True)
class LeafOutput:
    """The rows of a leaf from a block range: partials, and the watermark after them (BEGINNING for none).

    `accepted`: the newest time of the link that was not rejected as wrong; END if the partials contain no wrong times.
    """

    watermark: int
    batches: list[pa.RecordBatch]
    accepted: int = END

    @property
    def newest(self) -> int:
        """The newest accepted time of provisional partials (`lowlevel.plan.NEWEST`); BEGINNING if there are none."""
        times = [
            batch.column(NEWEST_COLUMN)
            for batch in self.batches
            if batch.num_rows and NEWEST_COLUMN in batch.schema.names
        ]
        return min(self.accepted, max((pc.max(column).as_py() for column in times), default=BEGINNING))


@dataclass(frozen=True)
class TaskOutput:
    """The rows that a task has read from one input, by leaf.

    `sequence` numbers the block ranges of one input in their order. `newest_time` is the largest packet time in ns, or
    None. `position` is the position after the range, and `input_size` the size of the input; they are equal at the end
    of the input. `warnings` are for the user, and `damages` for the quarantine. `sampled_ranges` contains the times of
    the sampled partials of each leaf (`spark.inputs.estimates`). In a measured run, `measured` contains the figures
    of the leaves, and `seconds` is the time of the task. `partial_bytes`: the memory of its partials before they are
    packed, for captures and tables.
    """

    input_number: int
    sequence: int
    leaf_outputs: Mapping[int, LeafOutput]
    samples: Samples
    newest_time: int | None
    position: int
    input_size: int
    warnings: tuple[str, ...] = ()
    damages: tuple[Damage, ...] = ()
    sampled_ranges: Mapping[int, Ranges] = field(default_factory=dict)
    measured: Sequence[tuple[int, tuple[int, int, float, int]]] = ()
    seconds: float = 0.0
    partial_bytes: int = 0


def pack_output(assignment: InputAssignment, output: TaskOutput) -> pa.RecordBatch:
    """Pack the output of a task."""
    rows: list[ArrivalRow] = []
    for reader, leaf_output in output.leaf_outputs.items():
        rows += leaf_rows(assignment, reader, output.input_number, output.sequence, leaf_output)
    if not output.leaf_outputs:
        rows += rows_without_data(assignment, output.sequence)
    counts = {
        "samples": [[name, labels, value] for (name, labels), value in output.samples.items()],
        "newest": output.newest_time,
        "input": output.input_number,
        "done": output.position,
        "total": output.input_size,
        "warnings": output.warnings,
        "damages": [[damage.path, damage.place, damage.reason, damage.link] for damage in output.damages],
        "measured": output.measured,
        "seconds": output.seconds,
        "bytes": output.partial_bytes,
        "sampled": [[assignment.leaves[reader][0], ranges] for reader, ranges in output.sampled_ranges.items()],
    }
    rows.append((COUNTERS, COUNTERS, 0, output.sequence, BEGINNING, BEGINNING, json.dumps(counts).encode()))
    return make_batch(rows)


def rows_without_data(assignment: InputAssignment, sequence: int = 0) -> list[ArrivalRow]:
    """Return a row for each partition, so that it runs.

    Otherwise it would save no state, which the next micro-batch needs.
    """
    return [(part, COUNTERS, 0, sequence, BEGINNING, BEGINNING, None) for part in range(assignment.partitions)]


def leaf_rows(
    assignment: InputAssignment, reader: int, input_number: int, sequence: int, leaf_output: LeafOutput
) -> Iterator[ArrivalRow]:
    """Yield the rows of a leaf from one input: one row for each partition, for each source that is this leaf."""
    query, leaf = assignment.leaves[reader]
    fragments = assignment.fragments[query]
    newest = leaf_output.newest
    for source_number, source in enumerate(fragments.sources):
        if source.leaf != leaf:
            continue
        port = assignment.ports[query].index(SourcePort(source_number, input_number))
        for part, payload in enumerate(
            make_repartition(fragments, source_number).pack_parts(leaf_output.batches, assignment.partitions)
        ):
            yield part, query, port, sequence, leaf_output.watermark, newest, payload


def make_batch(rows: Sequence[ArrivalRow]) -> pa.RecordBatch:
    """Return rows as a batch of ARROW_SCHEMA. There may be no rows."""
    columns = zip(*rows, strict=True) if rows else [()] * len(ARROW_SCHEMA)
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, ARROW_SCHEMA, strict=True)], schema=ARROW_SCHEMA
    )
