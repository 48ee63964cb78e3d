"""Writes measured figures into the documents: `python -m bench --record`.

docs/figures/performance.md contains all figures. Its section of a bench contains the marks

    <!-- figures of NAME -->
    <!-- end of figures -->

and the tables of the bench replace the text between them, below a description of the machine. Headlines of the bench
replace rows of the table "In short" and of the README's table. All other text stays: read it again after a recording,
because it may contain figures too.
"""

from __future__ import annotations

import re
from pathlib import Path

from bench.report import Report

ROOT = Path(__file__).resolve().parent.parent
FIGURES = ROOT / "docs" / "figures" / "performance.md"
README = ROOT / "README.md"


def record(report: Report, machine: str) -> None:
    """Write the figures of one bench into both documents, in this repository."""
    FIGURES.write_text(replace_figures(FIGURES.read_text("utf-8"), report, machine), "utf-8")
    README.write_text(replace_headlines(README.read_text("utf-8"), report.headlines), "utf-8")


def replace_figures(text: str, report: Report, machine: str) -> str:
    """Return docs/figures/performance.md with the tables and headlines of one bench replaced."""
    section = re.compile(rf"(<!-- figures of {report.bench} -->\n).*?(\n<!-- end of figures -->)", re.DOTALL)
    where = "Measured on:\n" + ";\n".join(machine.splitlines()) + "."
    if not section.search(text):
        raise ValueError(
            f"docs/figures/performance.md: got no marks for {report.bench}, expected <!-- figures of {report.bench} -->"
        )
    text = section.sub(lambda found: f"{found[1]}\n{where}\n\n{report.markdown()}\n{found[2]}", text)
    return replace_headlines(text, report.headlines)


def replace_headlines(text: str, headlines: dict[str, str]) -> str:
    """Replace the last cell of table rows. `headlines`: the new last cell by the text of the first cell.

    >>> replace_headlines("| a | `decode` | 1 |", {"a": "2 M"})
    '| a | `decode` | 2 M |'
    """
    for what, measured in headlines.items():
        row = re.compile(rf"^(\| {re.escape(what)} \|(?: `\w+` \|)? ).*( \|)$", re.MULTILINE)
        text, count = row.subn(lambda found, measured=measured: f"{found[1]}{measured}{found[2]}", text)  # type: ignore[misc]
        if count != 1:
            raise ValueError(f"got {count} table rows that begin with {what!r}, expected 1")
    return text
