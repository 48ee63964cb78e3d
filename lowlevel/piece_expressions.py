"""What expressions say about the pieces of rows that are spread over panes (`lowlevel.spread`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from lowlevel.types import Type

if TYPE_CHECKING:
    from lowlevel.expressions import Expression

SHARE = "share of "
"""What the name of a column begins with where not a row's value is meant but what a pane has of it."""

ENDS = "the row ends"
"""The column that says which pane a row ends in."""


@dataclass(frozen=True, slots=True)
class AtEnd:
    """`operand` in the pane where a row ends, NULL in the others."""

    operand: Expression
    nullable: ClassVar[bool] = True

    @property
    def type(self) -> Type:
        """Type of the value."""
        return self.operand.type
