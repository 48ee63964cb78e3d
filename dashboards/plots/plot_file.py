"""Write the plot of an answer into a file: SVG, PNG, or an HTML document with the plot and the rows."""

from __future__ import annotations

from pathlib import Path

from dashboards.output.run_warnings import count
from dashboards.output.writers import open_output
from dashboards.plots import document
from dashboards.plots.answer_charts import AnswerRows, PlotError
from dashboards.plots.drawing import draw_png, draw_svg

SUFFIXES = (".svg", ".png", ".html")
"""Formats of plots, by the suffix of the file."""


def check_plot_file(path: Path) -> None:
    """Raise PlotError for a name without the suffix of a format."""
    if path.suffix.lower() not in SUFFIXES:
        raise PlotError(f"--plot {path}: got a name without a known suffix, expected {', '.join(SUFFIXES)}")


def write_plot(path: Path, answer: AnswerRows) -> str:
    """Draw an answer and write it to `path`. Return a sentence for the user.

    Raises PlotError for an answer that cannot be drawn, InputError if the file cannot be written.
    """
    plan, charts = answer.plan, answer.charts()
    name = "" if plan.name == "query" else plan.name
    match path.suffix.lower():
        case ".png":
            data = draw_png(name, charts)
        case ".svg":
            data = draw_svg(name, charts).encode()
        case _:
            columns = ", ".join(chart.chart.column for chart in charts)
            title = name or f"{columns} by {', '.join(answer.series.key_columns) or 'window'}"
            rows = answer.rows
            values = [value.column for value in answer.series.values]
            caption = count(rows.num_rows, "row")
            parts = [
                f"<main><h1>{document.text(title)}</h1>",
                "<section>",
                document.figure(draw_svg("", charts), f"Plot of {columns}; the table below has the values."),
                "</section><section>",
                document.table(rows, caption, plan.times, values),
                document.code(plan.sql),
                "</section></main>",
            ]
            data = document.page(title, parts).encode()
    with open_output(path) as sink:
        sink.write(data)
    return f"{path}: {count(len(charts), 'chart')} of {count(answer.count, 'row')}"
