"""OA-Join: join the rows of two streams over windows, in any arrival order (Li 2008, §7.1).

An arriving row is compared with the stored rows of the other side, and stored if a match may still arrive. So each pair
is found once, by the row that arrives later. The watermark of the OTHER side determines when a stored row is removed.
If the join returns rows without a match, these rows are emitted at their removal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from capture import arrow_compute as pc
from capture.arrow_compute import array_of
from highlevel.groups.key_words import Words
from highlevel.joins.cells import Cells
from highlevel.joins.join_input import JoinInput, JoinRows
from highlevel.joins.side_state import MAX_PAIRS, MAX_UNUSED_STRING_BYTES, SideState
from highlevel.joins.spec import MAX_TS, JoinKind, JoinSpec, Port, WatermarkForm
from highlevel.joins.watermarks import Bounds, make_punctuation, output_bounds
from highlevel.operators.batch_columns import BatchColumns
from lowlevel.expressions.predicate import Condition
from lowlevel.expressions.tree import columns_of
from lowlevel.expressions.types import Type
from lowlevel.punctuation import BEGINNING, END, GraphItem, Punctuation

Columns = dict[str, pa.Array]
"""Columns of results, by their names."""


class JoinSide:
    """One side of a join: its input, its stored rows, and its columns in the results.

    A column is stored once, even if it is the time, a key and a result column.
    """

    def __init__(self, spec: JoinSpec, port: Port, keys: Cells) -> None:
        """Create an empty side. Columns of the right input that a SEMI or ANTI join does not need are not stored."""
        self.input = JoinInput(spec, port)
        self.time = spec.side(port).time
        self.outputs = list(spec.side(port).columns)
        if spec.kind.is_left_only and port is Port.RIGHT:
            needed = {column.name for column in columns_of(spec.residual)} if spec.residual else set()
            self.outputs = [(name, output) for name, output in self.outputs if output in needed]
        names = dict.fromkeys(name for name, _ in self.outputs)
        self.keys = {name: index for name in names if (index := self.input.key_index(name)) is not None}
        self.others = [name for name in names if name != self.time and name not in self.keys]
        column_types = [spec.side(port).schema.field(name).type for name in self.others]
        self.state = SideState(spec.window, keys, column_types, spec.kind.is_left_only and port is Port.LEFT)

    def batch_columns(
        self, batch: pa.RecordBatch, rows: Words | None, wanted_outputs: set[str] | None = None
    ) -> Columns:
        """Return result columns of rows of a batch. `rows`: their indexes; None for all rows."""
        indices = None if rows is None else array_of(rows)
        return {
            output: batch.column(name) if indices is None else pc.take(batch.column(name), indices)
            for name, output in self.outputs
            if wanted_outputs is None or output in wanted_outputs
        }

    def stored_columns(self, rows: Words, wanted_outputs: set[str] | None = None) -> tuple[Words, Columns]:
        """Return the times and result columns of stored rows."""
        outputs = [
            (name, output) for name, output in self.outputs if wanted_outputs is None or output in wanted_outputs
        ]
        names = {name for name, _ in outputs}
        keys = [name for name in self.keys if name in names and name != self.time]
        others = [name for name in self.others if name in names]
        times, key_columns, other_columns = self.state.read(
            rows, [self.keys[name] for name in keys], [self.others.index(name) for name in others]
        )
        columns = dict(zip([*keys, *others], [*key_columns, *other_columns], strict=True))
        if self.time in names:
            columns[self.time] = array_of(times)
        return times, {output: columns[name] for name, output in outputs}


NAMES = {Port.LEFT: "left", Port.RIGHT: "right"}
BOUNDS = "bounds"
"""Tables of a snapshot."""

Mask = npt.NDArray[np.bool_]


class OAJoin:
    """A `NodeOperator` with the ports LEFT and RIGHT.

    A row below the watermark of its side is late: it is counted and dropped. While one side has no watermark, no
    row of the other side is removed.
    """

    def __init__(self, spec: JoinSpec, watermark_form: WatermarkForm = WatermarkForm.LEFT) -> None:
        """Join by `spec`. `watermark_form` selects the watermarks of the result."""
        spec.time_columns(watermark_form)  # raises an error for impossible watermarks
        self.spec = spec
        self.watermark_form = watermark_form
        self.schema = spec.schema_of(watermark_form)
        self.received = 0
        self.stored = 0
        self.pairs = 0
        self.results = 0
        self.late = 0
        self.null_keys = 0
        self.purged = 0
        self.bounds = [BEGINNING, BEGINNING]
        self._emitted: Bounds = ()
        self._keys = Cells(JoinInput(spec, Port.LEFT).kinds)
        self._key_bytes = 0
        self.sides = {port: JoinSide(spec, port, self._keys) for port in Port}
        self._residual = None if spec.residual is None else Condition(spec.residual)
        residual = list(columns_of(spec.residual)) if spec.residual else []
        self._residual_columns = {column.name for column in residual}
        self._macs = {column.name for column in residual if column.type is Type.MAC}

    @property
    def rows_held(self) -> int:
        """Number of rows of both sides that may still have a match."""
        return sum(side.state.held for side in self.sides.values())

    @property
    def bytes(self) -> int:
        """Bytes of the stored rows."""
        return self._keys.bytes + sum(side.state.bytes for side in self.sides.values())

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Emit the pairs of these rows with stored rows of the other port. Store these rows for later matches."""
        side = Port(port)
        self.received += batch.num_rows
        batch = self._drop_late(side, batch)
        arrived, null_key_rows = self.sides[side].input.read(batch)
        self.null_keys += null_key_rows.num_rows
        if self.spec.kind.keeps(side):
            yield from self._emit_unmatched(side, null_key_rows)
        if len(arrived.times):
            yield from self._join_arrived(side, arrived)

    def _drop_late(self, side: Port, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Count and drop rows below the port's watermark."""
        watermark = self.bounds[side]
        if watermark == BEGINNING or batch.num_rows == 0:
            return batch
        time = batch.column(self.sides[side].time)
        is_late = np.asarray(pc.is_valid(time) if time.null_count else True) & (
            pc.fill_null(time, watermark).to_numpy() < watermark
        )
        if watermark == END:
            is_late = np.ones(batch.num_rows, np.bool_)
        count = int(np.count_nonzero(is_late))
        self.late += count
        return pc.filter(batch, array_of(~is_late)) if count else batch

    def _join_arrived(self, side: Port, arrived: JoinRows) -> Iterator[GraphItem]:
        kind, partner = self.spec.kind, Port(1 - side)
        state = self.sides[partner].state
        words = self._key_words(arrived.keys, len(arrived.times))
        low, high = self.spec.window.meets(side, arrived.times)
        is_matched = np.zeros(len(arrived.times), np.bool_)
        matches_once = kind.is_left_only and side is Port.LEFT and self._residual is None
        for probing, stored in state.probe(words, low, high, matches_once):
            self.pairs += len(probing)
            if self._residual is not None:
                satisfied = self._satisfies_residual(side, arrived, probing, stored)
                probing, stored = probing[satisfied], stored[satisfied]
            is_matched[probing] = True
            newly_matched = state.mark(stored) if kind.keeps(partner) or state.matches_once else stored
            if not kind.is_left_only:
                yield from self._emit_pairs(side, arrived, probing, stored)
            elif kind is JoinKind.SEMI and partner is Port.LEFT:
                yield from self._emit_stored_unmatched(partner, newly_matched)
        if kind is JoinKind.SEMI and side is Port.LEFT:
            yield from self._emit_unmatched(side, arrived.select(np.flatnonzero(is_matched)).batch)
        may_meet = self._may_meet(side, arrived.times)
        if kind.keeps(side):
            yield from self._emit_unmatched(side, pc.filter(arrived.batch, array_of(~(may_meet | is_matched))))
        if kind.is_left_only and side is Port.LEFT:
            may_meet &= ~is_matched
        self._store(side, arrived, words, is_matched, np.flatnonzero(may_meet))

    def _may_meet(self, side: Port, times: Words) -> Mask:
        """Return a mask of the rows that later rows may match."""
        earliest = self.spec.window.expiry_time(side, self.bounds[1 - side])
        return times >= earliest if earliest != END else np.zeros(len(times), np.bool_)

    def _store(self, port: Port, arrived: JoinRows, words: Words, matched: Mask, rows: Words) -> None:
        side = self.sides[port]
        stored_rows = arrived.select(rows)
        if len(rows) < len(matched):
            words, matched = np.ascontiguousarray(words[:, rows]), matched[rows]
        side.state.add(
            words, stored_rows.times, matched.view(np.uint8), [stored_rows.batch.column(name) for name in side.others]
        )
        self.stored += len(rows)

    def _key_words(self, keys: Sequence[pa.Array], rows: int) -> Words:
        """Return the words of keys. Convert the stored rows if the keys need another encoding."""
        grown = self._keys.extended_to(keys)
        if grown is None and self._keys.bytes > 2 * self._key_bytes + MAX_UNUSED_STRING_BYTES:
            grown = self._keys.with_new_strings()
        if grown is not None:
            for side in self.sides.values():
                side.state.convert(grown, side.state.cells)
            self._keys, self._key_bytes = grown, grown.bytes
        words = np.empty((self._keys.width, rows), np.int64)
        self._keys.pack(keys, words)
        return words

    def _satisfies_residual(self, side: Port, arrived: JoinRows, probing: Words, stored: Words) -> Mask:
        """Return a mask of the pairs for which the residual condition is true."""
        partner = Port(1 - side)
        columns = self.sides[side].batch_columns(arrived.batch, probing, self._residual_columns)
        columns |= self.sides[partner].stored_columns(stored, self._residual_columns)[1]
        assert self._residual is not None
        table = pa.RecordBatch.from_pydict(columns) if columns else pa.RecordBatch.from_pydict({"": probing})
        return self._residual.true_rows(BatchColumns(table, self._macs), len(probing))

    def _emit_pairs(self, side: Port, arrived: JoinRows, probing: Words, stored: Words) -> Iterator[GraphItem]:
        partner = Port(1 - side)
        times, columns = self.sides[partner].stored_columns(stored)
        columns |= self.sides[side].batch_columns(arrived.batch, probing)
        pick = np.maximum if self.schema.names[-1] == MAX_TS else np.minimum
        yield from self._emit(columns, pick(times, arrived.times[probing]))

    def _emit_unmatched(self, side: Port, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Emit rows of a batch without a match."""
        for start in range(0, batch.num_rows, MAX_PAIRS):
            rows = batch.slice(start, MAX_PAIRS)
            times = rows.column(self.sides[side].time)
            yield from self._emit(self.sides[side].batch_columns(rows, None), times)

    def _emit_stored_unmatched(self, side: Port, rows: Words) -> Iterator[GraphItem]:
        """Emit stored rows without a match."""
        times, columns = self.sides[side].stored_columns(rows)
        yield from self._emit(columns, times)

    def _emit(self, columns: Columns, times: Words | pa.Array) -> Iterator[GraphItem]:
        """Emit rows, with NULL for a missing column. `times`: the later or earlier times, if the schema has them."""
        rows = len(times)
        if rows == 0:
            return
        self.results += rows
        if len(self.schema) > len(self.spec.schema):
            columns[self.schema.names[-1]] = array_of(times)
        arrays = [columns[field.name] if field.name in columns else pa.nulls(rows, field.type) for field in self.schema]
        yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def punctuate(self, port: int, punctuation: Punctuation) -> Iterator[GraphItem]:
        """Remove rows that later rows of this port cannot match. Then emit a punctuation if the watermark has grown."""
        side, partner = Port(port), Port(1 - port)
        if punctuation.watermark <= self.bounds[side]:
            return
        self.bounds[side] = punctuation.watermark
        state = self.sides[partner].state
        rows_before = state.held
        for rows in state.expire(
            self.spec.window.expiry_time(partner, punctuation.watermark), self.spec.kind.keeps(partner)
        ):
            yield from self._emit_stored_unmatched(partner, rows)
        self.purged += rows_before - state.held
        bounds = output_bounds(self.spec, self.watermark_form, (self.bounds[0], self.bounds[1]))
        message = make_punctuation(bounds)
        if message is not None and bounds != self._emitted:
            self._emitted = bounds
            yield message

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the watermarks, and the rows of both sides."""
        tables = {BOUNDS: pa.table({"bound": self.bounds, "said": [*self._emitted, None, None][:2]})}
        for port, side in self.sides.items():
            times, matched, keys, others = side.state.unexpired_rows()
            columns = {"time": pa.array(times), "matched": pa.array(matched)}
            columns |= {f"key {index}": key for index, key in enumerate(keys)}
            columns |= {f"column {name}": column for name, column in zip(side.others, others, strict=True)}
            tables[NAMES[port]] = pa.table(columns)
        return tables

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the watermarks and the rows."""
        self.bounds = tables[BOUNDS]["bound"].to_pylist()
        self._emitted = tuple(bound for bound in tables[BOUNDS]["said"].to_pylist() if bound is not None)
        for port, side in self.sides.items():
            for batch in tables[NAMES[port]].combine_chunks().to_batches():
                keys = [batch.column(f"key {index}") for index in range(len(self._keys.kinds))]
                words = self._key_words(keys, batch.num_rows)
                others = [batch.column(f"column {name}") for name in side.others]
                side.state.add(words, batch.column("time").to_numpy(), batch.column("matched").to_numpy(), others)
