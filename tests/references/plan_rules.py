"""Switches for the rules of the planner, and plans as text.

A switch replaces the function that applies a rule. Without the rule a plan is literal: WHERE is above all joins, and
each query has a table. So the answers with and without the rule come from different plans.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from dashboards.commands.explain import explain_text
from highlevel.plan.nodes import Filter
from highlevel.plan.plan import Plan
from lowlevel.expressions import predicate
from lowlevel.expressions.predicate import Condition, IntervalTest
from lowlevel.expressions.tree import Expression
from lowlevel.node import node as low_level_node
from lowlevel.plan import LowLevelPlan
from lowlevel.subaggregates import INT_MAX, INT_MIN
from lowlevel.table import sharing
from queries.explain.plan import graph_lines
from queries.gsql import compile_query
from queries.plans import joins
from queries.plans.conjuncts import conjuncts
from queries.plans.relations import LinkRelation, RelationNode, UnionRelation, conjunction, names_in, rename_columns
from queries.text.printer import expression_text

Switch = Callable[[pytest.MonkeyPatch], None]
"""Switch a rule off until the patch ends."""

Render = Callable[[Sequence[str]], list[str]]
"""Return the plan of queries as lines."""

HIDDEN = ("  rows  ", "  columns  ")
"""Lines of explanations that pairs leave out: no rule changes them."""


def plan_text(queries: Sequence[str]) -> list[str]:
    """Return the nodes of one query in the notation of `wiretide explain`."""
    (sql,) = queries
    return node_text(compile_query(sql))


def counting_text(queries: Sequence[str]) -> list[str]:
    """Return the nodes of one query as engines run it, with counts of rows."""
    (sql,) = queries
    return node_text(compile_query(sql).with_row_counts())


def node_text(plan: Plan) -> list[str]:
    """Return the nodes of a plan in the notation of `wiretide explain`."""
    return [line for line in [*graph_lines(plan)][2:] if line and not line.startswith(HIDDEN)]


def table_text(queries: Sequence[str]) -> list[str]:
    """Return the tables of the queries q0, q1 … of one link, as `wiretide explain PIPELINE.toml` prints them."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pipeline.toml"
        texts = [f"[queries.q{number}]\nsql = '''{sql}'''" for number, sql in enumerate(queries)]
        path.write_text("\n".join(['[links]\npackets = "packets.pcap"', *texts]))
        text = explain_text(str(path))
    return [line for line in text.splitlines() if line.startswith(("  table  ", "  no table  "))]


def condition_text(queries: Sequence[str]) -> list[str]:
    """Return the conditions of the queries q0, q1 … on one link: their parts in the order of evaluation."""
    low = [compile_query(sql).leaves[0].low for sql in queries]
    tables = [SimpleNamespace(plan=plan, where=None if plan.where is None else Condition(plan.where)) for plan in low]
    low_level_node.share_conditions(tables)  # type: ignore[arg-type]
    readers: dict[int, list[str]] = {}
    for number, table in enumerate(tables):
        readers.setdefault(id(table.where), []).append(f"q{number}")
    lines = []
    for table in {id(table.where): table for table in tables}.values():
        parts = _parts(table.where)
        names = ", ".join(readers[id(table.where)])
        lines += [f"  {'keep' if not number else '':<14}  {part}" for number, part in enumerate(parts)]
        lines.append(f"  {'tested for':<14}  {names}")
    return lines


def _parts(condition: Condition) -> Iterable[str]:
    if condition._index is not None:
        index, constant = condition._index
        yield f"{index.column.name} = {constant}: the rows of the index of {index.column.name}"
    yield from map(_interval, condition._tests)
    yield from map(expression_text, [*condition._general_tests, *condition._searches, *condition._user_calls])


def _interval(test: IntervalTest) -> str:
    column = test.column if test.bits == -1 else f"{test.column} & {test.bits}"
    bounds = [f"from {test.minimum}"] if test.minimum > INT_MIN else []
    bounds += [f"to {test.maximum}"] if test.maximum < INT_MAX else []
    return f"{'not ' * test.is_outside}{column} {' '.join(bounds)}: one pass"


# --- the switches ---


def keep_conditions_above_links(patch: pytest.MonkeyPatch) -> None:
    """Evaluate conditions on links in a filter above the leaf."""
    _filter_above(patch, LinkRelation)


def keep_conditions_above_unions(patch: pytest.MonkeyPatch) -> None:
    """Evaluate conditions on a union in a filter above it."""
    _filter_above(patch, UnionRelation)


def _filter_above(patch: pytest.MonkeyPatch, relation: type[LinkRelation] | type[UnionRelation]) -> None:
    make_node = relation.make_node

    def literal(
        self: LinkRelation | UnionRelation, needed: Iterable[str], time: str | None, where: Sequence[Expression]
    ) -> RelationNode:
        placed = make_node(self, {*needed, *names_in(where)}, time, [])  # type: ignore[arg-type]
        condition = conjunction([rename_columns(each, placed.names) for each in where])
        return placed if condition is None else RelationNode(Filter(placed.node, condition), placed.names)

    patch.setattr(relation, "make_node", literal)


def pass_on_all_columns(patch: pytest.MonkeyPatch) -> None:
    """Pass on every number and address of the IP header from the low level, whether the query needs it or not."""
    make_node = LinkRelation.make_node
    more = {"srcIP", "destIP", "protocol", "ttl", "len"}

    def literal(
        self: LinkRelation, needed: Iterable[str], time: str | None, where: Sequence[Expression]
    ) -> RelationNode:
        return make_node(self, {*needed, *more}, time, where)

    patch.setattr(LinkRelation, "make_node", literal)


def keep_where_above_joins(patch: pytest.MonkeyPatch) -> None:
    """Evaluate WHERE on the results of the last join."""
    patch.setattr(joins.JoinTree, "where", lambda self, condition: self.steps[-1].result_conditions.append(condition))


def keep_on_in_pairs(patch: pytest.MonkeyPatch) -> None:
    """Evaluate ON for pairs only."""
    patch.setattr(joins.JoinTree, "on", lambda self, number, on: self.steps[number].conditions.extend(conjuncts(on)))


def compare_all_pairs(patch: pytest.MonkeyPatch) -> None:
    """Use no equality as a key of a join."""
    patch.setattr(joins, "equality_sides", lambda *_: None)


def narrow_no_window(patch: pytest.MonkeyPatch) -> None:
    """Test the distance of times for each pair."""
    patch.setattr(joins, "narrow", lambda band, conditions, *_: (band, list(conditions)))


def imply_nothing(patch: pytest.MonkeyPatch) -> None:
    """Derive no condition on one side from an OR."""
    patch.setattr(joins, "implied_condition", lambda *_: None)


def forget_shared_plans(patch: pytest.MonkeyPatch) -> None:
    """Compute the shared plans of each run again: those with the rule are not those without it."""
    patch.setattr(sharing, "_share", sharing._share.__wrapped__)


def feed_all_tables_with_packets(patch: pytest.MonkeyPatch) -> None:
    """Feed no table with the entries of another table."""
    forget_shared_plans(patch)
    patch.setattr(sharing, "widen", list)
    patch.setattr(sharing, "find_feeders", lambda plans: [None] * len(plans))


def share_no_table(patch: pytest.MonkeyPatch) -> None:
    """Make one table for each query, and feed all of them with packets."""
    feed_all_tables_with_packets(patch)
    merge = sharing._merge_plans

    def literal(plans: Sequence[LowLevelPlan], feeding: bool = True) -> list[sharing.SharedPlan]:
        return [merge(sharing.identity(plan), [number], plans) for number, plan in enumerate(plans)]

    patch.setattr(low_level_node, "share", literal)
    patch.setattr("dashboards.monitors.pipeline_lines.share", literal)


def share_no_table_of_constants(patch: pytest.MonkeyPatch) -> None:
    """Make a table for each constant."""
    forget_shared_plans(patch)
    patch.setattr(sharing, "find_constant_tables", lambda plans: [])


def keep_only_own_subaggregates(patch: pytest.MonkeyPatch) -> None:
    """Add no sub-aggregates to a table for the tables that it could feed."""
    forget_shared_plans(patch)
    patch.setattr(sharing, "widen", list)


def share_no_condition(patch: pytest.MonkeyPatch) -> None:
    """Share no condition, and no index."""
    patch.setattr(low_level_node, "share_conditions", list)


def index_no_column(patch: pytest.MonkeyPatch) -> None:
    """Make no index of a column."""
    patch.setattr(sharing, "_share_indexes", lambda conditions: None)


def evaluate_intervals_as_expressions(patch: pytest.MonkeyPatch) -> None:
    """Evaluate every comparison as an expression."""
    patch.setattr(predicate, "interval_test", lambda condition: None)


def evaluate_conditions_as_written(patch: pytest.MonkeyPatch) -> None:
    """Evaluate the parts of an AND as one expression."""
    patch.setattr(predicate, "conjuncts", lambda condition: [condition])


def count_no_rows(patch: pytest.MonkeyPatch) -> None:
    """Count no rows for windows that do not need their number."""
    patch.setattr(Plan, "with_row_counts", lambda self: self)
