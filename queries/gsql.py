"""The entry point of `queries`: compile_query turns the text of a query into a plan for both levels.

    SELECT exprs FROM a [UNION b …] [RANGE …, SLIDE …, WA ts] WHERE … GROUP BY … HAVING …
        [UNION | INTERSECT | EXCEPT [ALL] SELECT …] [ORDER BY …] [WITH CONSISTENCY (…)] [EMIT CHANGES | EMIT FINAL]

`queries.plans.compiler` makes the nodes of the plan, `queries.plans.grouping` the aggregations of a query with groups.
`docs/guide/sql.md` describes the language.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from capture.flows.sampling import FixedRates
from highlevel.plan.plan import Plan
from lowlevel.layers import Layer, check_layer
from queries.binding.filter_joins import check_inputs
from queries.plans.compiler import Compiler
from queries.plans.subqueries import ReadableQuery
from queries.plans.table_lookup import KnownQueries, NamedQuery
from queries.text.parser import parse_query
from queries.text.tree import Query


def compile_query(
    sql: str,
    name: str = "query",
    layer: str = Layer.OUTER,
    sampling: FixedRates | None = None,
    queries: Mapping[str, NamedQuery] | None = None,
    links: Collection[str] | None = None,
    tables: Mapping[str, ReadableQuery] | None = None,
) -> Plan:
    """Compile one query. Raises QueryError with the position of the first error.

    layer     IP layer of names without a layer: `outer`, or `inner`, the innermost layer in tunnels (columns that have
              no inner layer keep their meaning). Raises ValueError for other texts
    sampling  sampling rates of flow exporters, which replace the announced ones
    queries   queries that this query may read by name. The mapping may contain the query itself, under `name`
    links     names of links that FROM may contain in addition to `queries`; None allows any name
    tables    files with a schema that the query may read, by their names in lower case

    >>> plan = compile_query("SELECT srcIP, count(*) [RANGE 10 minutes, SLIDE 1 minute, WA ts] FROM M GROUP BY srcIP")
    >>> [type(node).__name__ for node in plan.nodes], plan.leaves[0].low.pane // 10**9, plan.schema.names
    (['Leaf', 'Windowed'], 60, ['window_start', 'window_end', 'srcIP', 'count'])
    >>> [type(node).__name__ for node in compile_query("SELECT ts, srcIP FROM M WHERE destPort = 53").nodes]
    ['Leaf', 'Apply']
    """
    return compile_tree(parse_query(sql), name, layer, sampling, queries, links, tables)


def compile_tree(
    query: Query,
    name: str = "query",
    layer: str = Layer.OUTER,
    sampling: FixedRates | None = None,
    queries: Mapping[str, NamedQuery] | None = None,
    links: Collection[str] | None = None,
    tables: Mapping[str, ReadableQuery] | None = None,
) -> Plan:
    """Compile a syntax tree, which may read `tables` by their names in lower case.

    The other arguments and the errors are those of `compile_query`.
    """
    check_layer(layer)
    named = {key.lower(): query for key, query in (queries or {}).items()}
    path = (name.lower(),) if name.lower() in named else ()
    known = KnownQueries(named, links=links, path=path, tables=tables or {})
    if query.consistency is not None:
        from queries.plans.consistency import apply_late_emit, with_consistency  # most queries do not need it

        query = apply_late_emit(query)
    plan = Compiler(query.sql, name, layer, sampling, known).compile_query(query).plan
    if query.consistency is not None:
        plan = with_consistency(query, plan)
    check_inputs(query.sql, plan)
    return plan
