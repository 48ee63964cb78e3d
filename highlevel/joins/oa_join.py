"""OA-Join: join the rows of two streams over windows, in any arrival order (Li 2008, §7.1).

A row is compared with the stored rows of the other side, and stored if a match may still arrive. So each pair is found
once, by its later row. The watermark of the OTHER side determines when a stored row is removed. If the join returns
rows without a match, they are emitted at their removal.
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
from highlevel.joins.side_state import LONG_BYTES, PAIRS, SideState
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
        """Create an empty side. Columns of the right input that a SEMI or ANTI join does not need are left out."""
        self.input = JoinInput(spec, port)
        self.time = spec.side(port).time
        self.outputs = list(spec.side(port).columns)
        if spec.kind.is_left_only and port is Port.RIGHT:
            needed = {column.name for column in columns_of(spec.residual)} if spec.residual else set()
            self.outputs = [(name, output) for name, output in self.outputs if output in needed]
        names = dict.fromkeys(name for name, _ in self.outputs)
        self.keys = {name: place for name in names if (place := self.input.is_key(name)) is not None}
        self.others = [name for name in names if name != self.time and name not in self.keys]
        kinds = [spec.side(port).schema.field(name).type for name in self.others]
        self.state = SideState(spec.window, keys, kinds, spec.kind.is_left_only and port is Port.LEFT)

    def of_batch(self, batch: pa.RecordBatch, rows: Words | None, only: set[str] | None = None) -> Columns:
        """Return result columns of the given rows of a batch."""
        places = None if rows is None else array_of(rows)
        return {
            output: batch.column(name) if places is None else pc.take(batch.column(name), places)
            for name, output in self.outputs
            if only is None or output in only
        }

    def of_held(self, rows: Words, only: set[str] | None = None) -> tuple[Words, Columns]:
        """Return the times and result columns of stored rows."""
        outputs = [(name, output) for name, output in self.outputs if only is None or output in only]
        names = {name for name, _ in outputs}
        keys = [name for name in self.keys if name in names and name != self.time]
        others = [name for name in self.others if name in names]
        times, found_keys, found_others = self.state.read(
            rows, [self.keys[name] for name in keys], [self.others.index(name) for name in others]
        )
        columns = dict(zip([*keys, *others], [*found_keys, *found_others], strict=True))
        if self.time in names:
            columns[self.time] = array_of(times)
        return times, {output: columns[name] for name, output in outputs}


NAMES = {Port.LEFT: "left", Port.RIGHT: "right"}
BOUNDS = "bounds"
"""Tables of a snapshot."""

Mask = npt.NDArray[np.bool_]


class OAJoin:
    """A `GraphOperator` with the ports LEFT and RIGHT.

    Rows below the watermark of their side are late: they are counted and dropped. Without a watermark of
    one side no row of the other side is removed.
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
        self._said: Bounds = ()
        self._keys = Cells(JoinInput(spec, Port.LEFT).kinds)
        self._strings_kept = 0
        self.sides = {port: JoinSide(spec, port, self._keys) for port in Port}
        self._residual = None if spec.residual is None else Condition(spec.residual)
        residual = list(columns_of(spec.residual)) if spec.residual else []
        self._tested = {column.name for column in residual}
        self._macs = {column.name for column in residual if column.type is Type.MAC}

    @property
    def rows_held(self) -> int:
        """Number of rows of both sides that may still have a match."""
        return sum(side.state.held for side in self.sides.values())

    @property
    def bytes(self) -> int:
        """Memory of the stored rows."""
        return self._keys.bytes + sum(side.state.bytes for side in self.sides.values())

    def rows(self, port: int, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Emit the pairs of these rows with stored rows of the other port. Store these rows for later matches."""
        here = Port(port)
        self.received += batch.num_rows
        batch = self._in_time(here, batch)
        arrived, lone = self.sides[here].input.read(batch)
        self.null_keys += lone.num_rows
        if self.spec.kind.keeps(here):
            yield from self._alone(here, lone)
        if len(arrived.times):
            yield from self._meet(here, arrived)

    def _in_time(self, here: Port, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Count and drop rows below the port's watermark."""
        low = self.bounds[here]
        if low == BEGINNING or batch.num_rows == 0:
            return batch
        time = batch.column(self.sides[here].time)
        late = np.asarray(pc.is_valid(time) if time.null_count else True) & (pc.fill_null(time, low).to_numpy() < low)
        if low == END:
            late = np.ones(batch.num_rows, np.bool_)
        count = int(np.count_nonzero(late))
        self.late += count
        return pc.filter(batch, array_of(~late)) if count else batch

    def _meet(self, here: Port, arrived: JoinRows) -> Iterator[GraphItem]:
        kind, there = self.spec.kind, Port(1 - here)
        state = self.sides[there].state
        words = self._key_words(arrived.keys, len(arrived.times))
        low, high = self.spec.window.meets(here, arrived.times)
        matched = np.zeros(len(arrived.times), np.bool_)
        once = kind.is_left_only and here is Port.LEFT and self._residual is None
        for probing, found in state.probe(words, low, high, once):
            self.pairs += len(probing)
            if self._residual is not None:
                passed = self._passed(here, arrived, probing, found)
                probing, found = probing[passed], found[passed]
            matched[probing] = True
            fresh = state.mark(found) if kind.keeps(there) or state.spent else found
            if not kind.is_left_only:
                yield from self._pairs(here, arrived, probing, found)
            elif kind is JoinKind.SEMI and there is Port.LEFT:
                yield from self._alone_held(there, fresh)
        if kind is JoinKind.SEMI and here is Port.LEFT:
            yield from self._alone(here, arrived.select(np.flatnonzero(matched)).batch)
        holding = self._may_meet(here, arrived.times)
        if kind.keeps(here):
            yield from self._alone(here, pc.filter(arrived.batch, array_of(~(holding | matched))))
        if kind.is_left_only and here is Port.LEFT:
            holding &= ~matched
        self._hold(here, arrived, words, matched, np.flatnonzero(holding))

    def _may_meet(self, here: Port, times: Words) -> Mask:
        """Return a mask of the rows that later rows may match."""
        low = self.spec.window.expired(here, self.bounds[1 - here])
        return times >= low if low != END else np.zeros(len(times), np.bool_)

    def _hold(self, here: Port, arrived: JoinRows, words: Words, matched: Mask, rows: Words) -> None:
        side = self.sides[here]
        kept = arrived.select(rows)
        if len(rows) < len(matched):
            words, matched = np.ascontiguousarray(words[:, rows]), matched[rows]
        side.state.add(words, kept.times, matched.view(np.uint8), [kept.batch.column(name) for name in side.others])
        self.stored += len(rows)

    def _key_words(self, keys: Sequence[pa.Array], rows: int) -> Words:
        """Return the words of keys. Convert the stored rows if the keys need another encoding."""
        grown = self._keys.grown(keys)
        if grown is None and self._keys.bytes > 2 * self._strings_kept + LONG_BYTES:
            grown = self._keys.with_new_strings()
        if grown is not None:
            for side in self.sides.values():
                side.state.lay_out(grown, side.state.cells)
            self._keys, self._strings_kept = grown, grown.bytes
        words = np.empty((self._keys.width, rows), np.int64)
        self._keys.pack(keys, words)
        return words

    def _passed(self, side: Port, arrived: JoinRows, probing: Words, found: Words) -> Mask:
        """Return a mask of the pairs for which the residual condition is true."""
        partner = Port(1 - side)
        columns = self.sides[side].of_batch(arrived.batch, probing, self._tested)
        columns |= self.sides[partner].of_held(found, self._tested)[1]
        assert self._residual is not None
        table = pa.RecordBatch.from_pydict(columns) if columns else pa.RecordBatch.from_pydict({"": probing})
        return self._residual.true_rows(BatchColumns(table, self._macs), len(probing))

    def _pairs(self, side: Port, arrived: JoinRows, probing: Words, found: Words) -> Iterator[GraphItem]:
        partner = Port(1 - side)
        times, columns = self.sides[partner].of_held(found)
        columns |= self.sides[side].of_batch(arrived.batch, probing)
        pick = np.maximum if self.schema.names[-1] == MAX_TS else np.minimum
        yield from self._emit(columns, pick(times, arrived.times[probing]))

    def _alone(self, here: Port, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Emit rows of a batch without a match."""
        for first in range(0, batch.num_rows, PAIRS):
            part = batch.slice(first, PAIRS)
            times = part.column(self.sides[here].time)
            yield from self._emit(self.sides[here].of_batch(part, None), times)

    def _alone_held(self, here: Port, rows: Words) -> Iterator[GraphItem]:
        """Emit stored rows without a match."""
        times, columns = self.sides[here].of_held(rows)
        yield from self._emit(columns, times)

    def _emit(self, columns: Columns, times: Words | pa.Array) -> Iterator[GraphItem]:
        """Emit rows, with NULL for a missing column.

        `times` is the later or earlier time, if the schema contains it.
        """
        rows = len(times)
        if rows == 0:
            return
        self.results += rows
        if len(self.schema) > len(self.spec.schema):
            columns[self.schema.names[-1]] = array_of(times)
        arrays = [columns[each.name] if each.name in columns else pa.nulls(rows, each.type) for each in self.schema]
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
            self.spec.window.expired(partner, punctuation.watermark), self.spec.kind.keeps(partner)
        ):
            yield from self._alone_held(partner, rows)
        self.purged += rows_before - state.held
        bounds = output_bounds(self.spec, self.watermark_form, (self.bounds[0], self.bounds[1]))
        said = make_punctuation(bounds)
        if said is not None and bounds != self._said:
            self._said = bounds
            yield said

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the watermarks, and the rows of both sides."""
        tables = {BOUNDS: pa.table({"bound": self.bounds, "said": [*self._said, None, None][:2]})}
        for port, side in self.sides.items():
            times, matched, keys, others = side.state.every()
            columns = {"time": pa.array(times), "matched": pa.array(matched)}
            columns |= {f"key {place}": key for place, key in enumerate(keys)}
            columns |= {f"column {name}": column for name, column in zip(side.others, others, strict=True)}
            tables[NAMES[port]] = pa.table(columns)
        return tables

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the watermarks and the rows."""
        self.bounds = tables[BOUNDS]["bound"].to_pylist()
        self._said = tuple(low for low in tables[BOUNDS]["said"].to_pylist() if low is not None)
        for port, side in self.sides.items():
            for batch in tables[NAMES[port]].combine_chunks().to_batches():
                keys = [batch.column(f"key {place}") for place in range(len(self._keys.kinds))]
                words = self._key_words(keys, batch.num_rows)
                others = [batch.column(f"column {name}") for name in side.others]
                side.state.add(words, batch.column("time").to_numpy(), batch.column("matched").to_numpy(), others)
