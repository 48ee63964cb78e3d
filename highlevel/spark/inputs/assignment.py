"""Assignment of inputs to queries, to their leaves, and to their ports.

A query consists of fragments (`highlevel.plan.fragments`). A fragment reads *sources*: leaves of the query, and other
fragments, whose rows are repartitioned by a key. A *port* is one stream of rows from a source, with its own watermark:
a leaf has a port for each input that it reads, and a fragment as a source has a port for each of its partitions. Ports
are numbered over all sources of a query. If a query has one leaf and one fragment, it has a port for each input.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from capture.lazy_dataclasses import dataclass
from highlevel.inline.engine import Input
from highlevel.plan.fragments import Fragments, cut
from highlevel.plan.nodes import Leaf
from highlevel.plan.plan import Plan, leaf_names, named_leaves


@dataclass(frozen=True, slots=True)
class SourcePort:
    """A port of a query: the number of its source, and the number of its input or partition."""

    source: int
    number: int


@dataclass(frozen=True)
class InputAssignment:
    """The queries and inputs of a run. Immutable and picklable: it is sent to every task.

    Rows are repartitioned into `partitions` partitions. Leaves are numbered over all queries; `reader` is this number.

    In memory, the number of a query or input is its position here. Stored files contain its ID instead
    (`spark.run_folder.identity`); in a new run the IDs are the positions. `first_batches` are the micro-batches in
    which the queries begin.
    """

    plans: tuple[Plan, ...]
    inputs: tuple[Input, ...]
    partitions: int = 1
    query_ids: tuple[int, ...] = ()
    input_ids: tuple[int, ...] = ()
    first_batches: tuple[int, ...] = ()

    @classmethod
    def of(cls, plans: Sequence[Plan], inputs: Sequence[Input], partitions: int = 1) -> InputAssignment:
        """Assign `inputs` to `plans`, for a new run."""
        return cls(
            tuple(plans),
            tuple(inputs),
            partitions,
            tuple(range(len(plans))),
            tuple(range(len(inputs))),
            (0,) * len(plans),
        )

    @property
    def query_names(self) -> dict[int, str]:
        """The names of the queries by their IDs."""
        return {number: plan.name for plan, number in zip(self.plans, self.query_ids, strict=True)}

    @property
    def offset_keys(self) -> list[str]:
        """The key of each input in Spark's offsets."""
        return [f"{number} {input_.path}" for number, input_ in zip(self.input_ids, self.inputs, strict=True)]

    @cached_property
    def fragments(self) -> list[Fragments]:
        """The fragments of each query."""
        return [cut(plan) for plan in self.plans]

    @cached_property
    def leaves(self) -> list[tuple[int, int]]:
        """For each leaf: (number of its query, number of the leaf in the query)."""
        return [(query, number) for query, plan in enumerate(self.plans) for number in range(len(plan.leaves))]

    def leaf(self, reader: int) -> Leaf:
        """Return a leaf by its number over all queries."""
        query, number = self.leaves[reader]
        return self.plans[query].leaves[number]

    def node_name(self, reader: int) -> str:
        """Return the name of a leaf in a low-level node."""
        query, number = self.leaves[reader]
        return named_leaves(self.plans[query])[number].name

    def counter_label(self, reader: int, *, measure: bool) -> str:
        """Return the label of a leaf's counters.

        This is the name of its query, or in a measured run the name of the leaf in the plan.
        """
        query, number = self.leaves[reader]
        plan = self.plans[query]
        return leaf_names(plan)[number] if measure else plan.leaves[number].name

    def readers(self, input_number: int) -> list[int]:
        """Return the numbers of the leaves that read an input."""
        return [reader for reader in range(len(self.leaves)) if self.inputs[input_number].feeds(self.leaf(reader))]

    @cached_property
    def levels(self) -> int:
        """The number of levels of fragments, at least 1."""
        return 1 + max((max(fragments.levels) for fragments in self.fragments), default=0)

    @cached_property
    def ports(self) -> list[list[SourcePort]]:
        """The ports of each query."""
        ports_by_query: list[list[SourcePort]] = []
        for plan, fragments in zip(self.plans, self.fragments, strict=True):
            ports: list[SourcePort] = []
            for position, source in enumerate(fragments.sources):
                if source.leaf is None:
                    numbers = list(range(self.partitions))
                else:
                    leaf = plan.leaves[source.leaf]
                    numbers = [number for number, input_ in enumerate(self.inputs) if input_.feeds(leaf)]
                ports += [SourcePort(position, number) for number in numbers]
            ports_by_query.append(ports)
        return ports_by_query

    def ports_of(self, query: int, source: int) -> list[int]:
        """Return the ports of one source of a query."""
        return [port for port, source_port in enumerate(self.ports[query]) if source_port.source == source]

    def link(self, query: int, port: int) -> str:
        """Return the link of a port, or the name of its partition."""
        source_port = self.ports[query][port]
        is_leaf = self.fragments[query].sources[source_port.source].leaf is not None
        return self.inputs[source_port.number].link if is_leaf else f"partition {source_port.number}"

    def links(self, query: int) -> list[str]:
        """The link of each port of a query."""
        return [self.link(query, port) for port in range(len(self.ports[query]))]

    def inputs_of(self, query: int) -> set[int]:
        """Return the numbers of the inputs that a query reads."""
        return {number for number, input_ in enumerate(self.inputs) if any(map(input_.feeds, self.plans[query].leaves))}
