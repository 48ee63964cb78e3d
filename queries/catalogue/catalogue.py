"""The catalogue: all ready queries by name, and the text of `@name` as a query."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from capture.errors import InputError
from queries.catalogue.conversations import CONVERSATIONS
from queries.catalogue.exports import EXPORTS
from queries.catalogue.layers import LAYERS
from queries.catalogue.ready_query import ReadyQuery
from queries.catalogue.security import SECURITY
from queries.catalogue.traffic import TRAFFIC
from queries.text.errors import QueryError
from queries.text.script import declared, expand, is_script

SUFFIX = ".gsql"
"""The suffix of files with queries."""

CATALOGUE: dict[str, ReadyQuery] = {
    query.name: query for query in (*TRAFFIC, *CONVERSATIONS, *SECURITY, *LAYERS, *EXPORTS)
}
"""The ready queries by name, ordered by category."""


def ready_query(name: str) -> ReadyQuery:
    """Return a query of the catalogue; `name` may begin with `@`. Raises QueryError for an unknown name."""
    wanted = name.removeprefix("@").lower().replace("_", "-")
    if wanted not in CATALOGUE:
        expected = "a name of the catalogue; `wiretide queries` describes all"
        raise QueryError(f"unknown query '{name}'", name, 0, expected, CATALOGUE, wanted)
    return CATALOGUE[wanted]


def query_text(sql: str, values: Mapping[str, object] | None = None) -> str:
    r"""Return the text of a query that is given as GSQL, as `@name`, or as the name of a file that ends in `.gsql`.

    `values`: values of parameters of `@name`, or of a script with PARAM (`queries.text.script`), by name.

    >>> query_text("@packets", {"window": "1m"})
    'SELECT count(*) AS packets, sum(len) AS bytes\nFROM packets [RANGE 1 minute]'
    >>> query_text("SELECT count(*) FROM packets")
    'SELECT count(*) FROM packets'

    Raises InputError for a file that cannot be read. Raises QueryError for an unknown name, a name without @, a wrong
    parameter, and for parameters of a query that has none.
    """
    sql = _text(sql)
    text = sql.strip()
    if text.startswith("@"):
        return ready_query(text).sql(values)
    if text.lower() in CATALOGUE:
        raise QueryError(f"got the name {text}", sql, 0, f"@{text.lower()}, or SELECT")
    if values and not is_script(sql):
        expected = "@NAME, a query of the catalogue, or PARAM before SELECT"
        raise QueryError(f"got the parameter {next(iter(values))}", sql, 0, expected)
    return expand(sql, values)


def parameter_names(sql: str) -> list[str]:
    """Return the names of the parameters of a query. The argument and the errors are those of `query_text`."""
    text = _text(sql)
    if text.strip().startswith("@"):
        return [parameter.name for parameter in ready_query(text.strip()).parameters]
    return declared(text)


def _text(sql: str) -> str:
    """Return the text of a file if `sql` is the name of a file of a query. Raises InputError."""
    if not sql.strip().endswith(SUFFIX) or "\n" in sql.strip():
        return sql
    path = Path(sql.strip())
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: got a file that is no text, expected a query") from error
