"""What the low level does for one query: predicate, keys, sub-aggregates and the pane they are kept for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from capture.flows.sampling import FixedRates
from lowlevel.expressions.tree import SHARE, Expression, SeenWithin, columns_of, parts_of
from lowlevel.expressions.types import Type
from lowlevel.kinds import DEALT_KINDS, RECORD_KINDS
from lowlevel.subaggregates import SubAggregate

ARROW_TYPES: dict[Type, pa.DataType] = {
    Type.INT: pa.int64(),
    Type.TIME: pa.int64(),
    Type.FLOAT: pa.float64(),
    Type.BOOL: pa.bool_(),
    Type.ADDRESS: pa.binary(),
    Type.TEXT: pa.string(),
    Type.MAC: pa.binary(),
    Type.BYTES: pa.large_binary(),  # the payloads of one block may be more than 2**31 bytes
}
"""The Arrow type of each value between the levels. An address is its 4 or 16 bytes in network order, a MAC its 6,
a time its ns since the epoch."""

ORDERED = {b"wiretide.ordered": b"1"}
"""Metadata of the schema of single rows: whoever keeps them keeps their order."""


@dataclass(frozen=True, slots=True)
class Key:
    """One grouping column of the low level: its name in the partial and the expression it is computed by."""

    name: str
    expression: Expression


@dataclass(frozen=True)
class LowLevelPlan:
    """Everything the low level needs of one query.

    `pane` is the length in ns of the intervals that partials are kept for, counted from `origin`: pane p is `[origin
    + p*pane, origin + (p+1)*pane)`. The `link` is a column of every partial, never a key of the table: a table serves
    one link. `kind` says what rows it reads: `packets`, `frames`, `flows` or `samples`. With `spread` a row is cut
    at the panes from its start_ts to its ts (`lowlevel.table.spread`), else it is in the pane of its ts. `sampling`
    are rates of flow exporters that were set by hand. Where it is not `reduced`, there is no table: each row that is
    kept leaves
    as a partial of its own, in the order of arrival, in a pane of 1 ns. With `in_arrival_order` that order means
    something: rows of one capture are read by one reader.
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

    @property
    def exact_low(self) -> bool:
        """Whether no row has a ts below what is promised of the records it is read from."""
        return self.kind in RECORD_KINDS

    @property
    def dealt(self) -> bool:
        """Whether several readers may share the blocks of a capture among them."""
        return self.kind in DEALT_KINDS and not self.in_arrival_order and not self.remembers

    @cached_property
    def remembers(self) -> bool:
        """Whether a row's predicate depends on those that came before it."""
        return self.where is not None and any(isinstance(part, SeenWithin) for part in parts_of(self.where))

    @property
    def trees(self) -> list[Expression]:
        """Every expression that is evaluated over rows."""
        trees = [key.expression for key in self.keys]
        trees += [sub.argument for sub in self.subaggregates if sub.argument is not None]
        return trees if self.where is None else [*trees, self.where]

    @cached_property
    def columns(self) -> frozenset[str]:
        """Names of the columns the reader must fill."""
        times = {"ts", "start_ts"} if self.spread else {"ts"}
        return frozenset(column.name.removeprefix(SHARE) for tree in self.trees for column in columns_of(tree)) | times

    @cached_property
    def schema(self) -> pa.Schema:
        """Schema of the partials: `link, pane`, the keys, the sub-aggregates; ORDERED where none of them is reduced."""
        fields = [pa.field("link", pa.string()), pa.field("pane", pa.int64())]
        fields += [pa.field(key.name, ARROW_TYPES[key.expression.type]) for key in self.keys]
        fields += [pa.field(sub.name, ARROW_TYPES[sub.type]) for sub in self.subaggregates]
        return pa.schema(fields, None if self.reduced else ORDERED)
