"""Description of a join: two inputs, the window, the keys, a condition, and the kind of join."""

from __future__ import annotations

from enum import StrEnum

import pyarrow as pa

from capture.lazy_dataclasses import dataclass
from highlevel.joins.window import Band as Band
from highlevel.joins.window import Boundary as Boundary
from highlevel.joins.window import JoinWindow as JoinWindow
from highlevel.joins.window import Port as Port
from highlevel.joins.window import Tumbling as Tumbling
from lowlevel.expressions.tree import Expression, columns_of
from lowlevel.expressions.types import key_type

MAX_TS, MIN_TS = "max_ts", "min_ts"
"""Additional columns of a join for its watermarks: the later and the earlier time of a pair."""


class JoinKind(StrEnum):
    """Rows in the result: pairs, also rows of a side without a match, or only left rows with (or without) a match."""

    INNER = "INNER"
    LEFT = "LEFT"
    RIGHT = "RIGHT"
    FULL = "FULL"
    SEMI = "SEMI"
    ANTI = "ANTI"

    @property
    def is_left_only(self) -> bool:
        """True if the result contains only rows of the left input, each at most once."""
        return self in (JoinKind.SEMI, JoinKind.ANTI)

    def keeps(self, side: Port) -> bool:
        """Return True if rows of `side` without a match are in the result."""
        keeping = (JoinKind.LEFT, JoinKind.ANTI) if side is Port.LEFT else (JoinKind.RIGHT,)
        return self is JoinKind.FULL or self in keeping


class WatermarkForm(StrEnum):
    """Time of the watermarks of a join: one side, both sides (joint watermark), or the later or earlier time."""

    LEFT = "left"
    RIGHT = "right"
    JOINT = "joint"
    MAX = "max"
    MIN = "min"


@dataclass(frozen=True)
class Side:
    """One input: its schema, its time column (int64, ns), and its result columns as (column, name in the result)."""

    schema: pa.Schema
    time: str
    columns: tuple[tuple[str, str], ...]

    def __post_init__(self) -> None:
        """Raise ValueError for columns that the input does not have."""
        for name in (self.time, *(name for name, _ in self.columns)):
            if name not in self.schema.names:
                raise ValueError(f"no column {name!r} in a join's input, which has {', '.join(self.schema.names)}")
        if self.schema.field(self.time).type != pa.int64():
            raise ValueError(f"the time {self.time!r} of a join's input must be int64 ns, got {self.schema}")

    @property
    def time_output(self) -> str | None:
        """The name of the time in the result, or None if it is not a result column."""
        return next((output for name, output in self.columns if name == self.time), None)

    @property
    def fields(self) -> list[pa.Field]:
        """The result columns of this input."""
        return [pa.field(output, self.schema.field(name).type) for name, output in self.columns]


@dataclass(frozen=True)
class JoinSpec:
    """A join. Immutable and picklable.

    `keys` are pairs of expressions over the columns of the left and the right input. Both have the same type or are
    numbers, and their values must be equal; NULL equals no value. `residual` is a condition on pairs over the names of
    the OUTPUT. The `columns` of the sides must contain the columns of `residual`.
    """

    left: Side
    right: Side
    window: JoinWindow
    keys: tuple[tuple[Expression, Expression], ...] = ()
    residual: Expression | None = None
    kind: JoinKind = JoinKind.INNER

    def __post_init__(self) -> None:
        """Raise ValueError if the inputs cannot be joined."""
        names = self.pairs.names
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two columns of a join have the name {', '.join(twice)}; rename one")
        for left, right in self.keys:
            if key_type(left.type, right.type) is None:
                raise ValueError(f"a join's keys must be of one type, got {left.type} and {right.type}")
        missing = {column.name for column in columns_of(self.residual)} - set(names) if self.residual else set()
        if missing:
            raise ValueError(f"a join's condition names {', '.join(sorted(missing))}; its pairs have {names}")

    def side(self, port: Port) -> Side:
        """Return the input of a port."""
        return self.left if port is Port.LEFT else self.right

    @property
    def pairs(self) -> pa.Schema:
        """Schema of pairs: the left columns, then the right columns."""
        return pa.schema([*self.left.fields, *self.right.fields])

    @property
    def schema(self) -> pa.Schema:
        """Schema of the result rows if the watermark needs no additional column (`schema_of`)."""
        return pa.schema(self.left.fields) if self.kind.is_left_only else self.pairs

    def schema_of(self, watermark_form: WatermarkForm) -> pa.Schema:
        """Return the schema of the result rows, with a last column `max_ts` or `min_ts` if the watermark needs it."""
        if watermark_form not in (WatermarkForm.MAX, WatermarkForm.MIN):
            return self.schema
        return self.schema.append(pa.field(MAX_TS if watermark_form is WatermarkForm.MAX else MIN_TS, pa.int64()))

    def time_columns(self, watermark_form: WatermarkForm) -> tuple[str, ...]:
        """Return the names of the columns of the watermarks, two for a joint watermark."""
        if self.kind.is_left_only and watermark_form is not WatermarkForm.LEFT:
            raise ValueError(f"a {self.kind} join returns left rows: it has no watermarks of {watermark_form}")
        if watermark_form in (WatermarkForm.MAX, WatermarkForm.MIN):
            name = MAX_TS if watermark_form is WatermarkForm.MAX else MIN_TS
            if name in self.schema.names:
                raise ValueError(f"a column of a join has the name {name}, which is computed from the times; rename it")
            return (name,)
        sides = {
            WatermarkForm.LEFT: (self.left,),
            WatermarkForm.RIGHT: (self.right,),
            WatermarkForm.JOINT: (self.left, self.right),
        }
        time_outputs = tuple(side.time_output for side in sides[watermark_form])
        if None in time_outputs:
            raise ValueError(
                f"a join with watermarks of {watermark_form} must return those times, got {self.schema.names}"
            )
        return tuple(name for name in time_outputs if name is not None)
