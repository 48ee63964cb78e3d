"""The page of the catalogue, made from the catalogue: `python -m tests.documents.catalogue_page` writes it.

The introduction and the commands of the page are written by hand and stay. A new query gets a command without
parameters. `python -m tests.documents` records the outputs.
"""

from queries.catalogue.catalogue import CATALOGUE
from queries.catalogue.ready_query import ReadyQuery
from tests.documents.blocks import GUIDE, blocks_of

PAGE = GUIDE / "catalogue.md"


def section(query: ReadyQuery, console: str) -> str:
    """Return the section of a query; `console` is the block with its command and output."""
    parts = [f"### {query.name}", query.sentence]
    if query.parameters:
        rows = ["| parameter | type | default | meaning |", "| --- | --- | --- | --- |"]
        rows += [f"| `{each.name}` | {each.type} | {each.default} | {each.help} |" for each in query.parameters]
        parts.append("\n".join(rows))
    return "\n\n".join([*parts, f"```text\n{query.text}\n```", f"```console\n{console}```"])


def page_text() -> str:
    """Return the page as the catalogue defines it, with the introduction and the consoles of the present page."""
    text = PAGE.read_text("utf-8")
    introduction = text.partition("\n## ")[0].rstrip()
    consoles = {name: f"$ wiretide query office.pcap @{name}\n" for name in CATALOGUE}
    for block in blocks_of(PAGE):
        before = text.split("\n")[: block.line]
        heading = next(line for line in reversed(before) if line.startswith("#")).lstrip("# ")
        if block.language == "console" and heading in consoles:
            consoles[heading] = block.text
    parts = [introduction]
    categories = dict.fromkeys(query.category for query in CATALOGUE.values())
    for category in categories:
        parts.append(f"## {category.capitalize()}")
        parts += [section(query, consoles[name]) for name, query in CATALOGUE.items() if query.category == category]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page_text(), "utf-8")
