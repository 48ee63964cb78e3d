"""Run the commands of pages of the guide and write their output into the pages: `python -m tests.documents PAGE…`.

The pages run in the order in which they are given, in one folder: the tutorial, whose captures the others use, first. A
page may be a notebook, which runs in a kernel of its own.
"""

import contextlib
import sys
import tempfile
from pathlib import Path

from tests.documents import notebooks
from tests.documents.blocks import LEFT_OUT, ROOT, Command, blocks_of, commands_of, is_shown
from tests.documents.terminal import Terminal

ROWS = 10
"""Number of lines that a page shows of a longer output, unless the page sets another number."""


def shortened(output: str, command: Command) -> str:
    """Return the output, cut to the number of lines that the page shows now. Keep the page's text if it is right."""
    if command.output and is_shown(output, command.output):
        return command.output
    lines = output.strip("\n").split("\n")
    shown = command.output.split("\n") if command.output else []
    if LEFT_OUT in shown and shown.index(LEFT_OUT):
        rows = shown.index(LEFT_OUT)
    elif LEFT_OUT in shown or (not shown and len(lines) > ROWS + 4):
        rows = ROWS
    else:
        return "\n".join(lines)
    return "\n".join([*lines[:rows], LEFT_OUT]) if len(lines) > rows else "\n".join(lines)


def record(page: Path, terminal: Terminal, spark: bool) -> None:
    """Run the `console` and `python` blocks of a page and write the output into it."""
    text = page.read_text("utf-8")
    printed = ""
    for block in blocks_of(page):
        if block.not_run or (block.needs_spark and not spark):
            printed = ""
            continue
        if block.language == "python":
            printed = terminal.run_python(block.text)
        if block.language == "output" and printed:
            text = text.replace(f"```output\n{block.text}```", f"```output\n{printed}```", 1)
        if block.language != "console":
            continue
        recorded = ""
        for command in commands_of(block):
            output = command.output
            if spark or not command.needs_spark:
                output = shortened(terminal.run(command), command)
            recorded += f"$ {command.text}\n" + (f"{output}\n" if output else "") + "\n"
        text = text.replace(f"```console\n{block.text}```", f"```console\n{recorded.strip()}\n```", 1)
    page.write_text(text, "utf-8")


def main() -> None:
    """Record the pages of the command line; `--spark` runs commands that start a JVM too."""
    pages = [Path(word).resolve() for word in sys.argv[1:] if word != "--spark"]
    with tempfile.TemporaryDirectory() as folder, contextlib.closing(Terminal(Path(folder))) as terminal:
        (Path(folder) / "docs").symlink_to(ROOT / "docs")
        for page in pages:
            if page.suffix == ".ipynb":
                notebooks.record(page, Path(folder))
            else:
                record(page, terminal, "--spark" in sys.argv)


if __name__ == "__main__":
    main()
