"""The operators of one query, and the counters of each query of a DAG."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from capture.metrics import Samples
from highlevel.metrics import CORRECTIONS, PARTIALS_RECEIVED, RESULT_ROWS, WINDOWS_CLOSED, set_progress
from highlevel.plan.node_operators import LinkUnion, MakeOperator, NodeOperators, make_operator
from highlevel.plan.nodes import Leaf
from highlevel.plan.operators.operator import AnyPunctuation, GraphItem, NodeOperator
from highlevel.plan.operators.windowed import WindowCounters
from highlevel.plan.plan import Plan
from highlevel.plan.registry import entry_of
from lowlevel.watch.watched_file import Watchlists


class Pipeline:
    """Runs one query's plan over any number of links. It is an operator. Not thread safe.

    Ports are numbered as those of `NodeOperators`. Results are returned as soon as they are final.
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
        """Unite the `links` of each leaf of the plan. Names may repeat (several files of one link).

        `make` makes the operators. `count_operators`: see `query_samples`. `count_closed`: count windows when they
        become final; False if several partitions have the same windows, and the caller takes their ids from `windowed`.
        `watchlists`: the open files, by default its own. `measure`: see `NodeOperators`. Raises ValueError for a leaf
        without links, whose windows would never be final.
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
    def windowed(self) -> Iterator[tuple[int, WindowCounters]]:
        """The operators of windows, each with the position of its node."""
        return self.nodes.windowed

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
        """Return counters and gauges. `newest` is the largest packet time of any link, in ns."""
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
    """Return counters and gauges of the query whose result is the root with the number `root`.

    `newest` is the largest packet time of any link, in ns. `count_operators`: count the work of each operator, by
    default if the plan has several. Queries that share an operator have equal counters of it.
    """
    if count_operators is None:
        count_operators = len(plan.nodes) - len(plan.leaves) > 1
    query, samples = plan.name, Samples()
    closed, windowed = 0, False
    positions = [nodes.positions[node] for node in plan.nodes]
    for node, name, position in zip(plan.nodes, plan.node_names, positions, strict=True):
        operator = nodes.operators[position]
        if isinstance(operator, LinkUnion):
            samples.add(PARTIALS_RECEIVED, operator.received, query)
        if not isinstance(node, Leaf):
            entry_of(node).count(samples, operator, query, name if count_operators else None)
        if isinstance(operator, WindowCounters):
            closed, windowed = closed + nodes.windows_closed[position], True
    if count_closed and windowed:
        samples.add(WINDOWS_CLOSED, closed, query)
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
            yield from zip(nodes.leaf_links[leaves.index(leaf)], operator.watermarks, strict=True)
