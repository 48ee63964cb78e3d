"""`wiretide explain`: how a query or a pipeline would run, and what is in a spool."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from capture.errors import InputError, WiretideError
from lowlevel.layers import Layer


class ExplainError(WiretideError):
    """Options that do not go together: say the command otherwise."""

    status = 2


def explained(text: str, layer: Layer | None = None) -> str:
    """Return the explanation of a query in SQL, of a pipeline file or of a spool, which are given by their paths.

    What names a file or folder that is there, ends in `.toml` or is a single word is a path: no query is one word.
    Raises what is wrong with it: InputError where there is nothing, PipelineError, QueryError and SpoolError.
    """
    path = Path(text)
    if not _is_path(text):
        from queries.explain.plan import explain
        from queries.gsql import compile_query

        return explain(compile_query(text, layer=layer or Layer.OUTER))
    if layer is not None:
        raise ExplainError(f"{path} and --layer: expected --layer with a query; those of a pipeline have their own")
    try:
        return _of_path(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error


def _of_path(path: Path) -> str:
    if path.is_dir():
        return _spool(path)
    if not path.exists() and path.suffix != ".toml":
        raise InputError(f"{path}: got no file or folder, expected a query, PIPELINE.toml or the folder of a spool")
    from dashboards.monitors.pipeline_lines import pipeline_lines
    from queries.pipeline.file import read_pipeline

    return "\n".join(pipeline_lines(read_pipeline(path)))


def _spool(folder: Path) -> str:
    from lowlevel.spool.folder import LOCK, numbers
    from lowlevel.spool.inspection import inspect

    names = {entry.name for entry in folder.iterdir()}
    if names and LOCK not in names and not numbers(folder):
        raise InputError(f"{folder}: got a folder without segments, expected that of a spool, or PIPELINE.toml")
    return "\n".join(inspect(folder).lines())


def _is_path(text: str) -> bool:
    if text.endswith(".toml") or len(text.split()) == 1:
        return True
    try:
        return bool(text) and Path(text).exists()
    except (OSError, ValueError):  # longer than any name of a file, or with a NUL
        return False


def explain(
    what: Annotated[
        str, typer.Argument(metavar="SQL|PIPELINE.toml|SPOOL", help="A query, a pipeline file, or a spool's folder.")
    ],
    layer: Annotated[
        Layer | None, typer.Option(help="The IP layer that plain names of a query mean; left out: outer.")
    ] = None,
) -> None:
    """Show the plan of a query or a pipeline file, or inspect a spool.

    The plan of a query says which part runs at the low level, which at the high level, and why.

    A pipeline file has in addition its links with their readers, low watermarks and flush policies, and the tables
    that queries share with their memory. No input is opened.

    A spool has its segments, commits, low watermarks, losses and damage. It may be in use.
    """
    from dashboards.wire_text import lines_escaped

    print(lines_escaped(explained(what, layer)))
