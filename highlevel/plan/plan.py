"""A query as a graph: what engines run beside plans of one list of streams."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa

from highlevel.aggregation import LeafPlan, QueryPlan
from highlevel.plan.nodes import Apply, Distinct, Join, Leaf, Node, PairGroups, Select, Union, Windowed
from highlevel.windows.kind import WHOLE_INPUT, AnyWindow
from lowlevel.expressions.types import Type
from lowlevel.layers import Layer
from lowlevel.plan import ARROW_TYPES


@dataclass(frozen=True)
class GraphPlan:
    """One query whose results are those of `root`. Immutable and picklable."""

    name: str
    sql: str
    root: Node
    layer: str = Layer.OUTER

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """Every node once, inputs before those that read them."""
        return tuple(below(self.root))

    @cached_property
    def node_names(self) -> tuple[str, ...]:
        """What the nodes are called in counters, in the order of `nodes`: their kinds, numbered where several are one.

        >>> from lowlevel.plan import LowLevelPlan
        >>> leaf = Leaf("q", ("a",), LowLevelPlan(None, (), (), 1, reduced=False))
        >>> GraphPlan("q", "", Union((leaf, replace(leaf, streams=("b",))))).node_names
        ('leaf 1', 'leaf 2', 'union')
        """
        kinds = [type(node).__name__.lower() for node in self.nodes]
        many, seen = Counter(kinds), Counter[str]()
        names = []
        for kind in kinds:
            seen[kind] += 1
            names.append(f"{kind} {seen[kind]}" if many[kind] > 1 else kind)
        return tuple(names)

    @property
    def joins_without_key(self) -> tuple[Join, ...]:
        """The joins that test every pair of rows in each other's windows, since no equality joins their sides."""
        return tuple(node for node in self.nodes if isinstance(node, Join) and not node.spec.keys)

    @cached_property
    def leaves(self) -> tuple[Leaf, ...]:
        """What is read of links, in the order of `nodes`."""
        return tuple(node for node in self.nodes if isinstance(node, Leaf))

    @property
    def streams(self) -> tuple[str, ...]:
        """The names in FROM of all leaves."""
        return tuple(dict.fromkeys(stream for leaf in self.leaves for stream in leaf.streams))

    @property
    def windowed(self) -> bool:
        """Whether results carry `window_start, window_end`."""
        return self.shown is not None and self.shown.windowed

    @property
    def window(self) -> AnyWindow:
        """The window of the results; the whole input where they have none."""
        return WHOLE_INPUT if self.shown is None else self.shown.window

    @cached_property
    def shown(self) -> QueryPlan | None:
        """The plan whose windows the results are, by this query's name; None where they are rows without a window."""
        if not isinstance(self.root, Windowed):
            return None
        return replace(self.root.plan, name=self.name, sql=self.sql)

    @property
    def times(self) -> frozenset[str]:
        """The columns of the results that are times in ns."""
        return frozenset(column.name for column in self.root.columns if column.type is Type.TIME)

    @cached_property
    def schema(self) -> pa.Schema:
        """Schema of the results."""
        return pa.schema([pa.field(column.name, ARROW_TYPES[column.type]) for column in self.root.columns])

    def counting_rows(self) -> GraphPlan:
        """Return this plan with count(*) among the sub-aggregates of windows, so that late rows can be counted."""
        return replace(self, root=counting(self.root))


AnyPlan = QueryPlan | GraphPlan
"""What engines run."""


def leaves_of(plans: Iterable[AnyPlan]) -> list[LeafPlan]:
    """Return the leaves of all plans."""
    return [leaf for plan in plans for leaf in plan.leaves]


def named_leaves(plan: AnyPlan) -> list[LeafPlan]:
    """Return the leaves of a plan, each by a name of its own: that of the query, and a number where it has several.

    So a low-level node that knows nothing of queries tells apart what it reduces, and who reads its spool finds it.
    """
    if isinstance(plan, QueryPlan) or len(plan.leaves) == 1:
        return [*plan.leaves]
    return [replace(leaf, name=f"{leaf.name} {number}") for number, leaf in enumerate(plan.leaves, 1)]


def below(node: Node, known: set[Node] | None = None) -> Iterator[Node]:
    """Yield a node's inputs, theirs first, and the node: each once, and none that is `known`.

    >>> from lowlevel.plan import LowLevelPlan
    >>> leaf = Leaf("q", ("a",), LowLevelPlan(None, (), (), 1, reduced=False))
    >>> [type(each).__name__ for each in below(Union((leaf, leaf)))]
    ['Leaf', 'Union']
    """
    known = set() if known is None else known
    if node in known:
        return
    for each in node.inputs:
        yield from below(each, known)
    known.add(node)
    yield node


def counting(node: Node) -> Node:
    """Return a node whose windows, and those below it, count the rows of each group."""
    match node:
        case Leaf():
            return node
        case Windowed():
            plan = node.plan.counting_rows()
            low = replace(node.input, low=plan.low) if isinstance(node.input, Leaf) and node.takes_partials else None
            return replace(node, input=low or counting(node.input), plan=plan)
        case Union():
            return replace(node, inputs=tuple(map(counting, node.inputs)))
        case Join():
            return replace(node, left=counting(node.left), right=counting(node.right))
        case Select() | Apply() | Distinct() | PairGroups():
            return replace(node, input=counting(node.input))
