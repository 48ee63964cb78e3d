"""The operators of a DAG of nodes. Each item moves along the edges as soon as an operator returns it.

    port of a leaf ──► Meld ──► operator ──► every operator that reads it ──► … ──► rows and watermarks of the roots

The roots are the results of queries. A node runs once, also if several nodes or several queries read it. Each item of
the node goes to all readers before the next item. So every edge keeps the order of the items, and no watermark
overtakes a row that it does not cover. Nodes that use the watermarks of single links (`highlevel.plan.link_watermarks`)
receive them after the watermark of all links.

A `Pipeline` runs the nodes of one query. `query_samples` returns the counters of one query of a DAG.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any

import pyarrow as pa

from capture.metrics import Samples
from highlevel.metrics import CORRECTIONS, PARTIALS_RECEIVED, RESULT_ROWS, WINDOWS_CLOSED, set_progress
from highlevel.operators.meld import Meld
from highlevel.operators.state import restore_to, snapshot_of
from highlevel.plan.change_nodes import is_changing
from highlevel.plan.measurement import Measurement
from highlevel.plan.nodes import Leaf, Node, Union, bound_count, nodes_of
from highlevel.plan.operators.counters import window_count
from highlevel.plan.operators.operator import AnyPunctuation, GraphItem, LinkWatermarkReader, NodeOperator
from highlevel.plan.operators.union import UnionOperator
from highlevel.plan.operators.windowed import WindowCounters
from highlevel.plan.plan import Plan
from highlevel.plan.registry import entry_of
from highlevel.speculation.changes import count_withdrawn
from lowlevel.node.node_watchlists import bind_watchlists
from lowlevel.plan import ARROW_TYPES
from lowlevel.watch.watched_file import Watchlists

MakeOperator = Callable[[Node, int], NodeOperator]
"""Make the operator of a node with the given number of input ports."""

RootItem = tuple[int, GraphItem]
"""The index of a root, and an item of its result."""


class LinkUnion(Meld):
    """Merges the links of a leaf (Meld), and counts their rows."""

    bytes = 0
    received = 0

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Count the rows and return them."""
        self.received += batch.num_rows
        return iter((batch,))

    def punctuate(self, port: int, punctuation: AnyPunctuation) -> Iterator[GraphItem]:
        """Return the watermark of all links if it has grown."""
        return super().punctuate(port, punctuation)  # type: ignore[arg-type]


def make_operator(node: Node, ports: int = 1, *, is_finite: bool = False) -> NodeOperator:
    """Make the operator of a node, `is_finite` if all rows arrive before the first watermark.

    The operator of a leaf merges the `ports`. Only a leaf that reads another fragment receives joint watermarks.
    """
    if isinstance(node, Leaf):
        return LinkUnion(ports) if bound_count(node) == 1 else UnionOperator(Union((node,) * ports))
    entry = entry_of(node)
    return entry.finite(node) if is_finite and entry.finite is not None else entry.operator(node)


def make_finite_operator(node: Node, ports: int) -> NodeOperator:
    """Make the operator of a node whose rows all arrive before the first watermark."""
    return make_operator(node, ports, is_finite=True)


class NodeOperators:
    """Runs the nodes below some roots over any number of links. Not thread safe.

    Ports are numbered over the leaves in the order of `nodes`, and the links of each leaf. Rows of link i of the second
    leaf have the port len(links[0]) + i. Results are returned as soon as they are final.
    """

    def __init__(
        self,
        roots: Sequence[Node],
        links: Sequence[Sequence[str]],
        *,
        make: MakeOperator = make_operator,
        count_closed: bool = True,
        watchlists: Watchlists | None = None,
        measure: bool = False,
    ) -> None:
        """Merge the `links` of each leaf. Names may repeat (several files of one link).

        `count_closed`: count windows when they become final. `watchlists`: the open files, by default its own.
        `measure`: fill `measurements`.
        """
        self.nodes = nodes_of(*roots)
        """Every node once, inputs first."""
        self.leaf_links = [list(names) for names in links]
        self.links = [name for names in links for name in names]
        """The link of each port."""
        leaves = [node for node in self.nodes if isinstance(node, Leaf)]
        ports = {leaf: len(names) for leaf, names in zip(leaves, links, strict=True)}
        self.operators = [
            make(bound, ports[node] if isinstance(node, Leaf) else len(node.inputs))
            for node, bound in zip(self.nodes, bind_watchlists(self.nodes, watchlists or Watchlists()), strict=True)
        ]
        self.positions = {node: position for position, node in enumerate(self.nodes)}
        """The position of each node in `nodes` and `operators`."""
        self.results = [0] * len(roots)
        """Number of rows returned for each root."""
        self.withdrawn = [0] * len(roots)
        """Number of rows of each root that were returned and then withdrawn."""
        self.windows_closed = [0] * len(self.nodes)
        """Number of windows that the operator of each node has closed."""
        self.measurements = [Measurement() for _ in self.nodes] if measure else []
        """The measurement of each node's operator; empty without `measure`."""
        self._count_closed = count_closed
        self._closes_windows = [isinstance(operator, WindowCounters) for operator in self.operators]
        self._schemas = [
            pa.schema([pa.field(column.name, ARROW_TYPES[column.type]) for column in root.columns]) for root in roots
        ]
        self._are_changes = [is_changing(root) for root in roots]
        self._roots: list[list[int]] = [[] for _ in self.nodes]
        for index, root in enumerate(roots):
            self._roots[self.positions[root]].append(index)
        self._readers: list[list[tuple[NodeOperator, int, int]]] = [[] for _ in self.nodes]
        for position, node in enumerate(self.nodes):
            for port, below in enumerate(node.inputs):
                self._readers[self.positions[below]].append((self.operators[position], position, port))
        firsts = accumulate([0, *map(len, links)])
        self._leaf_ports = [
            (self.positions[leaf], port - first)
            for leaf, first, names in zip(leaves, firsts, links, strict=False)
            for port in range(first, first + len(names))
        ]
        self._link_readers: dict[int, list[int]] = {}
        """For the position of a leaf: the positions of the nodes that use the watermarks of its links."""
        for position, (node, operator) in enumerate(zip(self.nodes, self.operators, strict=True)):
            if isinstance(operator, LinkWatermarkReader) and operator.uses_links:
                from highlevel.plan.link_watermarks import link_source  # few plans need this module

                source = link_source(node.inputs[0])
                assert source is not None, node
                self._link_readers.setdefault(self.positions[source[0]], []).append(position)

    @property
    def window_operators(self) -> Iterator[tuple[int, WindowCounters]]:
        """The operators of windows, each with the position of its node."""
        return ((n, operator) for n, operator in enumerate(self.operators) if isinstance(operator, WindowCounters))

    @property
    def state_bytes(self) -> int:
        """Bytes of the state of all operators."""
        return sum(operator.bytes for operator in self.operators)

    @property
    def pairs(self) -> int:
        """Pairs of rows in each other's windows with equal keys, of all joins."""
        return sum(getattr(operator, "pairs", 0) for operator in self.operators)

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[RootItem]:
        """Process rows of a link for a leaf."""
        position, port = self._leaf_ports[port]
        return self._forward(position, self.operators[position].process_rows(port, batch))

    def punctuate(self, port: int, punctuation: AnyPunctuation) -> Iterator[RootItem]:
        """Process a watermark of a link for a leaf, a joint watermark if the leaf has two time columns."""
        position, leaf_port = self._leaf_ports[port]
        yield from self._forward(position, self.operators[position].punctuate(leaf_port, punctuation))
        for reader in self._link_readers.get(position, ()):
            operator, union = self.operators[reader], self.operators[position]
            assert isinstance(operator, LinkWatermarkReader), operator
            assert isinstance(union, LinkUnion), union
            link, first = self.links[port], port - leaf_port
            names = self.links[first : first + len(union.input_watermarks)]
            watermark = min(low for name, low in zip(names, union.input_watermarks, strict=True) if name == link)
            yield from self._forward(reader, operator.punctuate_link(link, watermark))

    def _forward(self, position: int, items: Iterator[GraphItem]) -> Iterator[RootItem]:
        """Send the items of an operator to the operators that read it. Yield the items of roots."""
        readers, roots, source = self._readers[position], self._roots[position], self.operators[position]
        if self.measurements:
            items = self.measurements[position].measure(source, items)
        for item in self._count_closed_windows(position, items) if self._closes_windows[position] else items:
            for root in roots:
                yield root, self._make_result(root, item)
            for operator, reader, port in readers:
                following = (
                    operator.process_rows(port, item)
                    if isinstance(item, pa.RecordBatch)
                    else operator.punctuate(port, item)
                )
                yield from self._forward(reader, following)

    def _count_closed_windows(self, position: int, items: Iterator[GraphItem]) -> Iterator[GraphItem]:
        """Yield the items of an operator. Count the windows that it has closed before each item and at the end."""
        if not self._count_closed:
            yield from items
            return
        operator: Any = self.operators[position]
        for item in items:
            self.windows_closed[position] += window_count(operator.take_closed_windows())
            yield item
        self.windows_closed[position] += window_count(operator.take_closed_windows())

    def _make_result(self, root: int, item: GraphItem) -> GraphItem:
        if not isinstance(item, pa.RecordBatch):
            return item
        self.results[root] += item.num_rows
        if self._are_changes[root]:
            self.withdrawn[root] += count_withdrawn(item)
        schema = self._schemas[root]
        return item if item.schema.equals(schema) else pa.RecordBatch.from_arrays(item.columns, schema=schema)

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the state of all nodes."""
        return snapshot_of(self.operators)

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the state of all nodes."""
        restore_to(self.operators, tables)


class Pipeline:
    """Runs one query's plan over any number of links. It is an operator. Not thread safe.

    Ports are numbered as in `NodeOperators`. Results are returned as soon as they are final.
    """

    def __init__(
        self,
        plan: Plan,
        links: Sequence[Sequence[str]],
        *,
        make: MakeOperator = make_operator,
        count_operators: bool | None = None,
        count_closed: bool = True,
        watchlists: Watchlists | None = None,
        measure: bool = False,
    ) -> None:
        """Merge the `links` of each leaf of the plan. Names may repeat (several files of one link).

        `make` makes the operators. `count_operators`: see `query_samples`. `count_closed`: count windows when they
        become final; False if several partitions have the same windows, and the caller takes the window ids from
        `window_operators`. `watchlists`: the open files, by default its own. `measure`: see `NodeOperators`. Raises
        ValueError for a leaf without links, whose windows would never be final.
        """
        check_links(plan, links)
        self.plan = plan
        self.count_operators = count_operators
        self.count_closed = count_closed
        self.nodes = NodeOperators(
            [plan.root], links, make=make, count_closed=count_closed, watchlists=watchlists, measure=measure
        )
        self.operators = self.nodes.operators
        self.links = self.nodes.links
        """The link of each port."""

    @property
    def window_operators(self) -> Iterator[tuple[int, WindowCounters]]:
        """The operators of windows, each with the position of its node."""
        return self.nodes.window_operators

    @property
    def leaf_operators(self) -> list[NodeOperator]:
        """The operator of each leaf."""
        return [self.operators[self.plan.nodes.index(leaf)] for leaf in self.plan.leaves]

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Process rows of a link for a leaf."""
        return (item for _, item in self.nodes.process_rows(port, batch))

    def punctuate(self, port: int, punctuation: AnyPunctuation) -> Iterator[GraphItem]:
        """Process a watermark of a link for a leaf, a joint watermark if the leaf has two time columns."""
        return (item for _, item in self.nodes.punctuate(port, punctuation))

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the state of all nodes."""
        return self.nodes.snapshot()

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the state of all nodes."""
        self.nodes.restore(tables)

    def samples(self, newest: int) -> Samples:
        """Return counters and gauges. `newest` is the maximum packet time of all links, in ns."""
        return query_samples(self.nodes, self.plan, newest, self.count_operators, self.count_closed)


def check_links(plan: Plan, links: Sequence[Sequence[str]]) -> None:
    """Raise ValueError for a leaf of several without `links`."""
    for leaf, names in zip(plan.leaves, links, strict=True):
        if not names and len(plan.leaves) > 1:
            raise ValueError(f"query {plan.name}: no input for {', '.join(leaf.names)}, expected at least one")


def query_samples(
    nodes: NodeOperators,
    plan: Plan,
    newest: int,
    count_operators: bool | None = None,
    count_closed: bool = True,
    root: int = 0,
) -> Samples:
    """Return counters and gauges of the query whose result is the root with the index `root`.

    `newest` is the maximum packet time of all links, in ns. `count_operators`: count the work of each operator; by
    default True if the plan has several operators. Queries that share an operator have equal counters of it.
    """
    if count_operators is None:
        count_operators = len(plan.nodes) - len(plan.leaves) > 1
    query, samples = plan.name, Samples()
    closed_windows, has_windows = 0, False
    positions = [nodes.positions[node] for node in plan.nodes]
    for node, name, position in zip(plan.nodes, plan.node_names, positions, strict=True):
        operator = nodes.operators[position]
        if isinstance(operator, LinkUnion):
            samples.add(PARTIALS_RECEIVED, operator.received, query)
        if not isinstance(node, Leaf):
            entry_of(node).count(samples, operator, query, name if count_operators else None)
        if isinstance(operator, WindowCounters):
            closed_windows, has_windows = closed_windows + nodes.windows_closed[position], True
    if count_closed and has_windows:
        samples.add(WINDOWS_CLOSED, closed_windows, query)
    samples.add(RESULT_ROWS, nodes.results[root], query)
    if plan.has_changes:
        samples.add(CORRECTIONS, nodes.withdrawn[root], query)
    set_progress(samples, query, _bounds(nodes, plan), newest)
    return samples


def _bounds(nodes: NodeOperators, plan: Plan) -> Iterator[tuple[str, int]]:
    """Yield the link and the watermark of each port of a link that the query reads."""
    leaves = [node for node in nodes.nodes if isinstance(node, Leaf)]
    for leaf in plan.leaves:
        operator = nodes.operators[nodes.positions[leaf]]
        if isinstance(operator, LinkUnion):
            yield from zip(nodes.leaf_links[leaves.index(leaf)], operator.input_watermarks, strict=True)
