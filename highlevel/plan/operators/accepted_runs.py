"""The operator of AcceptedRuns and ChangingAcceptedRuns: rows with lifetimes, and the runs of an automaton over them.

    rows ──► lifetimes ──► waiting ──► runs of each partition (`highlevel.patterns`) ──► results, or their changes
                             ├── until the watermark is later
                             └── with EMIT CHANGES, until the newest row is WAIT later

Without EMIT CHANGES rows are matched in the order of their times, so each result is final. With EMIT CHANGES, a late or
withdrawn row corrects exactly the results that it affects.

If PARTITION BY contains the link, each link has separate rows and runs, for which the watermark of this link is
sufficient. Otherwise the watermarks of links show which runs no later row needs (`highlevel.plan.link_watermarks`).

A new version of the file with arcs takes effect between two batches, and at a watermark. Without EMIT CHANGES, it
applies to waiting rows and to later rows; with EMIT CHANGES, also to the rows in memory.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from capture import arrow_compute as pc
from capture.arrow_compute import array_of
from highlevel.operators.meld import UNION
from highlevel.patterns.arc_links import arc_watermark
from highlevel.patterns.arc_table import ARCS, ArcForm, ArcRule, ArcTable
from highlevel.patterns.memory import MIN_ROOM
from highlevel.patterns.operator import PatternOperator
from highlevel.plan.automaton_nodes import AcceptedRuns, ChangingAcceptedRuns
from highlevel.plan.change_nodes import is_changing
from highlevel.plan.lifetime_nodes import Lifetime
from highlevel.plan.link_watermarks import link_of_arcs, link_of_partitions
from highlevel.plan.nodes import CHANGE_COLUMNS, macs_of
from highlevel.plan.operators.counters import PartialMatchCounts
from highlevel.plan.operators.lifetime_rows import LifetimeRows
from highlevel.plan.operators.operator import AnyPunctuation, GraphItem, bounds_of, times_of
from highlevel.plan.pattern_nodes import MATCH_END, MATCH_START
from highlevel.speculation.changes import add_up, make_changes
from highlevel.speculation.consistency import WEIGHT
from highlevel.speculation.lifetimes.model import (
    VE,
    VS,
    change_schema,
    concat,
    make_ctis,
    payload_schema,
    weighted,
)
from lowlevel.plan import ARROW_TYPES
from lowlevel.punctuation import BEGINNING, END, Punctuation
from lowlevel.watch.watched_file import Identity, Watchlist

RUNS = "runs "
"""Prefix of the tables of a snapshot with the state of the automaton."""

STATE = "state"
"""Column of a partial match: the state of the run."""

LINKS = "links"
"""Table of a snapshot: the links with their watermarks."""


class RowsAndRuns:
    """The waiting rows, and the runs over earlier rows: of all links, or of one link."""

    def __init__(self, node: AcceptedRuns, payload: pa.Schema) -> None:
        """Begin without rows."""
        source = node.input
        (time,) = source.time_columns
        has_changes = isinstance(node, ChangingAcceptedRuns)
        self.rows = LifetimeRows(source, Lifetime(time, node.until), payload, are_changes=is_changing(source))
        matched = [payload.field(name) for name in node.matched or payload.names]
        self._schema = change_schema(pa.schema(matched))
        self.runs = PatternOperator(
            self._schema,
            node.automaton,
            node.keys,
            number=node.number,
            macs=tuple(macs_of(source)),
            has_retractions=has_changes or is_changing(source),
            only_adds=link_of_arcs(node) is not None,
            arcs_change=node.rules is not None,
        )

    @property
    def num_rows(self) -> int:
        """Number of rows that wait, and of runs."""
        return self.rows.num_rows + self.runs.matches.node_count

    @property
    def bytes(self) -> int:
        """Bytes of the rows and the runs."""
        return self.rows.nbytes + self.runs.bytes

    def match_before(self, time: int) -> Iterator[pa.RecordBatch]:
        """Match the waiting rows that begin before `time`. Yield the changes of runs."""
        changes = self.rows.take_before(time)
        if changes is not None:
            yield self.runs.process(changes)

    def match_final(self) -> Iterator[pa.RecordBatch]:
        """Match the rows below the watermark, and advance the runs to it. Yield the changes of runs."""
        low = self.rows.start_watermark
        changes = self.rows.take_before(low)
        ctis = make_ctis([low], payload_schema(self._schema))
        yield self.runs.process(concat([ctis] if changes is None else [changes, ctis], self._schema))

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the rows that wait, and the state of the runs."""
        return self.rows.snapshot() | {RUNS + name: table for name, table in self.runs.snapshot().items()}

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the state of a snapshot."""
        self.rows.restore(tables)
        self.runs.restore({name.removeprefix(RUNS): table for name, table in tables.items() if name.startswith(RUNS)})


def results_of(found: pa.RecordBatch, node: AcceptedRuns, schema: pa.Schema) -> pa.RecordBatch:
    """Return changes of runs as rows of `schema`: the columns of a result, and then others of `found`."""
    columns = [*(found.column(key) for key in node.keys), found.column(MATCH_START), found.column(VS)]
    if node.until is not None:
        ends = times_of(found.column(VE))
        columns.append(pa.array(ends, mask=ends == END))
    columns += [found.column(name) for name in schema.names[len(columns) :]]
    arrays = [column.cast(field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


class AcceptedRunsOperator:
    """Stores rows that wait, and the runs of the partitions."""

    def __init__(self, node: AcceptedRuns) -> None:
        """Match the rows of `node`."""
        self._node = node
        source = node.input
        (self._time,) = source.time_columns
        columns = source.columns[: -len(CHANGE_COLUMNS)] if is_changing(source) else source.columns
        self._payload = pa.schema([pa.field(column.name, ARROW_TYPES[column.type]) for column in columns])
        self._has_changes = isinstance(node, ChangingAcceptedRuns)
        self._wait = node.consistency.wait if isinstance(node, ChangingAcceptedRuns) else None
        shown = node.columns[: -len(CHANGE_COLUMNS)] if self._has_changes else node.columns
        self._schema = pa.schema([pa.field(column.name, ARROW_TYPES[column.type]) for column in shown])
        self._rules = node.rules if isinstance(node.rules, Watchlist) else None
        self._arcs = ArcTable()
        self._version: Identity | None = None
        self._keys = list(node.keys)
        self._until = node.until
        self._partition_link = link_of_partitions(node)
        self._arc_link = link_of_arcs(node)
        self._parts: dict[str, RowsAndRuns] = {}
        """The rows and runs by link; under the name UNION those of all links."""
        if self._partition_link is None:
            self._parts[UNION] = self._make_part()
        self._links: dict[str, int] = {}
        """The watermark of each link that is above the watermark of all links."""
        self._watermark = BEGINNING
        """No later row begins before this time."""
        self._matched = BEGINNING
        """No waiting row begins before this time."""
        self._needed = 0
        """The number of runs and rows after the last removal of unneeded ones."""
        self._below_link = 0
        self.keeps_unfinished = False
        """True if `unfinished` is set at the end of the input."""
        self.unfinished: pa.Table | None = None
        """The partial matches that the end of the input ends."""
        self._ended: list[pa.Table] = []
        """With `keeps_unfinished`: the partial matches of each link that has ended, before its end."""
        self.received = 0
        self.results = 0
        """Number of returned results or changes of results."""

    @property
    def late(self) -> int:
        """Number of late rows: below the watermark, or below the watermark of their link if it is used."""
        return self._below_link + sum(part.rows.late for part in self._parts.values())

    @property
    def outside(self) -> int:
        """Rows without a lifetime."""
        return sum(part.rows.outside for part in self._parts.values())

    @property
    def rows_held(self) -> int:
        """Number of rows that wait, and of runs."""
        return sum(part.num_rows for part in self._parts.values())

    @property
    def bytes(self) -> int:
        """Bytes of the rows and the runs."""
        return sum(part.bytes for part in self._parts.values())

    @property
    def uses_links(self) -> bool:
        """True if the rows or runs of a link depend on the watermark of the link."""
        return (self._partition_link or self._arc_link) is not None

    @property
    def removed_early(self) -> tuple[int, int]:
        """Rows and runs that were removed before the watermark, because no later row needs them."""
        operators = [part.runs for part in self._parts.values()]
        return sum(each.rows_removed for each in operators), sum(each.runs_removed for each in operators)

    @property
    def partial_matches(self) -> PartialMatchCounts:
        """The runs that a later row or a deadline may complete."""
        counts = [part.runs.open_run_counts for part in self._parts.values()]
        oldest = min((start for _, start in counts), default=END)
        return PartialMatchCounts(sum(number for number, _ in counts), oldest)

    def list_partial_matches(self) -> pa.Table:
        """Return the runs that a later row or a deadline may complete, the oldest first.

        The columns are the keys, the times of the first and the last row, STATE, and the fields of the register. If a
        key or a field has the name of STATE, the column of the state has the name `run_state`.
        With `keeps_unfinished`, the result contains the runs of ended links as they were before the end of the link.
        """
        parts = list(self._parts.values()) or [self._make_part()]
        runs = pa.concat_tables([*self._ended, *(part.runs.open_runs() for part in parts)])
        last, states, *others = runs.columns
        results = dict(zip(runs.column_names[2:], others, strict=True))
        keys, fields = self._keys, [name for name in results if name not in (*self._keys, MATCH_START)]
        names, state = [*keys, MATCH_START, *fields], STATE
        while state in names:
            state = f"run_{state}"
        columns, at = [results[name] for name in names], len(keys) + 1
        names[at:at], columns[at:at] = [MATCH_END, state], [last, states]
        table = pa.Table.from_arrays(columns, names=names)
        return table.sort_by([(MATCH_START, "ascending"), (MATCH_END, "ascending")])

    @property
    def deadlines_outside(self) -> int:
        """Number of deadlines without effect, because the lifetime of the run ended before."""
        return sum(part.runs.matches.deadlines_outside for part in self._parts.values())

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Store rows. With EMIT CHANGES, return the changes of results that follow from rows that have waited."""
        self.received += batch.num_rows
        yield from self._change_arcs()
        for link, rows in self._divide(batch):
            self._part(link).rows.add(rows, rows.select(self._payload.names))
        clock = self._clock
        if self._wait is not None and clock != BEGINNING:
            self._matched = max(self._matched, clock - self._wait + 1)
            for part in self._parts.values():
                for changes in part.match_before(self._matched):
                    yield from self._items(changes)

    def punctuate(self, port: int, punctuation: AnyPunctuation) -> Iterator[GraphItem]:
        """Match the rows below a watermark. Return the results, and then the watermark."""
        yield from self._change_arcs()
        if self._partition_link is None:
            part = self._parts[UNION]
            if not part.rows.advance(punctuation):
                return
            self._watermark = part.rows.start_watermark
            advanced = [part]
        else:
            (low,) = bounds_of(punctuation, 1)
            if low <= self._watermark:
                return
            self._watermark = low
            advanced = [part for part in self._parts.values() if part.rows.advance(punctuation)]
        for part in advanced:
            yield from self._match_final(part)
        self._matched = max(self._matched, self._watermark)
        if self._watermark == END and self.keeps_unfinished:
            self.unfinished = self.list_partial_matches()
        yield Punctuation(punctuation.link, self._watermark)

    def punctuate_link(self, link: str, watermark: int) -> Iterator[GraphItem]:
        """If each link has separate partitions, return the results of `link`.

        Otherwise remove runs and rows that no later row needs.
        """
        if watermark <= max(self._watermark, self._links.get(link, BEGINNING)):
            return
        yield from self._change_arcs()
        self._links = {name: low for name, low in self._links.items() if low > self._watermark} | {link: watermark}
        if self._partition_link is None:
            self._remove_unneeded()
        elif link in self._parts and self._parts[link].rows.advance(Punctuation(link, watermark)):
            yield from self._match_final(self._parts[link])

    def _match_final(self, part: RowsAndRuns) -> Iterator[pa.RecordBatch]:
        """Match the rows below the watermark of `part`. Return the results."""
        if part.rows.start_watermark == END and self.keeps_unfinished:
            for changes in part.match_before(END):
                yield from self._items(changes)
            self._ended.append(part.runs.open_runs())
        for changes in part.match_final():
            yield from self._items(changes)

    @property
    def _clock(self) -> int:
        """The newest start of a row."""
        return max((part.rows.newest_start for part in self._parts.values()), default=BEGINNING)

    def _make_part(self) -> RowsAndRuns:
        """Return the rows and runs of all links, or of one link."""
        return RowsAndRuns(self._node, self._payload)

    def _part(self, link: str) -> RowsAndRuns:
        """Return the rows and runs of a link, or of all links."""
        if link not in self._parts:
            part = self._parts[link] = self._make_part()
            if self._arcs.has_version:
                part.runs.change_arcs([], list(self._arcs.arcs.values()))
            low = max(self._watermark, self._links.get(link, BEGINNING))
            if low != BEGINNING and part.rows.advance(Punctuation(link, low)):
                list(part.match_final())  # there are no rows
        return self._parts[link]

    def _divide(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield the rows of each link if links are separate, otherwise rows at or above the watermark of their link."""
        column = self._partition_link or self._arc_link
        if not batch.num_rows or column is None:
            yield from [(UNION, batch)] if batch.num_rows else []
            return
        links = batch.column(column)
        names = pc.unique(links).to_pylist()
        for link in names:
            rows = batch if len(names) == 1 else batch.filter(pc.equal(links, link))
            if self._partition_link is not None:
                yield link, rows
                continue
            is_late = times_of(rows.column(self._time)) < self._links.get(link, BEGINNING)
            self._below_link += int(np.count_nonzero(is_late))
            yield UNION, rows.filter(array_of(~is_late)) if is_late.any() else rows

    def _remove_unneeded(self) -> None:
        """Remove the runs and rows that no later row needs, if their number has doubled since the last removal."""
        assert self._arc_link is not None
        runs = self._parts[UNION].runs
        if runs.matches.entry_count + runs.matches.node_count <= 2 * self._needed + MIN_ROOM:
            return
        # A row that waits is a later row for the runs.
        links = {link: min(low, self._matched) for link, low in self._links.items()}
        low = self._watermark
        runs.remove_unneeded([arc_watermark(arc, self._arc_link, links, low) for arc in self._node.automaton.arcs])
        self._needed = runs.matches.entry_count + runs.matches.node_count

    def _change_arcs(self) -> Iterator[pa.RecordBatch]:
        """Use a new version of the file with arcs. Return the results that follow for rows in memory."""
        if self._rules is None or (version := self._rules.version).identity == self._version:
            return
        self._version = version.identity
        rules = [rule for rule in version.contents.rules if isinstance(rule, ArcRule)]
        newest = max([self._watermark, *(part.rows.start_watermark for part in self._parts.values())])
        removed, added = self._arcs.update(rules, max(newest, self._clock + 1), self._watermark)
        for part in self._parts.values():
            yield from self._items(part.runs.change_arcs(removed, added))

    def _items(self, changes: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Return changes of runs as results, or as changes of results."""
        found = weighted(changes)
        if not found.num_rows:
            return
        batch = results_of(found, self._node, self._schema)
        if not self._has_changes:
            self.results += batch.num_rows
            yield batch
            return
        is_final = times_of(found.column(VS)) < self._watermark
        for made in make_changes(pa.Table.from_batches([batch]), found.column(WEIGHT).to_numpy(), is_final):
            for added in add_up(made):
                self.results += added.num_rows
                yield added

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the rows that wait, the state of the runs, and the watermarks of links."""
        tables = self._arcs.snapshot() if self._arcs.has_version else {}
        names = list(dict.fromkeys([UNION, *self._parts, *self._links]))
        bounds = [self._watermark if name == UNION else self._links.get(name, BEGINNING) for name in names]
        tables[LINKS] = pa.table(
            {"link": names, "watermark": bounds, "has rows": [each in self._parts for each in names]}
        )
        for number, name in enumerate(names):
            if name in self._parts:
                tables |= {f"{number}: {table}": each for table, each in self._parts[name].snapshot().items()}
        return tables

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the state of a snapshot."""
        links = tables[LINKS].to_pylist()
        self._watermark = self._matched = links[0]["watermark"]
        if self._rules is not None and ARCS in tables:
            form = self._rules.form
            assert isinstance(form, ArcForm), form
            self._arcs.restore(tables, form, self._watermark)
        for number, row in enumerate(links):
            link = row["link"]
            if number and row["watermark"] != BEGINNING:
                self._links[link] = row["watermark"]
            if row["has rows"]:
                part, prefix = self._make_part(), f"{number}: "
                if self._arcs.has_version:
                    part.runs.change_arcs([], list(self._arcs.arcs.values()))
                part.restore(
                    {name.removeprefix(prefix): table for name, table in tables.items() if name.startswith(prefix)}
                )
                self._parts[link] = part
