"""What a user asks, in Python or on the command line, as a plan, its inputs and its settings.

Everything heavy is imported where it is used: a wrong option is told before Arrow is loaded.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from capture.flows.sampling import HandRates
    from highlevel.graph.plan import AnyPlan
    from highlevel.inline import Input
    from lowlevel.promises.lull import LullRule

INLINE = "inline"
"""The engine that is this process; others are `local`, Spark in this process, and the URLs of Spark masters."""


def prepare(
    sql: str,
    layer: str,
    sampling: HandRates | None,
    files: Iterable[str | os.PathLike[str]],
    streams: Mapping[str, Iterable[str]] | None,
    follow: bool,
) -> tuple[AnyPlan, list[Input]]:
    """Compile a query and bind the names in its FROM, to `files` together or by `streams` each to its own.

    Raises QueryError for the query, InputError for an input that cannot be bound.
    """
    from queries.bindings import bind_files, bind_streams, check_streams
    from queries.gsql import compile_query

    plan = compile_query(sql, layer=layer, sampling=sampling)
    inputs = bind_files([os.fspath(file) for file in files], follow) + bind_streams(streams or {}, follow)
    check_streams([plan], inputs)
    return plan, inputs


def rates(texts: str | Iterable[str]) -> HandRates | None:
    """Read the sampling rates of exporters, one text or several; ValueError for what is none."""
    from queries.sampling import parse_rates

    return parse_rates([texts] if isinstance(texts, str) else texts)


def slack(text: str | None) -> int | None:
    """Read how late rows may be, ns; None where nobody says. ValueError for what is no time."""
    from queries.slack import parse_slack

    return None if text is None else parse_slack(text)


def lull(text: str | None) -> LullRule | None:
    """Read when a silent link's windows close; None where nobody says. ValueError for what is no time."""
    from queries.slack import parse_lull

    return None if text is None else parse_lull(text)
