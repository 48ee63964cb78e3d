"""Queries of the page over the stored windows: each query of the pipeline is a table with the name of the query."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from threading import Lock

import pyarrow as pa

from capture.errors import WiretideError
from capture.lazy_dataclasses import dataclass
from dashboards.page.history import History
from dashboards.tables import Tables, tables_by_name
from highlevel.inline.tables import Stream, TableStream
from highlevel.plan.lifetime_nodes import OverlapJoin
from highlevel.plan.nodes import Join, Leaf
from highlevel.plan.plan import Plan
from highlevel.results.stored_columns import times_of
from lowlevel.expressions.tree import Column
from queries.binding.watchlists import files_refused
from queries.query_text import SUFFIXES
from queries.text.errors import QueryError
from queries.text.lexer import Kind, tokenize

MAX_QUERY_SECONDS = 5.0
"""Maximum time of a query. It is checked before each batch of 65,536 rows."""

INPUT_ROWS = 1_000_000
"""Maximum number of rows of each table; older windows are omitted."""

OUTPUT_ROWS = 1_000
"""Maximum number of rows of an answer."""

MAX_TEXT = 3_000
"""Maximum number of characters of a query."""


class QueryTimeError(WiretideError):
    """A query took longer than MAX_QUERY_SECONDS."""


@dataclass(frozen=True, slots=True)
class BoxAnswer:
    """The first rows of an answer.

    `is_truncated`: True if the answer has more rows. `windows`: the numbers of windows that were read, by query.
    `values`: the columns with aggregates, or with values of the stored queries.
    """

    plan: Plan
    rows: pa.Table
    is_truncated: bool
    windows: dict[str, int]
    values: tuple[str, ...]


class QueryBox:
    """Answers queries over the windows in a history, one after the other."""

    def __init__(self, history: History, clock: Callable[[], float] = time.monotonic) -> None:
        """Read the windows of `history`. `clock` returns seconds."""
        self._history = history
        self._clock = clock
        self._one_at_a_time = Lock()

    def answer(self, sql: str) -> BoxAnswer:
        """Answer a query. Raises QueryError or InputError for a wrong text, QueryTimeError after MAX_QUERY_SECONDS.

        Functions that read files are refused, because a reader of the page may not read the files of this machine.
        """
        if len(sql) > MAX_TEXT:
            raise QueryError("a text that is too long", sql, MAX_TEXT, f"at most {MAX_TEXT} characters")
        if sql.strip().startswith("@") or sql.strip().endswith(SUFFIXES):
            raise QueryError("the name of a ready query or a file", sql, 0, "the text of a query: SELECT …")
        words = {token.text.lower() for token in tokenize(sql) if token.kind in (Kind.WORD, Kind.QUOTED)}
        with self._one_at_a_time, files_refused("on the page"):
            return self._answer(sql, words)

    def _answer(self, sql: str, words: set[str]) -> BoxAnswer:
        deadline = self._clock() + MAX_QUERY_SECONDS
        tables: list[Stream] = []
        windows = {}
        for name, plan in self._history.plans.items():
            names = {name.lower(), name.lower().replace("-", "_")}
            read = self._history.stored.newest_windows(name, INPUT_ROWS) if names & words else []
            windows[name] = len(read)
            rows = pa.concat_tables([plan.schema.empty_table(), *(window.rows for window in read)])
            tables.append(self._stream_of(plan, rows, deadline))
        plan, start = Tables(tables_by_name(tables), check=lambda plan: _refuse_joins(sql, plan)).bind(sql, None)
        batches: list[pa.RecordBatch] = []
        with start() as answer:
            for batch in answer.batches:
                batches.append(batch)
                if sum(batch.num_rows for batch in batches) > OUTPUT_ROWS:
                    break
        table = pa.Table.from_batches(batches, plan.schema)
        read_windows = {name: count for name, count in windows.items() if count}
        stored = tuple(column for name in read_windows for column in self._history.values_of(name))
        values = (*plan.computed_names, *_aggregates(plan)) if plan.aggregation is not None else stored
        return BoxAnswer(plan, table.slice(0, OUTPUT_ROWS), table.num_rows > OUTPUT_ROWS, read_windows, values)

    def _stream_of(self, plan: Plan, rows: pa.Table, deadline: float) -> Stream:
        """Return stored rows as a table that queries can read.

        By default, windows over it are windows over `window_end`.
        """
        columns = tuple(plan.root.columns)
        table = rows.select([column.name for column in columns])
        return _BoundedTable(plan.name, columns, times_of(columns), table, deadline, self._clock)


@dataclass(frozen=True)
class _BoundedTable(TableStream):
    """A table that is read until `deadline`, in seconds of `clock`."""

    deadline: float
    clock: Callable[[], float]

    def batches(self, leaf: Leaf) -> Iterator[tuple[int, pa.RecordBatch, int]]:
        """Yield the batches of the table. Raises QueryTimeError after the deadline."""
        for batch in super().batches(leaf):
            if self.clock() > self.deadline:
                expected = "a shorter history, or a query of the pipeline"
                raise QueryTimeError(f"the query needed more than {MAX_QUERY_SECONDS:g} s; expected {expected}")
            yield batch


def _refuse_joins(sql: str, plan: Plan) -> None:
    """Raise QueryError for a join, because it may need unbounded time for one batch of input."""
    if any(isinstance(node, Join | OverlapJoin) for node in plan.nodes):
        problem = "a join on the page, because its time has no bound"
        raise QueryError(problem, sql, 0, "a query of one table, a UNION, or the join as a query of the pipeline")


def _aggregates(plan: Plan) -> tuple[str, ...]:
    """Return the columns of an answer that are not columns of GROUP BY."""
    assert plan.aggregation is not None
    keys = set(plan.aggregation.group_by)
    outputs = plan.aggregation.select
    return tuple(
        out.name for out in outputs if not (isinstance(out.expression, Column) and out.expression.name in keys)
    )
