"""What nodes that read one other node have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lowlevel.expressions.tree import Column

if TYPE_CHECKING:
    from highlevel.graph.nodes import Node


@dataclass(frozen=True)
class OneInput:
    """A node that reads `input`."""

    input: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The one input."""
        return (self.input,)


@dataclass(frozen=True)
class SomeRows(OneInput):
    """A node whose rows are some of the input's, as they are: what is promised of all is true of them."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """Those of the input."""
        return self.input.columns

    @property
    def progress(self) -> tuple[str, ...]:
        """That of the input."""
        return self.input.progress
