"""Tables of plain text."""

from __future__ import annotations

from dashboards.wire_text import escaped


def aligned(header: list[str], rows: list[list[str]]) -> str:
    """Lay out: the first column to the left, numbers to the right, a rule under the header."""
    header, rows = list(map(escaped, header)), [list(map(escaped, row)) for row in rows]
    widths = [max(len(row[place]) for row in [header, *rows]) for place in range(len(header))]
    lines = []
    for row in [header, ["-" * width for width in widths], *rows]:
        cells = [
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
