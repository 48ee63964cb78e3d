"""Code blocks of Markdown pages, and the commands in those that show a terminal.

A block that cannot be run has a line `<!-- not run: REASON -->` before it. A `console` block holds commands, which
begin with `$ `, each with the output that follows it. A command continues on the next line if it has an open quote or
ends with a backslash. In an output `…` means that a part is left out: of a line, or, as a line, any number of lines.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "guide"
FENCE = re.compile(
    r"(?:^<!-- not run: (?P<reason>.+?) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
LEFT_OUT = "…"


@dataclass(frozen=True)
class Block:
    """A fenced block: its page, the line of its fence, its language, its text, and why it is not run (None: it is)."""

    page: Path
    line: int
    language: str
    text: str
    not_run: str | None

    @property
    def needs_spark(self) -> bool:
        """Return True if a block of Python uses a session of Spark."""
        return self.language == "python" and re.search(r"\bspark\b", self.text) is not None

    @property
    def name(self) -> str:
        """Return the page and the line, for messages."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"


@dataclass(frozen=True)
class Command:
    """A command of a `console` block, and the output that the page shows."""

    text: str
    output: str

    @property
    def needs_spark(self) -> bool:
        """Return True if the command starts a JVM, or reads the folder of a run."""
        starts = re.match(r"wiretide (run|demo)\b", self.text) is not None or " --on " in self.text
        return starts or re.search(r"[ =]state(/history\.sqlite)?[ \n]", self.text) is not None


def blocks_of(page: Path) -> list[Block]:
    """Return the blocks of a page in their order."""
    text = page.read_text("utf-8")
    return [
        Block(page, text.count("\n", 0, match.start("text")), match["language"], match["text"], match["reason"])
        for match in FENCE.finditer(text)
    ]


def commands_of(block: Block) -> Iterator[Command]:
    """Yield the commands of a `console` block. Raises ValueError if the block begins with something else."""
    lines = block.text.splitlines()
    while lines:
        first = lines.pop(0)
        if not first.startswith("$ "):
            raise ValueError(f"{block.name}: got {first!r}, expected a command after '$ '")
        text = first[2:]
        while lines and (text.endswith("\\") or has_open_quote(text)):
            text += "\n" + lines.pop(0)
        output = []
        while lines and not lines[0].startswith("$ "):
            output.append(lines.pop(0))
        yield Command(text, "\n".join(output).strip("\n"))


def has_open_quote(command: str) -> bool:
    """Return True if a quote of the shell is not closed."""
    return re.fullmatch(r"""(?:[^"']|"[^"]*"|'[^']*')*""", command) is None


def sql_statements(block: Block) -> list[str]:
    """Return the queries of an `sql` block, which blank lines separate; comments belong to the query after them."""
    return [text for text in re.split(r"\n\s*\n", block.text.strip()) if re.sub(r"--.*", "", text).strip()]


def is_shown(output: str, shown: str) -> bool:
    """Return True if a page shows this output. Rows have no order, so lines are compared as sets with repetition."""
    actual, expected = ([line.rstrip() for line in text.strip("\n").split("\n")] for text in (output, shown))
    for line in (line for line in expected if line != LEFT_OUT):
        pattern = re.compile(".*".join(map(re.escape, line.split(LEFT_OUT))))
        match = next(filter(pattern.fullmatch, actual), None)
        if match is None:
            return False
        actual.remove(match)
    return LEFT_OUT in expected or not actual
