"""Arguments that several commands share: inputs, queries, parameters, settings of Spark, and files of functions."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from dashboards.command_options import UsageError
from dashboards.request import INLINE

NO_INPUT = "no input: write at least one input before the query, or bind a name with -s NAME=INPUT"


QUERY = re.compile(r"@[\w-]+$|\s*(?:SELECT|WITH|DEFINE|PARAM|MERGE)\b.*\s", re.IGNORECASE | re.DOTALL)
"""A word that is a query: @NAME, or a text that begins with a keyword of a query. The last word is always a query."""


def parse_bindings(pairs: list[str]) -> dict[str, list[str]]:
    """Parse NAME=PATH pairs. Return the paths of each name. Raises UsageError for other text."""
    bound: dict[str, list[str]] = {}
    for pair in pairs:
        name, equals, path = pair.partition("=")
        if not (name and equals and path):
            raise UsageError(f"-s {pair}: expected NAME=PATH, for example -s Main1=main1.pcap")
        bound.setdefault(name, []).append(path)
    return bound


def parse_params(pairs: list[str]) -> dict[str, object]:
    """Parse NAME=VALUE pairs. Return the values of parameters.

    Raises UsageError for other text and for a name that is given twice.
    """
    values: dict[str, object] = {}
    for pair in pairs:
        name, equals, value = (part.strip() for part in pair.partition("="))
        if not (name and equals and value):
            raise UsageError(f"--param {pair}: expected NAME=VALUE, for example --param n=20")
        if name in values:
            raise UsageError(f"--param {pair}: got a second value of {name}, expected one")
        values[name] = value
    return values


def check_engine_name(on: str) -> None:
    """Raise UsageError for a text that does not name an engine."""
    if on == INLINE:
        return
    from queries.pipeline.spark_settings import MASTER_FORMS, is_master

    if not is_master(on):
        raise UsageError(f"--on {on}: expected inline, local, or {MASTER_FORMS}")


def parse_conf(pairs: Sequence[str]) -> dict[str, str]:
    """Parse the settings of --conf. Raises UsageError for a wrong setting."""
    from queries.pipeline.spark_settings import parse_settings

    try:
        return parse_settings(pairs)
    except ValueError as error:
        raise UsageError(f"--conf: {error}") from error


def add_archive_option(settings: Mapping[str, str], archive: Path | None, master: str) -> dict[str, str]:
    """Add the settings for --archive. Raises UsageError if an archive cannot be used."""
    if archive is None:
        return {**settings}
    from queries.pipeline.spark_settings import add_archive

    try:
        return add_archive(settings, archive, master)
    except ValueError as error:
        raise UsageError(f"--archive: {error}") from error


def load_functions(files: list[Path]) -> None:
    """Execute the files of --functions, which define functions and aggregates. Raises FunctionError."""
    from lowlevel.expressions.user_functions import load

    for file in files:
        load(file)


def split_words(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Divide words into inputs and queries. The last word is a query, and so is each word that begins like a query.

    >>> split_words(["a.pcap", "@floods", "select count(*) from packets"])
    (['a.pcap'], ['@floods', 'select count(*) from packets'])
    """

    def is_query(word: str) -> bool:
        return word.endswith((".gsql", ".eql", ".yml", ".yaml")) or (QUERY.match(word) is not None and not exists(word))

    first = len(words) - 1
    while first > 0 and is_query(words[first - 1]):
        first -= 1
    return [*words[:first]], [*words[first:]]


def exists(path: str) -> bool:
    """Return True if the path exists. Unlike Path.exists, return False for a text that is too long for a path."""
    return os.path.exists(path)  # noqa: PTH110
