"""The text of a query that is given as GSQL, as the name of a ready query, or as the name of a file.

The catalogue, the parser of scripts and the translation of rules are imported only for texts that need them: most
queries are plain GSQL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from capture.errors import InputError
from queries.text.errors import QueryError

SUFFIX, EQL_SUFFIX, SIGMA_SUFFIXES = ".gsql", ".eql", (".yml", ".yaml")
SUFFIXES = (SUFFIX, EQL_SUFFIX, *SIGMA_SUFFIXES)
"""Suffixes of files with queries, or with rules of EQL or Sigma. Rules become queries over packets."""


def query_text(sql: str, values: Mapping[str, object] | None = None) -> str:
    r"""Return the text of a query that is given as GSQL, as `@name`, or as the name of a file (SUFFIXES).

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
    if text.startswith("@") or len(text.split()) == 1:
        from queries.catalogue.catalogue import CATALOGUE, ready_query

        if text.startswith("@"):
            return ready_query(text).sql(values)
        if text.lower() in CATALOGUE:
            raise QueryError(f"got the name {text}", sql, 0, f"@{text.lower()}, or SELECT")
    if _is_script(sql):
        from queries.text.script import expand

        return expand(sql, values)
    if values:
        expected = "@NAME, a query of the catalogue, or PARAM before SELECT"
        raise QueryError(f"got the parameter {next(iter(values))}", sql, 0, expected)
    return sql


def parameter_names(sql: str) -> list[str]:
    """Return the names of the parameters of a query. The argument and the errors are those of `query_text`."""
    text = _text(sql)
    if text.strip().startswith("@"):
        from queries.catalogue.catalogue import ready_query

        return [parameter.name for parameter in ready_query(text.strip()).parameters]
    if _is_script(text):
        from queries.text.script import declared_parameters

        return declared_parameters(text)
    return []


def _is_script(sql: str) -> bool:
    """Return False for text that certainly has neither blocks nor parameters, nor CREATE."""
    return any(character in sql for character in "$#{") or "create" in sql.lower()


def _text(sql: str) -> str:
    """Return the text of a file if `sql` is the name of a file of a query. Raises InputError."""
    if not sql.strip().endswith(SUFFIXES) or "\n" in sql.strip():
        return sql
    path = Path(sql.strip())
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: got a file that is no text, expected a query") from error
    if path.suffix == EQL_SUFFIX:
        from queries.translation.eql import eql_to_sql

        return eql_to_sql(text)
    if path.suffix in SIGMA_SUFFIXES:
        from queries.translation.sigma import sigma_to_sql

        return sigma_to_sql(text)
    return text


def query_names(texts: Sequence[str]) -> list[str]:
    """Return a name for each query: the name of the ready query (`@NAME`) or of the file, or `query-N` at position N.

    >>> query_names(["@floods", "SELECT count(*) FROM packets", "@floods", "sql/talkers.gsql"])
    ['floods', 'query-2', 'floods-2', 'talkers']
    """
    names: list[str] = []
    for number, text in enumerate(map(str.strip, texts), 1):
        name = f"query-{number}"
        if text.startswith("@"):
            name = text.removeprefix("@").lower()
        elif text.endswith(SUFFIXES) and "\n" not in text:
            name = Path(text).stem
        same = names.count(name)
        while name in names:
            same += 1
            name = f"{name.removesuffix(f'-{same - 1}')}-{same}"
        names.append(name)
    return names
