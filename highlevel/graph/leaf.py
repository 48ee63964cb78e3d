"""The leaf of a graph: what comes up from links."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from highlevel.plan import LINK
from lowlevel.expressions.tree import Column, computed_column
from lowlevel.expressions.types import Type
from lowlevel.layers import Layer
from lowlevel.plan import LowLevelPlan

if TYPE_CHECKING:
    from highlevel.graph.nodes import Node

PANE = "pane"
"""The progressing column of a leaf: of single rows their ts."""


@dataclass(frozen=True)
class Leaf:
    """What comes up from the links of `streams`, each reduced by `low`; a port of the graph for each of them.

    Single rows (`low.reduced` is not set) have keys named as the columns they are, and `pane` is their ts.
    `name` is the query's, by which the low level's counters are labelled.
    """

    name: str
    streams: tuple[str, ...]
    low: LowLevelPlan
    layer: str = Layer.OUTER

    @property
    def of_every_link(self) -> bool:
        """Whether FROM names a kind of rows alone: those of all inputs."""
        return [stream.lower() for stream in self.streams] == [self.low.kind]

    @property
    def slide(self) -> int:
        """A pane: no window over it ends more often."""
        return self.low.pane

    @property
    def inputs(self) -> tuple[Node, ...]:
        """None."""
        return ()

    @property
    def columns(self) -> tuple[Column, ...]:
        """`link`, `pane`, the keys and the sub-aggregates."""
        keys = [computed_column(key.name, key.expression) for key in self.low.keys]
        subs = [Column(sub.name, sub.type) for sub in self.low.subaggregates]
        pane = Column(PANE, Type.INT if self.low.reduced else Type.TIME)
        return (Column(LINK, Type.TEXT), pane, *keys, *subs)

    @property
    def progress(self) -> tuple[str, ...]:
        """The pane; its promises are about ts, in ns."""
        return (PANE,)
