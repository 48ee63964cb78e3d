"""Drawings of plans: valid XML with a box for each node, no two boxes overlap, and figures are those of the run."""

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from queries.catalogue.catalogue import CATALOGUE
from queries.explain.drawing import Figures, draw
from queries.gsql import compile_query
from tests.harness.command_line import run
from tests.references.small_captures import icmp, udp, write

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "SELECT count(*) FROM packets WHERE link = '<a&b>\"]]>\x07'"


def boxes(svg: str) -> list[tuple[str, float, float, float, float]]:
    """The title of each box, and its left, top, right and bottom border."""
    found = []
    for group in ET.fromstring(svg).iter(f"{SVG}g"):
        rect = group.find(f"{SVG}rect")
        assert rect is not None
        x, y, width, height = (float(rect.attrib[name]) for name in ("x", "y", "width", "height"))
        title = next(iter(group.iter(f"{SVG}text"))).text
        found.append((title or "", x, y, x + width, y + height))
    return found


@pytest.mark.usefixtures("indicators")
@pytest.mark.parametrize("name", CATALOGUE)
def test_boxes_of_every_ready_query_are_its_nodes_side_by_side(name: str) -> None:
    sql = CATALOGUE[name].sql()
    if re.search(r"\bIN \(SELECT|EXISTS \(SELECT", sql):
        pytest.skip("sub-queries are computed before there is a plan")
    plan = compile_query(sql)
    svg = draw(plan)
    root = ET.fromstring(svg)
    width, height = (float(root.attrib[side]) for side in ("width", "height"))
    found = boxes(svg)
    assert sorted(title for title, *_ in found) == sorted(plan.node_names)
    for number, (title, left, top, right, bottom) in enumerate(found):
        assert 0 <= left < right <= width, title
        assert 0 <= top < bottom <= height, title
        for other, x1, y1, x2, y2 in found[:number]:
            assert right < x1 or x2 < left or bottom < y1 or y2 < top, (title, other)
    by_name = {title: borders for title, *borders in found}
    names = dict(zip(plan.nodes, plan.node_names, strict=True))
    for node, title in names.items():  # rows flow upwards
        assert all(by_name[title][3] < by_name[names[source]][1] for source in node.inputs)


def test_texts_of_a_query_are_escaped() -> None:
    root = ET.fromstring(draw(compile_query(HOSTILE)))
    texts = "".join(root.itertext())
    assert "'<a&b>\"]]>�'" in texts
    assert "\x07" not in texts


def test_figures_are_in_the_boxes() -> None:
    plan = compile_query("SELECT srcIP, count(*) FROM packets GROUP BY srcIP")
    leaf, windowed = plan.nodes
    svg = draw(plan, {leaf: Figures("5 rows, 80 bytes"), windowed: Figures("3 rows, 60 bytes", 1.25)})
    texts = [element.text for element in ET.fromstring(svg).iter(f"{SVG}text")]
    assert {"returned 5 rows, 80 bytes", "returned 3 rows, 60 bytes", "1.250 s"} <= set(texts)
    assert svg.count("fill-opacity") == 1


def test_the_command_writes_a_drawing(tmp_path: Path) -> None:
    write(tmp_path / "M.pcap", [(1, udp("10.0.0.1", "10.0.0.9", 1, 53)), (2, icmp("10.0.0.2", "10.0.0.9"))])
    assert run("explain", "-o", "plan.svg", "@floods", cwd=tmp_path) == (0, "", "")
    assert [title for title, *_ in boxes((tmp_path / "plan.svg").read_text())] == ["leaf", "windowed"]
    status, output, _ = run("explain", "--format", "svg", "--analyze", "M.pcap", "@packets", cwd=tmp_path)
    assert status == 0
    assert "returned 1 rows" in "".join(ET.fromstring(output).itertext())
    status, _, error = run("explain", "--format", "svg", "pipeline.toml", cwd=tmp_path)
    assert status == 2
    assert "pipeline.toml as a drawing: expected a query" in error
    status, _, error = run("explain", "-o", "no/such/plan.svg", "@floods", cwd=tmp_path)
    assert status == 1
    assert "cannot be written" in error
