"""The table of troubles in docs/internals/testing.md: every named test exists, and the guide has as many troubles."""

import re
from pathlib import Path


def rows_of(page: str, heading: str) -> list[str]:
    """Return the rows of the table below a heading, without its two first lines."""
    text = Path(page).read_text("utf-8").partition(f"## {heading}\n")[2]
    return [line for line in text.partition("\n## ")[0].splitlines() if line.startswith("| ")][2:]


def test_every_trouble_has_a_test() -> None:
    rows = rows_of("docs/internals/testing.md", "Troubles of other systems with corrections")
    sources = "\n".join(path.read_text("utf-8") for path in Path("tests").rglob("test_*.py"))
    defined = set(re.findall(r"^def (test_\w+)\(", sources, re.MULTILINE))
    assert len(rows) == len(rows_of("docs/guide/consistency.md", "Troubles of other systems")) == 12
    for row in rows:
        named = re.findall(r"`(test_\w+)`", row)
        assert named, row
        assert set(named) <= defined, row
