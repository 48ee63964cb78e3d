"""`wiretide explain`: how a query would run."""

from __future__ import annotations

from typing import Annotated

import typer

from lowlevel.layers import Layer


def explain(
    sql: Annotated[str, typer.Argument(help="The query.")],
    layer: Annotated[Layer, typer.Option(help="The IP layer that plain names mean.")] = Layer.OUTER,
) -> None:
    """Show the plan of a query: what runs low, what runs high, and why."""
    from queries.explain import explain as explain_plan
    from queries.gsql import compile_query

    print(explain_plan(compile_query(sql, layer=layer)))
