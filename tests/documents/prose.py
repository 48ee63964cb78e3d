"""List the sentences that a reader may have to read twice: `python -m tests.documents.prose [PATH…]` or `make prose`.

A sentence is listed if it has more than WORDS words or matches at least PATTERNS_LISTED of PATTERNS. The patterns are
the result of a reading test: sentences with two of them needed a second reading about three times more often than
others. The text is read from docstrings, comments, messages (errors, help of options and metrics) and Markdown. Code,
doctests, SQL and the strings of tests are left out. The list is a hint for the author; the exit status is always 0.
"""

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

WORDS = 25
"""The largest number of words of a sentence that is not listed. A code span is one word."""

PATTERNS_LISTED = 2
"""How many different patterns a sentence must match to be listed."""

PATTERNS = {
    "what": r"\b[Ww]hat(?! (if|about))\b",
    "opens with a clause": r"^(What|Whether|How|Where|Which|Whose|Whatever|Whoever)\b",
    "nothing": r"\b([Nn]obody|[Nn]othing|[Nn]one|[Nn]o one)\b",
    "is told": (
        r"\b(is|are|was|were|be|been|being) "
        r"(told|said|asked|called|meant|looked at|waited for|let be|taken for|given up|done with)\b"
    ),
    "told": r"\btold\b",
    "says": r"\b(says?|said|asks? for)\b",
    "stands": r"\b([Ss]tands?|stood|standing)\b",
    "behind": r"\b([Bb]ehind|[Bb]eside)\b",
    "go on": r"\b([Gg]o(es)?|gone|going|went) on\b",
    "come": r"\b([Cc]omes?|came|coming)\b",
    "Of": (
        r"(?:^|(?<=[.;:] )|(?<=\) )|(?<=\*\* ))Of (?!course)[a-z`*\d]|"
        r"[;:,] (?:and |or |but )?of (?:a|an|the|those|these|what|each|several|two|flows?|files?|pcap|inner|a single)\b"
    ),
    "that of": r"\b([Tt]hat|[Tt]hose) of\b",
    "so is": (
        r"\b([Nn]either (is|are|do|does|has|have|can|a|of|time)|[Nn]or (is|are|do|does|has|have|can|one)|"
        r"(and|And|as) so (is|are|do|does|did|has|have|can))\b"
    ),
    "one that": r"\b([Oo]nes?) (that|which|who|whose|of|is|has|with|by|in|more|behind|before|after)\b",
    "as many": r"\b([Aa]s (many|much|often)|[Ss]o (many|much|often))\b",
    "as X says": r"\bas `?[A-Z]\w+`? (says|has it|asks|names|wants)\b",
    "where": r"(?<! to )\b[Ww]here\b",
    "whatever": r"\b([Ww]hoever|[Ww]hatever|[Hh]owever|[Ww]hichever)\b",
    "alone": r"\balone\b",
    ";": r";(?= [a-z`*\d(])",
    "nothing but": r"\b(but for|[Nn]othing but|none but|[Nn]o (more|less|fewer|further) than|all but)\b",
    "is to": r"\b(is|are|was|were) to (?!the\b|a\b|an\b|be\b)[a-z]+\b",
    "take it that": r"\b[Tt]ake it that\b",
    "anew": r"\banew\b",
    "there": (
        r"\bthere(?! (is|are|was|were|be|may|can|has|have|must|will|still|would|should|had|might|being|to be)\b)"
        r"[ ,.;:)]"
    ),
    "of its own": r"\b(for good|for ever|by itself|by themselves|of its own|of their own)\b",
}
COMPILED = {name: re.compile(pattern) for name, pattern in PATTERNS.items()}

OF_QUESTIONS = ("what", "opens with a clause")
"""Patterns that are right in a question."""

ABBREVIATION = re.compile(r"(?:^|[\s(])(?:e\.g|i\.e|cf|vs|etc|al|Figs?|Sec|pp?|approx)\.$")
SENTENCE_END = re.compile(r"[.!?][)\"'*”’]*(?=\s)")
CODE_SPAN = re.compile(r"(`+).+?\1", re.DOTALL)
LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
ITEM = re.compile(r"\s*(?:[-*+]|\d+\.)\s+|\s*#+\s+|\s*>\s?")
ARGUMENT_SECTION = re.compile(r"(?:Args|Returns|Raises|Yields|Attributes|Examples?|Notes?):$")
SQL = re.compile(r"\b(SELECT|FROM|WHERE|GROUP BY)\b")
FIELD = re.compile(r"\{[^{}]*\}")
SHORTEST_MESSAGE = 4
"""Words of the shortest string of code that is read as a message."""


@dataclass(frozen=True)
class Sentence:
    """A sentence, the line it begins in, and the reasons to list it."""

    line: int
    text: str
    words: int
    patterns: tuple[str, ...]

    @property
    def is_listed(self) -> bool:
        """Return True if the sentence is long or matches several patterns."""
        return self.words > WORDS or len(self.patterns) >= PATTERNS_LISTED

    @property
    def reasons(self) -> str:
        """Return the number of words, if it is too large, and the names of the patterns."""
        return ", ".join([f"{self.words} words"] * (self.words > WORDS) + [f"“{name}”" for name in self.patterns])


def check_sentence(line: int, text: str) -> Sentence:
    """Count the words of a sentence and match the patterns. Code spans are one word and match no pattern."""
    plain = CODE_SPAN.sub("`Code`", LINK.sub(r"\1", text))
    words = sum(any(map(str.isalnum, word)) for word in plain.split())
    patterns = (name for name, regex in COMPILED.items() if regex.search(plain))
    is_question = plain.rstrip().endswith("?")
    return Sentence(line, text, words, tuple(name for name in patterns if not (is_question and name in OF_QUESTIONS)))


def split_sentences(paragraph: str) -> Iterator[str]:
    """Split a paragraph at full stops, question and exclamation marks that end a sentence."""
    spans = [match.span() for match in CODE_SPAN.finditer(paragraph)]
    start = 0
    for match in SENTENCE_END.finditer(paragraph):
        sentence, following = paragraph[start : match.end()].strip(), paragraph[match.end() :].lstrip()
        in_code = any(first <= match.start() < last for first, last in spans)
        if in_code or ABBREVIATION.search(sentence) or following[:1].islower():
            continue
        yield sentence
        start = match.end()
    if rest := paragraph[start:].strip():
        yield rest


def sentences_of(paragraphs: Iterator[list[tuple[int, str]]]) -> Iterator[Sentence]:
    """Yield the sentences of paragraphs, which are lists of lines with their numbers."""
    for lines in paragraphs:
        joined = " ".join(text.strip() for _, text in lines)
        starts = [0]
        for _, text in lines:
            starts.append(starts[-1] + len(text.strip()) + 1)
        searched = 0
        for sentence in split_sentences(joined):
            searched = joined.index(sentence, searched)
            index = max(i for i, start in enumerate(starts[:-1]) if start <= searched)
            if re.search(r"[A-Za-z]{2}", sentence):
                yield check_sentence(lines[index][0], sentence)


def paragraphs_of_text(lines: list[tuple[int, str]]) -> Iterator[list[tuple[int, str]]]:
    """Divide the lines of a docstring, comment or Markdown file into paragraphs, list items, cells of tables."""
    paragraph: list[tuple[int, str]] = []
    in_fence = in_doctest = False
    for line, text in lines:
        stripped = text.strip()
        is_fence = stripped.startswith(("```", "~~~"))
        in_doctest = bool(stripped) and (in_doctest or stripped.startswith(">>> "))
        skipped = in_fence or is_fence or in_doctest or not stripped or ARGUMENT_SECTION.match(stripped)
        in_fence ^= is_fence
        is_row, is_item = stripped.startswith("|"), ITEM.match(text)
        # A line with a gap is a row of a table drawn with blanks.
        gap = re.search(r"\S {3,}(?=\S)", text)
        if paragraph and (skipped or is_row or is_item or gap):
            yield paragraph
            paragraph = []
        if skipped:
            continue
        if is_row:
            yield from ([(line, cell)] for cell in re.split(r"(?<!\\)\|", stripped) if cell.strip(" -:"))
        elif gap:
            paragraph = [(line, text[gap.end() :])]
        else:
            paragraph.append((line, text[is_item.end() :] if is_item else text))
            if stripped.startswith("#"):
                yield paragraph
                paragraph = []
    if paragraph:
        yield paragraph


def text_of_string(node: ast.expr) -> str | None:
    """Return the text of a string of code; the fields of an f-string become the word `x`."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "`x`" for part in node.values)
    return None


def docstrings_and_messages(tree: ast.Module, with_messages: bool) -> Iterator[tuple[int, str]]:
    """Yield the first line and the text of each string that people read: docstrings, and messages if wanted."""
    seen: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and (text := text_of_string(node.value)) is not None:
            seen.add(id(node.value))
            yield node.lineno, text
        elif isinstance(node, ast.JoinedStr):
            seen.update(map(id, node.values))
    for node in ast.walk(tree) if with_messages else ():
        if not isinstance(node, ast.Constant | ast.JoinedStr) or id(node) in seen:
            continue
        text = text_of_string(node)
        if text is None or SQL.search(text) or "\n  " in text:
            continue
        if len(re.findall(r"(?<!\S)[A-Za-z][a-z]*(?![\w=.(])", FIELD.sub("x", text))) >= SHORTEST_MESSAGE:
            yield node.lineno, text


def comments(source: str) -> Iterator[list[tuple[int, str]]]:
    """Yield the lines of each comment; comments in neighbouring lines of one column are one comment."""
    block: list[tuple[int, str]] = []
    column = -1
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT or token.string.startswith(("#!", "# type:", "# noqa", "# ruff")):
            continue
        line, at = token.start
        if block and (line != block[-1][0] + 1 or at != column):
            yield block
            block = []
        column = at
        block.append((line, token.string.lstrip("#: ")))
    if block:
        yield block


def sentences_of_python(source: str, with_messages: bool) -> Iterator[Sentence]:
    """Yield the sentences of a Python file: docstrings, comments, and messages if wanted."""
    for line, text in docstrings_and_messages(ast.parse(source), with_messages):
        yield from sentences_of(paragraphs_of_text(list(enumerate(text.split("\n"), line))))
    if "#" in source:
        for block in comments(source):
            yield from sentences_of(paragraphs_of_text(block))


def sentences_of_file(path: Path) -> list[Sentence]:
    """Return the sentences of a Python or Markdown file in the order of their lines."""
    text = path.read_text("utf-8")
    if path.suffix == ".md":
        return list(sentences_of(paragraphs_of_text(list(enumerate(text.split("\n"), 1)))))
    return sorted(sentences_of_python(text, "tests" not in path.parts), key=lambda sentence: sentence.line)


def files_below(paths: list[str]) -> list[Path]:
    """Return the Python and Markdown files that are named or lie in the named folders and are not ignored by git."""
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", "--", *paths]
    names = subprocess.run(listing, capture_output=True, text=True, check=True).stdout.split("\0")
    return [path for name in sorted(names) if (path := Path(name)).suffix in (".py", ".md") and path.is_file()]


def print_report(paths: list[str]) -> None:
    """Print the listed sentences of the files and a table of shares: by folder, or by file if paths are given."""
    counts: dict[str, Counter[str]] = {}
    for path in files_below(paths):
        sentences = sentences_of_file(path)
        listed = [sentence for sentence in sentences if sentence.is_listed]
        for sentence in listed:
            print(f"{path}:{sentence.line}: {sentence.reasons}\n    {' '.join(sentence.text.split())}")
        row = path.as_posix() if paths or len(path.parts) == 1 else path.parent.as_posix()
        counts.setdefault(row, Counter()).update({"sentences": len(sentences), "listed": len(listed)})
    if counts:
        width = max(len("all"), *map(len, counts))
        print(f"\n{'':{width}}  sentences  listed  share")
        counts["all"] = sum(counts.values(), Counter())
        for row, count in counts.items():
            share = count["listed"] / max(count["sentences"], 1)
            print(f"{row:{width}}  {count['sentences']:9}  {count['listed']:6}  {share:5.1%}")


if __name__ == "__main__":
    print_report(sys.argv[1:])
