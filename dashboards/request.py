"""A user's request, in Python or on the command line: compile the query, bind its inputs, parse its settings.

Large modules are imported inside the functions, so that `--help` and errors in options are fast.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from capture.flows.sampling import FixedRates
    from dashboards.subqueries import Watching
    from highlevel.inline.engine import Input
    from highlevel.plan.plan import Plan
    from lowlevel.watermarks.idle import IdleRule


@runtime_checkable
class Frame(Protocol):
    """A table with the Arrow PyCapsule interface: of pyarrow, pandas, Polars or DuckDB."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the rows."""
        ...


Files = Sequence[str | os.PathLike[str] | Frame]
"""Captures, or one table."""

Streams = Mapping[str, Iterable[str] | Frame]
"""The captures, or the table, of each name in FROM."""

INLINE = "inline"
"""The engine in this process. Other engines are `local` (Spark on this machine) and the URLs of Spark masters."""


def bind(
    sql: str,
    layer: str,
    sampling: FixedRates | None,
    files: Iterable[str | os.PathLike[str]],
    streams: Mapping[str, Iterable[str]] | None,
    follow: bool,
    params: Mapping[str, object] | None = None,
    watching: Watching | None = None,
) -> tuple[Plan, list[Input]]:
    """Compile a query, and bind all names in its FROM to `files`, or each name to its files in `streams`.

    `sql` may be `@name`, a query of the catalogue; `params` are the values of its parameters. Sub-queries outside FROM
    are computed here, which reads the inputs; `watching` returns a context for each of these runs. Returns the plan and
    its inputs. Raises QueryError for the query, InputError for an input that cannot be bound.
    """
    from queries.catalogue.catalogue import query_text
    from queries.gsql import compile_tree
    from queries.pipeline.inputs import check_streams
    from queries.plans.subquery_values import has_subqueries, with_values
    from queries.text.parser import parse_query

    query = parse_query(query_text(sql, params))
    inputs = bind_inputs(files, streams, follow)
    if has_subqueries(query):
        from dashboards.subqueries import compute_over

        query = with_values(query, compute_over(inputs, layer, sampling, watching))
    plan = compile_tree(query, layer=layer, sampling=sampling)
    check_streams([plan], inputs)
    return plan, inputs


def bind_inputs(
    files: Iterable[str | os.PathLike[str]], streams: Mapping[str, Iterable[str]] | None, follow: bool
) -> list[Input]:
    """Return the inputs of `files` and `streams`. Raises InputError for a folder or a glob without files."""
    from queries.pipeline.inputs import bind_files, bind_streams

    return bind_files([os.fspath(file) for file in files], follow) + bind_streams(streams or {}, follow)


def parse_sampling(texts: str | Iterable[str]) -> FixedRates | None:
    """Parse one or more sampling rates of exporters. Raises ValueError for text that is not a rate."""
    from queries.pipeline import input_options

    return input_options.parse_rates([texts] if isinstance(texts, str) else texts)


def parse_slack(text: str | None) -> int | None:
    """Parse `--slack` into ns; None if it was not given. Raises ValueError for text that is not a duration."""
    from queries.pipeline import input_options

    return None if text is None else input_options.parse_slack(text)


def parse_lull(text: str | None) -> IdleRule | None:
    """Parse `--lull`; None if it was not given. Raises ValueError for text that is not a duration."""
    from queries.pipeline import input_options

    return None if text is None else input_options.parse_lull(text)
