"""`wiretide compare`: one query over one input, in order and out of order."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dashboards.commands.query import bound_names
from lowlevel.layers import Layer


def compare(
    words: Annotated[
        list[str], typer.Argument(metavar="[FILE]... SQL", help="Captures, folders or globs; then the query.")
    ],
    stream: Annotated[
        list[str] | None,
        typer.Option("--stream", "-s", metavar="NAME=PATH", help="Bind a name in FROM to a file, folder or glob."),
    ] = None,
    slack: Annotated[str, typer.Option(metavar="TIMES", help="How late rows are said to be, each tried.")] = "0,1s,5s",
    skew: Annotated[
        list[str] | None, typer.Option(metavar="NAME=TIME", help="Let a link be behind by so much; repeatable.")
    ] = None,
    lull: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=START+TIME", help="Hold a link's rows back from START on for a time; repeatable."),
    ] = None,
    disorder: Annotated[str, typer.Option(metavar="TIME", help="Delay each row by up to so much.")] = "0",
    block: Annotated[
        str, typer.Option(metavar="TIME", help="Let rows come in blocks of such a time, behind its end and shuffled.")
    ] = "0",
    seed: Annotated[int, typer.Option(min=0, help="The same seed delays the same rows.")] = 1,
    repeat: Annotated[int, typer.Option(min=1, help="How often each variant is timed; the median is told.")] = 3,
    tick: Annotated[
        str | None, typer.Option(metavar="TIME", help="Arrival time in a batch: 250ms, or a 4000th of all.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Rows that are kept in memory at most.")] = 20_000_000,
    layer: Annotated[Layer, typer.Option(help="The IP layer that plain names mean.")] = Layer.OUTER,
    csv: Annotated[Path | None, typer.Option(help="Write the figures to this file as well.")] = None,
    plots: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Draw state and latency into this folder; needs matplotlib.")
    ] = None,
) -> None:
    """Answer a query in order and out of order, and compare the costs.

    Both ways receive the same arrivals:

        wiretide compare trace.pcap --disorder 2s "SELECT srcIP, count(*) FROM p [RANGE 10 seconds] GROUP BY srcIP"

    docs/guide/compare.md explains the variants and the table. All rows are kept in memory.
    """
    from dashboards import comparing
    from dashboards.output.comparison_plots import draw, require_plots
    from dashboards.output.comparison_table import about, lines, verdict
    from dashboards.output.console import compile_kernels, progress_bar
    from highlevel.compare.figures import figures

    *files, sql = words
    if not (files or stream):
        raise typer.BadParameter("no input: name at least one capture before the query, or bind one with -s NAME=PATH")
    try:
        settings = comparing.settings(slack, skew or [], lull or [], disorder, block, seed, repeat, tick, limit)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    if plots is not None:
        require_plots()
    found = comparing.run_comparison(
        sql, files, bound_names(stream or []), layer, settings, progress_bar, compile_kernels
    )
    table = figures(found)
    if csv is not None:
        from pyarrow.csv import write_csv

        write_csv(table, csv)
    if plots is not None:
        draw(found, table, plots)
    print(about(found))
    print(*lines(table), sep="\n")
    print(*verdict(table), sep="\n")
