"""`wiretide queries`: list the ready queries, or describe one of them."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

from dashboards.command_options import Argument, Option
from dashboards.commands.columns import align_rows

if TYPE_CHECKING:
    from queries.catalogue.ready_query import ReadyQuery


class QueriesFormat(StrEnum):
    """Formats of the list."""

    TEXT = "text"
    JSON = "json"


def list_lines(ready: Sequence[ReadyQuery]) -> list[str]:
    """Return a table with name, input and one-sentence description of queries."""
    rows = [("query", "input", "answer"), *(("@" + query.name, query.input, query.sentence) for query in ready)]
    return align_rows(rows)


def description_lines(query: ReadyQuery) -> list[str]:
    """Return description, parameters, SQL and usage of a query."""
    rows = [("parameter", "type", "default", "meaning")]
    rows += [(parameter.name, parameter.type, str(parameter.default), parameter.help) for parameter in query.parameters]
    return [
        f"@{query.name} ({query.category}): {query.sentence}",
        *(["", *align_rows(rows)] if query.parameters else []),
        "",
        *query.text.split("\n"),
        "",
        query.usage,
    ]


def description(query: ReadyQuery) -> dict[str, Any]:
    """Return a query as JSON values."""
    names = ("name", "type", "default", "minimum", "maximum", "help")
    return {
        **{name: getattr(query, name) for name in ("name", "category", "input", "sentence")},
        "parameters": [{name: getattr(parameter, name) for name in names} for parameter in query.parameters],
        "sql": query.text,
    }


def queries(
    name: Annotated[str | None, Argument(help="The query to describe. Default: list all queries.")] = None,
    format: Annotated[  # noqa: A002
        QueriesFormat, Option(help="text, or json for programs.")
    ] = QueriesFormat.TEXT,
) -> None:
    """List the ready queries, or describe one of them with its SQL."""
    from queries.catalogue.catalogue import CATALOGUE, ready_query

    chosen = list(CATALOGUE.values()) if name is None else [ready_query(name)]
    if format is QueriesFormat.JSON:
        import json

        print(json.dumps([description(query) for query in chosen], indent=2, ensure_ascii=False))
    elif name is None:
        print(
            "\n".join([*list_lines(chosen), "", "wiretide queries NAME shows the parameters and the SQL of one query."])
        )
    else:
        print("\n".join(description_lines(chosen[0])))
