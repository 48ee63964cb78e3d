"""Drawings of charts: texts of senders stay texts, documents can contain several drawings, files are reproducible."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest

from capture.units import SECOND
from dashboards.page.charts import Chart, Line
from dashboards.plots.answer_charts import AnswerChart
from dashboards.plots.drawing import draw_png, draw_svg
from dashboards.units import unit_of

HOSTILE = ["<script>alert(1)</script>", "$x^2$", "_hidden", "a\x1b[2J\u202eb", "&amp;", "x" * 100]


def chart(names: list[str], column: str = "bytes", *, bars: bool = False) -> AnswerChart:
    ends = (10 * SECOND,) if bars else (10 * SECOND, 20 * SECOND, 30 * SECOND)
    lines = tuple(Line(name, tuple(2000.0 + number for _ in ends), 2000.0) for number, name in enumerate(names))
    other = Line("all others", tuple(1.0 for _ in ends), 1.0)
    return AnswerChart(Chart(column, ends, lines, other), unit_of(column), 10 * SECOND, is_timed=True, is_bars=bars)


def texts(svg: str) -> list[str]:
    return ["".join(element.itertext()) for element in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.parametrize("bars", [False, True])
def test_names_are_shown_as_text(bars: bool) -> None:
    shown = [text.strip() for text in texts(draw_svg("", [chart(HOSTILE, bars=bars)]))]
    for name in (
        "<script>alert(1)</script>",
        "$x^2$",
        "_hidden",
        "a\\x1b[2J\\u202eb",
        "&amp;",
        "x" * 39 + "…",
        "all others",
    ):
        assert name in shown


@pytest.mark.parametrize(("column", "text"), [("bytes", "2 kB"), ("median_ms", "2,000 ms"), ("packets", "2 k")])
def test_bars_have_their_value_and_unit(column: str, text: str) -> None:
    assert text in texts(draw_svg("", [chart(["a"], column, bars=True)]))


def test_the_ids_of_two_drawings_differ_and_exist() -> None:
    first, second = (draw_svg("", [chart(["a", "b"])], prefix) for prefix in ("one", "two"))
    ids = [set(re.findall(r'\bid="([^"]+)"', svg)) for svg in (first, second)]
    assert not ids[0] & ids[1]
    for svg, known in zip((first, second), ids, strict=True):
        assert set(re.findall(r'(?:url\(#|href="#)([^")]+)', svg)) <= known


def test_a_drawing_depends_only_on_its_charts() -> None:
    charts = [chart(["a", "b"]), chart(["a"], bars=True)]
    assert draw_svg("t", charts) == draw_svg("t", charts)
    assert draw_png("t", charts) == draw_png("t", charts)
    assert draw_png("t", charts).startswith(b"\x89PNG\r\n")


def test_texts_have_the_color_of_the_page() -> None:
    svg = draw_svg("title", [chart(["a"])])
    assert "#010203" not in svg
    assert "currentColor" in svg
