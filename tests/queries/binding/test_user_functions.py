"""Functions that users define, from the definition to the rows of queries.

The tests detect a function that sees NULL or rows that WHERE removes from its condition, a text with another ID in a
later batch, a result in the wrong row, and errors without the function and the line.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import wiretide
from highlevel.inline.engine import InlineRun
from lowlevel.expressions.columns import TextVector, Vector
from lowlevel.expressions.user_functions import DEFINED, FunctionError, load
from queries.explain.plan import explain
from queries.gsql import compile_query
from queries.pipeline.file import parse_pipeline
from queries.text.errors import QueryError
from tests.conformance.traffic import generate_links
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

@wiretide.function
def first_byte(payload: bytes) -> int | None:
    return payload[0] if payload else None

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


def test_a_function_sees_only_rows_that_the_rest_of_an_and_keeps(paths: list[Path]) -> None:
    seen: list[int] = []

    @wiretide.function
    def is_kept(length: int, port: int) -> bool:
        seen.append(length)
        return length % port == 0

    sql = "SELECT ts FROM packets WHERE is_kept(len, srcPort % 7) AND srcPort % 7 > 2 AND len > 60 AND srcIP <> '::'"
    found = wiretide.query(sql, *paths, threads=1).num_rows
    rows = [(row["len"], row["srcPort"] % 7) for row in rows_of(paths) if row["srcPort"] is not None]
    passed = [(length, port) for length, port in rows if port > 2 and length > 60]
    assert Counter(seen) == Counter(length for length, _ in passed)
    assert found == sum(length % port == 0 for length, port in passed) > 0


@pytest.mark.parametrize(
    "select, rest",
    [
        ("kept(len) AS k", ""),
        ("kept(len) AS k, count(*) AS n", "GROUP BY k"),
        ("srcIP, sum(kept(len)) AS s, max(kept(len) + 1) AS m", "GROUP BY srcIP"),
        ("srcIP, avg(kept(len)) AS s", "GROUP BY srcIP"),
        ("srcIP, count(DISTINCT kept(len)) AS s", "GROUP BY srcIP"),
        ("first_byte(payload, len) AS b", ""),
        ("first_byte(payload, len) AS b, count(*) AS n", "GROUP BY b"),
    ],
)
@pytest.mark.parametrize("least", [60, 90, 10_000])
def test_a_function_does_not_see_rows_that_where_removes(least: int, select: str, rest: str, tmp_path: Path) -> None:
    capture, rows = generate_links(tmp_path)
    calls: list[int] = []

    def note(length: int) -> int:
        assert length >= least
        calls.append(length)
        return length

    wiretide.function(note, name="kept")
    wiretide.function(lambda_of_payload(note), name="first_byte")
    found = wiretide.query(f"SELECT {select} FROM packets WHERE len >= {least} {rest}", *capture, threads=1)
    chosen = Counter(row["len"] for row in rows if row["len"] >= least)
    assert calls == [] if not chosen else set(calls) == set(chosen)
    assert bool(found.num_rows) == bool(chosen)
    if "sum" not in select:  # sum and max have two arguments
        assert len(calls) <= 2 * chosen.total()  # by the IP version of the keys, once for each
    if rest in ("", "GROUP BY k", "GROUP BY b"):
        assert Counter(calls) == chosen


def lambda_of_payload(note: Callable[[int], int]) -> Callable[..., int]:
    def first_byte(payload: bytes, length: int) -> int:
        note(length)
        return payload[0] if payload else -1

    return first_byte


def test_an_argument_of_several_aggregates_is_computed_once(paths: list[Path]) -> None:
    calls: list[int] = []

    @wiretide.function
    def same(number: int) -> int:
        calls.append(number)
        return number

    sql = "SELECT sum(same(len)) AS s, min(same(len)) AS m, avg(same(len)) AS a FROM packets"
    (found,) = wiretide.query(sql, *paths, threads=1).to_pylist()
    lengths = [row["len"] for row in rows_of(paths)]
    assert found == {"s": sum(lengths), "m": min(lengths), "a": sum(lengths) / len(lengths)}
    assert len(calls) == len(lengths)


def test_masked_values_and_none_are_null(paths: list[Path]) -> None:
    @wiretide.function(columns=True)
    def short(length: int) -> int | None:
        return np.ma.masked_greater(length, 60)  # type: ignore[no-untyped-call, no-any-return]

    @wiretide.function(columns=True)
    def named(length: int) -> str | None:
        return np.array([None if each > 60 else f"n{each}\0" for each in length])  # type: ignore[attr-defined]

    found = in_ns.query("SELECT len, short(len) AS s, named(len) AS t FROM packets", *paths).to_pylist()
    assert {row["s"] is None for row in found} == {True, False}
    for row in found:
        expected = (None, None) if row["len"] > 60 else (row["len"], f"n{row['len']}\0")
        assert (row["s"], row["t"]) == expected


def test_a_parameter_with_none_receives_null(paths: list[Path]) -> None:
    @wiretide.function
    def port_or(port: int | None, other: int) -> int:
        return other if port is None else port

    @wiretide.function(columns=True)
    def is_absent(port: int | None, name: str | None) -> bool:
        absent = np.ma.getmaskarray(port)  # type: ignore[no-untyped-call]
        assert np.array_equal(absent, [each is None for each in name])  # type: ignore[union-attr]
        return absent  # type: ignore[no-any-return]

    sql = "SELECT srcPort, port_or(srcPort, len) AS p, is_absent(srcPort, CAST(srcPort AS VARCHAR)) AS a, len, "
    found = wiretide.query(sql + "port_or(len, srcPort) AS n FROM packets", *paths).to_pylist()
    assert {row["a"] for row in found} == {True, False}
    for row in found:
        assert row["a"] == (row["srcPort"] is None)
        assert row["p"] == (row["len"] if row["srcPort"] is None else row["srcPort"])
        assert row["n"] == (None if row["srcPort"] is None else row["len"])


def test_payloads_are_bytes(tmp_path: Path) -> None:
    capture, rows = generate_links(tmp_path)

    @wiretide.function
    def size(payload: bytes, port: int | None) -> str:
        assert isinstance(payload, bytes)
        assert payload == bytes(len(payload))
        return f"{len(payload)} {port}"

    @wiretide.function(columns=True)
    def long(payload: bytes) -> bool:
        return np.array([len(each) > 50 for each in payload])  # type: ignore[return-value, arg-type]

    expected = Counter(f"{row['payload']} {row['destPort']}" for row in rows)
    sql = "SELECT size(payload, destPort) AS s, count(*) AS n FROM packets GROUP BY s"
    assert {row["s"]: row["n"] for row in wiretide.query(sql, *capture).to_pylist()} == expected
    listed = wiretide.query("SELECT size(payload, destPort) AS s FROM packets", *capture).column("s").to_pylist()
    assert Counter(listed) == expected
    number = wiretide.query("SELECT count(*) AS n FROM packets WHERE long(payload)", *capture).to_pylist()
    assert number == [{"n": sum(row["payload"] > 50 for row in rows)}]


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


def fails_inside(number: int) -> int:
    return int(np.linalg.inv(np.zeros((2, 2)))[0, 0]) + number


def exits(number: int) -> int:
    sys.exit(3)


def stops(number: int) -> int:
    return next(iter(()))  # type: ignore[call-overload, no-any-return]


def is_pair(number: int) -> int:
    return (1, 2)  # type: ignore[return-value]


def is_large(number: int) -> int:
    return 2**70


def is_unsigned(number: int) -> int:
    return np.full(len(number), 2**64 - 1, np.uint64)  # type: ignore[arg-type, return-value]


def is_surrogate(number: int) -> str:
    return "a\ud800"


def is_constant(number: int) -> int:
    return 5


def is_ragged(number: int) -> int:
    return [[1], [1, 2]]  # type: ignore[return-value]


def is_float(number: int) -> int:
    return number * 1.5  # type: ignore[return-value]


def is_float_compiled(number: int) -> int:
    return number * 1.5  # type: ignore[return-value]


def is_none(number: int) -> int | None:
    return None if number > 100 else number


def has_no_machine_code(number: int) -> int:
    return len(open.__doc__ or "") + number


@pytest.mark.parametrize(
    "body, options, message",
    [
        (fails, {}, r"the function fails raised ZeroDivisionError in line \d+ of .*test_user_functions.py"),
        (fails, {}, r"integer division or modulo by zero; its arguments: \d+ \(int\)"),
        (fails_inside, {"columns": True}, r"raised LinAlgError in line \d+ of .*functions.py: .*: \d+ values of int64"),
        (exits, {}, r"the function exits raised SystemExit in line \d+ of .*test_user_functions.py: 3"),
        (stops, {}, "the function stops raised RuntimeError: StopIteration"),
        (is_text, {}, r"is_text returned 'x' \(str\) for the arguments \d+ \(int\), expected .* integer \(int\)"),
        (is_number, {}, r"the function is_number returned \d+ \(int\) for .*, expected values of type text \(str\)"),
        (is_pair, {}, r"the function is_pair returned \(1, 2\) \(tuple\)"),
        (is_large, {}, r"returned 1180591620717411303424, expected an integer from -2\*\*63 to 2\*\*63 - 1"),
        (is_unsigned, {"columns": True}, "returned 18446744073709551615, expected an integer from"),
        (is_surrogate, {}, r"the function is_surrogate returned 'a\\ud800', expected a text of Unicode characters"),
        (is_short, {"columns": True}, r"returned ndarray of shape \(1,\), expected one value for each of \d+ rows"),
        (is_constant, {"columns": True}, r"returned int of shape \(\), expected one value for each of \d+ rows"),
        (is_ragged, {"columns": True}, "returned a value of type list, which is no array .* expected a numpy array"),
        (is_float, {"columns": True}, r"returned an array of float64 such as \[.*\], expected values of type integer"),
        (is_float_compiled, {"compiled": True}, "returned an array of float64 .* expected values of type integer"),
        (has_no_machine_code, {"compiled": True}, r"cannot be compiled by numba: Untyped global name .* \(line \d+\)"),
        (is_none, {"compiled": True}, "is_none cannot be compiled by numba: its result"),
    ],
)
def test_an_error_names_the_function(body: Any, options: dict[str, bool], message: str, paths: list[Path]) -> None:
    wiretide.function(body, **options)
    with pytest.raises(FunctionError, match=message):
        wiretide.query(f"SELECT {body.__name__}(len) AS x FROM packets", paths[0])


@pytest.mark.parametrize(
    "body, options, message",
    [
        ("def f(x): return 1", {}, "f: the parameter x has no annotation, expected int, float, bool, str or bytes"),
        ("def f(x: int): return 1", {}, "f: the result has no annotation"),
        ("def f(x: int) -> bytes: return 1", {}, "f: the result has the annotation bytes, expected .* bool or str"),
        ("def f(x: int | str) -> int: return 1", {}, "f: the parameter x has the annotation"),
        ("def f(x: int | None) -> int: return 1", {"compiled": True}, "compiled=True and a parameter that can be None"),
        ("def f(x: bytes) -> int: return 1", {"compiled": True}, "compiled=True and bytes"),
        ("def f(x: list) -> int: return 1", {}, "f: the parameter x has the annotation list"),
        ("def f(x: 'Oops') -> int: return 1", {}, "f: an annotation is unknown"),
        ("def f() -> int: return 1", {}, "f has no parameter"),
        ("def f(*x: int) -> int: return 1", {}, r"got the parameter \*x"),
        ("def sum(x: int) -> int: return 1", {}, "the name 'sum' is taken"),
        ("def rank(x: int) -> int: return 1", {}, "the name 'rank' is taken"),
        ("def f(x: int) -> int: return 1", {"name": "select"}, "the name 'select' is taken"),
        ("def f(x: int) -> int: return 1", {"name": "a b"}, "got the name 'a b'"),
        (
            "def f(x: str) -> int: return 1",
            {"compiled": True},
            "compiled=True and str, expected int, float and bool only",
        ),
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
        ("first_byte(srcIP)", "first_byte over a value of type address; expected bytes"),
        ("first_byte(x'0102')", "first_byte over a constant; expected a column of bytes, for example payload"),
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
    shown = explain(plan)
    assert "size(len, CAST(srcIP AS VARCHAR))" in shown
    assert f"  function        size(integer, text) of type text: Python, for each row, {file}\n" in shown
    assert f"  function        weighted(integer, integer) of type float: Python, compiled by numba, {file}\n" in shown
    graph = explain(
        compile_query("SELECT size(a.len, a.srcIP) AS s FROM a [RANGE 1 s], b [RANGE 1 s] WHERE a.len = b.len")
    )
    assert graph.count("size(integer, text) of type text: Python, for each row") == 1
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


@pytest.mark.spark
def test_spark_gives_the_same_and_names_an_error(spark, tmp_path: Path) -> None:
    from highlevel.spark.batch import run_batch
    from highlevel.spark.stream import StreamRun
    from tests.harness.spark_results import ordered, read_results

    inputs = write_links(tmp_path, 4)
    (tmp_path / "f.py").write_text(FILE)
    load(tmp_path / "f.py")

    @wiretide.function(columns=True)
    def is_even(number: int) -> bool:  # of this module, which the workers do not have
        return number % 2 == 0

    @wiretide.function
    def broken(number: int) -> int:
        return {1: 2}[number]

    sql = (
        "SELECT size(len, srcIP) AS s, count(*) AS n, sum(weighted(len, srcPort)) AS w, total(len) AS t "
        "FROM packets [RANGE 5 minutes] WHERE is_even(len) OR first_byte(payload) > 0 GROUP BY s"
    )
    plan = compile_query(sql, "q")
    batches = [batch for _, batch in InlineRun([plan], inputs).results()]
    want = ordered(pa.Table.from_batches(batches, plan.schema))
    assert want.num_rows > 10
    assert ordered(run_batch(spark, plan, inputs)).equals(want)
    run = StreamRun(spark, [plan], inputs, tmp_path / "run")
    run.start()
    try:
        assert run.wait()
    finally:
        run.stop()
    assert ordered(read_results(tmp_path / "run", plan)).equals(want)
    message = r"the function broken raised KeyError in line \d+ of .*functions.py: \d+; its arguments: \d+ \(int\)"
    with pytest.raises(FunctionError, match=message):
        run_batch(spark, compile_query("SELECT broken(len) AS b FROM packets"), inputs)
