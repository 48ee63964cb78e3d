"""Nodes whose rows are those of their inputs, one by one: united, chosen, computed, or each once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from highlevel.graph.one_input import OneInput, SomeRows
from highlevel.plan import Output
from lowlevel.expressions.tree import Column, Expression, computed_column

if TYPE_CHECKING:
    from highlevel.graph.nodes import Node


@dataclass(frozen=True)
class Union:
    """All rows of `inputs`, which have the same columns, and the same progressing ones or none."""

    inputs: tuple[Node, ...]

    def __post_init__(self) -> None:
        """Refuse inputs whose rows are no rows of one table."""
        first, *others = ([(column.name, column.type) for column in each.columns] for each in self.inputs)
        if any(each != first for each in others):
            raise ValueError(f"a union of different columns: {first} and {', '.join(map(str, others))}")
        progress = {each.progress for each in self.inputs} - {()}
        if len(progress) > 1:
            raise ValueError(f"a union of inputs that progress by different columns: {sorted(progress)}")

    @property
    def columns(self) -> tuple[Column, ...]:
        """Those of the inputs; NULL where one of them may be."""
        first, *others = (each.columns for each in self.inputs)
        return tuple(
            replace(column, nullable=any(each[place].nullable for each in (first, *others)), bits=64)
            for place, column in enumerate(first)
        )

    @property
    def progress(self) -> tuple[str, ...]:
        """That of the inputs; nothing where one of them has none."""
        return min((each.progress for each in self.inputs), key=len)


@dataclass(frozen=True)
class Select(SomeRows):
    """The rows of `input` for which `where` is true."""

    where: Expression


@dataclass(frozen=True, slots=True)
class Progressing:
    """A progressing column `name` of what Apply gives: `(of - shift) // length` of the input's progressing column `of`.

    Such a function is monotone, so what is promised of `of` is promised of it.
    """

    name: str
    of: str
    shift: int = 0
    length: int = 1

    def promise(self, low: int) -> int:
        """Return what P(low) of the input's column says of this one; not for the ends of the integers."""
        return (low - self.shift) // self.length


@dataclass(frozen=True)
class Apply(OneInput):
    """Columns computed from each row of `input`; `progressing` says which of them progress, in the input's order.

    With none of them nothing can be promised but the end.
    """

    outputs: tuple[Output, ...]
    progressing: tuple[Progressing, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        """The outputs."""
        return tuple(computed_column(out.name, out.expression) for out in self.outputs)

    @property
    def progress(self) -> tuple[str, ...]:
        """Those that were said to."""
        return tuple(each.name for each in self.progressing)


@dataclass(frozen=True)
class Distinct(SomeRows):
    """The first row of each value of `keys`, among which is the progressing column (DupElim)."""

    keys: tuple[str, ...]
