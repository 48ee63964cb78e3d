"""Which inputs feed which query, and under which port."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from highlevel.inline import Input
from highlevel.plan import QueryPlan


@dataclass(frozen=True)
class Feeds:
    """The queries and inputs of one run. Immutable and picklable: it travels to every task.

    The ports of a query are the inputs that its streams name, in the order of the inputs.
    """

    plans: tuple[QueryPlan, ...]
    inputs: tuple[Input, ...]

    @classmethod
    def of(cls, plans: Sequence[QueryPlan], inputs: Sequence[Input]) -> Feeds:
        """Bind `plans` to `inputs`."""
        return cls(tuple(plans), tuple(inputs))

    @cached_property
    def ports(self) -> list[dict[int, int]]:
        """For each query: port by number of the input."""
        return [
            {number: port for port, number in enumerate(n for n, each in enumerate(self.inputs) if each.feeds(plan))}
            for plan in self.plans
        ]

    def readers(self, number: int) -> list[int]:
        """Numbers of the queries that read input `number`."""
        return [query for query, ports in enumerate(self.ports) if number in ports]

    def links(self, query: int) -> list[str]:
        """The link of each port of a query."""
        return [self.inputs[number].link for number in self.ports[query]]
