"""Explained plans as drawings in SVG. Each node is a box. Rows flow from the leaves at the bottom to the result.

The nodes of the low level are below the dashed line. A box contains the first lines of the explanation of its node; the
whole explanation is its tooltip. With measured figures a box also contains the number of returned rows. Its colour is
darker if the node needed more time.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from xml.sax.saxutils import escape

from capture.lazy_dataclasses import dataclass
from highlevel.plan.nodes import Leaf, Node
from highlevel.plan.plan import Plan
from queries.explain.lines import parts_of_line
from queries.explain.plan import node_lines

MAX_LINES = 9
"""Largest number of lines in a box."""

MAX_WIDTH = 58
"""Largest number of characters of a line in a box."""

CHARACTER_WIDTH, LINE_HEIGHT, MARGIN, BOX_GAP, LEVEL_GAP = 6.7, 15, 10, 30, 52
"""Width of a character, height of a line, border of a box, and the space between boxes and between levels, in pixels.

The font has 11 pixels and equal widths of all characters.
"""

HEADER = 46
"""Height of the head with the query, in pixels."""

RED, BLUE, GREEN, GREY, BLACK = "#c0392b", "#eaf1fb", "#eaf7ee", "#888888", "#222222"


@dataclass(frozen=True)
class Figures:
    """Measured figures of a node. `returned`: its rows and bytes, as text. `seconds`: its time; None for a leaf."""

    returned: str
    seconds: float | None = None


@dataclass
class Box:
    """The box of a node: its title, lines and tooltip, and its left upper corner in pixels."""

    node: Node
    title: str
    lines: list[str]
    tooltip: list[str]
    x: float = 0.0
    y: float = 0.0

    @property
    def width(self) -> float:
        """Width in pixels."""
        return max(len(text) for text in (self.title, *self.lines)) * CHARACTER_WIDTH + 2 * MARGIN

    @property
    def height(self) -> float:
        """Height in pixels."""
        return (1 + len(self.lines)) * LINE_HEIGHT + 2 * MARGIN - 4

    @property
    def middle(self) -> float:
        """The horizontal middle in pixels."""
        return self.x + self.width / 2


def draw(plan: Plan, figures: Mapping[Node, Figures] | None = None) -> str:
    """Return the plan as an SVG document."""
    figures = figures or {}
    boxes = _boxes(plan, figures)
    levels = _levels(plan, boxes)
    width, height, border = _place(levels)
    head = _shortened(" ".join(plan.sql.split()), int(width / CHARACTER_WIDTH) - 4)
    slowest = max((figure.seconds or 0.0 for figure in figures.values()), default=0.0)
    size = f'width="{width:.0f}" height="{height:.0f}"'
    view = f'viewBox="0 0 {width:.0f} {height:.0f}"'
    font = 'font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="11"'
    ends = f'x1="0" x2="{width:.0f}" y1="{border:.0f}" y2="{border:.0f}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {view} {font}>',
        f"<title>{_printable(plan.name)}</title>",
        f'<rect {size} fill="white"/>',
        _text(BOX_GAP, 20, plan.name, bold=True),
        _text(BOX_GAP, 36, head, GREY),
        f'<line {ends} stroke="{GREY}" stroke-dasharray="5 4"/>',
        _text(6, border - 5, "high level", GREY),
        _text(6, border + 13, "low level", GREY),
    ]
    by_node = {box.node: box for box in boxes}
    for box in boxes:
        for source in box.node.inputs:
            parts += _edge(by_node[source], box)
    for box in boxes:
        seconds = figures[box.node].seconds if box.node in figures else None
        parts += _box(box, seconds, (seconds or 0.0) / slowest if slowest else 0.0)
    return "\n".join([*parts, "</svg>", ""])


def _boxes(plan: Plan, figures: Mapping[Node, Figures]) -> list[Box]:
    names = dict(zip(plan.nodes, plan.node_names, strict=True))
    boxes = []
    for node, name in names.items():
        lines = [": ".join(filter(None, parts_of_line(text))) for text in node_lines(node, names)]
        box_lines = [_shortened(text, MAX_WIDTH) for text in lines[:MAX_LINES]]
        if len(lines) > MAX_LINES:
            box_lines[-1] = f"… {len(lines) - MAX_LINES + 1} more lines"
        if node in figures:
            box_lines.append(f"returned {figures[node].returned}")
        boxes.append(Box(node, name, box_lines, [name, *lines]))
    return boxes


def _levels(plan: Plan, boxes: Sequence[Box]) -> list[list[Box]]:
    """Return the boxes by their level from the leaves on. A node is one level above the highest of its inputs."""
    level: dict[Node, int] = {}
    for node in plan.nodes:
        level[node] = 1 + max((level[source] for source in node.inputs), default=-1)
    return [[box for box in boxes if level[box.node] == number] for number in range(max(level.values()) + 1)]


def _place(levels: Sequence[list[Box]]) -> tuple[float, float, float]:
    """Place the boxes. Return the width and height of the drawing, and the height of the line between the levels."""
    heights = [max(box.height for box in level) for level in levels]
    widths = [sum(box.width + BOX_GAP for box in level) + BOX_GAP for level in levels]
    width, y = max(*widths, 480.0), HEADER + LEVEL_GAP / 2
    tops = list(itertools.accumulate([y, *(height + LEVEL_GAP for height in reversed(heights))]))
    border = tops[len(levels) - 1] - LEVEL_GAP / 2 if len(levels) > 1 else y - LEVEL_GAP / 2
    placed: dict[Node, Box] = {}
    for number, level in enumerate(levels):
        if number:  # boxes are above their inputs, so that few edges cross
            level.sort(key=lambda box: sum(placed[node].middle for node in box.node.inputs) / len(box.node.inputs))
        x = (width - widths[number]) / 2 + BOX_GAP
        for box in level:
            box.x, box.y = x, tops[len(levels) - 1 - number]
            x += box.width + BOX_GAP
            placed[box.node] = box
    return width, tops[-1] - LEVEL_GAP / 2 + 6, border


def _edge(source: Box, target: Box) -> Iterator[str]:
    x1, y1, x2, y2 = source.middle, source.y, target.middle, target.y + target.height
    half = (y1 + y2) / 2
    yield (
        f'<path d="M {x1:.1f} {y1:.1f} C {x1:.1f} {half:.1f}, {x2:.1f} {half:.1f}, {x2:.1f} {y2 + 6:.1f}" '
        f'fill="none" stroke="{BLACK}"/>'
    )
    yield f'<path d="M {x2 - 4:.1f} {y2 + 7:.1f} h 8 l -4 -6 Z" fill="{BLACK}"/>'


def _box(box: Box, seconds: float | None, share: float) -> Iterator[str]:
    fill = GREEN if isinstance(box.node, Leaf) else BLUE
    corner = f'x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" rx="5"'
    yield f"<g><title>{'&#10;'.join(map(_printable, box.tooltip))}</title>"
    yield f'<rect {corner} fill="{fill}" stroke="{GREY}"/>'
    if share > 0:
        yield f'<rect {corner} fill="{RED}" fill-opacity="{0.45 * share:.3f}"/>'
    y = box.y + MARGIN + 8
    yield _text(box.x + MARGIN, y, box.title, bold=True)
    if seconds is not None:
        yield _text(box.x + box.width - MARGIN, y, f"{seconds:.3f} s", at_end=True)
    for number, text in enumerate(box.lines, 1):
        yield _text(box.x + MARGIN, y + number * LINE_HEIGHT, text)
    yield "</g>"


def _text(x: float, y: float, text: str, color: str = BLACK, *, bold: bool = False, at_end: bool = False) -> str:
    style = (' font-weight="bold"' if bold else "") + (' text-anchor="end"' if at_end else "")
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{color}"{style} xml:space="preserve">{_printable(text)}</text>'


def _printable(text: str) -> str:
    """Return a text for XML, which has no control characters."""
    return escape("".join(character if character.isprintable() else "�" for character in text))


def _shortened(text: str, max_length: int) -> str:
    return text if len(text) <= max_length else f"{text[: max_length - 1]}…"
