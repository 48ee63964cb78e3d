"""The links whose rows can satisfy an arc, and the watermark of an arc (Chandramouli et al., 2010, Appendix F).

    fence              link = 'edge' AND len > 1000      only rows of the link `edge`
    watermark          of `edge`                         also while the watermark of another link is much earlier

A watermark of one link is a predicated punctuation: no later row with this link is earlier.
"""

from __future__ import annotations

from collections.abc import Mapping

from highlevel.patterns.automaton import Arc
from lowlevel.expressions.tree import Binary, Column, Expression, InList, Literal
from lowlevel.expressions.types import Op
from lowlevel.punctuation import END


def links_of(fence: Expression, column: str) -> frozenset[str] | None:
    """Return the links of rows that can satisfy a fence, None for all links. `column` contains the link of a row."""
    match fence:
        case Binary(Op.AND, left, right):
            one, other = links_of(left, column), links_of(right, column)
            return one & other if one is not None and other is not None else one if other is None else other
        case Binary(Op.OR, left, right):
            one, other = links_of(left, column), links_of(right, column)
            return None if one is None or other is None else one | other
        case Binary(Op.EQ, Column(name), Literal(str(value))) | Binary(Op.EQ, Literal(str(value)), Column(name)):
            return frozenset([value]) if name == column else None
        case InList(Column(name), literals) if name == column:
            return frozenset(str(literal.value) for literal in literals)
    return None


def arc_watermark(arc: Arc, column: str, links: Mapping[str, int], low: int) -> int:
    """Return the time before which no later row satisfies an arc.

    `links`: the watermarks of links; the others have at least the watermark `low` of all links.
    """
    names = links_of(arc.fence, column)
    return low if names is None else min((max(low, links.get(name, low)) for name in names), default=END)
