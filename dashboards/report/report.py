"""Make a report: measure the times of records, answer the queries of all sections in one pass, write the document."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from importlib.metadata import version

import pyarrow as pa

from capture.errors import InputError
from capture.lazy_dataclasses import dataclass
from capture.metrics import RECORDS_READ, RECORDS_SKIPPED, Samples
from capture.units import SECOND
from dashboards.answer import answer_all
from dashboards.output.console import warn
from dashboards.output.run_warnings import count
from dashboards.plots import document
from dashboards.plots.answer_charts import AnswerRows
from dashboards.plots.drawing import draw_svg
from dashboards.report.record_times import LinkTimes, late_by_class, lateness_of, measure_times
from dashboards.report.sections import Section, sections_of, window_clause, window_length
from highlevel.inline.engine import Input
from lowlevel.durations import duration_text
from lowlevel.layers import Layer
from lowlevel.times import time_texts

Bar = Callable[[], AbstractContextManager[Callable[[int, int], None] | None]]
"""A function that shows a progress bar of bytes. The value of its context is a function that advances the bar, or None
if no bar is shown.
"""

SHOWN_ROWS = 50
"""Maximum number of rows of a table in a report."""


@dataclass(frozen=True)
class ReportData:
    """All data of a report. `window`: the length of the windows of timelines in ns."""

    kind: str
    names: tuple[str, ...]
    links: tuple[LinkTimes, ...]
    window: int
    sections: tuple[Section, ...]
    answers: tuple[AnswerRows, ...]
    samples: Samples
    warnings: tuple[str, ...]


def make_report(inputs: Sequence[Input], row_kind: str, window: int | None, bar: Bar) -> str:
    """Return the document about finite inputs. `row_kind` is `packets` or `flows`.

    `window`: the length of the windows of timelines in ns; by default it depends on the length of the inputs. `bar` is
    called for each of the two passes. Raises InputError for an input that cannot be read, and for inputs without rows.
    """
    with bar() as progress:
        links = measure_times(inputs, row_kind, progress)
    rows = sum(link.rows for link in links)
    if rows == 0:
        other = "flows: without --flows" if row_kind == "flows" else "IP packets; for flow exports write --flows"
        raise InputError(f"{', '.join(source.name for source in inputs)}: no {other}")
    first = min(link.first for link in links if link.rows)
    last = max(link.last for link in links if link.rows)
    return write_report(_answer(inputs, row_kind, links, window or window_length(first, last), bar))


def _answer(inputs: Sequence[Input], row_kind: str, links: Sequence[LinkTimes], window: int, bar: Bar) -> ReportData:
    """Answer the queries of all sections in one pass."""
    from queries.gsql import compile_query
    from queries.query_text import query_text

    sections = sections_of(row_kind, [link.link for link in links])
    texts = [query_text(section.sql.replace("{window}", window_clause(window)), {}) for section in sections]
    plans = [compile_query(text, section.name, Layer.OUTER) for text, section in zip(texts, sections, strict=True)]
    answers = [AnswerRows(plan) for plan in plans]
    with answer_all(plans, inputs) as answer:
        with bar() as progress:
            answer.report_progress(progress)
            for number, batch in answer.batches:
                answers[number].add(batch)
        samples, warnings = answer.samples(), answer.warnings()
    for warning in warnings:
        warn(warning)
    names = tuple(source.name for source in inputs)
    return ReportData(row_kind, names, tuple(links), window, tuple(sections), tuple(answers), samples, tuple(warnings))


def write_report(data: ReportData) -> str:
    """Return the document."""
    title = f"Report about {', '.join(data.names[:3])}"
    if len(data.names) > 3:
        title += f" and {len(data.names) - 3} more"
    parts = [_summary_section(data)]
    links = ['<li><a href="#times">Order and lulls</a></li>', '<li><a href="#losses">Not decoded</a></li>']
    for section, answer in zip(data.sections, data.answers, strict=True):
        links.insert(-2, f'<li><a href="#{section.name}">{document.text(section.title)}</a></li>')
        parts.append(_query_section(section, answer))
    parts += [_times_section(data), _losses_section(data)]
    head = f'<header><h1>{document.text(title)}</h1><nav aria-label="Sections"><ul>{"".join(links)}</ul></nav></header>'
    footer = document.paragraph(f"Made by Wiretide {version('wiretide')}. Times are in UTC.", "note")
    return document.page(title, [head, "<main>", *parts, footer, "</main>"])


def _summary_section(data: ReportData) -> str:
    """Return the first section: the inputs, their records, and warnings."""
    links = [link for link in data.links if link.rows]
    first, last = min(link.first for link in links), max(link.last for link in links)
    rows = sum(link.rows for link in links)
    unit = "flow record" if data.kind == "flows" else "IP packet"
    seconds = (last - first) / SECOND
    span = f"from {_time_text(first)} to {_time_text(last)} ({_duration_text(last - first)})"
    rate = f" On average {_rate_text(rows / seconds)} {unit}s per second." if seconds > 0 else ""
    lines = [
        f"{count(rows, unit)} of {count(len(links), 'link')}, {span}.{rate}",
        f"Windows of timelines have {_duration_text(data.window)}.",
    ]
    table = pa.table(
        {
            "link": [link.link for link in links],
            f"{unit}s": [link.rows for link in links],
            "first": [link.first for link in links],
            "last": [link.last for link in links],
        }
    )
    body = document.table(table, "Links", ("first", "last"), (f"{unit}s",), SHOWN_ROWS)
    problems = [document.paragraph(warning, "bad") for warning in data.warnings]
    return _section_html("summary", "Summary", [*map(document.paragraph, lines), *problems, body])


def _query_section(section: Section, answer: AnswerRows) -> str:
    """Return the section with the answer of a query."""
    if answer.count == 0:
        return _section_html(section.name, section.title, [document.paragraph(section.empty or "There are no rows.")])
    parts = [document.paragraph(section.note, "note")]
    charts = answer.charts(section.columns) if section.columns else []
    if charts:
        names = ", ".join(chart.chart.column for chart in charts)
        label = f"Plot of {names}. The table below has the values."
        parts.append(document.figure(draw_svg("", charts, section.name), label))
    values = [value.column for value in answer.series.values]
    rows = answer.rows
    caption = f"{section.title}: {count(rows.num_rows, 'row')}"
    parts += [
        document.table(rows, caption, answer.plan.times, values, SHOWN_ROWS),
        document.code(answer.plan.sql),
    ]
    return _section_html(section.name, section.title, parts)


SHARES = (0.5, 0.9, 0.95, 0.99, 0.999, 1.0)
"""Shares of the late records for which the report states the lateness."""


def _times_section(data: ReportData) -> str:
    """Return the section about the order of records and about lulls."""
    links = [link for link in data.links if link.rows]
    lateness = lateness_of(links)
    late = lateness.late_rows
    rows = sum(link.rows for link in links)
    parts = []
    if late == 0:
        parts.append(document.paragraph("All records are in the order of their times."))
    else:
        parts.append(
            document.paragraph(
                f"{count(late, 'record')} of {rows:,} ({late / rows:.2%}) have a smaller time than an earlier record "
                "of the same input. A live query over this traffic needs a slack of "
                f"{duration_text(lateness.round_bound)}."
            )
        )
        table = pa.table(
            {
                "link": [link.link for link in links],
                "late records": [link.late_rows for link in links],
                "largest lateness, s": [link.lateness.largest / SECOND for link in links],
            }
        )
        parts.append(document.table(table, "Late records by link", (), table.column_names[1:], SHOWN_ROWS))
        classes = late_by_class(links)
        table = pa.table({"lateness": list(classes), "records": list(classes.values())})
        parts.append(document.table(table, "Late records by lateness", (), ("records",)))
        table = pa.table(
            {
                "late records, %": [100 * share for share in SHARES],
                "at most, s": [lateness.quantile(share) / SECOND for share in SHARES],
            }
        )
        parts.append(document.table(table, "Lateness: times for WAIT", (), tuple(table.column_names)))
        parts += _interface_pairs_table(links)
    lulls = sorted(((lull, link.link) for link in links for lull in link.lulls()), key=lambda pair: -pair[0].length)[
        :10
    ]
    if lulls:
        table = pa.table(
            {
                "link": [link for _, link in lulls],
                "from": [lull.start for lull, _ in lulls],
                "to": [lull.end for lull, _ in lulls],
                "seconds": [lull.length / SECOND for lull, _ in lulls],
            }
        )
        parts.append(document.table(table, "The longest times without a record", ("from", "to"), ("seconds",)))
    return _section_html("times", "Order and lulls", parts)


def _interface_pairs_table(links: Sequence[LinkTimes]) -> list[str]:
    """Return a table of the interfaces of late records, if a link has several interfaces."""
    pairs = [
        (link.link, late, newest, *link.pairs[late, newest])
        for link in links
        if len({interface for pair in link.pairs for interface in pair}) > 1
        for late, newest in link.pairs
    ]
    if not pairs:
        return []
    pairs.sort(key=lambda pair: -pair[3])
    names = ("link", "interface of the late record", "interface of the newest record", "records", "largest lateness, s")
    columns = list(zip(*pairs, strict=True))
    columns[4] = tuple(lateness / SECOND for lateness in columns[4])
    table = pa.table(dict(zip(names, map(list, columns), strict=True)))
    return [document.table(table, "Late records by interface", (), names[3:], SHOWN_ROWS)]


CAUSES = {
    "non_ip": "not IP, such as ARP",
    "ip_header_cut": "the IP header was not captured completely",
    "ip_header_malformed": "the IP header is invalid",
    "unsupported_link_type": "the link type is not supported",
}
"""Explanations of causes in RECORDS_SKIPPED."""


def _losses_section(data: ReportData) -> str:
    """Return the section about records that could not be decoded."""
    samples = data.samples
    read = int(samples.total(RECORDS_READ))
    skipped = [
        (labels[0], labels[1], int(value))
        for (name, labels), value in samples.items()
        if name == RECORDS_SKIPPED.name and value
    ]
    total = sum(records for *_, records in skipped)
    if not skipped:
        return _section_html(
            "losses", "Not decoded", [document.paragraph(f"All of {count(read, 'record')} were decoded.")]
        )
    skipped.sort(key=lambda row: -row[2])
    table = pa.table(
        {
            "link": [link for link, _, _ in skipped],
            "cause": [CAUSES.get(cause, cause.replace("_", " ")) for _, cause, _ in skipped],
            "records": [records for *_, records in skipped],
        }
    )
    parts = [
        document.paragraph(f"{total:,} of {count(read, 'record')} have no IP packet that could be decoded."),
        document.table(table, "Records by cause", (), ("records",), SHOWN_ROWS),
    ]
    return _section_html("losses", "Not decoded", parts)


def _section_html(name: str, title: str, blocks_html: Sequence[str]) -> str:
    return "\n".join([f'<section id="{name}"><h2>{document.text(title)}</h2>', *blocks_html, "</section>"])


def _time_text(time: int) -> str:
    text: str = time_texts(pa.array([time], pa.int64()))[0].as_py()
    return text


def _rate_text(value: float) -> str:
    """Return a rate with at least two digits.

    >>> _rate_text(12345.6), _rate_text(0.001234)
    ('12,346', '0.0012')
    """
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def _duration_text(length: int) -> str:
    """Return a duration with one or two units.

    >>> _duration_text(90 * SECOND), _duration_text(5 * 10**6), _duration_text(26 * 3600 * SECOND)
    ('1 min 30 s', '5 ms', '1 d 2 h')
    """
    if length < SECOND:
        return f"{length / 10**6:g} ms"
    seconds = length / SECOND
    units = ((86400, "d"), (3600, "h"), (60, "min"))
    for (size, name), (smaller, smaller_name) in zip(units, (*units[1:], (1, "s")), strict=True):
        if seconds >= size:
            whole, smaller_count = round(seconds) // size, round(seconds) % size // smaller
            return f"{whole} {name} {smaller_count} {smaller_name}" if smaller_count else f"{whole} {name}"
    return f"{seconds:g} s"
