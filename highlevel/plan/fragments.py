"""A graph cut into fragments that partitions run by themselves: what several processes share a query by.

Rows are *dealt* to partitions by the values of some expressions. A join needs rows of equal keys in one partition, an
aggregate those of one group. An edge is cut where what a node needs is not how its input is dealt already:

    leaf ──(keys)──► join ──► apply ──┊(group)──► windowed          ┊ rows are dealt anew

What stands between cuts is a *fragment*: a graph of its own, whose leaves are what it is handed. Every partition runs
every fragment; a fragment of level n is handed rows by links and by fragments below n, of every partition, and unites
their promises: no partition is waited for but by what reads it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from highlevel.aggregation import LINK
from highlevel.joins.spec import JoinKind
from highlevel.plan.nodes import PANE, Apply, Distinct, Join, Leaf, Node, PairGroups, Select, Union, Windowed
from highlevel.plan.partitioning import Deal, bare, hashed_alike, kept, serves, shown, substituted
from highlevel.plan.plan import AnyPlan, GraphPlan
from lowlevel.expressions.tree import Column, Expression
from lowlevel.expressions.types import Type
from lowlevel.plan import LowLevelPlan


@dataclass(frozen=True)
class Handed(Leaf):
    """A leaf of a fragment: the rows of a `Source`, by its `number`. They have come up already: `low` is empty."""

    number: int = 0
    handed: tuple[Column, ...] = ()
    handed_progress: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[Column, ...]:
        """Those of the node whose rows these are."""
        return self.handed

    @property
    def progress(self) -> tuple[str, ...]:
        """That of the node whose rows these are."""
        return self.handed_progress


@dataclass(frozen=True)
class Source:
    """Whose rows a fragment is handed: those of a leaf of the query, or of a fragment, dealt by `deal`."""

    leaf: int | None
    fragment: int | None
    deal: Deal


@dataclass(frozen=True)
class Stages:
    """A query in fragments, those that are handed something behind those that hand it; the last has the results.

    A query that is no graph is its own fragment, handed by links what they reduced.
    """

    plan: AnyPlan
    sources: tuple[Source, ...]
    fragments: tuple[AnyPlan, ...]

    @cached_property
    def levels(self) -> tuple[int, ...]:
        """The level of each fragment: 0 where it is handed rows of links alone."""
        found: list[int] = []
        for fragment in self.fragments:
            below = [self.sources[each].fragment for each in self.handed(fragment)]
            found.append(max((found[number] + 1 for number in below if number is not None), default=0))
        return tuple(found)

    @staticmethod
    def handed(fragment: AnyPlan) -> list[int]:
        """Return the numbers of the sources of a fragment, in the order of its leaves."""
        return [leaf.number if isinstance(leaf, Handed) else 0 for leaf in fragment.leaves]

    def needed(self, source: int) -> int:
        """Return the highest level at which the rows of a source are taken."""
        takers = zip(self.fragments, self.levels, strict=True)
        return max(level for fragment, level in takers if source in self.handed(fragment))


def cut(plan: AnyPlan) -> Stages:
    """Cut a query into fragments."""
    if not isinstance(plan, GraphPlan):
        types = {key.name: key.expression.type for key in plan.low.keys}
        deal = tuple(Column(name, types.get(name, Type.TEXT)) for name in plan.parted_by)
        return Stages(plan, (Source(0, None, deal),), (plan,))
    cutter = _Cutter(plan)
    root, _ = cutter.placed(plan.root, None)
    cutter.fragment(root)
    return Stages(plan, tuple(cutter.sources), tuple(cutter.fragments))


class _Cutter:
    """Walks from the root to the leaves, and back with how each node's rows are dealt."""

    def __init__(self, plan: GraphPlan) -> None:
        self.plan = plan
        self.sources: list[Source] = []
        self.fragments: list[GraphPlan] = []

    def fragment(self, root: Node) -> int:
        """Take a fragment, once; return its number."""
        made = GraphPlan(self.plan.name, self.plan.sql, root, self.plan.layer)
        if made not in self.fragments:
            self.fragments.append(made)
        return self.fragments.index(made)

    def _handed(self, node: Node, source: Source) -> Handed:
        if source not in self.sources:
            self.sources.append(source)
        number = self.sources.index(source)
        nothing = LowLevelPlan(None, (), (), 1, reduced=False)
        return Handed(self.plan.name, (), nothing, self.plan.layer, number, node.columns, node.progress)

    def placed(self, node: Node, wanted: Deal | None) -> tuple[Node, tuple[Deal, ...]]:
        """Return `node` over what it is handed, and ways in which its rows are dealt; as `wanted` is one of them."""
        made, dealt = self._made(node, wanted)
        if wanted is None or any(serves(deal, wanted) for deal in dealt):
            return made, dealt
        source = Source(None, self.fragment(made), wanted)
        return self._handed(node, source), (wanted,)

    def exactly(self, node: Node, wanted: Deal) -> Node:
        """Return `node`, dealt by just these expressions: what the other side of a join is dealt by."""
        made, dealt = self._made(node, wanted)
        if wanted in dealt:
            return made
        return self._handed(node, Source(None, self.fragment(made), wanted))

    def _made(self, node: Node, wanted: Deal | None) -> tuple[Node, tuple[Deal, ...]]:
        match node:
            case Leaf():
                deal = bare(each for each in node.columns if each.name == PANE) if wanted is None else wanted
                return self._handed(node, Source(self.plan.leaves.index(node), None, deal)), (deal,)
            case Select():
                made, dealt = self.placed(node.input, wanted)
                return replace(node, input=made), dealt
            case Apply():
                return self._apply(node, wanted)
            case Union():
                placed = [self.placed(each, wanted) for each in node.inputs]
                common = tuple(deal for deal in placed[0][1] if all(deal in dealt for _, dealt in placed))
                if wanted is not None and wanted in common:
                    common = (wanted,)
                return replace(node, inputs=tuple(made for made, _ in placed)), common
            case Join():
                return self._join(node)
            case Distinct():
                by = bare(column for column in node.columns if column.name in node.keys)
                made, dealt = self.placed(node.input, by)
                return replace(node, input=made), dealt
            case Windowed() | PairGroups():
                return self._groups(node)

    def _apply(self, node: Apply, wanted: Deal | None) -> tuple[Node, tuple[Deal, ...]]:
        by_name = {out.name: out.expression for out in node.outputs}
        below = None if wanted is None else bare(substituted(each, by_name) for each in wanted)
        made, dealt = self.placed(node.input, below)
        ways = [found for deal in dealt if (found := shown(deal, node.outputs)) is not None]
        if wanted is not None and below in dealt:
            ways.insert(0, wanted)
        return replace(node, input=made), tuple(dict.fromkeys(ways))

    def _join(self, node: Join) -> tuple[Node, tuple[Deal, ...]]:
        spec = node.spec
        lefts = bare(hashed_alike(left, right) for left, right in spec.keys)
        rights = bare(hashed_alike(right, left) for left, right in spec.keys)
        found = []
        if spec.kind not in (JoinKind.RIGHT, JoinKind.FULL):  # a key that a row lacks says nothing of where it is
            found.append(kept(lefts, spec.left))
        if spec.kind not in (JoinKind.LEFT, JoinKind.FULL) and not spec.kind.of_left_alone:
            found.append(kept(rights, spec.right))
        made = replace(node, left=self.exactly(node.left, lefts), right=self.exactly(node.right, rights))
        return made, tuple(deal for deal in found if deal is not None)

    def _groups(self, node: Windowed | PairGroups) -> tuple[Node, tuple[Deal, ...]]:
        plan = node.plan
        if isinstance(node, Windowed):
            parted_by = plan.parted_by
        elif plan.selections:  # groups of the same times are compared
            parted_by = tuple(name for _, _, name in node.times)
        else:
            parted_by = plan.group_by
        keys: dict[str, Expression] = {LINK: Column(LINK, Type.TEXT)}
        for key in plan.low.keys:
            of_partials = isinstance(node, Windowed) and node.takes_partials
            (keys[key.name],) = bare([Column(key.name, key.expression.type) if of_partials else key.expression])
        made, dealt = self.placed(node.input, tuple(keys[name] for name in parted_by))
        if isinstance(node, Windowed) and node.takes_partials:
            assert isinstance(made, Handed), "a leaf is handed"
            made = replace(made, low=plan.low)
        names = {keys[name]: name for name in parted_by}
        ways: list[Deal] = []
        for deal in dealt:
            columns = tuple(Column(names[each], each.type) for each in deal if each in names)
            found = shown(columns, plan.select) if len(columns) == len(deal) else None
            if found is not None:
                ways.append(found)
        return replace(node, input=made), tuple(ways)
