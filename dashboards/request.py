"""A user's request, in Python or on the command line: compile the query, bind its inputs, parse its settings.

Large modules are imported inside the functions, so that `--help` and errors in options are fast.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from capture.flows.sampling import FixedRates
    from dashboards.subqueries import MakeRunContext
    from highlevel.inline.engine import Input
    from highlevel.plan.plan import Plan
    from lowlevel.watermarks.idle import IdleRule
    from queries.pipeline.input_options import Slack


@runtime_checkable
class Frame(Protocol):
    """A table with the Arrow PyCapsule interface: of pyarrow, pandas, Polars, DuckDB or Spark."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the rows."""
        ...


Files = Sequence[str | os.PathLike[str] | Frame]
"""Captures, or one table."""

Streams = Mapping[str, Iterable[str] | Frame]
"""The captures or the table, by name in FROM."""

INLINE = "inline"
"""The engine in this process. Other engines are `local` (Spark on this machine) and the URLs of Spark masters."""


RUN_FILE = "run.json"
"""The name of a file that identifies the folder of a run."""

SQLITE_MAGIC = b"SQLite format 3\0"


def is_results(path: str | os.PathLike[str]) -> bool:
    """Return True for results of `wiretide run`: the folder of a run, or a file of stored windows."""
    if os.path.isdir(path):  # noqa: PTH112  # pathlib is slow to import
        return os.path.isfile(os.path.join(path, RUN_FILE))  # noqa: PTH113, PTH118
    if not os.path.isfile(path):  # noqa: PTH113  # a pipe must not be read here
        return False
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            return file.read(len(SQLITE_MAGIC)) == SQLITE_MAGIC
    except OSError:
        return False


def bind(
    sql: str,
    layer: str,
    sampling: FixedRates | None,
    files: Iterable[str | os.PathLike[str]],
    streams: Mapping[str, Iterable[str]] | None,
    follow: bool,
    params: Mapping[str, object] | None = None,
    make_run_context: MakeRunContext | None = None,
    threads: int | None = None,
) -> tuple[Plan, list[Input]]:
    """Compile a query. Bind all names in its FROM to `files`, or each name to its files in `streams`.

    `sql` may be `@name`, a query of the catalogue; `params` are the values of its parameters. Sub-queries outside FROM
    are computed here: each reads the inputs in `threads` threads, in the context that `make_run_context` returns for
    its run. Returns the plan and its inputs. Raises QueryError for the query, InputError for an input that cannot be
    bound.
    """
    from queries.query_text import query_text

    query = query_text(sql, params)
    name = sql.strip().removeprefix("@").lower() if sql.strip().startswith("@") else "query"
    (plan,), inputs = bind_all({name: query}, layer, sampling, files, streams, follow, make_run_context, threads)
    return plan, inputs


def bind_all(
    queries: Mapping[str, str],
    layer: str,
    sampling: FixedRates | None,
    files: Iterable[str | os.PathLike[str]],
    streams: Mapping[str, Iterable[str]] | None,
    follow: bool,
    make_run_context: MakeRunContext | None = None,
    threads: int | None = None,
    *,
    with_packets: bool = False,
) -> tuple[list[Plan], list[Input]]:
    """Compile `queries` (texts by name), and bind the names in FROM as `bind` does. Errors are those of `bind`.

    If there are several queries, a QueryError contains the name of the query. With `with_packets` there is one query,
    and the last plan is the query for its packets (`queries.plans.evidence`).
    """
    from queries.gsql import compile_tree
    from queries.pipeline.inputs import check_streams
    from queries.plans.subquery_values import has_subqueries, with_values
    from queries.text.errors import QueryError
    from queries.text.parser import parse_query

    @contextlib.contextmanager
    def naming(name: str) -> Iterator[None]:
        try:
            yield
        except QueryError as error:
            raise error if len(queries) == 1 else error.of_query(name) from None

    parsed, plans = {}, []
    for name, text in queries.items():
        with naming(name):
            parsed[name] = parse_query(text)
    inputs = bind_inputs(files, streams, follow)
    for name, query in parsed.items():
        with naming(name):
            if has_subqueries(query):
                from dashboards.subqueries import make_inline_compute

                query = with_values(query, make_inline_compute(inputs, layer, sampling, make_run_context, threads))
            plans.append(compile_tree(query, name, layer, sampling))
            if with_packets:
                from queries.plans.evidence import packets_of, with_distinct_rows

                plans.append(with_distinct_rows(compile_tree(packets_of(query), "packets", layer, sampling)))
    check_streams(plans, inputs)
    return plans, inputs


def texts_of(queries: Sequence[str], params: Mapping[str, object] | None) -> dict[str, str]:
    """Return the text of each query by its name. `@name` is a query of the catalogue.

    Raises QueryError for an unknown query, and for a parameter in `params` that no query declares.
    """
    from queries.query_text import parameter_names, query_names, query_text
    from queries.text.errors import QueryError

    params, texts, known = params or {}, {}, set[str]()
    for name, query in zip(query_names(queries), queries, strict=True):
        parameters = parameter_names(query)
        known.update(parameters)
        values = {parameter: value for parameter, value in params.items() if parameter.lower() in parameters}
        texts[name] = query_text(query, values)
    for parameter in params:
        if parameter.lower() not in known:
            expected = "a parameter of one of these queries" if known else "no parameter"
            raise QueryError(
                f"unknown parameter '{parameter}'", ", ".join(texts), 0, expected, sorted(known), parameter
            )
    return texts


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


def parse_slack(text: str | None) -> Slack | None:
    """Parse `--slack`; None if it was not given. Raises ValueError for text that is not a slack."""
    from queries.pipeline import input_options

    return None if text is None else input_options.parse_slack(text)


def parse_lull(text: str | None) -> IdleRule | None:
    """Parse `--lull`; None if it was not given. Raises ValueError for text that is not a duration."""
    from queries.pipeline import input_options

    return None if text is None else input_options.parse_lull(text)
