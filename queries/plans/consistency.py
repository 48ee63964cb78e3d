"""WITH CONSISTENCY and EMIT: provisional results with corrections, as a plan with one leaf.

Leaf of partials ► Windowed          becomes         Leaf of provisional partials ► ChangingWindows
"""

from __future__ import annotations

from dataclasses import replace

from highlevel.aggregation import Aggregation
from highlevel.plan.nodes import ChangingWindows, Leaf, Sort, Windowed
from highlevel.plan.plan import Plan
from highlevel.speculation.consistency import FINAL, WEIGHT, Consistency
from highlevel.windows.kind import SlidingWindow
from lowlevel.expressions.tree import Column
from lowlevel.expressions.types import Type
from lowlevel.plan import NEWEST
from lowlevel.subaggregates import Kind, SubAggregate
from queries.text import tree
from queries.text.errors import QueryError
from queries.text.literals import duration_of
from queries.text.tree import Length, Parameter

LEVELS = {"STRONG": Consistency(wait=None), "MIDDLE": Consistency(), "WEAK": Consistency(remember=0)}


def bind_consistency(sql: str, clause: tree.Consistency) -> Consistency:
    """Bind the options. Raises QueryError for values that contradict each other."""
    if clause.level is not None:
        return LEVELS[clause.level.text.upper()]
    options = {option.name: option for option in clause.options}
    wait, remember, early = (_duration(sql, options.get(name)) for name in ("WAIT", "REMEMBER", "EARLY"))
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
    """Return the length of an option in ns; None without one, and for FOREVER."""
    if option is None or not isinstance(option.value, Length):
        return None
    return 0 if float(option.value.number) == 0 else duration_of(sql, option.value)


def with_consistency(query: tree.Query, plan: Plan) -> Plan:
    """Return the plan with the consistency that the query states. Raises QueryError if the query cannot have one."""
    sql, clause = query.sql, query.consistency
    assert clause is not None
    consistency = bind_consistency(sql, clause)
    node = _windows(sql, clause, plan if query.order is not None else _without_order_of_top(plan))
    leaf, aggregation = node.input, node.aggregation
    assert isinstance(leaf, Leaf)
    changes = clause.emit is not None and clause.emit.text.upper() == "CHANGES"
    if not changes:
        low = replace(aggregation.low, slack=consistency.remember)
        aggregation = replace(aggregation, low=low)
        return replace(plan, root=Windowed(replace(leaf, low=low), aggregation, node.time))
    _check_names(sql, clause, aggregation)
    newest = SubAggregate(NEWEST, Kind.MAX, Column("ts", Type.TIME))
    subaggregates = (*aggregation.counting_rows().low.subaggregates, newest)
    low = replace(aggregation.low, provisional=True, slack=consistency.remember, subaggregates=subaggregates)
    aggregation = replace(aggregation, low=low)
    return replace(plan, root=ChangingWindows(replace(leaf, low=low), aggregation, node.time, consistency))


def _without_order_of_top(plan: Plan) -> Plan:
    """Return a plan with HAVING top() without the order that it implies: changes have the order of their emission."""
    root = plan.root
    if not isinstance(root, Sort) or not isinstance(root.input, Windowed):
        return plan
    aggregation = root.input.aggregation
    select = tuple(out for out in aggregation.select if out.name not in root.hidden)
    return replace(plan, root=replace(root.input, aggregation=replace(aggregation, select=select)))


def _windows(sql: str, clause: tree.Consistency, plan: Plan) -> Windowed:
    """Return the windows of the query. Raises QueryError if its results cannot be corrected."""
    node = plan.root
    expected = "groups in windows over links: SELECT srcIP, count(*) [RANGE 1 minute] FROM packets GROUP BY srcIP"
    if not isinstance(node, Windowed) or plan.scan is None:
        what = "a query with ORDER BY, LIMIT, FILL, OVER, a join, a sub-query or rows without groups"
        raise _error(sql, clause, what, f"{expected}, without clauses after the groups")
    aggregation = node.aggregation
    if not aggregation.windowed or not isinstance(aggregation.window, SlidingWindow):
        raise _error(sql, clause, "a query without windows of time", expected)
    if aggregation.emit_late:
        raise _error(sql, clause, "LATE EMIT", "one of the two: EMIT CHANGES corrects results of late rows")
    if aggregation.foldings:
        raise _error(sql, clause, "approximate aggregates", "exact aggregates, for example count(DISTINCT x)")
    if aggregation.low.spread:
        raise _error(sql, clause, "SPREAD", "a window clause without SPREAD")
    return node


def _check_names(sql: str, clause: tree.Consistency, aggregation: Aggregation) -> None:
    """Raise QueryError for a column of the select list with the name of a column of changes."""
    for out in aggregation.select:
        if out.name.lower() in (WEIGHT, FINAL):
            raise _error(sql, clause, f"a column '{out.name}'", "another name: changes have a column of this name")


def _error(sql: str, clause: tree.Consistency, what: str, expected: str) -> QueryError:
    named = "EMIT CHANGES" if clause.keyword.text.upper() == "EMIT" else "WITH CONSISTENCY"
    return QueryError(f"{named} together with {what}", sql, clause.keyword.start, expected)
