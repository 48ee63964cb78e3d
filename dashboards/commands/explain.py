"""`wiretide explain`: how a query or a pipeline would run, and what is in a spool."""

from __future__ import annotations

from typing import Annotated

import typer

from lowlevel.layers import Layer


def explain(
    what: Annotated[
        str, typer.Argument(metavar="SQL|PIPELINE.toml|SPOOL", help="A query, a pipeline file, or a spool's folder.")
    ],
    layer: Annotated[
        Layer | None, typer.Option(help="The IP layer that plain names of a query mean; left out: outer.")
    ] = None,
) -> None:
    """Show the plan of a query: what runs low, what runs high, and why. Or a pipeline, or what is in a spool.

    Of a pipeline file these are its links, each with who reads it, its promise, its flush policy, the tables that
    queries share and their memory, and the plans of all queries; no input is opened. Of a spool, which may be in use:
    segments, what has been committed, what was promised, lost and damaged.
    """
    from dashboards.explained import explained
    from dashboards.wire_text import lines_escaped

    print(lines_escaped(explained(what, layer)))
