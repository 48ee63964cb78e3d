"""The report of a bench: tables for people, information lines, then one JSON line per criterion."""

from __future__ import annotations

import json
import operator
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

LINE = 100
"""Maximum number of characters in a line of Markdown outside tables."""

COMPARE: dict[str, Callable[[float, float], bool]] = {">=": operator.ge, "<=": operator.le}


@dataclass(frozen=True)
class Criterion:
    """A figure with a target.

    `relation` is one of COMPARE. `judged` is False if the run was too small for the target. If `judged` is False or
    `measured` is None, the line has `"pass": null`, with the reason `why`.

    >>> print(Criterion("decode", "one core", 3.14159, ">=", 2).line())
    {"bench": "decode", "criterion": "one core", "measured": 3.142, "target": ">= 2", "pass": true}
    """

    bench: str
    name: str
    measured: float | None
    relation: str
    target: float
    judged: bool = True
    why: str = ""

    @property
    def passed(self) -> bool | None:
        """True if the criterion holds; None if it was not judged."""
        if self.measured is None or not self.judged:
            return None
        return COMPARE[self.relation](self.measured, self.target)

    def line(self) -> str:
        """One line of JSON."""
        fields: dict[str, object] = {
            "bench": self.bench,
            "criterion": self.name,
            "measured": None if self.measured is None else float(f"{self.measured:.4g}"),
            "target": f"{self.relation} {self.target:g}",
            "pass": self.passed,
        }
        if self.passed is None:
            fields["why"] = self.why or "the run was too small for it"
        return json.dumps(fields)


@dataclass
class Report:
    """The results of one bench: tables (title, column names, rows), notes, information, headlines and criteria.

    Information is an absolute figure: it depends on the machine and its present speed, so it is printed and not judged.
    A headline is a figure of the table "In short" of docs/figures/performance.md and of the README's table.
    """

    bench: str
    tables: list[tuple[str, tuple[str, ...], Sequence[tuple[str, ...]]]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    information: list[tuple[str, str]] = field(default_factory=list)
    headlines: dict[str, str] = field(default_factory=dict)
    criteria: list[Criterion] = field(default_factory=list)

    def table(self, title: str, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
        """Add a table; every row has a cell for each column."""
        self.tables.append((title, columns, rows))

    def add_criterion(self, name: str, measured: float | None, target: str, judged: bool = True, why: str = "") -> None:
        """Add a criterion; `target` is such as `>= 25`."""
        relation, limit = target.split()
        self.criteria.append(Criterion(self.bench, name, measured, relation, float(limit), judged, why))

    def add_information(self, name: str, measured: object) -> None:
        """Add an absolute figure that is printed and not judged."""
        self.information.append((name, str(measured)))

    def add_headline(self, what: str, measured: str) -> None:
        """Add a figure of the README. `what` is the first cell of its table row."""
        self.headlines[what] = measured

    def verdicts(self) -> str:
        """Render the criteria, one line of JSON each."""
        return "\n".join(criterion.line() for criterion in self.criteria)

    def text(self) -> str:
        """Render the tables, notes, information and headlines, in plain columns."""
        lines = []
        for title, columns, rows in self.tables:
            widths = [max(map(len, cells)) for cells in zip(columns, *rows, strict=True)]
            lines += ["", f"{self.bench}: {title}"]
            for cells in (columns, tuple("-" * width for width in widths), *rows):
                left, *right = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
                lines.append("  ".join([f"  {left}", *right]).rstrip())
        lines += [f"  {note}" for note in self.notes]
        lines += [f"  information, not judged: {name}: {measured}" for name, measured in self.information]
        lines += [f"  in short: | {what} | {measured} |" for what, measured in self.headlines.items()]
        return "\n".join(lines)

    def markdown(self) -> str:
        """Render the tables, notes and information as Markdown, for docs/figures/performance.md."""
        parts = []
        for title, columns, rows in self.tables:
            cells = [columns, tuple("---" for _ in columns), *rows]
            lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in cells]
            parts.append("\n".join([textwrap.fill(f"{title}:", LINE), "", *lines]))
        lines = [f"* {note}" for note in self.notes]
        lines += [f"* information, not judged: {name}: {measured}" for name, measured in self.information]
        lines = [textwrap.fill(line, LINE, subsequent_indent="  ", break_on_hyphens=False) for line in lines]
        return "\n\n".join([*parts, *(["\n".join(lines)] if lines else [])])
