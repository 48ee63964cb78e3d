"""Settings in files: constants of queries that change while the queries run.

* Queries with settings and with constants have equal rows: catches a setting that is evaluated once, or as a column.
* Versions of a file under control of the test catch a new value that is not used, and an invalid one that is.
* The table of wrong files catches values of another type and beyond the bounds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from highlevel.inline.engine import InlineRun
from lowlevel.expressions.columns import Vector
from lowlevel.expressions.evaluate import evaluate
from lowlevel.expressions.types import Type
from lowlevel.node.node_watchlists import bind_watchlists, find_watched_files
from lowlevel.spool.fingerprint import fingerprint
from lowlevel.watch.errors import WatchlistError
from lowlevel.watch.settings import Setting
from lowlevel.watch.watched_file import CheckResult, WatchedFile, Watchlists
from queries.explain.plan import explain
from queries.gsql import compile_query
from queries.pipeline.file import parse_pipeline
from queries.query_text import query_text
from queries.text.errors import QueryError
from queries.text.printer import expression_text
from tests.harness.links import write_links

LIMITS = "least = 40\nrate = 2.5\non = true\n[dns]\nport = 53\n"


def put(folder: Path, text: str = LIMITS) -> Path:
    """Put another version of the file in place."""
    path = folder / "limits.toml"
    part = path.with_suffix(".part")
    part.write_text(text)
    part.replace(path)
    return path


def rows(sql: str, inputs: Any) -> list[tuple[Any, ...]]:
    batches = InlineRun([compile_query(sql)], inputs).results()
    return sorted((tuple(row.values()) for _, batch in batches for row in batch.to_pylist()), key=repr)


@pytest.mark.parametrize(
    ("called", "constant"),
    [
        ("SELECT count(*) FROM packets WHERE len > {least}", "40"),
        ("SELECT srcIP, count(*) AS n FROM packets GROUP BY srcIP HAVING n >= {least}", "40"),
        ("SELECT srcIP, count(*) + {least} AS n FROM packets GROUP BY srcIP", "40"),
        ("SELECT len % {least} AS bucket, sum(len * {least}) FROM packets GROUP BY bucket", "40"),
        ("SELECT max({least}) FROM packets", "40"),
        ("SELECT ts, len, {least} AS least FROM packets WHERE len BETWEEN {least} AND 2 * {least}", "40"),
        ("SELECT n FROM (SELECT srcIP, count(*) AS n FROM packets GROUP BY srcIP) WHERE n > {least} ORDER BY n", "40"),
    ],
)
def test_a_setting_gives_the_rows_of_the_constant(called: str, constant: str, tmp_path: Path, monkeypatch) -> None:
    put(tmp_path)
    monkeypatch.chdir(tmp_path)
    inputs = write_links(tmp_path, 5)
    answer = rows(called.format(least="setting('limits.toml', 'least')"), inputs)
    assert answer == rows(called.format(least=constant), inputs)
    assert answer


def test_types_are_those_of_the_file_and_of_the_bounds(tmp_path: Path, monkeypatch) -> None:
    put(tmp_path)
    monkeypatch.chdir(tmp_path)
    for call, expected, type_ in [
        ("setting('limits.toml', 'least')", 40, Type.INT),
        ("setting('limits.toml', 'rate')", 2.5, Type.FLOAT),
        ("setting('limits.toml', 'least', 0.0, 50.0)", 40.0, Type.FLOAT),
        ("setting('limits.toml', 'dns.port')", 53, Type.INT),
        ("setting('limits.toml', 'on')", True, Type.BOOL),
    ]:
        plan = compile_query(f"SELECT ts, {call} AS x FROM packets")
        expression = next(column for column in plan.root.columns if column.name == "x")
        assert expression.type is type_, call
        ((_, setting),) = [(file.path, file.form) for file in find_watched_files((plan.root,))]
        assert isinstance(setting, Setting)
        value = setting.read(Path("limits.toml").read_bytes())
        assert (value, type(value)) == (expected, type(expected))


def test_a_new_version_is_used_and_an_invalid_one_is_not(tmp_path: Path) -> None:
    path = put(tmp_path)
    plan = compile_query(f"SELECT count(*) AS n FROM packets WHERE len > setting('{path}', 'least', 1, 100)")
    lists = Watchlists()
    (file,) = lists.read(find_watched_files((plan.root,)))
    where = bind_watchlists(plan.leaves[0].low.where, lists)
    assert where is not None

    def kept() -> list[bool]:
        vector = evaluate(where, {"len": Vector(np.array([30, 41, 81]))})
        assert isinstance(vector, Vector)
        return vector.data.tolist()

    assert kept() == [False, True, True]
    put(tmp_path, "least = 80")
    assert file.refresh(10.0) is CheckResult.RELOADED
    assert kept() == [False, False, True]
    for number, text in enumerate(("least = 500", "least = 'x'", "other = 5", "least = true", "least =")):
        put(tmp_path, text)
        with pytest.warns(RuntimeWarning, match="the setting stays as it was"):
            assert file.refresh(20.0 + number * 2) is CheckResult.FAILED
        assert kept() == [False, False, True]
    put(tmp_path, "least = 1")
    assert file.refresh(40.0) is CheckResult.RELOADED
    assert kept() == [True, True, True]


WRONG_FILES = [
    (b"", "least", "has no setting 'least'; it contains nothing"),
    (b"other = 1", "least", "has no setting 'least'; it contains other"),
    (b"least = [1]", "least", "got least of type list, expected a number or true or false"),
    (b"[least]\na = 1", "least", "got least of type dict"),
    (b"least = 1", "least.a", "has no setting 'least.a'"),
    (b"least = 2024-01-01", "least", "got least of type date"),
    (b"least = 1.5", "least", "got least = 1.5, expected the setting 'least = …', an integer from 1 to 100"),
    (b"least = true", "least", "got least = true, expected"),
    (b"least = 0", "least", "got least = 0, expected"),
    (b"least = 101", "least", "got least = 101, expected"),
    (b"least = 9223372036854775808", "least", "expected an integer of 64 bits with sign"),
    (b"least = inf", "least", "got least = inf, expected a finite number"),
    (b"least = nan", "least", "got least = nan, expected a finite number"),
    (b"least : 5", "least", "got a file that is not TOML"),
    (b"least = 5 # \xff", "least", "got bytes that are not UTF-8 text"),
]


@pytest.mark.parametrize(("data", "name", "problem"), WRONG_FILES, ids=[repr(data) for data, _, _ in WRONG_FILES])
def test_a_wrong_file_is_an_error_with_the_value(data: bytes, name: str, problem: str) -> None:
    with pytest.raises(WatchlistError) as raised:
        Setting(name, Type.INT, 1, 100).read(data)
    assert problem in str(raised.value)


WRONG_CALLS = [
    ("setting('limits.toml')", 42, "setting with 1 argument; expected setting('limits.toml', 'least')"),
    ("setting('limits.toml', 'least', 5)", 42, "setting with 3 arguments"),
    ("setting(len, 'least')", 50, "a setting whose file is not a text"),
    ("setting('limits.toml', 5)", 65, "a setting whose name is not a text"),
    ("setting('limits.toml', 'least', len, 5)", 74, "a bound of a setting that is not a number"),
    ("setting('limits.toml', 'least', 1, 5)", 50, "limits.toml: got least = 40, expected"),
    ("setting('limits.toml', 'on', 1, 5)", 65, "bounds of the setting 'on', which is true or false"),
    ("setting('none.toml', 'least')", 50, "none.toml: cannot be read as a setting: No such file or directory"),
    ("setting('limits.toml', 'last')", 50, "has no setting 'last'; it contains least, rate, on, dns"),
]


@pytest.mark.parametrize(("call", "column", "problem"), WRONG_CALLS, ids=[call for call, _, _ in WRONG_CALLS])
def test_a_wrong_call_is_an_error_with_its_position(
    call: str, column: int, problem: str, tmp_path: Path, monkeypatch
) -> None:
    put(tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(QueryError) as raised:
        compile_query(f"SELECT count(*) FROM packets WHERE len > {call}")
    first = str(raised.value).splitlines()[0]
    assert first.startswith(f"line 1, column {column}: ")
    assert problem in first


PARAM = "PARAM {{ least {} DEFAULT 5; }} SELECT count(*) AS n FROM packets WHERE len > $least"


@pytest.mark.parametrize(
    ("type_", "printed"),
    [
        ("UINT", "setting('limits.toml', 'least', 0, 4294967295)"),
        ("USHORT", "setting('limits.toml', 'least', 0, 65535)"),
        ("LLONG", "setting('limits.toml', 'least')"),
        ("FLOAT", "setting('limits.toml', 'least', -1e+308, 1e+308)"),
    ],
)
def test_a_parameter_follows_a_file(type_: str, printed: str, tmp_path: Path, monkeypatch) -> None:
    path = put(tmp_path)
    monkeypatch.chdir(tmp_path)
    text = query_text(PARAM.format(type_), {"least": "@limits.toml"})
    assert printed in text
    where = compile_query(text).leaves[0].low.where
    assert where is not None
    again = compile_query(f"SELECT count(*) AS n FROM packets WHERE {expression_text(where)}")
    assert again.leaves[0].low.where == where
    assert f"{path}: least = 40" in explain(compile_query(text))


@pytest.mark.parametrize(
    ("declaration", "problem"),
    [
        ("least DURATION DEFAULT 5s", "a value of type duration cannot change while a query runs"),
        ("least PREFIX DEFAULT '10.0.0.0/8'", "a value of type prefix cannot change"),
        ("least WINDOW DEFAULT 'all'", "a value of type window cannot change"),
        ("least IP DEFAULT '10.0.0.1'", "a value of type address cannot change"),
    ],
)
def test_parameters_of_the_structure_cannot_follow_a_file(declaration: str, problem: str) -> None:
    with pytest.raises(QueryError, match=problem):
        query_text(f"PARAM {{ {declaration}; }} SELECT count(*) FROM packets", {"least": "@limits.toml"})


def test_the_value_of_a_text_may_begin_with_an_at_sign() -> None:
    text = query_text("PARAM { least STRING; } SELECT count(*) FROM packets WHERE link = $least", {"least": "@x"})
    assert "'@x'" in text


def test_a_default_cannot_follow_a_file() -> None:
    with pytest.raises(QueryError, match=r"got '@limits\.toml' as the default of least"):
        query_text("PARAM { least UINT DEFAULT '@limits.toml'; } SELECT count(*) FROM packets")


def test_a_pipeline_with_another_value_is_the_same_pipeline(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    sql = "PARAM { least UINT; } SELECT count(*) FROM M [RANGE 1 minute] WHERE len > $least"
    text = f'[links]\nM = "m.pcap"\n[queries.q]\nsql = "{sql}"\nparams = {{ least = "@limits.toml" }}\n'
    lows = []
    for version in ("least = 5", "least = 6"):
        put(tmp_path, version)
        (plan,) = parse_pipeline(text, tmp_path).plans()
        lows.append(plan.leaves[0].low)
    assert lows[0] == lows[1]
    assert fingerprint(lows[0]) == fingerprint(lows[1])
    assert [file.path for file in find_watched_files(lows[0])] == [str(tmp_path / "limits.toml")]


def test_files_of_one_name_and_other_settings_are_told_apart(tmp_path: Path, monkeypatch) -> None:
    put(tmp_path, "least = 1\nmost = 1")
    monkeypatch.chdir(tmp_path)
    lows = [
        compile_query(f"SELECT count(*) FROM packets WHERE len > setting('limits.toml', {arguments})").leaves[0].low
        for arguments in ("'least'", "'most'", "'least', 0, 5", "'least', 0, 6")
    ]
    assert len({fingerprint(low) for low in lows}) == len(lows)
    assert WatchedFile("a", Setting("x", Type.INT)) != WatchedFile("a", Setting("y", Type.INT))
