"""Selections: conditions on a group that all groups of its window have a part in."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from lowlevel.expressions.tree import Expression


class SelectionKind(StrEnum):
    """How a group is compared with the others of its window.

    HEAVY: its value is a share of the sum of all, at least. TOP: fewer than so many groups have a greater value.
    """

    HEAVY = "heavy"
    TOP = "top"


@dataclass(frozen=True, slots=True)
class Selection:
    """One such condition. Its result is the column `name`, BOOL.

    `value` is an expression over groups, sub-aggregates and details. `parameter` is the share as it was written, or how
    many groups.
    """

    name: str
    kind: SelectionKind
    value: Expression
    parameter: str
