"""The operators of one query. Each item moves along the edges of the plan as soon as an operator returns it.

    port of a leaf ──► Meld ──► operator ──► every operator that reads it ──► … ──► rows and watermarks of the root

A node that several nodes read runs once. Each of its items goes to all readers before the next item. So every edge
keeps the order of the items, and no watermark overtakes a row that it does not cover.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

import pyarrow as pa

from capture.metrics import Samples
from highlevel.metrics import PARTIALS_RECEIVED, RESULT_ROWS, WINDOWS_CLOSED, set_progress
from highlevel.operators.meld import Meld
from highlevel.operators.state import restore_to, snapshot_of
from highlevel.plan.nodes import Leaf, Node, Union, bound_count
from highlevel.plan.operators.counters import number_of
from highlevel.plan.operators.operator import AnyPunctuation, GraphItem, NodeOperator
from highlevel.plan.operators.union import UnionOperator
from highlevel.plan.operators.windowed import WindowedOperator
from highlevel.plan.plan import Plan
from highlevel.plan.registry import entry_of
from lowlevel.node.watching import bind
from lowlevel.watch.watched_file import Watchlists

MakeOperator = Callable[[Node, int], NodeOperator]
"""Make the operator of a node with the given number of input ports."""


class LinkUnion(Meld):
    """Meld over the links of a leaf, with counters of their rows."""

    bytes = 0
    received = 0

    def rows(self, port: int, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Count the rows and pass them on."""
        self.received += batch.num_rows
        return iter((batch,))

    def punctuate(self, port: int, punctuation: AnyPunctuation) -> Iterator[GraphItem]:
        """Return the watermark of all links if it has grown."""
        return super().punctuate(port, punctuation)  # type: ignore[arg-type]


class Pipeline:
    """Runs one query's plan over any number of links. It is an operator. Not thread safe.

    Ports are numbered over the leaves in their order and the links of each leaf. Rows of link i of the second leaf have
    the port len(links[0]) + i. Results are returned as soon as they are final.
    """

    def __init__(
        self,
        plan: Plan,
        links: Sequence[Sequence[str]],
        *,
        make: MakeOperator | None = None,
        count_operators: bool | None = None,
        count_closed: bool = True,
        watchlists: Watchlists | None = None,
    ) -> None:
        """Unite the `links` of each leaf of the plan. Names may repeat (several files of one link).

        `make` makes the operators, by default `make_operator`. `count_operators`: count the work of each operator, by
        default if the plan has several. `count_closed`: count windows when they become final; False if several
        partitions have the same windows, and the caller takes their ids from `windowed`. `watchlists`: the open files,
        by default its own. Raises ValueError for a leaf without links, whose windows would never be final.
        """
        for leaf, names in zip(plan.leaves, links, strict=True):
            if not names and len(plan.leaves) > 1:
                raise ValueError(f"query {plan.name}: no input for {', '.join(leaf.streams)}, expected at least one")
        self.plan = plan
        self.leaf_links = [list(names) for names in links]
        self.links = [name for names in links for name in names]
        """The link of each port."""
        self.results = 0
        self.windows_closed = 0
        self._count_closed = count_closed
        self._count_operators = len(plan.nodes) - len(plan.leaves) > 1 if count_operators is None else count_operators
        ports = {leaf: len(names) for leaf, names in zip(plan.leaves, links, strict=True)}
        make = make or make_operator
        self.operators = [
            make(bound, ports[node] if isinstance(node, Leaf) else len(node.inputs))
            for node, bound in zip(plan.nodes, bind(plan.nodes, watchlists or Watchlists()), strict=True)
        ]
        positions = {node: position for position, node in enumerate(plan.nodes)}
        self._readers: list[list[tuple[NodeOperator, int, int]]] = [[] for _ in plan.nodes]
        for position, node in enumerate(plan.nodes):
            for port, below in enumerate(node.inputs):
                self._readers[positions[below]].append((self.operators[position], position, port))
        firsts = accumulate([0, *map(len, links)])
        self._entries = [
            (positions[leaf], port - first)
            for leaf, first, names in zip(plan.leaves, firsts, links, strict=False)
            for port in range(first, first + len(names))
        ]

    @property
    def windowed(self) -> Iterator[tuple[int, WindowedOperator]]:
        """The operators of windows, each with the position of its node."""
        return ((n, operator) for n, operator in enumerate(self.operators) if isinstance(operator, WindowedOperator))

    @property
    def leaf_operators(self) -> list[NodeOperator]:
        """The operator of each leaf."""
        return [self.operators[self.plan.nodes.index(leaf)] for leaf in self.plan.leaves]

    @property
    def state_bytes(self) -> int:
        """Bytes of the state of all operators."""
        return sum(operator.bytes for operator in self.operators)

    @property
    def pairs(self) -> int:
        """Pairs of rows in each other's windows with equal keys, of all joins."""
        return sum(getattr(operator, "pairs", 0) for operator in self.operators)

    def rows(self, port: int, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Process rows of a link for a leaf."""
        position, port = self._entries[port]
        return self._forward(position, self.operators[position].rows(port, batch))

    def punctuate(self, port: int, punctuation: AnyPunctuation) -> Iterator[GraphItem]:
        """Process a watermark of a link for a leaf, a joint watermark if the leaf has two time columns."""
        position, port = self._entries[port]
        return self._forward(position, self.operators[position].punctuate(port, punctuation))

    def _forward(self, position: int, items: Iterator[GraphItem]) -> Iterator[GraphItem]:
        """Send the items of an operator to the operators that read it. Return the items of the root."""
        readers, source = self._readers[position], self.operators[position]
        for item in self._counted(source, items) if isinstance(source, WindowedOperator) else items:
            if not readers:
                yield self._result(item)
            for operator, reader, port in readers:
                following = (
                    operator.rows(port, item) if isinstance(item, pa.RecordBatch) else operator.punctuate(port, item)
                )
                yield from self._forward(reader, following)

    def _counted(self, operator: WindowedOperator, items: Iterator[GraphItem]) -> Iterator[GraphItem]:
        """Yield the items of an operator. Count the windows that it has closed before each item and at the end."""
        if not self._count_closed:
            yield from items
            return
        for item in items:
            self.windows_closed += number_of(operator.take_closed_windows())
            yield item
        self.windows_closed += number_of(operator.take_closed_windows())

    def _result(self, item: GraphItem) -> GraphItem:
        if not isinstance(item, pa.RecordBatch):
            return item
        self.results += item.num_rows
        schema = self.plan.schema
        return item if item.schema.equals(schema) else pa.RecordBatch.from_arrays(item.columns, schema=schema)

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the state of all nodes."""
        return snapshot_of(self.operators)

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the state of all nodes."""
        restore_to(self.operators, tables)

    def samples(self, newest: int) -> Samples:
        """Return counters and gauges. `newest` is the largest packet time of any link, in ns."""
        query, samples = self.plan.name, Samples()
        for node, name, operator in zip(self.plan.nodes, self.plan.node_names, self.operators, strict=True):
            if isinstance(operator, LinkUnion):
                samples.add(PARTIALS_RECEIVED, operator.received, query)
            if not isinstance(node, Leaf):
                entry_of(node).count(samples, operator, query, name if self._count_operators else None)
        if self._count_closed and any(self.windowed):
            samples.add(WINDOWS_CLOSED, self.windows_closed, query)
        samples.add(RESULT_ROWS, self.results, query)
        set_progress(samples, query, self._bounds(), newest)
        return samples

    def _bounds(self) -> Iterator[tuple[str, int]]:
        """Yield the link and the watermark of each port of a link."""
        for links, operator in zip(self.leaf_links, self.leaf_operators, strict=True):
            if isinstance(operator, LinkUnion):
                yield from zip(links, operator.bounds, strict=True)


def make_operator(node: Node, ports: int = 1, *, finite: bool = False) -> NodeOperator:
    """Make the operator of a node, `finite` if all rows arrive before the first watermark.

    The operator of a leaf unites the `ports`. Only a leaf that reads another fragment receives joint watermarks.
    """
    if isinstance(node, Leaf):
        return LinkUnion(ports) if bound_count(node) == 1 else UnionOperator(Union((node,) * ports))
    entry = entry_of(node)
    return entry.finite(node) if finite and entry.finite is not None else entry.operator(node)


def make_finite_operator(node: Node, ports: int) -> NodeOperator:
    """Make the operator of a node whose rows all arrive before the first watermark."""
    return make_operator(node, ports, finite=True)
