"""Details: aggregates over all values of a group, for which no part of a fixed size would do (holistic ones).

The low level keeps a group's values apart, each with the number of its rows: the values are one more key of its table
(Li 2008, §6.2.4). So partials still merge, in any order, and only when a window is final are its values looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from lowlevel.expressions.types import Type


class DetailFunction(StrEnum):
    """What is told of the values of a group."""

    COUNT_DISTINCT = "count_distinct"
    QUANTILE = "quantile"
    MODE = "mode"
    ENTROPY = "entropy"
    TOP = "top"
    APPROX_COUNT_DISTINCT = "approx_count_distinct"
    APPROX_QUANTILE = "approx_quantile"
    APPROX_TOP = "approx_top"


FOLDED = frozenset({DetailFunction.APPROX_COUNT_DISTINCT, DetailFunction.APPROX_QUANTILE, DetailFunction.APPROX_TOP})
"""Functions that are told from sketches."""


@dataclass(frozen=True, slots=True)
class Detail:
    """One such aggregate. Its result is the column `name`.

    The values are of `kind`, in the column `key` of the partials; of functions in FOLDED that has the sketches that
    were made of them. `count` is the sub-aggregate that counts the rows behind each. `parameter` is the share of a
    quantile, 0 to 1, or how many values `top` names.
    """

    name: str
    function: DetailFunction
    key: str
    kind: Type
    count: str
    parameter: float = 0.0

    @property
    def type(self) -> Type:
        """Type of the result."""
        return result_type(self.function, self.kind)


@dataclass(frozen=True, slots=True)
class Folding:
    """A sketch, for `function`, of the values of a column `source` of the partials; its column is `column`."""

    function: DetailFunction
    source: str
    column: str
    count: str


def result_type(function: DetailFunction, kind: Type) -> Type:
    """Return the type of what is told of values of a kind."""
    match function:
        case DetailFunction.COUNT_DISTINCT | DetailFunction.APPROX_COUNT_DISTINCT:
            return Type.INT
        case DetailFunction.QUANTILE | DetailFunction.APPROX_QUANTILE | DetailFunction.ENTROPY:
            return Type.FLOAT
        case DetailFunction.MODE:
            return kind
        case DetailFunction.TOP | DetailFunction.APPROX_TOP:
            return Type.TEXT
