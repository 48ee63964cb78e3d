"""docs/performance.md and `bench/` say the same: every bench has its section, every criterion its name and its target.

What can go wrong: a target that is lowered in the code and still promised in the text, a criterion that one side lost,
a bench that nobody reads of. Benches are read, not run: Spark and the network are not needed to compare names.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from bench.__main__ import BENCHES

ROOT = Path(__file__).resolve().parent.parent
TARGET = re.compile(r"(>=|<=) \d+(\.\d+)?")
ROW = re.compile(r"^\| `(?P<bench>\w+)` \| (?P<name>.+) \| (?P<target>[≥≤] [\d .]+) \|$", re.MULTILINE)


@dataclass(frozen=True)
class Required:
    """A call of `require`: names that it may give, as a pattern, and the targets that it may name."""

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
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "require"
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
            said = {target for name, target in own if re.fullmatch(each.names, name)}
            wrong += [f"{bench}: {each.names} {target}: not in the table" for target in sorted(each.targets - said)]
    return wrong


def performance() -> str:
    return (ROOT / "docs" / "performance.md").read_text("utf-8")


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
    report.require("speed", 1.0, ">= 2")
    for each, limit in LIMITS.items():
        report.require(f"rate of {each}", 1.0, limit)
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
