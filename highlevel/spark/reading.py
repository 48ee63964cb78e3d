"""Tasks of the stream source: convert blocks of one input to packed partials, watermarks and counters.

The low level runs inside the task. The tables are flushed at the end of the block range, because partials can be merged
later. A task keeps no state between calls, so it can be repeated: the same blocks give the same rows.

    part      operator partition, or COUNTERS
    query     number of the query, or COUNTERS; COUNTERS in a real partition only shows that the range was read
    port      the query's port for this input
    sequence  order of the rows of one port
    low       watermark of the port after the payload, ns; BEGINNING for none
    second    watermark of the second time column, if the stream has two; otherwise BEGINNING
    payload   partials (packed Arrow), or NULL; for counters JSON

A watermark is sent to *every* partition, in the same Spark row as the partials before it. So it can neither overtake
them nor get lost in an empty partition.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from capture.errors import InputError
from capture.files.blocks import Block
from capture.files.formats import FileFormat
from capture.metrics import Samples
from capture.open import open_mapped
from highlevel.spark.feeds import InputAssignment, SourcePort
from highlevel.spark.repartition import repartition_of
from lowlevel.integer_ranges import Ranges
from lowlevel.node.node import Node
from lowlevel.punctuation import BEGINNING, Punctuation

COUNTERS = -1

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
class Run:
    """Range of blocks of one input: the complete input of a task.

    `first` is the number of its first block and `total` the number of blocks of the input. `low` is the watermark
    before the first block, or BEGINNING if it was emitted earlier. `size` is the file's length when it was scanned.
    `damage` describes the end of a damaged file, in the last range only. `form` is the record format that the scan
    determined. Headers that a task does not read may define it.
    """

    number: int
    first: int
    total: int
    low: int
    blocks: tuple[Block, ...]
    size: int
    damage: str | None
    form: FileFormat


def read_run(feeds: InputAssignment, run: Run, slots: int, capacity: int) -> Iterator[pa.RecordBatch]:
    """Read a block range and yield its rows as one batch. Raise InputError if the file has changed since the scan."""
    readers = feeds.readers(run.number)
    plans = [feeds.leaf(reader) for reader in readers]
    each_input = feeds.inputs[run.number]
    file = open_mapped(each_input.path, "the stream engine")
    if len(file.data) != run.size:
        raise InputError(
            f"{each_input.path}: changed while it was read: got {len(file.data)} bytes, expected {run.size}"
        )
    file = replace(file, format=run.form)
    node = Node(each_input.link, file, [plan.low for plan in plans], slots, capacity)
    lows = [run.low] * len(plans)
    partials: list[list[pa.RecordBatch]] = [[] for _ in plans]
    for block in run.blocks:
        for number, item in node.process(block):
            if isinstance(item, Punctuation):
                lows[number] = item.watermark
            else:
                partials[number].append(item)
    for number, item in node.flush():
        if not isinstance(item, Punctuation):
            partials[number].append(item)
    read = TaskOutput(
        number=run.number,
        sequence=run.first,
        taken={reader: LeafOutput(low, found) for reader, low, found in zip(readers, lows, partials, strict=True)},
        samples=node.samples([(plan.name,) for plan in plans], run.damage),
        newest=max((block.max_ts for block in run.blocks), default=None),
        done=run.first + len(run.blocks),
        total=run.total,
    )
    yield rows_of(feeds, read)


@dataclass(frozen=True)
class LeafOutput:
    """Input of a leaf from a block range: partials, and the watermark after them (BEGINNING for none)."""

    low: int
    batches: list[pa.RecordBatch]


@dataclass(frozen=True)
class TaskOutput:
    """Rows that a task has read from input `number`, by leaf. `sequence` is the order of the block ranges of one input.

    `newest` is the largest packet time in ns, or None. `done` is the position after the range and `total` the size of
    the input; they are equal at its end. `warnings` are for the user. `sampled` has the times of the sampled partials
    of each leaf (`highlevel.spark.estimates`).
    """

    number: int
    sequence: int
    taken: Mapping[int, LeafOutput]
    samples: Samples
    newest: int | None
    done: int
    total: int
    warnings: tuple[str, ...] = ()
    sampled: Mapping[int, Ranges] = field(default_factory=dict)


def rows_of(feeds: InputAssignment, read: TaskOutput) -> pa.RecordBatch:
    """Pack the output of a task."""
    rows: list[ArrivalRow] = []
    for reader, taken in read.taken.items():
        rows += leaf_rows(feeds, reader, read.number, read.sequence, taken)
    if not read.taken:
        # Every partition receives a row per range. A partition without rows would save no state, and the next
        # micro-batch would need it.
        rows += [(part, COUNTERS, 0, read.sequence, BEGINNING, BEGINNING, None) for part in range(feeds.partitions)]
    counts = {
        "samples": [[name, labels, value] for (name, labels), value in read.samples.items()],
        "newest": read.newest,
        "input": read.number,
        "done": read.done,
        "total": read.total,
        "warnings": read.warnings,
        "sampled": [[feeds.leaves[reader][0], ranges] for reader, ranges in read.sampled.items()],
    }
    rows.append((COUNTERS, COUNTERS, 0, read.sequence, BEGINNING, BEGINNING, json.dumps(counts).encode()))
    return batch_of(rows)


def leaf_rows(
    feeds: InputAssignment, reader: int, number: int, sequence: int, taken: LeafOutput
) -> Iterator[ArrivalRow]:
    """Yield the rows of a leaf from input `number`: one row per partition, for each source that is the leaf."""
    query, leaf = feeds.leaves[reader]
    fragments = feeds.fragments[query]
    for source, of in enumerate(fragments.sources):
        if of.leaf != leaf:
            continue
        port = feeds.ports[query].index(SourcePort(source, number))
        for part, payload in enumerate(repartition_of(fragments, source).packed(taken.batches, feeds.partitions)):
            yield part, query, port, sequence, taken.low, BEGINNING, payload


def batch_of(rows: Sequence[ArrivalRow]) -> pa.RecordBatch:
    """Return rows, possibly none, as a batch of ARROW_SCHEMA."""
    columns = zip(*rows, strict=True) if rows else [()] * len(ARROW_SCHEMA)
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, ARROW_SCHEMA, strict=True)], schema=ARROW_SCHEMA
    )
