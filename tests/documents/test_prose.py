"""The program behind `make prose`: sentences that are split at the wrong place, patterns that miss their example.

It informs its readers and fails no build, so an error in it would be noticed by nobody.
"""

from pathlib import Path

import pytest

from tests.documents import prose


@pytest.mark.parametrize(
    ("paragraph", "sentences"),
    [
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ("It takes e.g. 3.5 s (cf. Li et al. 2008, Fig. 4). Then it ends.", None),
        ("A closed interval. A loop.", ["A closed interval.", "A loop."]),
        ("Use `SELECT a. FROM b. WHERE c` here. Done.", ["Use `SELECT a. FROM b. WHERE c` here.", "Done."]),
        ("(In brackets.) *Bold.* “Quoted.” Last.", ["(In brackets.)", "*Bold.*", "“Quoted.”", "Last."]),
        ("The file ... ends. `x` starts.", ["The file ... ends.", "`x` starts."]),
    ],
)
def test_paragraphs_are_split_into_sentences(paragraph: str, sentences: list[str] | None) -> None:
    expected = sentences or ["It takes e.g. 3.5 s (cf. Li et al. 2008, Fig. 4).", "Then it ends."]
    assert list(prose.split_sentences(paragraph)) == expected


def lines_and_texts(sentences: list[prose.Sentence]) -> list[tuple[int, str]]:
    return [(sentence.line, sentence.text) for sentence in sentences]


def test_markdown_is_divided_into_headings_items_cells_and_sentences(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text(
        "# A title\nText over\ntwo lines. Next\none.\n\n* an item\n  goes further. Ends.\n1. second\n\n"
        "| head | cell |\n| --- | ---: |\n| a value | 12 |\n\n```sql\nSELECT what FROM code\n```\n> quoted\n"
    )
    assert lines_and_texts(prose.sentences_of_file(tmp_path / "a.md")) == [
        (1, "A title"), (2, "Text over two lines."), (3, "Next one."), (6, "an item goes further."), (7, "Ends."),
        (8, "second"), (10, "head"), (10, "cell"), (12, "a value"), (17, "quoted"),
    ]  # fmt: skip


def test_docstrings_comments_and_messages_of_code_are_read(tmp_path: Path) -> None:
    source = (
        '"""A module.\n\n    >>> doctest = "is not read"\n\nIt ends."""\n'
        "SQL = 'SELECT a FROM b WHERE c and so on'\n"
        "x = 1  # a comment\n"
        "# two lines of\n# one comment\n"
        "def f(a):\n"
        "    raise ValueError(f'got {a}, expected at least one of them')\n"
    )
    module = tmp_path / "product" / "a.py"
    for path in (module, tmp_path / "tests" / "a.py"):
        path.parent.mkdir()
        path.write_text(source)
    texts = [(1, "A module."), (5, "It ends."), (7, "a comment"), (8, "two lines of one comment")]
    message = (11, "got `x`, expected at least one of them")
    assert lines_and_texts([*prose.sentences_of_python(source, with_messages=True)])[:2] == texts[:2]
    assert sorted(lines_and_texts([*prose.sentences_of_python(source, with_messages=True)])) == [*texts, message]
    assert sorted(lines_and_texts([*prose.sentences_of_python(source, with_messages=False)])) == texts


EXAMPLES = {
    "what": "Return what is in the table.",
    "opens with a clause": "Whether the link is idle.",
    "nothing": "A row that nobody reads.",
    "is told": "The consumer is asked again.",
    "told": "It was told twice.",
    "says": "The header says so.",
    "stands": "It stands first.",
    "behind": "A row behind the newest.",
    "go on": "The reader goes on.",
    "come": "A row comes.",
    "Of": "Of a wire two rows are lost.",
    "that of": "The key is that of the row.",
    "so is": "A count is exact, and so is a sum.",
    "one that": "A file, or one that grows.",
    "as many": "Read as many rows.",
    "as X says": "Walk as `RecordFormat` says.",
    "where": "None where it ends.",
    "whatever": "All rows, whatever they are.",
    "alone": "Used by tests alone.",
    ";": "One ends; the other begins.",
    "nothing but": "It has no more than two.",
    "is to": "It is to stop.",
    "take it that": "Take it that it ended.",
    "anew": "Start anew.",
    "there": "The rows there, in order.",
    "of its own": "It has a table of its own.",
}


@pytest.mark.parametrize("name", prose.PATTERNS)
def test_each_pattern_finds_its_example(name: str) -> None:
    assert name in prose.check_sentence(1, EXAMPLES[name]).patterns


@pytest.mark.parametrize(
    "text",
    ["What ends?", "If there is a row, return it.", "Of course.", "The row `where` ends.", "Add it to a sum."],
)
def test_plain_sentences_match_no_pattern(text: str) -> None:
    assert prose.check_sentence(1, text).patterns == ()


def test_a_sentence_is_listed_for_its_length_or_for_two_patterns() -> None:
    assert not prose.check_sentence(1, "word " * 25).is_listed
    assert prose.check_sentence(1, "word " * 26).reasons == "26 words"
    assert not prose.check_sentence(1, "Nobody reads it.").is_listed
    assert prose.check_sentence(1, "Nobody reads it anew.").reasons == "“nothing”, “anew”"
    assert prose.check_sentence(1, "`a long code span` and [a link](of/this/address)").words == 4


def test_the_report_names_files_lines_and_shares(capsys: pytest.CaptureFixture[str]) -> None:
    prose.print_report(["tests/documents/test_prose.py"])
    *_, row, total = capsys.readouterr().out.splitlines()
    assert row.split()[0] == "tests/documents/test_prose.py"
    assert total.split()[0] == "all"
