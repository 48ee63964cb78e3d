"""Which inputs feed which query, through which of its leaves, and under which port.

A query is run in fragments (`highlevel.plan.fragments`), which are handed rows by *sources*: a leaf of the query, or
another fragment, dealt in some way. A query's ports are numbered through over its sources, and of each source over the
inputs that feed the leaf, or the partitions that ran the fragment. A query of one list of streams is one fragment with
one source: its ports are the inputs that its streams name, in the order of the inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from highlevel.aggregation import LeafPlan
from highlevel.inline.engine import Input
from highlevel.plan.fragments import Stages, cut
from highlevel.plan.plan import AnyPlan, named_leaves


@dataclass(frozen=True, slots=True)
class PortOf:
    """What stands behind a port of a query: its source, and the number of the input or partition."""

    source: int
    number: int


@dataclass(frozen=True)
class Feeds:
    """The queries and inputs of one run, by `parts` partitions. Immutable and picklable: it travels to every task.

    The leaves of all queries are numbered through: of queries that are no graphs, as the queries are.
    """

    plans: tuple[AnyPlan, ...]
    inputs: tuple[Input, ...]
    parts: int = 1

    @classmethod
    def of(cls, plans: Sequence[AnyPlan], inputs: Sequence[Input], parts: int = 1) -> Feeds:
        """Bind `plans` to `inputs`."""
        return cls(tuple(plans), tuple(inputs), parts)

    @cached_property
    def stages(self) -> list[Stages]:
        """Each query in fragments."""
        return [cut(plan) for plan in self.plans]

    @cached_property
    def leaves(self) -> list[tuple[int, int]]:
        """Query, and number among its leaves, of each leaf."""
        return [(query, number) for query, plan in enumerate(self.plans) for number in range(len(plan.leaves))]

    def leaf(self, reader: int) -> LeafPlan:
        """Return a leaf by its number among all."""
        query, number = self.leaves[reader]
        return self.plans[query].leaves[number]

    def node_name(self, reader: int) -> str:
        """Return the name by which a low-level node knows a leaf."""
        query, number = self.leaves[reader]
        return named_leaves(self.plans[query])[number].name

    def readers(self, number: int) -> list[int]:
        """Numbers of the leaves that read input `number`."""
        return [reader for reader in range(len(self.leaves)) if self.inputs[number].feeds(self.leaf(reader))]

    @cached_property
    def levels(self) -> int:
        """How many times rows are dealt."""
        return 1 + max((max(stages.levels) for stages in self.stages), default=0)

    @cached_property
    def ports(self) -> list[list[PortOf]]:
        """The ports of each query."""
        found: list[list[PortOf]] = []
        for plan, stages in zip(self.plans, self.stages, strict=True):
            ports: list[PortOf] = []
            for place, source in enumerate(stages.sources):
                if source.leaf is None:
                    numbers = list(range(self.parts))
                else:
                    leaf = plan.leaves[source.leaf]
                    numbers = [number for number, each in enumerate(self.inputs) if each.feeds(leaf)]
                ports += [PortOf(place, number) for number in numbers]
            found.append(ports)
        return found

    def ports_of(self, query: int, source: int) -> list[int]:
        """Return the ports of one source of a query."""
        return [port for port, each in enumerate(self.ports[query]) if each.source == source]

    def link(self, query: int, port: int) -> str:
        """Return the link behind a port, or what the partition is called."""
        of = self.ports[query][port]
        is_leaf = self.stages[query].sources[of.source].leaf is not None
        return self.inputs[of.number].link if is_leaf else f"partition {of.number}"

    def links(self, query: int) -> list[str]:
        """The link of each port of a query."""
        return [self.link(query, port) for port in range(len(self.ports[query]))]

    def fed_by(self, query: int) -> set[int]:
        """Return the numbers of the inputs that a query reads."""
        return {number for number, each in enumerate(self.inputs) if any(map(each.feeds, self.plans[query].leaves))}
