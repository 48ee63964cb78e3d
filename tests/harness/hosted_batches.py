"""Batches of the source for the hosts of operators, and the rows that leave them."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa

from capture.metrics import Samples
from highlevel.inline.engine import Input
from highlevel.spark.inputs.assignment import InputAssignment
from highlevel.spark.inputs.reading import LeafOutput, TaskOutput, pack_output
from highlevel.spark.tasks.host import LevelTask
from lowlevel.punctuation import BEGINNING
from tests.references.window_streams import Asked, Stream
from tests.references.windows_oracle import Arrival

INPUTS = (Input("a", Path("a"), stream="a"), Input("b", Path("b"), stream="b"))


def cut(random: Random, stream: Stream, pieces: int) -> list[Stream]:
    """Cut a stream into `pieces` pieces. Some may be empty; the last one contains at least the end of the stream."""
    places = [0, *sorted(random.randrange(len(stream)) for _ in range(pieces - 1)), len(stream)]
    return [stream[first:end] for first, end in pairwise(places)]


def taken(random: Random, query: Asked, piece: Stream) -> LeafOutput:
    """Return the output of a source task for a piece: its partials and its last watermark."""
    marks = [each for each in piece if isinstance(each, int)]
    rows = [each for each in piece if isinstance(each, Arrival)]
    return LeafOutput(marks[-1] if marks else BEGINNING, query.partials(rows, random.random() < 0.5))


def source_batches(random: Random, feeds: InputAssignment, queries: list[Asked]) -> list[list[pa.RecordBatch]]:
    """Return the rows of the source for all micro-batches: one or two block ranges per input."""
    sizes = [random.choice([1, 1, 1, 1, 2]) for _ in range(random.choice([2, 2, 2, 3]))]
    found: list[list[pa.RecordBatch]] = [[] for _ in sizes]
    for number in range(len(INPUTS)):
        pieces = {
            query: iter(cut(random, queries[query].streams[number], sum(sizes))) for query in feeds.readers(number)
        }
        done = 0
        for batch, size in enumerate(sizes):
            for _ in range(size):
                given = {query: taken(random, queries[query], next(rest)) for query, rest in pieces.items()}
                done += 1
                read = TaskOutput(number, done, given, Samples(), None, done, sum(sizes))
                found[batch].append(pack_output(feeds, read))
    return found


def hosted(host: LevelTask, batches: list[pa.RecordBatch], chosen: list[int]) -> pa.Table:
    """The answers of the partitions `chosen`, all rows of theirs in one task."""
    rows = pa.Table.from_batches(batches)
    mine = rows.filter(pa.array(np.isin(rows["part"].to_numpy(), chosen)))
    return pa.Table.from_batches(list(host(iter(mine.to_batches()))))


def told_rows(rows: pa.Table | pa.RecordBatch) -> Counter[tuple]:
    return Counter(zip(*(column.to_pylist() for column in rows.columns), strict=True))
