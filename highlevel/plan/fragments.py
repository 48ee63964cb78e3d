"""A plan divided into fragments, so that several processes run one query.

Rows are *repartitioned*: sent to partitions by the values of a key. A join needs rows with equal keys in one partition,
an aggregation the rows of a group. An edge of the plan is cut if its rows are not partitioned as the reading node
requires:

    leaf ──(keys)──► join ──► apply ──┊(group)──► windowed          ┊ rows are repartitioned

A *fragment* is the plan between two cuts. Its leaves are the sources of its rows. Every partition runs every fragment.
A fragment of level n reads links, and fragments of levels below n in all partitions. Its watermark is the minimum of
theirs, so a partition waits only for the inputs of its fragments.
"""

from __future__ import annotations

from dataclasses import field, replace
from functools import cached_property

from capture.lazy_dataclasses import dataclass
from highlevel.plan.nodes import PANE, Leaf, Node, Windowed
from highlevel.plan.partitioning import PartitionKey, is_sufficient, plain_expressions
from highlevel.plan.plan import Plan
from highlevel.plan.registry import entry_of
from lowlevel.expressions.tree import Column
from lowlevel.plan import LowLevelPlan


@dataclass(frozen=True)
class FragmentInput(Leaf):
    """A leaf of a fragment: the rows of source `number`. Its columns are those of the node from which the rows come."""

    number: int = 0
    origin_columns: tuple[Column, ...] = ()
    origin_time_columns: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the node from which the rows come."""
        return self.origin_columns

    @property
    def time_columns(self) -> tuple[str, ...]:
        """The time columns of the node from which the rows come."""
        return self.origin_time_columns


@dataclass(frozen=True)
class Source:
    """Rows for fragments, partitioned by `key`: the output of leaf `leaf` or of fragment `fragment_number`.

    The other is None.
    """

    leaf: int | None
    fragment: int | None
    key: PartitionKey


@dataclass(frozen=True)
class Fragments:
    """A query divided into fragments. Each fragment is after the fragments that it reads.

    The last one returns the results.
    """

    plan: Plan
    sources: tuple[Source, ...]
    fragments: tuple[Plan, ...]

    @cached_property
    def levels(self) -> tuple[int, ...]:
        """The level of each fragment: 0 if it reads only links."""
        levels: list[int] = []
        for fragment in self.fragments:
            below = [self.sources[source].fragment for source in sources_of(fragment)]
            levels.append(max((levels[number] + 1 for number in below if number is not None), default=0))
        return tuple(levels)

    @property
    def partitioned(self) -> bool:
        """True if rows are sent to several partitions, False if one partition processes all rows."""
        return any(source.key for source in self.sources)

    def last_level(self, source: int) -> int:
        """Return the highest level that reads a source."""
        return max(self.levels[number] for number in self._readers(source))

    def columns_read(self, source: int) -> tuple[str, ...]:
        """Return the columns of a source that fragments read."""
        read_source = self.sources[source]
        if read_source.fragment is not None:
            return tuple(self.fragments[read_source.fragment].schema.names)
        leaf = self.plan.leaves[read_source.leaf or 0]
        readers = [
            node
            for number in self._readers(source)
            for node in self.fragments[number].nodes
            if any(isinstance(child, FragmentInput) and child.number == source for child in node.inputs)
        ]
        columns: set[str] = set()
        for node in readers:
            if not isinstance(node, Windowed) or not node.merges_partials:
                return tuple(leaf.low.schema.names)
            columns.update(node.aggregation.partial_columns)
        subaggregates = (sub.name for sub in leaf.low.subaggregates)
        return (PANE, *(column.name for column in leaf.columns if column.name in columns), *subaggregates)

    def origin_of(self, node: Node) -> Node:
        """Return the node of the whole query that corresponds to a node of a fragment."""

        def without_cut(part: Node) -> Node:
            if not isinstance(part, FragmentInput):
                return part
            source = self.sources[part.number]
            if source.fragment is not None:
                return self.origin_of(self.fragments[source.fragment].root)
            return self.plan.leaves[source.leaf or 0]

        return node.transform(without_cut)

    def _readers(self, source: int) -> list[int]:
        return [number for number, fragment in enumerate(self.fragments) if source in sources_of(fragment)]


def sources_of(fragment: Plan) -> list[int]:
    """Return the numbers of the sources of a fragment, in the order of its leaves."""
    return [leaf.number for leaf in fragment.leaves if isinstance(leaf, FragmentInput)]


def cut(plan: Plan) -> Fragments:
    """Cut a query into fragments."""
    cutter = _Cutter(plan)
    root, _ = cutter.partition_node(plan.root, None)
    cutter.fragment_number(root)
    return Fragments(plan, tuple(cutter.sources), tuple(cutter.fragments))


@dataclass
class _Cutter:
    """Divides a plan from the root down, and determines the partition keys of the rows of each node."""

    plan: Plan
    sources: list[Source] = field(default_factory=list)
    fragments: list[Plan] = field(default_factory=list)

    def fragment_number(self, root: Node) -> int:
        """Return the number of the fragment with this root. Add the fragment if it is new."""
        new_fragment = replace(self.plan, root=root)
        if new_fragment not in self.fragments:
            self.fragments.append(new_fragment)
        return self.fragments.index(new_fragment)

    def partition_node(
        self, node: Node, wanted: PartitionKey | None, exact: bool = False
    ) -> tuple[Node, list[PartitionKey]]:
        """Return `node` over the inputs of its fragment, and the partition keys of its rows.

        One of the keys satisfies `wanted`.
        """
        made, keys = self._divide_node(node, wanted)
        if wanted is None or (wanted in keys if exact else any(is_sufficient(key, wanted) for key in keys)):
            return made, keys
        return self._make_input(node, Source(None, self.fragment_number(made), wanted)), [wanted]

    def _divide_node(self, node: Node, wanted: PartitionKey | None) -> tuple[Node, list[PartitionKey]]:
        if isinstance(node, Leaf):
            key = (
                plain_expressions(column for column in node.columns if column.name == PANE)
                if wanted is None
                else wanted
            )
            return self._make_input(node, Source(self.plan.leaves.index(node), None, key)), [key]
        partitioning = entry_of(node).partitioning
        required = partitioning.required(node, wanted)
        made = [
            self.partition_node(below, key, partitioning.exact)
            for below, key in zip(node.inputs, required, strict=True)
        ]
        changed = node.with_inputs(below for below, _ in made)
        return changed, list(partitioning.provided(node, [keys for _, keys in made], wanted))

    def _make_input(self, node: Node, source: Source) -> FragmentInput:
        if source not in self.sources:
            self.sources.append(source)
        number = self.sources.index(source)
        low = node.low if isinstance(node, Leaf) else LowLevelPlan(None, (), (), 1, reduced=False)
        origin = (node.columns, node.time_columns)
        return FragmentInput(self.plan.name, (), low, self.plan.layer, (), number, *origin)
