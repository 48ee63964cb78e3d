"""Compute the sub-queries in expressions (not in FROM), before the query that contains them, over the same inputs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Sequence
from typing import Any

import pyarrow as pa

from capture.flows.sampling import FixedRates
from highlevel.inline.engine import InlineRun, Input
from highlevel.operators.window_operator import WINDOW_END, WINDOW_START
from highlevel.plan.plan import Plan
from highlevel.results.user_types import readable
from lowlevel.expressions.types import Type
from queries.gsql import compile_tree
from queries.pipeline.inputs import check_streams, is_live
from queries.plans.subquery_values import SubqueryRunner, Values, is_enough, start_of
from queries.text import tree
from queries.text.errors import QueryError

MakeRunContext = Callable[[InlineRun], contextlib.AbstractContextManager[None]]
"""A function that returns a context for a run, for example a progress bar."""


def make_inline_compute(
    inputs: Sequence[Input],
    layer: str,
    sampling: FixedRates | None,
    make_run_context: MakeRunContext | None = None,
    threads: int | None = None,
) -> SubqueryRunner:
    """Return a function that computes a query over `inputs` with the inline engine, in `threads` threads.

    The function raises QueryError for live inputs, and for a query with several columns after IN or as a value.
    """

    def compile_query(query: tree.Query, node: tree.Expression) -> Plan:
        live = next((source for source in inputs if is_live(source)), None)
        if live is not None:
            problem = f"a sub-query outside FROM over {live.path}, which can be read only once"
            raise QueryError(problem, query.sql, start_of(node), "files, which can be read once more for the query")
        plan = compile_tree(query, "subquery", layer, sampling)
        check_streams([plan], list(inputs))
        return plan

    def batches(plan: Plan) -> Generator[pa.RecordBatch, None, None]:
        run = InlineRun([plan], list(inputs), threads=threads)
        progress = contextlib.nullcontext() if make_run_context is None else make_run_context(run)
        with contextlib.closing(run), contextlib.closing(run.results()) as results, progress:
            yield from (batch for _, batch in results)

    return make_subquery_runner(compile_query, batches)


def make_subquery_runner(
    compile_query: Callable[[tree.Query, tree.Expression], Plan],
    run: Callable[[Plan], Generator[pa.RecordBatch, None, None]],
) -> SubqueryRunner:
    """Return a function that compiles a query for the expression that contains it, and runs the plan.

    The run ends as soon as the result is known: after the first row for EXISTS, after the second row for a value (which
    is an error), and for IN when the list exceeds its limit. So a sub-query with many rows does not store them.
    """

    def compute(query: tree.Query, node: tree.Expression) -> Values:
        """Compute `query` for `node`: a value, a list (IN) or EXISTS."""
        plan = compile_query(query, node)
        bounds = (WINDOW_START, WINDOW_END) if plan.windowed else ()
        columns = [column for column in plan.root.columns if column.name not in bounds]
        if len(columns) > 1 and not isinstance(node, tree.Exists):
            names = ", ".join(column.name for column in columns)
            raise QueryError(f"a sub-query with the columns {names}", query.sql, start_of(node), "one column")
        column = columns[0]
        times = plan.times - {column.name} if column.type is Type.TIME else plan.times
        values: dict[Any, None] = {}
        rows = 0
        with contextlib.closing(run(plan)) as results:
            for batch in results:
                rows += batch.num_rows
                values |= dict.fromkeys(readable(batch, times).column(column.name).to_pylist())
                if is_enough(node, rows, len(values)):
                    break
        return Values(column.type, list(values), rows)

    return compute
