"""Nodes of CREATE AUTOMATON: the results of an automaton over rows, their changes, and their rows.

    rows ──► partitions ──► all runs of an automaton ──► a result for each run that ends in a final state
                                                 └─► the rows of these runs

A result has the columns `keys` of its partition, the times of its first and last row, and the fields of the register.
If the run ends at a deadline, the deadline replaces the time of the last row. If rows have lifetimes, a result also has
the time until which all its rows are true.
"""

from __future__ import annotations

from capture.lazy_dataclasses import dataclass
from highlevel.patterns.automaton import Automaton
from highlevel.plan.nodes import CHANGE_COLUMNS, Node
from highlevel.plan.pattern_nodes import MATCH_END, MATCH_START
from highlevel.speculation.consistency import Consistency
from lowlevel.expressions.tree import Column, Expression
from lowlevel.expressions.types import Type
from lowlevel.watch.watched_file import WatchedFile, Watchlist

MATCH_UNTIL = "match_until"
"""Column of a result: the end of its lifetime; NULL if it has no end."""

RUN_STATE = "state of the run"
"""Column of a row of a run: the state after the row."""


@dataclass(frozen=True)
class AcceptedRuns(Node):
    """The accepted runs of `automaton` in each partition of rows with equal `keys`, each as soon as it is final.

    Rows with equal times are in the order of a hash of their values. `until`: the column with the end of the lifetime
    of a row (NULL: no end); None: no row has an end. `number`: the column with the number of a row in its partition; a
    run continues only with the next number. `rules`: a file with further arcs, which is read again when it changes.
    """

    input: Node
    automaton: Automaton
    keys: tuple[str, ...]
    until: str | None = None
    number: str | None = None
    rules: WatchedFile | Watchlist | None = None

    @property
    def matched(self) -> tuple[str, ...]:
        """The columns of the input that runs read. Their hash orders rows with equal times. Empty for all columns."""
        return ()

    @property
    def result_columns(self) -> tuple[Column, ...]:
        """The columns of a result: the keys, the times, and the fields of the register."""
        by_name = {column.name: column for column in self.input.columns}
        return (
            *(by_name[key] for key in self.keys),
            Column(MATCH_START, Type.TIME),
            Column(MATCH_END, Type.TIME),
            *([] if self.until is None else [Column(MATCH_UNTIL, Type.TIME, nullable=True)]),
            *(field.column for field in self.automaton.register),
        )

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of a result."""
        return self.result_columns

    @property
    def time_columns(self) -> tuple[str, ...]:
        """The time of the last row."""
        return (MATCH_END,)


@dataclass(frozen=True)
class ChangingAcceptedRuns(AcceptedRuns):
    """The changes of the results of AcceptedRuns. `consistency` states when a row is used.

    Results of deadlines are returned when the watermark has passed the deadline, and are never withdrawn.
    """

    consistency: Consistency = Consistency()

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of AcceptedRuns, `weight` and `final`."""
        return (*self.result_columns, *CHANGE_COLUMNS)


@dataclass(frozen=True)
class RowsOfRuns(AcceptedRuns):
    """The rows of the accepted runs: of each result the rows that change the run, its first row, and its last row.

    A row changes a run if the arc leads to another state, or changes the register. If a result has several derivations,
    its rows are the rows of all derivations. A row is returned once for each state after it. `shown` are the columns of
    the input that are returned, `read` are the columns that runs read. `rules` is None: the automaton contains the arcs
    that `arcs_file` had when the query was compiled; it is empty without ARCS FROM.
    """

    shown: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    arcs_file: str = ""

    @property
    def matched(self) -> tuple[str, ...]:
        """The columns that runs read, so runs are those of AcceptedRuns over these columns."""
        return self.read

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of AcceptedRuns, the state after the row, and the columns `shown`."""
        by_name = {column.name: column for column in self.input.columns}
        return (*self.result_columns, Column(RUN_STATE, Type.TEXT), *(by_name[name] for name in self.shown))


@dataclass(frozen=True)
class DistinctRowsOfRuns(RowsOfRuns):
    """The rows of RowsOfRuns that are part of a result for which `where` is true, each row once.

    `where` reads columns of results; None for all results. A row is returned with its first result.
    """

    where: Expression | None = None

    @property
    def columns(self) -> tuple[Column, ...]:
        """The keys, and the columns `shown`."""
        by_name = {column.name: column for column in self.input.columns}
        return tuple(by_name[name] for name in (*self.keys, *self.shown))

    @property
    def time_columns(self) -> tuple[str, ...]:
        """None: a row may be part of several results."""
        return ()
