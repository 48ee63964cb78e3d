"""The operators of one query that is a graph: each item is pushed along its edges as it comes.

    port of a leaf ──► Meld ──► operator ──► every operator that reads it ──► … ──► the root's rows and promises

A node that several read is run once, and what leaves it goes to each of them in turn before its next item: so each edge
has the items in the order in which they left, and a row is never overtaken by a promise that does not cover it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

import pyarrow as pa

from capture.metrics import Samples
from highlevel.operators.meld import Meld
from highlevel.operators.state import restore_to, snapshot_of
from highlevel.plan.nodes import Apply, Distinct, Join, Leaf, Node, PairGroups, Select, Union, Windowed, width_of
from highlevel.plan.operators.apply import ApplyOperator
from highlevel.plan.operators.distinct import DistinctOperator
from highlevel.plan.operators.operator import GraphItem, GraphOperator, HoldingOperator, Mark, StoringOperator
from highlevel.plan.operators.pair_groups import PairGroupsOperator
from highlevel.plan.operators.select import SelectOperator
from highlevel.plan.operators.union import UnionOperator
from highlevel.plan.operators.windowed import WindowedOperator
from highlevel.plan.plan import GraphPlan
from highlevel.plan.samples import samples_of
from lowlevel.punctuation import JointPunctuation


def make_operator(node: Node) -> GraphOperator:
    """Make the operator of a node that reads nodes; leaves read links, which are united by Meld."""
    match node:
        case Union():
            return UnionOperator(node)
        case Select():
            return SelectOperator(node)
        case Apply():
            return ApplyOperator(node)
        case Distinct():
            return DistinctOperator(node)
        case Join():
            from highlevel.plan.operators.join import JoinOperator

            return JoinOperator(node)
        case Windowed():
            return WindowedOperator(node)
        case PairGroups():
            return PairGroupsOperator(node)
    raise TypeError(f"got {type(node).__name__}, expected a node that reads nodes")


class LeafOperator(Meld):
    """Meld over the links of a leaf; counts what comes of them."""

    received = 0

    def rows(self, port: int, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Pass on."""
        self.received += batch.num_rows
        yield batch


def leaf_operator(leaf: Leaf, ports: int) -> LeafOperator | UnionOperator:
    """Make what unites the `ports` of a leaf; boxes, which no link promises, come of other fragments of the query."""
    return LeafOperator(ports) if width_of(leaf) == 1 else UnionOperator(Union((leaf,) * ports))


class GraphPipeline:
    """Runs one query's high level over any number of links. Not thread safe.

    Ports are numbered through over the leaves, in their order, and the links of each: what has come up from link i of
    the second leaf goes to the port len(links[0]) + i. Results leave as they become final.
    """

    def __init__(self, plan: GraphPlan, links: Sequence[Sequence[str]]) -> None:
        """Unite for each leaf of the plan its `links`; two may have the same name (several files of one link).

        Raises ValueError for a leaf without one: nothing would ever be final.
        """
        for leaf, names in zip(plan.leaves, links, strict=True):
            if not names:
                raise ValueError(f"query {plan.name}: no input for {', '.join(leaf.streams)}, expected at least one")
        self.plan = plan
        self.leaf_links = [list(names) for names in links]
        self.links = [name for names in links for name in names]
        """The link of each port."""
        self.results = 0
        self.windows_closed = 0
        melds = iter([leaf_operator(leaf, len(names)) for leaf, names in zip(plan.leaves, links, strict=True)])
        self.operators: list[LeafOperator | GraphOperator] = [
            next(melds) if isinstance(node, Leaf) else make_operator(node) for node in plan.nodes
        ]
        places = {node: place for place, node in enumerate(plan.nodes)}
        self._readers: list[list[tuple[int, int]]] = [[] for _ in plan.nodes]
        for place, node in enumerate(plan.nodes):
            for port, each in enumerate(node.inputs):
                self._readers[places[each]].append((place, port))
        firsts = accumulate([0, *map(len, links)])
        self._entries = [
            (places[leaf], port - first)
            for leaf, first, names in zip(plan.leaves, firsts, links, strict=False)
            for port in range(first, first + len(names))
        ]

    @property
    def state_bytes(self) -> int:
        """Bytes of the state of all operators."""
        return sum(each.bytes for each in self.operators if isinstance(each, HoldingOperator | WindowedOperator))

    @property
    def pairs(self) -> int:
        """Pairs of rows that joins have found in each other's windows, with equal keys."""
        return sum(each.pairs for each in self.operators if isinstance(each, StoringOperator))

    def rows(self, port: int, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Take what came up from a link for a leaf."""
        yield from self._take(*self._entries[port], batch)

    def punctuate(self, port: int, mark: Mark) -> Iterator[GraphItem]:
        """Take a promise of a link for a leaf; a box where the leaf has two progressing columns."""
        yield from self._take(*self._entries[port], mark)

    def _take(self, place: int, port: int, item: GraphItem) -> Iterator[GraphItem]:
        operator = self.operators[place]
        items = operator.rows(port, item) if isinstance(item, pa.RecordBatch) else _punctuated(operator, port, item)
        for following in items:
            for reader, its_port in self._readers[place]:
                yield from self._take(reader, its_port, following)
            if place == len(self.operators) - 1:  # nodes stand behind those they read: the root is last
                yield self._result(following)

    def _result(self, item: GraphItem) -> GraphItem:
        if isinstance(item, pa.RecordBatch):
            self.results += item.num_rows
            return pa.RecordBatch.from_arrays(item.columns, schema=self.plan.schema)
        return item

    def snapshot(self) -> dict[str, pa.Table]:
        """State of all nodes."""
        return snapshot_of(self.operators)

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Take over the state of all nodes."""
        restore_to(self.operators, tables)

    def samples(self, newest: int) -> Samples:
        """Return counters and gauges; `newest` is the largest packet time seen on any link, in ns."""
        return samples_of(self, newest)


def _punctuated(operator: LeafOperator | GraphOperator, port: int, mark: Mark) -> Iterator[GraphItem]:
    if isinstance(operator, LeafOperator):
        assert not isinstance(mark, JointPunctuation), "links promise of their ts alone"
        return operator.punctuate(port, mark)
    return operator.punctuate(port, mark)
