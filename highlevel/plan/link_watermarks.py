"""Watermarks of single links, for the nodes that can use them.

    links ──► union ──► Filter, Apply ──► AcceptedRuns           the watermark of all links: the minimum
      └── the watermark of each link ──────────┘                 no later row with this link is earlier

While one link is slow, the other links have later watermarks. An automaton uses them in two cases, if its rows have the
column `link` of a leaf:

* PARTITION BY contains the link. Then the rows of a link wait for its own watermark.
* Conditions of arcs contain links, and results are corrected (EMIT CHANGES). Then runs and rows are removed as soon as
  no later row of any link needs them (`highlevel.patterns.kernels.gaps`).
"""

from __future__ import annotations

from highlevel.aggregation import LINK
from highlevel.patterns.arc_links import links_of
from highlevel.patterns.kernels.gaps import MOST_STATES
from highlevel.plan.automaton_nodes import AcceptedRuns, ChangingAcceptedRuns
from highlevel.plan.change_nodes import is_changing
from highlevel.plan.nodes import PANE, Apply, Filter, Leaf, Node
from lowlevel.expressions.tree import Column


def link_source(node: Node) -> tuple[Leaf, str] | None:
    """Return the leaf that provides the rows of a node, and the column with their link.

    Return None if there are several leaves, or if the node lacks the link or the time of the leaf.
    """
    match node:
        case Leaf():
            first_names = [column.name for column in node.columns[:2]]
            return (node, LINK) if first_names == [LINK, PANE] and node.time_columns == (PANE,) else None
        case Filter():
            return link_source(node.input)
        case Apply():
            source = link_source(node.input)
            has_time = len(node.time_outputs) == 1 and all(
                (time.shift, time.length, time.step) == (0, 1, 1) for time in node.time_outputs
            )
            if source is None or not has_time:
                return None
            for output in node.outputs:
                if isinstance(output.expression, Column) and output.expression.name == source[1]:
                    return source[0], output.name
    return None


def link_of_partitions(node: AcceptedRuns) -> str | None:
    """Return the partition column with the link; None if rows of several links may be in one partition."""
    source = None if is_changing(node.input) else link_source(node.input)
    return source[1] if source is not None and source[1] in node.keys else None


def link_of_arcs(node: AcceptedRuns) -> str | None:
    """Return the column with the link that conditions of arcs read; None if no run can be removed earlier by it."""
    is_possible = (
        isinstance(node, ChangingAcceptedRuns)
        and node.consistency.wait is not None
        and node.rules is None
        and node.number is None
        and len(node.automaton.states) <= MOST_STATES
        and not is_changing(node.input)
    )
    source = link_source(node.input) if is_possible else None
    if source is None or source[1] in node.keys:
        return None
    name = source[1]
    return name if any(links_of(arc.fence, name) is not None for arc in node.automaton.arcs) else None
