"""The documents point at things that exist, and the README stays short enough to be read."""

import re
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
NAMED = re.compile(r"`([\w.-]+(?:/[\w.-]+)*/[\w.-]*)`")
"""A text in backticks that may be a path: parts with slashes between them, no blanks, no wildcards, not absolute."""


def documents() -> list[Path]:
    """README, CHANGELOG and everything below `docs`, those that exist."""
    named = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [path for path in named if path.exists()]


def is_ours(path: str) -> bool:
    """Whether `path` names a file of the repository, not a prefix (`10.0.0.0/8`), a media type or a user's own file."""
    return (ROOT / path.partition("/")[0]).exists() or path.endswith((".py", ".md", "/"))


def broken(document: Path, text: str) -> list[str]:
    """Relative links and paths in backticks of `text`, the text of `document`, that lead nowhere."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    links = [target.partition("#")[0] for target in LINK.findall(prose) if not re.match(r"[a-z]+:|#", target)]
    lost = [target for target in links if not (document.parent / target).exists()]
    # Paths in documents are relative to the root or to the document.
    named = filter(is_ours, NAMED.findall(prose))
    return lost + [path for path in named if not any((at / path).exists() for at in (ROOT, document.parent))]


def anchors(page: Path) -> set[str]:
    """Anchors of the headings of a page, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


def test_every_anchor_is_a_heading_of_its_page() -> None:
    lost = []
    for document in documents():
        for target in LINK.findall(document.read_text("utf-8")):
            path, _, anchor = target.partition("#")
            page = document.parent / path if path else document
            if anchor and page.suffix == ".md" and page.exists() and anchor not in anchors(page):
                lost.append(f"{document.relative_to(ROOT)}: {target}")
    assert lost == []


def test_every_link_and_every_named_file_exists() -> None:
    assert {
        document.relative_to(ROOT).as_posix(): lost
        for document in documents()
        if (lost := broken(document, document.read_text("utf-8")))
    } == {}


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        ("[a](LICENSE) and [b](docs/nowhere.md#part)", ["docs/nowhere.md"]),
        ("`tests/documents/test_docs.py` and `tests/test_nothing.py`", ["tests/test_nothing.py"]),
        ("`highlevel/spark/` and `highlevel/flink/`", ["highlevel/flink/"]),
        ("[a](#part) [b](https://example.org/x) `count(*)` `10.0.0.0/8`", []),
        ("```\n[a](nowhere.md) `no/where`\n```", []),
    ],
)
def test_what_leads_nowhere_is_seen(text: str, lost: list[str]) -> None:
    assert broken(ROOT / "README.md", text) == lost


def test_the_readme_has_fewer_than_150_lines() -> None:
    readme = ROOT / "README.md"
    assert readme.read_text("utf-8").count("\n") < 150


def test_lines_have_at_most_100_characters() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    assert [
        f"{page.relative_to(ROOT)}:{number}"
        for page in pages
        for number, line in enumerate(page.read_text("utf-8").splitlines(), 1)
        if len(line) > 100 and not line.startswith("|")  # the row of a table cannot be broken
    ] == []


def test_each_table_has_its_head() -> None:
    """A blank line before the line of dashes would make two paragraphs of a table."""
    assert [
        f"{page.relative_to(ROOT)}:{number}"
        for page in documents()
        for number, (before, line) in enumerate(pairwise(page.read_text("utf-8").splitlines()), 2)
        if line.startswith("| ---") and not before.startswith("|")
    ] == []


def test_the_glossary_has_at_most_40_words_which_other_pages_use() -> None:
    page = ROOT / "docs" / "guide" / "glossary.md"
    words = re.findall(r"^\| ([^|]+) \| [^|]+ \|$", page.read_text("utf-8"), re.MULTILINE)[2:]  # without the header
    assert 30 < len(words) <= 40
    others = " ".join(path.read_text("utf-8").lower() for path in (ROOT / "docs").rglob("*.md") if path != page)
    assert [word for word in words if word not in others] == []
