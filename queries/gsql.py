"""GSQL text to plan: which part of a query runs next to the packets, and which above.

    SELECT exprs FROM a [UNION b …] [RANGE …, SLIDE …, WA ts] WHERE … GROUP BY … HAVING …

Groups of links are one plan (`queries.plans.grouping`); rows, joins, unions and queries that read queries are graphs
of nodes (`queries.plans.compiler`). `docs/guide/sql.md` describes the language.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from capture.flows.sampling import FixedRates
from highlevel.plan.plan import Plan
from lowlevel.layers import Layer
from queries.binding.filter_joins import refuse_above
from queries.plans.compiler import Compiler
from queries.plans.known_queries import KnownQueries, NamedQuery
from queries.text.parser import parse_query


def compile_query(
    sql: str,
    name: str = "query",
    layer: str = Layer.OUTER,
    sampling: FixedRates | None = None,
    queries: Mapping[str, NamedQuery] | None = None,
    links: Collection[str] | None = None,
) -> Plan:
    """Compile one query. Raises `QueryError`, with the position, for anything that is not one.

    `layer` is the IP layer that names without one mean: `outer`, or `inner`, the innermost reached through tunnels,
    where a column has one. ValueError for any other. `sampling` are rates of flow exporters that stand whatever those
    announce; other kinds of rows have no use for them. `queries` are those that may be read by name, this one among
    them where it is called `name`; with `links` every other name in the FROM of those must be one of them.

    >>> plan = compile_query("SELECT srcIP, count(*) [RANGE 10 minutes, SLIDE 1 minute, WA ts] FROM M GROUP BY srcIP")
    >>> [type(node).__name__ for node in plan.nodes], plan.leaves[0].low.pane // 10**9, plan.schema.names
    (['Leaf', 'Windowed'], 60, ['window_start', 'window_end', 'srcIP', 'count'])
    >>> [type(node).__name__ for node in compile_query("SELECT ts, srcIP FROM M WHERE destPort = 53").nodes]
    ['Leaf', 'Apply']
    """
    if layer not in list(Layer):
        raise ValueError(f"got the layer {layer!r}, expected one of {', '.join(Layer)}")
    named = {each.lower(): query for each, query in (queries or {}).items()}
    path = (name.lower(),) if name.lower() in named else ()
    known = KnownQueries(named, {}, links, path)
    plan = Compiler(sql, name, layer, sampling, known).block(parse_query(sql)).plan
    refuse_above(sql, plan)
    return plan
