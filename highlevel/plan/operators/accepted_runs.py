"""The operator of AcceptedRuns and ChangingAcceptedRuns: rows with lifetimes, and the runs of an automaton over them.

    rows ──► lifetimes ──► waiting ──► runs of each partition (`highlevel.patterns`) ──► results, or their changes
                             ├── until the watermark is later
                             └── with EMIT CHANGES, until the newest row is WAIT later

Without EMIT CHANGES rows are matched in the order of their times, so each result is final. With EMIT CHANGES a late or
withdrawn row corrects exactly the results over its place.

A new version of the file with arcs is used between two batches, and at a watermark. Without EMIT CHANGES it applies to
the rows that wait and to later rows, otherwise also to the rows in memory.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from highlevel.patterns.arc_table import ArcForm, ArcRule, ArcTable
from highlevel.patterns.operator import PatternOperator
from highlevel.plan.automaton_nodes import AcceptedRuns, ChangingAcceptedRuns
from highlevel.plan.change_nodes import is_changing
from highlevel.plan.lifetime_nodes import Lifetime
from highlevel.plan.nodes import CHANGE_COLUMNS, macs_of
from highlevel.plan.operators.counters import PartialMatchCounts
from highlevel.plan.operators.lifetime_rows import LifetimeRows
from highlevel.plan.operators.operator import AnyPunctuation, GraphItem, times_of
from highlevel.plan.pattern_nodes import MATCH_END, MATCH_START
from highlevel.speculation.changes import add_up, make_changes
from highlevel.speculation.consistency import WEIGHT
from highlevel.speculation.lifetimes.model import VE, VS, change_schema, concat, make_ctis, weighted
from lowlevel.plan import ARROW_TYPES
from lowlevel.punctuation import BEGINNING, END, Punctuation
from lowlevel.watch.watched_file import Identity, Watchlist

RUNS = "runs "
"""Prefix of the tables of a snapshot with the state of the automaton."""

ARCS = "arcs"
"""Table of a snapshot: the arcs of the file."""


class AcceptedRunsOperator:
    """Stores rows that wait, and the runs of the partitions."""

    def __init__(self, node: AcceptedRuns) -> None:
        """Match the rows of `node`."""
        source = node.input
        (self._time,) = source.time_columns
        columns = source.columns[: -len(CHANGE_COLUMNS)] if is_changing(source) else source.columns
        self._payload = pa.schema([pa.field(column.name, ARROW_TYPES[column.type]) for column in columns])
        lifetime = Lifetime(self._time, node.until)
        self._rows = LifetimeRows(source, lifetime, self._payload, are_changes=is_changing(source))
        self._has_changes = isinstance(node, ChangingAcceptedRuns)
        self._wait = node.consistency.wait if isinstance(node, ChangingAcceptedRuns) else None
        self._runs = PatternOperator(
            change_schema(self._payload),
            node.automaton,
            node.keys,
            number=node.number,
            macs=tuple(macs_of(source)),
            has_retractions=self._has_changes or is_changing(source),
        )
        shown = node.columns[: -len(CHANGE_COLUMNS)] if self._has_changes else node.columns
        self._schema = pa.schema([pa.field(column.name, ARROW_TYPES[column.type]) for column in shown])
        self._rules = node.rules if isinstance(node.rules, Watchlist) else None
        self._arcs = ArcTable(node.automaton.arcs)
        self._version: Identity | None = None
        self._keys = list(node.keys)
        self._until = node.until
        self.keeps_unfinished = False
        """Whether `unfinished` is set at the end of the input."""
        self.unfinished: pa.Table | None = None
        """The partial matches before the end of the input, which ends them."""
        self.received = 0
        self.results = 0
        """Results or their changes that were returned."""

    @property
    def late(self) -> int:
        """Rows that arrived too late."""
        return self._rows.late

    @property
    def outside(self) -> int:
        """Rows without a lifetime."""
        return self._rows.outside

    @property
    def rows_held(self) -> int:
        """Number of rows that wait, and of runs."""
        return self._rows.num_rows + self._runs.matches.node_count

    @property
    def partial_matches(self) -> PartialMatchCounts:
        """The runs that a row or a deadline may continue."""
        return PartialMatchCounts(*self._runs.open_run_counts)

    def list_partial_matches(self) -> pa.Table:
        """Return the runs that a later row or a deadline may continue, the oldest first.

        The columns are the keys, the times of the first and the last row, the state, and the fields of the register.
        """
        runs = self._runs.open_runs()
        fields = [name for name in runs.column_names if name not in ("last", "state", MATCH_START, *self._keys)]
        names = [*self._keys, MATCH_START, "last", "state", *fields]
        return runs.select(names).rename_columns([MATCH_END if name == "last" else name for name in names])

    @property
    def bytes(self) -> int:
        """Bytes of the rows and the runs."""
        return self._rows.nbytes + self._runs.bytes

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Store rows. With EMIT CHANGES, return the changes of results that follow from rows that have waited."""
        self.received += batch.num_rows
        yield from self._change_arcs()
        if batch.num_rows:
            self._rows.add(batch, batch.select(self._payload.names))
        if self._wait is not None and self._rows.clock != BEGINNING:
            changes = self._rows.take_before(self._rows.clock - self._wait + 1)
            if changes is not None:
                yield from self._items(self._runs.process(changes), self._rows.start_watermark)

    def punctuate(self, port: int, punctuation: AnyPunctuation) -> Iterator[GraphItem]:
        """Match the rows below a watermark. Return the results, and then the watermark."""
        yield from self._change_arcs()
        if not self._rows.advance(punctuation):
            return
        low = self._rows.start_watermark
        changes = self._rows.take_before(low)
        parts = [] if changes is None else [changes]
        if low == END and self.keeps_unfinished:
            if changes is not None:
                yield from self._items(self._runs.process(changes), low)
            parts, self.unfinished = [], self.list_partial_matches()
        advanced = concat([*parts, make_ctis([low], self._payload)], change_schema(self._payload))
        yield from self._items(self._runs.process(advanced), low)
        yield Punctuation(punctuation.link, low)

    def _change_arcs(self) -> Iterator[pa.RecordBatch]:
        """Use a new version of the file with arcs. Return the results that follow for rows in memory."""
        if self._rules is None or (version := self._rules.version).identity == self._version:
            return
        self._version = version.identity
        rules = [rule for rule in version.contents.rules if isinstance(rule, ArcRule)]
        low, clock = self._rows.start_watermark, self._rows.clock
        self._arcs.update(rules, max(low, clock + 1), low)
        yield from self._items(self._runs.change_arcs(self._arcs.arcs(low)), low)

    def _items(self, changes: pa.RecordBatch, watermark: int) -> Iterator[pa.RecordBatch]:
        """Return changes of runs as results, or as changes of results."""
        found = weighted(changes)
        if not found.num_rows:
            return
        columns = [*(found.column(key) for key in self._keys), found.column(MATCH_START), found.column(VS)]
        if self._until is not None:
            ends = times_of(found.column(VE))
            columns.append(pa.array(ends, mask=ends == END))
        columns += [found.column(name) for name in self._schema.names[len(columns) :]]
        arrays = [column.cast(field.type) for column, field in zip(columns, self._schema, strict=True)]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        if not self._has_changes:
            self.results += batch.num_rows
            yield batch
            return
        is_final = times_of(found.column(VS)) < watermark
        for made in make_changes(pa.Table.from_batches([batch]), found.column(WEIGHT).to_numpy(), is_final):
            for added in add_up(made):
                self.results += added.num_rows
                yield added

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the rows that wait, and the state of the runs."""
        runs = {RUNS + name: table for name, table in self._runs.snapshot().items()}
        arcs = {ARCS: self._arcs.snapshot()} if self._arcs.has_version else {}
        return self._rows.snapshot() | runs | arcs

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the state of a snapshot."""
        self._rows.restore(tables)
        if self._rules is not None and ARCS in tables:
            form = self._rules.form
            assert isinstance(form, ArcForm), form
            self._arcs.restore(tables[ARCS], form)
            self._runs.change_arcs(self._arcs.arcs(self._rows.start_watermark))
        runs = {name.removeprefix(RUNS): table for name, table in tables.items() if name.startswith(RUNS)}
        self._runs.restore(runs)
