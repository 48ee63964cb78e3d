"""ChangingResults of a node whose results depend on several windows: FILL, CLOSING WHEN, OVER that compares windows.

    final rows ────────► the body ──────────────► final results ──┬──► new results
    other rows ────────► a copy of the body ────► other results ──┘       changes to the results returned before

The body receives only rows that are final, so it never has to withdraw anything. After each change a copy of it
receives all other rows, and returns the results that they would have if the input ended now. So a change costs as
much as all rows that can still change. REMEMBER limits their number.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from highlevel.operators.meld import UNION
from highlevel.operators.state import restore_to, snapshot_of
from highlevel.plan.change_nodes import ChangingResults, implies_watermark
from highlevel.plan.operators.changing_results import MakeBody, compute, result_table
from highlevel.plan.operators.operator import AnyPunctuation, GraphItem, bounds_of, times_of
from highlevel.speculation.changes import make_changes, net_changes, split_changes
from highlevel.speculation.weighted_rows import WeightedRows
from lowlevel.plan import ARROW_TYPES
from lowlevel.punctuation import BEGINNING, END, Punctuation

ROWS, RESULTS, STATE = "rows", "results", "state"
"""Tables of a snapshot: the rows that are not final, the results that are not final, and the watermarks."""

BODY = "body "
"""Beginning of the names of the tables with the state of the body."""


class ChangingHistoryOperator:
    """Stores the rows and results that are not final, and the body."""

    def __init__(self, node: ChangingResults, make: MakeBody) -> None:
        """Compute the results with operators that `make` returns."""
        (changes,) = node.inputs
        self._make = make
        self._body = make()
        self._time, self._result_time = changes.time_columns[0], node.time_columns[0]
        self._step = node.step
        self._implies_watermark = implies_watermark(changes)
        columns = [(column.name, ARROW_TYPES[column.type]) for column in node.body.inputs[0].columns]
        self._schema = pa.schema([(column.name, ARROW_TYPES[column.type]) for column in node.body.columns])
        self._rows = WeightedRows(pa.schema(columns))
        self._results: pa.Table = self._schema.empty_table()
        self._input_watermark = self._watermark = BEGINNING
        self.received = 0
        self.results = 0
        """Changes returned."""
        self.late = 0

    @property
    def overflowed_sums(self) -> int:
        """Sums in final results that are NULL, because they exceed 64 bits."""
        return int(getattr(self._body, "overflowed_sums", 0))

    @property
    def rows_held(self) -> int:
        """Number of stored rows."""
        return self._rows.num_rows

    @property
    def bytes(self) -> int:
        """Bytes of the stored rows and results, and of the body."""
        return self._rows.bytes + self._results.nbytes + self._body.bytes

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Add changes. Return the changes of the results."""
        self.received += batch.num_rows
        rows, weights, final = split_changes(batch)
        times = times_of(batch.column(self._time))
        in_time = (times >= self._input_watermark) & (times < END)
        self.late += int(np.count_nonzero(~in_time))
        self._rows.add(rows.filter(pa.array(in_time)), weights[in_time])
        low = int(times[in_time & final].max(initial=BEGINNING))
        if low != BEGINNING and self._implies_watermark:
            yield from self._advance(UNION, low + self._step)
        elif not final.all():  # otherwise the watermark follows
            yield from self._revise(self._schema.empty_table())

    def punctuate(self, port: int, punctuation: AnyPunctuation) -> Iterator[GraphItem]:
        """Return the changes of results that become final, and then the watermark."""
        (low,) = bounds_of(punctuation, 1)
        if low > self._input_watermark:
            yield from self._advance(punctuation.link, low)

    def _advance(self, link: str, low: int) -> Iterator[GraphItem]:
        """Move the rows below a watermark to the body."""
        self._input_watermark = low
        times = times_of(self._rows.content[0].column(self._time).combine_chunks())
        final = times < low
        items = [
            item for batch in self._rows.repeated(final).to_batches() for item in self._body.process_rows(0, batch)
        ]
        self._rows.remove(final)
        items += self._body.punctuate(0, Punctuation(link, low))
        progress = [item for item in items if isinstance(item, Punctuation)]
        self._watermark = max([self._watermark, *(item.watermark for item in progress)])
        yield from self._revise(result_table(items, self._schema))
        yield from progress

    def _revise(self, final: pa.Table) -> Iterator[pa.RecordBatch]:
        """Return the changes to the last results. `final`: the results of the body that have not been compared."""
        results = self._schema.empty_table()
        if self._input_watermark != END:
            copy = self._make()
            copy.restore(self._body.snapshot())
            results = compute(copy, [self._rows.repeated()], self._schema)
        rows, weights = net_changes(self._results, pa.concat_tables([final, results]))
        self._results = results
        self.results += rows.num_rows
        is_final = times_of(rows.column(self._result_time).combine_chunks()) < self._watermark
        yield from make_changes(rows, weights, is_final)

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the rows and results that are not final, the watermarks, and the state of the body."""
        body = {f"{BODY}{name}": table for name, table in snapshot_of([self._body]).items()}
        state = pa.table({"low": [self._input_watermark], "watermark": [self._watermark]})
        return {STATE: state, ROWS: self._rows.snapshot(), RESULTS: self._results, **body}

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the state of a snapshot."""
        (state,) = tables[STATE].to_pylist()
        self._input_watermark, self._watermark = state["low"], state["watermark"]
        self._rows.restore(tables[ROWS])
        self._results = tables[RESULTS].cast(self._schema)
        body = {name.removeprefix(BODY): table for name, table in tables.items() if name.startswith(BODY)}
        restore_to([self._body], body)
