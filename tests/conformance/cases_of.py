"""Reads conformance cases: a sentence, a query and its rows, in Markdown.

    ## NULL is not different from a number

    ```sql
    SELECT srcPort FROM packets WHERE srcPort <> 53
    ```

    | srcPort |
    | --- |
    | 80 |

The rows of a case have any order, unless its query has ORDER BY. In a table NULL is `NULL`, and times are seconds after
the first packet of the capture (`packets.md`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.conformance.traffic import START, Row
from tests.references.pcap_bytes import NS

FOLDER = Path(__file__).with_name("cases")
NUMBERS = ("protocol", "srcPort", "destPort", "tcp_flags", "icmp_type", "vlan", "ttl", "payload")


@dataclass(frozen=True)
class Case:
    """One case: what it shows, its query, the names of its columns, and the texts of its rows."""

    page: str
    title: str
    sql: str
    columns: list[str]
    rows: list[tuple[str, ...]]


def read_packets() -> list[Row]:
    """Return the packets of `packets.md` as rows."""
    names, *lines = _table((FOLDER / "packets.md").read_text("utf-8"))
    rows = []
    for cells in lines:
        row: Row = dict(zip(names, cells, strict=True))
        row |= {name: int(row[name]) if row[name] else None for name in NUMBERS}
        row |= {"ts": START + round(float(row.pop("s")) * NS), "ip_version": 6 if ":" in row["srcIP"] else 4}
        rows.append(row)
    return rows


def read_cases() -> list[Case]:
    """Return all cases, in the order of the pages."""
    cases = []
    for page in sorted(FOLDER.glob("*.md")):
        _, *sections = page.read_text("utf-8").split("\n## ")
        for section in sections:
            title, _, rest = section.partition("\n")
            _, sql, result = rest.split("```", 2)
            columns, *rows = _table(result)
            cases.append(
                Case(page.stem, title.strip(), sql.removeprefix("sql").strip(), columns, list(map(tuple, rows)))
            )
    return cases


def _table(text: str) -> list[list[str]]:
    """Return the cells of the only table of a text, without the line below the names."""
    lines = [line.strip() for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.removeprefix("|").removesuffix("|").split("|")] for line in lines]
    return [cells[0], *cells[2:]]
