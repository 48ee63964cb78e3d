"""The tour names files and functions that exist: a walk that leads nowhere is worse than none."""

import ast
import re
from pathlib import Path

import pytest

from lowlevel.rows.batches import row_batches
from tests.documents.blocks import ROOT
from tests.documents.walks import count, write_flow_record

PAGE = (ROOT / "docs" / "internals" / "tour.md").read_text("utf-8")
WALKS = re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
QUESTIONS = (ROOT / "docs" / "internals" / "where.md").read_text("utf-8")
STEP = re.compile(r"^\| (?P<does>.+) \| `(?P<file>[\w/]+\.py)` \| `(?P<function>[\w.]+)` \|$", re.MULTILINE)


def has_definition(source: str, name: str) -> bool:
    """Return True if the source of a module defines a function, a class, or a method as Class.method."""
    body = ast.parse(source).body
    for part in name.split("."):
        found = [
            node
            for node in body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name == part
        ]
        if not found:
            return False
        body = found[-1].body
    return True


def test_there_are_five_walks_and_every_row_is_a_step() -> None:
    assert len(WALKS) == 5
    rows = [line for line in PAGE.splitlines() if line.startswith("|") and "---" not in line]
    assert len(STEP.findall(PAGE)) == len(rows) - len(WALKS)


@pytest.mark.parametrize("walk", [*WALKS, QUESTIONS], ids=lambda walk: walk.partition("\n")[0])
def test_files_and_functions_of_a_walk_exist(walk: str) -> None:
    assert STEP.search(walk)
    wrong = [
        f"{step['file']}: {step['function']}"
        for step in STEP.finditer(walk)
        if not (ROOT / step["file"]).is_file()
        or not has_definition((ROOT / step["file"]).read_text("utf-8"), step["function"])
    ]
    assert wrong == []


@pytest.mark.parametrize(("name", "is_defined"), [("A.f", True), ("g", True), ("A.g", False), ("f", False)])
def test_definitions_are_found_by_their_full_names(name: str, is_defined: bool) -> None:
    assert has_definition("class A:\n    def f(self): ...\n\ndef g(): ...\n", name) is is_defined


def test_the_tour_states_the_modules_and_returns_of_its_walks() -> None:
    walks = [count(step["file"] for step in STEP.finditer(walk)) for walk in WALKS]

    def listed(numbers: list[int]) -> str:
        return ", ".join(map(str, numbers[:-1])) + f" and {numbers[-1]}"

    modules, returns = listed([walk.modules for walk in walks]), listed([walk.returns for walk in walks])
    assert f"visit {modules} modules, and return {returns} times" in " ".join(PAGE.split())


def test_a_step_into_a_module_that_was_left_is_a_return() -> None:
    assert count(["a", "a", "b", "a", "c", "b", "b"]) == (3, 2)


def test_the_datagram_of_the_third_walk_becomes_a_row(tmp_path: Path) -> None:
    write_flow_record(tmp_path / "flows.ipfix")
    rows = [batch.to_pydict() for batch in row_batches(tmp_path / "flows.ipfix", ["ts", "bytes"], "flows")]
    assert rows == [{"ts": [1_700_000_000 * 10**9], "bytes": [1000]}]
