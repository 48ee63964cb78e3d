"""The node of a join: two inputs, what is joined (`highlevel.joins.spec`), and what is promised of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from highlevel.joins.spec import JoinSpec, Port, Progress
from lowlevel.expressions.tree import Column
from lowlevel.expressions.types import Type

if TYPE_CHECKING:
    from highlevel.graph.nodes import Node


@dataclass(frozen=True)
class Join:
    """Rows of `left` and `right` that are in each other's windows and match; promises are of what `form` says."""

    left: Node
    right: Node
    spec: JoinSpec
    form: Progress

    @property
    def inputs(self) -> tuple[Node, ...]:
        """Left and right."""
        return (self.left, self.right)

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns that the sides keep, left and then right; NULL where a row may have no partner.

        SEMI and ANTI joins have those of the left alone; the later or earlier time is last where promises are of it.
        """
        kind = self.spec.kind
        sides = [(self.left, self.spec.left, kind.keeps(Port.RIGHT))]
        if not kind.of_left_alone:
            sides.append((self.right, self.spec.right, kind.keeps(Port.LEFT)))
        kept = []
        for node, side, lacks in sides:
            of_input = {column.name: column for column in node.columns}
            for name, output in side.columns:
                column = of_input[name]
                kept.append(replace(column, name=output, nullable=column.nullable or lacks))
        made = [Column(name, Type.TIME) for name in self.progress if self.form in (Progress.MAX, Progress.MIN)]
        return (*kept, *made)

    @property
    def progress(self) -> tuple[str, ...]:
        """The times of the sides as the output names them: one or both, as the form of progress says."""
        return self.spec.progress_columns(self.form)
