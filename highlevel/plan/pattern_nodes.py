"""Matches and MatchedRows: the nodes of MATCH_RECOGNIZE.

    rows ──► partitions ──► runs of an automaton, the preferred first ──► matches ──► their rows

The row of a match has the columns `keys` of its partition, the times of its first and last row, and the fields of the
register. An Apply over it computes MEASURES.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

from capture.lazy_dataclasses import dataclass
from highlevel.patterns.automaton import Automaton
from highlevel.plan.nodes import Node
from lowlevel.expressions.tree import Column, WideSum, columns_of
from lowlevel.expressions.types import Type

MATCH_START, MATCH_END = "match_start", "match_end"
"""Columns of a match: the times of its first and of its last row."""

MATCH_NUMBER = "number of the match"
"""Column of a match: its number in the partition, from 1 on."""

FINAL = "final "
"""Prefix of the name of a column with the value that a field has after the last row of the match."""

ROW_NUMBER = "number of the row"
"""Column that transfers may read: a number that rises with the order of the rows."""

FIRST_ROW = "is the first row"
"""Column that fences may read: true for the first row of a partition."""


@dataclass(frozen=True)
class Neighbour:
    """A column that fences and transfers may read: the value of `column` in the row `distance` rows later.

    A negative distance means an earlier row. NULL if the partition has no such row.
    """

    name: str
    column: str
    distance: int


class SkipRule(StrEnum):
    """The row at which matching continues after a match."""

    NEXT_ROW = "TO NEXT ROW"
    PAST_LAST_ROW = "PAST LAST ROW"
    TO_FIELD = "TO"


@dataclass(frozen=True)
class Matches(Node):
    """The matches of `automaton` in each partition of rows with equal `keys`, in the order of their time.

    Arcs of a state are in the order of preference. If times are equal, rows with smaller values are first: of the
    columns `matched`, and then of the others. `skip_field` is the field with the number of the row at which matching
    continues (TO_FIELD). `sums`: sums over the fields, whose overflows are counted. Rows wait for their later
    neighbours.

    If the start state of the automaton is final, there are empty matches, without rows. An empty match has the time of
    the row at which it begins.

    Partitions without runs are removed, except with `is_numbered`, `neighbours` or FIRST_ROW: then their number of
    matches and their last rows are stored.
    """

    input: Node
    automaton: Automaton
    keys: tuple[str, ...]
    skip: SkipRule = SkipRule.PAST_LAST_ROW
    skip_field: str = ""
    neighbours: tuple[Neighbour, ...] = ()
    is_numbered: bool = False
    sums: tuple[WideSum, ...] = ()

    @property
    def matched(self) -> tuple[str, ...]:
        """The columns of the input that runs read, so matches do not depend on columns that are only returned."""
        sources = {each.name: each.column for each in self.neighbours}
        names = {column.name for part in self.automaton.expressions for column in columns_of(part)}
        read = {sources.get(name, name) for name in names} - {field.name for field in self.automaton.register}
        return tuple(column.name for column in self.input.columns if column.name in read.union(self.keys))

    @property
    def columns(self) -> tuple[Column, ...]:
        """The keys, the times, with `is_numbered` the number of the match, and the fields without `skip_field`."""
        by_name = {column.name: column for column in self.input.columns}
        return (
            *(by_name[key] for key in self.keys),
            Column(MATCH_START, Type.TIME),
            Column(MATCH_END, Type.TIME),
            *([Column(MATCH_NUMBER, Type.INT)] if self.is_numbered else []),
            *(field.column for field in self.automaton.register if field.name != self.skip_field),
        )

    @property
    def time_columns(self) -> tuple[str, ...]:
        """The time of the last row."""
        return (MATCH_END,)


@dataclass(frozen=True)
class MatchedRows(Matches):
    """The rows of the matches, with the values that the fields have after each row.

    `shown` are the columns of the input that are returned: the keys, the time, and others. `final` are the fields that
    are also returned with their values after the last row of the match, as FINAL and their name. Rows of the states
    `excluded` are not returned.

    `has_empty`: for an empty match, the row at which it begins is returned. `has_unmatched`: rows outside of all
    matches, at which no empty match begins, are also returned. They have no times of a match.
    """

    shown: tuple[str, ...] = ()
    final: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    has_empty: bool = True
    has_unmatched: bool = False

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns `shown`, the columns of Matches without the keys, and the fields `final`."""
        by_name = {column.name: column for column in self.input.columns}
        of_match = super().columns[len(self.keys) :]
        fields = {column.name: column for column in of_match}
        return (
            *(by_name[name] for name in self.shown),
            *(replace(column, nullable=True) for column in of_match),
            *(replace(fields[name], name=FINAL + name, nullable=True) for name in self.final),
        )

    @property
    def time_columns(self) -> tuple[str, ...]:
        """The time of the row."""
        return self.input.time_columns
