"""docs/figures/performance.md and `bench/` agree: every bench has its section, every criterion its name and target.

What can go wrong: a target that is lowered in the code and still promised in the text, a criterion that one side lost,
a bench without a section; a figure of the README that docs/figures/performance.md does not have, or has in the table
"In short" and not in the section of its bench; a recording that replaces too much, or nothing. Benches are read, not
run: Spark and the network are not needed to compare names.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from bench.__main__ import BENCHES
from bench.record import replace_figures, replace_headlines
from bench.report import Report

ROOT = Path(__file__).resolve().parents[2]
TARGET = re.compile(r"(>=|<=) \d+(\.\d+)?")
ROW = re.compile(r"^\| `(?P<bench>\w+)` \| (?P<name>.+) \| (?P<target>[≥≤] [\d .]+) \|$", re.MULTILINE)


@dataclass(frozen=True)
class Required:
    """A call of `add_criterion`: names that it may give, as a pattern, and the targets that it may name."""

    names: str
    targets: frozenset[str]


def text_pattern(node: ast.expr, named: dict[str, list[str]]) -> str:
    """Pattern of the texts that an expression may be: what is computed in it is anything."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.escape(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(text_pattern(part, named) if isinstance(part, ast.Constant) else ".+" for part in node.values)
    if isinstance(node, ast.Name) and node.id in named:
        return "|".join(named[node.id])
    raise AssertionError(f"line {node.lineno}: the name of a criterion is {ast.unparse(node)}, expected a text")


def required(source: str) -> list[Required]:
    """Read the criteria of a bench; where a target is computed, it may be any that no other criterion names."""
    tree = ast.parse(source)
    named: dict[str, list[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant | ast.JoinedStr):
            for each in node.targets:
                if isinstance(each, ast.Name) and not isinstance(getattr(node.value, "value", ""), int | float):
                    named.setdefault(each.id, []).append(text_pattern(node.value, {}))
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_criterion"
    ]
    told = {id(call.args[2]) for call in calls}
    texts = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    elsewhere = frozenset(node.value for node in texts if TARGET.fullmatch(node.value) and id(node) not in told)
    found = []
    for call in calls:
        target = call.args[2]
        assert not isinstance(target, ast.JoinedStr), f"line {call.lineno}: got a target that is put together"
        known = frozenset([target.value]) if isinstance(target, ast.Constant) else elsewhere
        found.append(Required(text_pattern(call.args[0], named), known))
    return found


def promised(text: str) -> list[tuple[str, str, str]]:
    """Rows of the table: bench, criterion, target as the code writes it."""
    sign = {"≥": ">=", "≤": "<="}
    rows = []
    for row in ROW.finditer(text):
        relation, number = row["target"].split(" ", 1)
        rows.append((row["bench"], row["name"], f"{sign[relation]} {number.replace(' ', '')}"))
    return rows


def differences(rows: list[tuple[str, str, str]], benches: dict[str, list[Required]]) -> list[str]:
    """What one side says and the other does not."""
    wrong = [
        f"{bench}: {name} {target}: not in bench/"
        for bench, name, target in rows
        if not any(re.fullmatch(each.names, name) and target in each.targets for each in benches.get(bench, []))
    ]
    for bench, calls in benches.items():
        own = [(name, target) for of, name, target in rows if of == bench]
        for each in calls:
            results = {target for name, target in own if re.fullmatch(each.names, name)}
            wrong += [f"{bench}: {each.names} {target}: not in the table" for target in sorted(each.targets - results)]
    return wrong


def performance() -> str:
    return (ROOT / "docs" / "figures" / "performance.md").read_text("utf-8")


def test_every_criterion_is_promised_with_its_target_and_nothing_else_is() -> None:
    benches = {name: required((ROOT / "bench" / f"{name.lower()}.py").read_text("utf-8")) for name in BENCHES}
    assert sum(map(len, benches.values())) > 30
    assert differences(promised(performance()), benches) == []


def test_every_bench_has_a_section_and_every_section_a_bench() -> None:
    headings = re.findall(r"^### (.+?): ", performance(), re.MULTILINE)
    assert sorted(name for heading in headings for name in re.findall(r"`(\w+)`", heading)) == sorted(BENCHES)


SOURCE = """
LIMITS = {"a": ">= 3", "b": ">= 4"}
def run(report):
    report.add_criterion("speed", 1.0, ">= 2")
    for each, limit in LIMITS.items():
        report.add_criterion(f"rate of {each}", 1.0, limit)
"""


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("| `x` | speed | ≥ 2 |\n| `x` | rate of a | ≥ 3 |\n| `x` | rate of b | ≥ 4 |", 0),
        ("| `x` | speed | ≥ 1 |\n| `x` | rate of a | ≥ 3 |\n| `x` | rate of b | ≥ 4 |", 2),
        ("| `x` | sped | ≥ 2 |\n| `x` | rate of a | ≥ 3 |\n| `x` | rate of b | ≥ 4 |", 2),
        ("| `x` | speed | ≥ 2 |\n| `x` | rate of a | ≥ 3 |", 1),
        ("| `x` | speed | ≥ 2 |\n| `x` | rate of a | ≥ 3 |\n| `x` | rate of b | ≥ 2 |", 2),
        ("| `x` | speed | ≥ 2 |\n| `y` | rate of a | ≥ 3 |\n| `x` | rate of b | ≥ 4 |", 2),
    ],
)
def test_what_one_side_says_alone_is_seen(text: str, wrong: int) -> None:
    assert len(differences(promised(text), {"x": required(SOURCE)})) == wrong


NUMBER = re.compile(r"\d[\d,. ]*")
IN_SHORT = re.compile(r"^\| (?P<what>.+?) \| `(?P<bench>\w+)` \| (?P<measured>.+) \|$", re.MULTILINE)


def in_short(text: str) -> list[tuple[str, str, str]]:
    """Rows of the table "In short" of docs/figures/performance.md: what, bench, measured."""
    table = text.partition("\n## In short\n")[2].partition("\n## ")[0]
    return [(row["what"], row["bench"], row["measured"]) for row in IN_SHORT.finditer(table)]


def readme_rows(text: str) -> list[tuple[str, str]]:
    """Rows of the README's table of figures: what, measured."""
    table = text.partition("\n## Figures\n")[2].partition("\n## ")[0].partition("| --- | --- |\n")[2]
    cells = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("|")]
    return [(what, measured) for what, measured in cells]


def numbers(text: str) -> set[str]:
    """Numbers in a text, without the characters that group digits or end a sentence."""
    found = (re.sub(r"[, ]", "", each.strip(" .,")) for each in NUMBER.findall(text.replace(", ", "; ")))
    return {each for each in found if each}


def figures_of(bench: str, text: str) -> str:
    """What is between the marks of a bench, and the prose of its section."""
    sections = re.split(r"^### ", text, flags=re.MULTILINE)
    return next(section for section in sections if f"`{bench}`" in section.partition("\n")[0])


def headlines(source: str) -> list[str]:
    """First arguments of `add_headline` in a bench, as patterns."""
    calls = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_headline"
    ]
    return [text_pattern(call.args[0], {}) for call in calls]


def test_the_figures_of_the_readme_are_those_of_the_docs() -> None:
    docs = [(what, measured) for what, _, measured in in_short(performance())]
    assert len(docs) > 8
    assert readme_rows((ROOT / "README.md").read_text("utf-8")) == docs


def test_every_figure_in_short_is_printed_by_its_bench_and_every_headline_is_in_the_table() -> None:
    rows = in_short(performance())
    for name in BENCHES:
        patterns = headlines((ROOT / "bench" / f"{name.lower()}.py").read_text("utf-8"))
        own = [what for what, bench, _ in rows if bench == name]
        assert [what for what in own if not any(re.fullmatch(each, what) for each in patterns)] == []
        assert [each for each in patterns if not any(re.fullmatch(each, what) for what in own)] == []


def test_every_number_in_short_is_in_the_section_of_its_bench() -> None:
    text = performance()
    for what, bench, measured in in_short(text):
        assert numbers(measured) <= numbers(figures_of(bench, text)) | {"0"}, what


def test_every_bench_has_one_pair_of_marks_for_its_figures_in_its_section() -> None:
    text = performance()
    assert sorted(re.findall(r"<!-- figures of (\w+) -->", text)) == sorted(BENCHES)
    assert text.count("<!-- end of figures -->") == len(BENCHES)
    for name in BENCHES:
        assert f"<!-- figures of {name} -->" in figures_of(name, text)


def test_a_recording_replaces_the_tables_and_the_headlines_of_its_bench_alone() -> None:
    report = Report("flows")
    report.table("2 records", ("step", "rate"), [("columns", "3.5"), ("a | b", "4")])
    report.add_information("columns, M records/s", "3.5")
    report.add_headline("NetFlow v5, v9, IPFIX to columns, one core", "3.5, 4, 5 M records/s")
    text = performance()
    new = replace_figures(text, report, "machine: m\nload: 0")
    assert ("NetFlow v5, v9, IPFIX to columns, one core", "flows", "3.5, 4, 5 M records/s") in in_short(new)
    assert "Measured on:\nmachine: m;\nload: 0." in figures_of("flows", new)
    assert "| columns | 3.5 |" in figures_of("flows", new)
    assert "| a \\| b | 4 |" in figures_of("flows", new)
    others = [name for name in BENCHES if name != "flows"]
    assert [figures_of(name, new) for name in others] == [figures_of(name, text) for name in others]
    assert replace_figures(new, report, "machine: m\nload: 0") == new
    readme = (ROOT / "README.md").read_text("utf-8")
    assert readme_rows(replace_headlines(readme, report.headlines)) == [
        (what, measured) for what, _, measured in in_short(new)
    ]


def test_a_headline_without_a_row_and_a_bench_without_marks_are_refused() -> None:
    with pytest.raises(ValueError, match="got 0 table rows that begin with 'speed of light', expected 1"):
        replace_headlines("| speed | 1 |", {"speed of light": "2"})
    with pytest.raises(ValueError, match="expected <!-- figures of flows -->"):
        replace_figures("# Performance", Report("flows"), "machine")


def test_a_number_that_only_one_side_has_is_seen() -> None:
    assert numbers("15.1 s; 1,000,000 of 100 000.") == {"15.1", "1000000", "100000"}
    assert not numbers("28.2 M") <= numbers("28.1 M; 28 M")
