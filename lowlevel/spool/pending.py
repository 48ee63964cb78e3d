"""The items of the next segment of a spool: the items in memory, their sizes, and their encoding on the disk.

An item is a batch of partials (the partial aggregates of a group and a pane) or a punctuation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field

import pyarrow as pa

from capture import arrow_compute as pc
from capture.lazy_dataclasses import dataclass
from lowlevel.expressions.arrow import ORIGINAL_SCHEMA, narrow
from lowlevel.integer_ranges import Ranges, unite
from lowlevel.plan import ORDERED_METADATA
from lowlevel.punctuation import Item, Punctuation

# Partials are stored as an Arrow IPC stream, with the narrowest types that can store the values.
#
# All IPv4 addresses have 4 bytes, and all rows have the same link. So 24 bytes of offsets and texts are redundant in a
# partial with two IPv4 addresses as keys. The other bytes are compressed with the whole segment of many batches.


LINK_KEY = b"wiretide.link"
"""Key in the metadata. If all rows have the same text in the first column, the column is replaced by this value."""


def pack(batches: Sequence[pa.RecordBatch]) -> pa.Buffer:
    """Serialize batches as an Arrow stream with one batch. All batches have one schema, without dictionary columns."""
    table = pa.Table.from_batches(batches)
    metadata = {ORIGINAL_SCHEMA: table.schema.serialize().to_pybytes()}
    link = _common_text(table)
    if link is not None:
        metadata[LINK_KEY] = link.encode()
        table = table.remove_column(0)
    columns = [narrow(column.combine_chunks()) for column in table.columns]
    fields = [field.with_type(column.type) for field, column in zip(table.schema, columns, strict=True)]
    schema = pa.schema(fields, metadata)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
    return sink.getvalue()


def unpack(payload: pa.Buffer) -> pa.RecordBatch:
    """Return the batches of a result of `pack`, as one batch."""
    with pa.ipc.open_stream(payload) as reader:
        batch = reader.read_next_batch()
    metadata = batch.schema.metadata
    schema = pa.ipc.read_schema(pa.py_buffer(metadata[ORIGINAL_SCHEMA]))
    columns = batch.columns
    if LINK_KEY in metadata:
        columns.insert(0, pa.repeat(pa.scalar(metadata[LINK_KEY].decode(), pa.string()), batch.num_rows))
    cast = [column.cast(field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(cast, schema=schema)


def binary_columns(schema: pa.Schema) -> tuple[int, ...]:
    """Return the indexes of binary columns."""
    return tuple(index for index, kind in enumerate(schema.types) if kind == pa.binary())


def widths(batch: pa.RecordBatch, binary: tuple[int, ...]) -> tuple[int, ...]:
    """Return the mean number of bytes per row of each binary column. Only batches with equal widths are merged.

    The width of a slice is overestimated. This has no effect on results: `pack` computes exact lengths.
    """
    buffers = [batch.column(index).buffers()[2] for index in binary]
    return tuple(0 if buffer is None else buffer.size // batch.num_rows for buffer in buffers)


def _common_text(table: pa.Table) -> str | None:
    """Return the text of the first column if all rows have the same text, else None."""
    if table.num_columns < 2 or table.num_rows == 0 or table.schema[0].type != pa.string():
        return None
    column = table.column(0)
    text = column[0]
    if not text.is_valid or column.null_count or not pc.all(pc.equal(column, text)).as_py():
        return None
    return text.as_py()


PUNCTUATION_BYTES = 64
"""Maximum bytes of a punctuation without the name of its plan: a row of the segment's batch, uncompressed."""

MAX_ESTIMATED_BYTES = 1 << 16
"""Maximum bytes of a batch whose size is only estimated, because a measurement is slow."""


MAX_SKIPPED_RANGES = 16
"""Maximum number of ranges of skipped times in a segment."""

MAX_SKIPPED_BYTES = 48 * MAX_SKIPPED_RANGES
"""Maximum bytes of the skipped times in the header of a segment."""


def add_skipped_range(skipped: Ranges, start: int, end: int) -> Ranges:
    """Return the union of `skipped` and `[start, end)`.

    If it has more than MAX_SKIPPED ranges, the two nearest are joined.

    >>> add_skipped_range([(1, 3), (7, 8)], 2, 5)
    [(1, 5), (7, 8)]
    """
    united = unite([*skipped, (start, end)])
    if len(united) > MAX_SKIPPED_RANGES:
        nearest = min(range(1, len(united)), key=lambda index: united[index][0] - united[index - 1][1])
        united[nearest - 1 : nearest + 1] = [(united[nearest - 1][0], united[nearest][1])]
    return united


@dataclass(slots=True)
class PendingItems:
    """The items of the next segment.

    * `lows`: the watermark of each plan before the first item.
    * `items`: index of the plan, and the item. `rows`: number of rows of partials in the items.
    * `bytes`: upper bound of the size of the items in the file.
    * `first`, `last`: times of the first and the last `add` (ns).
    * `skipped`: ranges of times whose packets an overloaded node did not process.
    """

    lows: tuple[int, ...]
    items: list[tuple[int, Item]] = field(default_factory=list)
    bytes: int = 0
    rows: int = 0
    first: int | None = None
    last: int | None = None
    skipped: Ranges = field(default_factory=list)

    def add(self, plan_index: int, item: Item, size: int, now: int | None) -> None:
        """Add an item of plan `plan_index` at the time `now` (ns; None if unknown)."""
        self.items.append((plan_index, item))
        self.bytes += size
        if not isinstance(item, Punctuation):
            self.rows += item.num_rows
        if self.first is None:
            self.first = now
        self.last = now


class ItemSizes:
    """Upper bounds of the sizes of items in a file. The size of an item without rows is measured once per plan."""

    def __init__(self, names: Sequence[str]) -> None:
        """Prepare for plans with the given names."""
        self._punctuation = [PUNCTUATION_BYTES + len(name.encode()) for name in names]
        self._fixed: dict[int, int] = {}

    @property
    def punctuations(self) -> int:
        """Upper bound of the bytes of one punctuation of every plan."""
        return sum(self._punctuation)

    def item_bytes(self, plan_index: int, item: Item) -> int:
        """Return an upper bound of the size of an item of plan `plan_index`, even if compression makes it longer."""
        if isinstance(item, Punctuation):
            return self._punctuation[plan_index]
        if plan_index not in self._fixed:
            self._fixed[plan_index] = pack([item.slice(0, 1)]).size + self._punctuation[plan_index]
        # The exact size of a slice takes ten times as long, so it is computed only for large batches.
        size = item.get_total_buffer_size()
        if size > MAX_ESTIMATED_BYTES:
            size = item.nbytes
        return self._fixed[plan_index] + size + size // 128


def merge_items(items: Iterable[tuple[int, Item]]) -> list[tuple[int, Item]]:
    """Merge the partials of a plan between two punctuations into one batch per width and metadata.

    Partials do not move across a punctuation of their plan. Between punctuations their order may change, because the
    high level merges them in any order. ORDERED partials keep their order.
    """
    merged_items: list[tuple[int, Item]] = []
    open_batches: dict[int, dict[object, list[pa.RecordBatch]]] = {}
    binary: dict[int, tuple[int, ...]] = {}

    def close(plan_index: int) -> None:
        for batches in open_batches.pop(plan_index, {}).values():
            batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
            merged_items.append((plan_index, batch))

    for plan_index, item in items:
        if isinstance(item, Punctuation):
            close(plan_index)
            merged_items.append((plan_index, item))
        else:
            if plan_index not in binary:
                binary[plan_index] = binary_columns(item.schema)
            metadata = item.schema.metadata or {}
            ordered = metadata.items() >= ORDERED_METADATA.items()
            merge_key = () if ordered else widths(item, binary[plan_index]), tuple(sorted(metadata.items()))
            if ordered and merge_key not in open_batches.get(plan_index, {}):
                close(plan_index)
            open_batches.setdefault(plan_index, {}).setdefault(merge_key, []).append(item)
    for plan_index in sorted(open_batches):
        close(plan_index)
    return merged_items
