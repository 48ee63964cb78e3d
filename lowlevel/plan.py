"""The low-level plan of a query: predicate, keys, sub-aggregates and panes.

A pane is the part of a window between two neighbouring window bounds. A partial is the partial aggregate of one group
and one pane.
"""

from __future__ import annotations

from functools import cached_property

import pyarrow as pa

from capture.flows.sampling import FixedRates
from capture.lazy_dataclasses import dataclass
from lowlevel.expressions.tree import SHARE_PREFIX, Expression, SeenWithin, calls_user, columns_of, parts_of
from lowlevel.expressions.types import Type
from lowlevel.kinds import RECORD_KINDS, SEPARABLE_KINDS
from lowlevel.subaggregates import SubAggregate

ARROW_TYPES: dict[Type, pa.DataType] = {
    Type.INT: pa.int64(),
    Type.TIME: pa.int64(),
    Type.FLOAT: pa.float64(),
    Type.BOOL: pa.bool_(),
    Type.ADDRESS: pa.binary(),
    Type.TEXT: pa.string(),
    Type.MAC: pa.binary(),
    Type.BYTES: pa.large_binary(),  # the payloads of a block may exceed 2**31 bytes
}
"""Arrow types of values that the low level passes to the high level. An address has 4 or 16 bytes in network order, a
MAC 6 bytes. A time is in ns since the epoch."""

ORDERED_METADATA = {b"wiretide.ordered": b"1"}
"""Metadata of the schema of partials that are single rows. The order of such rows must not change."""


NEWEST_COLUMN = ".newest"
"""The sub-aggregate of provisional plans with the newest time of the rows of a partial. No column has this name.

The node limits it to the newest accepted time of the link, so that one row with a wrong clock does not advance it.
"""


@dataclass(frozen=True, slots=True)
class Key:
    """A column of GROUP BY: its name in partials, and its expression."""

    name: str
    expression: Expression


@dataclass(frozen=True)
class LowLevelPlan:
    """The part of one query that the low level runs.

    * `pane`: length of the panes in ns, counted from `origin`: pane p is `[origin + p*pane, origin + (p+1)*pane)`.
    * `kind`: the kind of rows: `packets`, `frames`, `flows` or `samples`.
    * `spread`: each row is divided among the panes from its start_ts to its ts (`lowlevel.table.spread`). Otherwise the
      whole row is in the pane of its ts.
    * `sampling`: sampling rates of flow exporters that the user has set.
    * `reduced`: rows are pre-aggregated in tables. Otherwise each row that passes WHERE is a partial with a pane of
      1 ns, in the order of arrival.
    * `in_arrival_order`: the result depends on the order of rows, so one reader reads all rows of a capture.
    * `provisional`: partials leave after each block, with NEWEST if they are aggregated. Watermarks follow only
      from the rows that have arrived, also in a file. `slack`: the allowed disorder in ns that the query states; None
      if the input determines it.

    Every partial has a column `link`. It is not a key, because each link has separate tables.
    """

    where: Expression | None
    keys: tuple[Key, ...]
    subaggregates: tuple[SubAggregate, ...]
    pane: int
    origin: int = 0
    kind: str = "packets"
    spread: bool = False
    sampling: FixedRates | None = None
    reduced: bool = True
    in_arrival_order: bool = False
    provisional: bool = False
    slack: int | None = None

    @property
    def has_record_watermarks(self) -> bool:
        """True if a watermark of records is also a watermark of rows."""
        return self.kind in RECORD_KINDS and not self.has_arrival_watermarks

    @property
    def is_divisible(self) -> bool:
        """True if several readers may read different blocks of a capture."""
        separable = self.kind in SEPARABLE_KINDS and not self.has_arrival_watermarks
        return separable and not self.in_arrival_order and not self.depends_on_earlier_rows

    @property
    def has_arrival_watermarks(self) -> bool:
        """True if watermarks are computed from the rows that have arrived, and not from a scan of the whole file."""
        return self.provisional or self.slack is not None

    @cached_property
    def depends_on_earlier_rows(self) -> bool:
        """True if the predicate of a row depends on earlier rows."""
        return self.where is not None and any(isinstance(part, SeenWithin) for part in parts_of(self.where))

    @cached_property
    def calls_user_functions(self) -> bool:
        """True if a key or an argument calls a user's function, which must not receive rows that WHERE removes."""
        arguments = [sub.argument for sub in self.subaggregates if sub.argument is not None]
        return any(map(calls_user, [*(key.expression for key in self.keys), *arguments]))

    @property
    def trees(self) -> list[Expression]:
        """All expressions that are evaluated over rows: keys, arguments of sub-aggregates, and WHERE."""
        trees = [key.expression for key in self.keys]
        trees += [sub.argument for sub in self.subaggregates if sub.argument is not None]
        return trees if self.where is None else [*trees, self.where]

    @cached_property
    def columns(self) -> frozenset[str]:
        """Names of the columns that the reader must fill."""
        times = {"ts", "start_ts"} if self.spread else {"ts"}
        return (
            frozenset(column.name.removeprefix(SHARE_PREFIX) for tree in self.trees for column in columns_of(tree))
            | times
        )

    @cached_property
    def schema(self) -> pa.Schema:
        """Schema of the partials: `link, pane`, keys, sub-aggregates; with the metadata ORDERED if not `reduced`."""
        fields = [pa.field("link", pa.string()), pa.field("pane", pa.int64())]
        fields += [pa.field(key.name, ARROW_TYPES[key.expression.type]) for key in self.keys]
        fields += [pa.field(sub.name, ARROW_TYPES[sub.type]) for sub in self.subaggregates]
        return pa.schema(fields, None if self.reduced else ORDERED_METADATA)
