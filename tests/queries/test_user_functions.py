"""Functions that users define, from the definition to the rows of queries.

The tests detect a function that sees NULL or rows that WHERE removes from its condition, a text with another ID in a
later batch, a result in the wrong row, and errors without the function and the line.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wiretide
from lowlevel.expressions.columns import TextVector, Vector
from lowlevel.expressions.user_functions import DEFINED, FunctionError, load
from queries.explain.plan import explain
from queries.gsql import compile_query
from queries.pipeline.file import parse_pipeline
from queries.text.errors import QueryError
from tests.harness import in_ns
from tests.harness.links import write_links

ROOT = Path(wiretide.__file__).parent
FILE = """import wiretide
SMALL = 60

@wiretide.function
def size(length: int, address: str) -> str:
    return "small" if length < SMALL else address

@wiretide.function(compiled=True)
def weighted(length: int, port: int) -> float:
    return length * 0.5 if port > 1000 else length / 4

wiretide.aggregate("total", {"s": "sum(x)"}, lambda s: s * 1.0)
"""


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return [Path(each.path) for each in write_links(tmp_path_factory.mktemp("captures"), 4)]


def rows_of(paths: list[Path]) -> list[dict[str, Any]]:
    names = ["srcIP", "srcPort", "destPort", "len", "ts"]
    return [row for path in paths for batch in in_ns.packets(path, names) for row in batch.to_pylist()]


@pytest.mark.parametrize("threads", [1, 3])
def test_a_text_is_a_group_and_a_condition_filters(threads: int, paths: list[Path]) -> None:
    seen: list[object] = []

    @wiretide.function
    def kind(port: int, address: str) -> str | None:
        seen.append(port)
        return None if port < 0 else f"{port % 3} {address[-1]}"

    @wiretide.function
    def is_long(length: int) -> bool:
        return length > 70

    sql = "SELECT kind(srcPort, srcIP) AS k, count(*) AS n, max(kind(srcPort, srcIP)) AS m FROM packets"
    found = wiretide.query(f"{sql} WHERE is_long(len) GROUP BY k", *paths, threads=threads).to_pylist()
    expected: Counter[str | None] = Counter()
    for row in rows_of(paths):
        if row["len"] > 70:
            port = row["srcPort"]
            expected[None if port is None else f"{port % 3} {row['srcIP'][-1]}"] += 1
    assert {row["k"]: row["n"] for row in found} == dict(expected)
    assert all(row["m"] == row["k"] for row in found)
    assert None not in seen


def test_results_are_in_their_rows_and_over_groups(paths: list[Path]) -> None:
    @wiretide.function(columns=True)
    def scaled(length: int, by: float) -> float:
        assert isinstance(length, np.ndarray)
        return length * by

    @wiretide.function(compiled=True)
    def is_even(number: int) -> bool:
        return number % 2 == 0

    found = in_ns.query(
        "SELECT ts, scaled(len, 2) AS s, is_even(len) AS e, scaled(srcPort, 0.5) AS p FROM packets", *paths
    ).to_pylist()
    expected = [
        {
            "ts": row["ts"],
            "s": row["len"] * 2.0,
            "e": row["len"] % 2 == 0,
            "p": None if row["srcPort"] is None else row["srcPort"] * 0.5,
        }
        for row in rows_of(paths)
    ]
    assert sorted(found, key=str) == sorted(expected, key=str)
    totals = in_ns.query("SELECT scaled(sum(len), 10) AS s, scaled(max(len), 1) AS m FROM packets", *paths).to_pylist()
    lengths = [row["len"] for row in rows_of(paths)]
    assert totals == [{"s": sum(lengths) * 10.0, "m": float(max(lengths))}]


def test_ids_of_texts_stay_valid_in_later_batches() -> None:
    @wiretide.function
    def word(number: int) -> str:
        return "abc"[number]

    function = DEFINED["word"]
    first, second = (function.apply([Vector(np.array(numbers))]) for numbers in ([2, 0, 2], [1, 2]))
    assert isinstance(first, TextVector)
    assert isinstance(second, TextVector)
    assert [second.names[i] for i in first.ids] == ["c", "a", "c"]
    assert [second.names[i] for i in second.ids] == ["b", "c"]
    constant = function.apply([Vector(np.array(1))])
    assert isinstance(constant, TextVector)
    assert (constant.ids.shape, constant.names[int(constant.ids)]) == ((), "b")


def test_a_function_without_rows_and_with_null_only() -> None:
    @wiretide.function(columns=True)
    def half(number: float) -> float:
        raise AssertionError("called without rows")

    for data, valid in ((np.empty(0), None), (np.zeros(2), np.zeros(2, np.bool_))):
        found = DEFINED["half"].apply([Vector(data, valid)])
        assert isinstance(found, Vector)
        assert (found.data.shape, np.any(found.valid)) == (data.shape, False)


def fails(number: int) -> int:
    return 1 // (number - number)


def is_text(number: int) -> int:
    return "x"  # type: ignore[return-value]


def is_number(number: int) -> str:
    return number  # type: ignore[return-value]


def is_short(number: int) -> int:
    return number[:1]  # type: ignore[index,no-any-return]


def has_no_machine_code(number: int) -> int:
    return len(open.__doc__ or "") + number


@pytest.mark.parametrize(
    "body, options, message",
    [
        (fails, {}, r"the function fails raised ZeroDivisionError in line \d+ of .*test_user_functions.py"),
        (is_text, {}, "the function is_text returned 'x' and other values .* expected values of type integer"),
        (is_number, {}, r"the function is_number returned \d+, expected values of type text"),
        (is_short, {"columns": True}, r"returned an array of shape \(1,\), expected one value for each of \d+ rows"),
        (has_no_machine_code, {"compiled": True}, "has_no_machine_code cannot be compiled by numba"),
    ],
)
def test_an_error_names_the_function(body: Any, options: dict[str, bool], message: str, paths: list[Path]) -> None:
    wiretide.function(body, **options)
    with pytest.raises(FunctionError, match=message):
        wiretide.query(f"SELECT {body.__name__}(len) AS x FROM packets", paths[0])


@pytest.mark.parametrize(
    "body, options, message",
    [
        ("def f(x): return 1", {}, "f: the parameter x has no annotation, expected int, float, bool or str"),
        ("def f(x: int): return 1", {}, "f: the result has no annotation"),
        ("def f(x: list) -> int: return 1", {}, "f: the parameter x has the annotation list"),
        ("def f(x: 'Oops') -> int: return 1", {}, "f: an annotation is unknown"),
        ("def f() -> int: return 1", {}, "f has no parameter"),
        ("def f(*x: int) -> int: return 1", {}, r"got the parameter \*x"),
        ("def sum(x: int) -> int: return 1", {}, "the name 'sum' is taken"),
        ("def rank(x: int) -> int: return 1", {}, "the name 'rank' is taken"),
        ("def f(x: int) -> int: return 1", {"name": "select"}, "the name 'select' is taken"),
        ("def f(x: int) -> int: return 1", {"name": "a b"}, "got the name 'a b'"),
        ("def f(x: str) -> int: return 1", {"compiled": True}, "compiled=True and a text"),
        ("def f(x: int) -> int: return 1", {"compiled": True, "columns": True}, "expected one of them"),
        ("f = 5", {}, "got int, expected a function"),
    ],
)
def test_a_wrong_definition_is_refused(body: str, options: dict[str, Any], message: str) -> None:
    names: dict[str, Any] = {}
    exec(body, names)
    with pytest.raises(FunctionError, match=message):
        wiretide.function(next(value for name, value in names.items() if name != "__builtins__"), **options)
    assert not DEFINED


@pytest.mark.parametrize(
    "call, message",
    [
        ("size(len)", r"size with 1 argument; expected size\(integer, text\)"),
        ("size(srcIP, srcIP)", "size over a value of type address; expected integer or time"),
        ("size(len, ttl)", "size over a value of type integer; expected text or address"),
        ("sise(len, srcIP)", "unknown function 'sise'.*nearest: size|unknown function 'sise'"),
        ("size(payload, srcIP)", "size over a value of type bytes"),
    ],
)
def test_a_wrong_call_is_refused(call: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "f.py"
    file.write_text(FILE)
    load(file)
    with pytest.raises(QueryError, match=message):
        compile_query(f"SELECT {call} FROM packets")


def test_a_file_is_pickled_as_its_text_and_explained(tmp_path: Path) -> None:
    file = tmp_path / "f.py"
    file.write_text(FILE)
    load(file)
    plan = compile_query("SELECT size(len, srcIP) AS s, weighted(sum(len), 5) AS w FROM packets GROUP BY s")
    assert "size(len, CAST(srcIP AS VARCHAR))" in explain(plan)
    content = pickle.dumps(plan)
    assert b"SMALL = 60" in content
    script = f"import pickle, wiretide; plan = pickle.loads({content!r}); print(plan.leaves[0].low.keys[0].expression)"
    found = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert "name='size'" in found.stdout


@pytest.mark.parametrize(
    "text, message",
    [
        ("x = 1 +", r"f.py, line 1: SyntaxError"),
        ("\nraise ValueError('no')", "f.py, line 2: ValueError: no"),
        ("import wiretide\n@wiretide.function\ndef f(x): return 1\n", "f: the parameter x has no annotation"),
    ],
)
def test_a_wrong_file_is_refused_with_the_line(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "f.py"
    file.write_text(text)
    with pytest.raises(FunctionError, match=message):
        load(file)
    with pytest.raises(FunctionError, match="cannot be read"):
        load(tmp_path / "missing.py")


def test_the_command_line_and_pipelines_load_files(paths: list[Path], tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text(FILE)
    sql = "SELECT size(len, srcIP) AS s, count(*) AS n, total(len) AS t FROM packets [RANGE 1 minute] GROUP BY s"
    command = [sys.executable, wiretide.__file__, "query", str(paths[0]), "--functions", "f.py", "--format", "csv", sql]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=120)
    assert "small" in found.stdout
    text = f'functions = "f.py"\n[links]\nM = "m.pcap"\n[queries.q]\nsql = "{sql}"\n'
    (plan,) = parse_pipeline(text, tmp_path).plans()
    assert plan.windowed


@pytest.mark.spark
def test_spark_has_the_same_rows(spark: Any, paths: list[Path], tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text(FILE)
    load(tmp_path / "f.py")

    @wiretide.function
    def defined_here(number: int) -> str:
        return f"about {number // 8}"

    sql = (
        "SELECT size(len, srcIP) AS s, defined_here(len) AS d, count(*) AS n, weighted(sum(len), 5) AS w FROM packets "
        "WHERE weighted(len, 5) > 1 GROUP BY s, d"
    )
    found = [wiretide.query(sql, *paths, on=engine).to_pylist() for engine in ("inline", "local")]
    assert len(found[0]) > 1
    assert sorted(found[0], key=str) == sorted(found[1], key=str)
