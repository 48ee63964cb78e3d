"""The partial matches of MATCH_RECOGNIZE or AUTOMATON at the end of the input: `wiretide query --partial-matches`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from capture.errors import InputError
from dashboards.output.formats import BINARY, SUFFIXES, Format, Times
from highlevel.inline.engine import InlineRun
from highlevel.plan.automaton_nodes import AcceptedRuns
from highlevel.plan.pattern_nodes import MATCH_END, MATCH_START, Matches
from highlevel.plan.plan import Plan
from lowlevel.expressions.types import Type

TIMES = (MATCH_START, MATCH_END)


def find_pattern(plan: Plan) -> Matches | AcceptedRuns:
    """Return the row pattern or automaton of a query; if there are several, the outermost.

    Raises InputError for a query without a pattern, and for MATCH_RECOGNIZE with EMIT CHANGES, which stores rows but no
    partial matches.
    """
    patterns = [node for node in reversed(plan.nodes) if isinstance(node, Matches | AcceptedRuns)]
    if patterns:
        return patterns[0]
    if plan.has_changes:
        expected = "the query without EMIT CHANGES, or AUTOMATON: MATCH_RECOGNIZE keeps rows, and matches them again"
        raise InputError(f"partial matches of a query with EMIT CHANGES: expected {expected}")
    raise InputError("partial matches of a query without a pattern: expected MATCH_RECOGNIZE or AUTOMATON in FROM")


def check_file(path: Path) -> Format:
    """Return the format of a file by its suffix. Raises InputError for another suffix."""
    kind = SUFFIXES.get(path.suffix.lower())
    if kind is None or kind is Format.OPENMETRICS:
        known = ", ".join(suffix for suffix, other in SUFFIXES.items() if other is not Format.OPENMETRICS)
        raise InputError(f"--partial-matches {path}: expected a name with {known}")
    return kind


def keep_partial_matches(run: InlineRun) -> Callable[[], pa.Table]:
    """Let a run store its partial matches at the end of the input. Return a function that returns them after the run.

    The columns are those of PARTITION BY, `match_start`, `match_end`, `variable` or `state`, and the fields of the
    register. Raises InputError as `find_pattern`.
    """
    from highlevel.plan.operators.accepted_runs import AcceptedRunsOperator
    from highlevel.plan.operators.matches import MatchesOperator

    pattern = find_pattern(run.plans[0])
    operator = run.nodes.operators[run.nodes.positions[pattern]]
    assert isinstance(operator, MatchesOperator | AcceptedRunsOperator)
    operator.keeps_unfinished = True

    def take() -> pa.Table:
        table = operator.unfinished  # None: LIMIT has ended the run before the input ended
        return (operator.list_partial_matches() if table is None else table).combine_chunks()

    return take


def time_columns(plan: Plan) -> tuple[str, ...]:
    """Return the columns of partial matches that are times."""
    pattern = find_pattern(plan)
    columns = (*pattern.columns, *(field.column for field in pattern.automaton.register))
    return (*TIMES, *(column.name for column in columns if column.type is Type.TIME and column.name not in TIMES))


def write_partial_matches(plan: Plan, table: pa.Table, path: Path, style: Times | None) -> str:
    """Write partial matches into a file. Return a message."""
    from dashboards.output.writers import open_output, write_results

    kind = check_file(path)
    with open_output(path) as sink:
        style = None if kind in BINARY else style
        write_results(table.to_batches(), table.schema, kind, sink, times=time_columns(plan), style=style)
    return f"{path}: {table.num_rows:,} partial match{'' if table.num_rows == 1 else 'es'}"
