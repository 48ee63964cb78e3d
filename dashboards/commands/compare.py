"""`wiretide compare`: measure one query in order and out of order, over the same input."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from dashboards.command_arguments import NO_INPUT, load_functions, parse_bindings, parse_params
from dashboards.command_options import Argument, Option, UsageError
from lowlevel.layers import Layer


def compare(
    words: Annotated[
        list[str],
        Argument(metavar="[FILE]... SQL", help="Captures, folders or globs, then the query in quotes or @NAME."),
    ],
    stream: Annotated[
        list[str] | None,
        Option("--stream", "-s", metavar="NAME=PATH", help="Bind a name in FROM to a file, folder or glob."),
    ] = None,
    param: Annotated[
        list[str] | None,
        Option(metavar="NAME=VALUE", help="Set a parameter of @NAME, or of PARAM in the query. Repeatable."),
    ] = None,
    functions: Annotated[
        list[Path] | None,
        Option(metavar="FILE", help="Load functions from a Python file (docs/guide/functions.md). Repeatable."),
    ] = None,
    slack: Annotated[
        str, Option(metavar="TIMES", help="Allowed disorders to measure, separated by commas.")
    ] = "0,1s,5s",
    skew: Annotated[
        list[str] | None, Option(metavar="NAME=TIME", help="Delay all rows of a link by this time. Repeatable.")
    ] = None,
    lull: Annotated[
        list[str] | None,
        Option(metavar="NAME=START+TIME", help="Hold back the rows of a link from START for TIME. Repeatable."),
    ] = None,
    disorder: Annotated[str, Option(metavar="TIME", help="Delay each row by a random time up to this one.")] = "0",
    block: Annotated[
        str, Option(metavar="TIME", help="Deliver rows in shuffled blocks of this length, after their end.")
    ] = "0",
    seed: Annotated[int, Option(min=0, help="Seed of the random delays.")] = 1,
    repeat: Annotated[int, Option(min=1, help="Number of runs of each variant; the median is printed.")] = 3,
    tick: Annotated[
        str | None,
        Option(metavar="TIME", help="Length in arrival time of a batch. Default: 1/4000 of the total time."),
    ] = None,
    limit: Annotated[int, Option(min=1, help="Maximum number of rows in memory.")] = 20_000_000,
    layer: Annotated[Layer, Option(help="IP layer of plain column names.")] = Layer.OUTER,
    csv: Annotated[Path | None, Option(help="Also write the figures to this file.")] = None,
    openmetrics: Annotated[
        Path | None,
        Option(metavar="FILE", help="Also write the figures as Prometheus samples (docs/guide/grafana.md)."),
    ] = None,
    blocks: Annotated[
        Path | None,
        Option(metavar="DIR", help="Also convert these samples to blocks in this folder. Needs --openmetrics."),
    ] = None,
    plots: Annotated[
        Path | None,
        Option(metavar="DIR", help="Write plots of state and latency into this folder. Needs matplotlib."),
    ] = None,
) -> None:
    """Answer a query with input in order and out of order, and compare the costs.

    All variants receive the same rows in the same order of arrival. All rows are kept in memory.

    \b
    wiretide compare trace.pcap --disorder 2s \\
      "SELECT srcIP, count(*) FROM p [RANGE 10 seconds] GROUP BY srcIP"

    docs/guide/compare.md explains the variants and the table.
    """  # noqa: D301  # click needs the character \b: the paragraph keeps its lines
    from dashboards import comparing
    from dashboards.output.comparison_plots import draw
    from dashboards.output.comparison_table import describe_input, format_table, verdict
    from dashboards.output.console import compile_kernels, progress_bar
    from dashboards.plots.drawing import require_matplotlib
    from dashboards.prometheus.backfill import create_blocks, require_promtool
    from dashboards.prometheus.comparison_samples import write_samples
    from highlevel.compare.figures import figures
    from queries.query_text import query_text

    *files, sql = words
    if not (files or stream):
        raise UsageError(NO_INPUT)
    try:
        settings = comparing.parse_settings(slack, skew or [], lull or [], disorder, block, seed, repeat, tick, limit)
    except ValueError as error:
        raise UsageError(str(error)) from error
    if plots is not None:
        require_matplotlib("--plots")
    if blocks is not None and openmetrics is None:
        raise UsageError("--blocks: got no file of samples, expected --openmetrics FILE too")
    promtool = require_promtool() if blocks is not None else None
    load_functions(functions or [])
    text = query_text(sql, parse_params(param or []))
    comparison = comparing.run_comparison(
        text, files, parse_bindings(stream or []), layer, settings, progress_bar, compile_kernels
    )
    table = figures(comparison)
    if csv is not None:
        from pyarrow.csv import write_csv

        write_csv(table, csv)
    if plots is not None:
        draw(comparison, table, plots)
    if openmetrics is not None:
        name = sql.removeprefix("@") if sql.startswith("@") else "query"
        count = write_samples(comparison, name, {"job": "wiretide"}, openmetrics)
        if blocks is not None and promtool is not None:
            create_blocks(promtool, openmetrics, blocks, count)
    print(describe_input(comparison))
    print(*format_table(table), sep="\n")
    print(*verdict(table), sep="\n")
