"""Reads the cases of MATCH_RECOGNIZE: rows, a clause, and the rows of the answer, in Markdown.

    ## A greedy quantifier takes as many rows as possible

    ```rows
    kind  a a b
    price 1 2 NULL
    ```

    ```sql
    ORDER BY ts MEASURES count(*) AS n PATTERN (A+) DEFINE A AS kind = 'a'
    ```

    | n |
    | --- |
    | 2 |

`rows` has a line for each column, its values from left to right. Without a line `ts` the rows are at 1 s, 2 s, ….
The query is `SELECT columns FROM ticks MATCH_RECOGNIZE (clause)`, with the columns of the answer. Rows of an answer
have any order. Times are in seconds, NULL is `NULL`. A case without a block `rows` has those of the case before.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

FOLDER = Path(__file__).with_name("row_patterns")
SECOND = 10**9
TYPES = {"host": pa.string(), "kind": pa.string(), "price": pa.int64(), "level": pa.float64()}
"""The columns that rows may have besides `ts`."""


@dataclass(frozen=True)
class PatternCase:
    """One case: the page, what it shows, the rows, the clause, the columns of the answer, and the texts of its rows."""

    page: str
    title: str
    rows: tuple[dict[str, Any], ...]
    clause: str
    columns: tuple[str, ...]
    answer: tuple[tuple[str, ...], ...]

    @property
    def select(self) -> str:
        """The select list."""
        return ", ".join(self.columns)

    def query(self, table: str = "ticks") -> str:
        """Return the query over a table."""
        return f"SELECT {self.select} FROM {table} MATCH_RECOGNIZE ({self.clause})"


def read_pattern_cases() -> list[PatternCase]:
    """Return all cases, in the order of the pages."""
    cases = []
    for page in sorted(FOLDER.glob("*.md")):
        rows: tuple[dict[str, Any], ...] = ()
        _, *sections = page.read_text("utf-8").split("\n## ")
        for section in sections:
            title, _, text = section.partition("\n")
            blocks = dict(re.findall(r"```(\w+)\n(.*?)```", text, re.DOTALL))
            rows = read_rows(blocks["rows"]) if "rows" in blocks else rows
            lines = [line for line in text.rpartition("```")[2].splitlines() if line.startswith("|")]
            names, _, *cells = [tuple(cell.strip() for cell in line.strip("| ").split("|")) for line in lines]
            cases.append(PatternCase(page.stem, title.strip(), rows, blocks["sql"].strip(), names, tuple(cells)))
    return cases


def read_rows(text: str) -> tuple[dict[str, Any], ...]:
    """Return the rows of a block, times in ns."""
    columns = {name: values for name, *values in map(str.split, text.strip().splitlines())}
    count = len(next(iter(columns.values())))
    columns.setdefault("ts", [str(place) for place in range(1, count + 1)])
    return tuple({name: _value(name, values[place]) for name, values in columns.items()} for place in range(count))


def _value(name: str, text: str) -> Any:
    if text == "NULL":
        return None
    if name == "ts":
        return round(float(text) * SECOND)
    kind = TYPES[name]
    return text if kind == pa.string() else int(text) if kind == pa.int64() else float(text)


def cell(name: str, value: Any) -> str:
    """Return a value of a column as the tables print it."""
    if value is None:
        return "NULL"
    if hasattr(value, "value"):  # a pandas Timestamp
        value = value.value
    if name in ("ts", "match_start", "match_end") or name.endswith("_ts"):
        return f"{value / SECOND:g}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def cells(columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Return the texts of rows, in an order that does not depend on theirs."""
    return sorted(tuple(cell(name, row[name]) for name in columns) for row in rows)
