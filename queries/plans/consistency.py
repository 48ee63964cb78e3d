"""WITH CONSISTENCY and EMIT: how long a plan waits and remembers. `queries.plans.changes` converts it to changes.

With EMIT CHANGES a late row is a correction of its window, so LATE EMIT only means that no row is too late: REMEMBER is
FOREVER, unless the query states REMEMBER.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

from highlevel.plan.lifetime_nodes import InstantRanks, OverlapJoin, Snapshots, TouchedWindows
from highlevel.plan.nodes import Leaf, Node, Windowed
from highlevel.plan.plan import Plan
from highlevel.speculation.consistency import FOREVER, Consistency
from queries.plans.changes import PlanChanges
from queries.plans.lifetimes import with_remember
from queries.text import tree
from queries.text.errors import QueryError
from queries.text.literals import duration_of
from queries.text.tree import Length, Parameter, Word

LEVELS = {"STRONG": Consistency(wait=None), "MIDDLE": Consistency(), "WEAK": Consistency(remember=0)}


def bind_consistency(sql: str, clause: tree.Consistency) -> Consistency:
    """Bind the options. Raises QueryError for values that contradict each other."""
    if clause.level is not None:
        return LEVELS[clause.level.text.upper()]
    options = {option.name: option for option in clause.options}
    wait, remember, early = (_duration(sql, options.get(name)) for name in ("WAIT", "REMEMBER", "EARLY"))
    if "REMEMBER" in options and remember is None:
        remember = FOREVER
    if "WAIT" not in options:
        wait = 0
    if wait is not None and remember is not None and wait > remember:
        expected = "a WAIT of at most REMEMBER: later rows are not used"
        raise QueryError("WAIT is longer than REMEMBER", sql, options["WAIT"].start, expected)
    if early is not None and wait is None:
        expected = "WAIT with a length of time, or no EARLY"
        raise QueryError("EARLY together with WAIT FOREVER", sql, options["EARLY"].keyword.start, expected)
    if early == 0:
        raise QueryError("EARLY 0", sql, options["EARLY"].start, "more than 0")
    return Consistency(wait, remember, early)


def _duration(sql: str, option: Parameter | None) -> int | None:
    """Return the length of an option in ns. Return None if it is missing or FOREVER."""
    if option is None or not isinstance(option.value, Length):
        return None
    return 0 if float(option.value.number) == 0 else duration_of(sql, option.value)


def apply_late_emit(query: tree.Query) -> tree.Query:
    """Remove LATE EMIT from a query with EMIT CHANGES. REMEMBER becomes FOREVER if the query does not state it."""
    clause = query.consistency
    assert clause is not None
    if clause.emit is None or clause.emit.text.upper() == "FINAL":
        return query
    changed = _without_late_emit(query)
    states = clause.level is not None or any(option.name == "REMEMBER" for option in clause.options)
    if changed == query or states:
        return changed
    forever = Parameter("REMEMBER", clause.keyword, Word("FOREVER", clause.keyword.start), clause.keyword.start)
    return replace(changed, consistency=replace(clause, options=(*clause.options, forever)))


def _without_late_emit(node: Any) -> Any:
    match node:
        case tree.Window(parameters=parameters):
            kept = (each for each in parameters if (each.name, each.value) != ("LATE", Word("EMIT", 0)))
            return replace(node, parameters=tuple(kept))
        case tuple():
            return tuple(map(_without_late_emit, node))
        case _ if is_dataclass(node) and not isinstance(node, type):
            return replace(node, **{part.name: _without_late_emit(getattr(node, part.name)) for part in fields(node)})
    return node


def with_consistency(query: tree.Query, plan: Plan) -> Plan:
    """Return the plan with the consistency that the query states. Raises QueryError if this query cannot have it."""
    clause = query.consistency
    assert clause is not None
    consistency = bind_consistency(query.sql, clause)
    if clause.emit is None or clause.emit.text.upper() == "FINAL":
        return replace(plan, root=plan.root.transform(lambda node: _with_slack(node, consistency.remember)))
    return replace(plan, root=PlanChanges(query, clause, consistency).root(plan.root))


def _with_slack(node: Node, slack: int | None) -> Node:
    """Set the allowed disorder `slack` of a leaf, or of windows over the partials of a leaf."""
    if isinstance(node, Leaf):
        return replace(node, low=replace(node.low, slack=slack))
    if isinstance(node, InstantRanks | OverlapJoin | Snapshots | TouchedWindows):
        return with_remember(node, slack)
    if isinstance(node, Windowed) and isinstance(node.input, Leaf):
        low = replace(node.aggregation.low, slack=slack)
        return replace(node, aggregation=replace(node.aggregation, low=low)) if node.input.low == low else node
    return node
