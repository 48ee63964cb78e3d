"""Aggregates that users define, from the definition to the rows of every engine.

Only these tests detect parts that the low level does not keep, and a group with a NULL part that is passed to the
function. They detect results in the wrong group, and functions that do not reach Spark's processes.
"""

import math
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wiretide
from highlevel.aggregation import AggregateError
from highlevel.inline.engine import InlineRun
from queries.binding.user_aggregates import DEFINED
from queries.explain.plan import explain
from queries.gsql import compile_query
from queries.text.errors import QueryError
from tests.harness import in_ns
from tests.harness.links import write_links

RMS = {"n": "count(x)", "q": "sum(x * x)"}


@pytest.fixture(autouse=True)
def rms() -> None:
    wiretide.aggregate("rms", RMS, lambda n, q: np.sqrt(q / n))


def rows_of(paths: list[Path]) -> list[dict[str, Any]]:
    names = ["srcIP", "destPort", "srcPort", "len"]
    return [row for path in paths for batch in in_ns.packets(path, names) for row in batch.to_pylist()]


def test_a_root_mean_square_is_that_of_the_packets(tmp_path: Path) -> None:
    paths = [Path(each.path) for each in write_links(tmp_path, 1)]
    sql = (
        "SELECT srcIP, RMS(len) * 2 AS twice, rms(srcPort - 1) AS ports FROM packets GROUP BY srcIP HAVING rms(len) > 1"
    )
    found = in_ns.query(sql, *paths).to_pylist()
    groups = defaultdict(list)
    for row in rows_of(paths):
        groups[row["srcIP"]].append(row)
    assert {row["srcIP"] for row in found} == set(groups)
    for row in found:
        lengths = [each["len"] for each in groups[row["srcIP"]]]
        ports = [each["srcPort"] - 1 for each in groups[row["srcIP"]] if each["srcPort"] is not None]
        assert math.isclose(row["twice"], 2 * math.sqrt(sum(n * n for n in lengths) / len(lengths)))
        assert math.isclose(row["ports"], math.sqrt(sum(n * n for n in ports) / len(ports)))


def test_a_group_of_which_a_part_is_null_is_null_and_not_shown(tmp_path: Path) -> None:
    paths = [Path(each.path) for each in write_links(tmp_path, 1)]
    seen: list[int] = []

    def spread(low: Any, high: Any) -> Any:
        seen.append(len(low))
        return high - low

    wiretide.aggregate("spread", {"low": "min(x)", "high": "max(x)"}, spread)
    sql = "SELECT destPort, count(*), spread(srcPort) AS s, rms(srcPort) AS r FROM packets GROUP BY destPort"
    found = in_ns.query(sql, *paths).to_pylist()
    ports = defaultdict(list)
    for row in rows_of(paths):
        ports[row["destPort"]] += [row["srcPort"]] if row["srcPort"] is not None else []
    assert {row["destPort"]: row["s"] for row in found} == {
        port: max(values) - min(values) if values else None for port, values in ports.items()
    }
    assert not ports[None]
    assert [row["r"] for row in found if row["destPort"] is None] == [None]  # 0 / 0 is NaN
    assert seen == [len(ports) - 1]


def test_squares_of_times_are_floats_or_an_error(tmp_path: Path) -> None:
    paths = [Path(each.path) for each in write_links(tmp_path, 1)]
    problem = r"rms\(ts\), of which a part is 'sum\(x \* x\)': ts \* ts, a product of times.* expected floats"
    with pytest.raises(QueryError, match=problem):
        in_ns.query("SELECT rms(ts) FROM packets", *paths)
    wiretide.aggregate("rms", RMS | {"q": "sum(x * 1.0 * x)"}, lambda n, q: np.sqrt(q / n))
    (row,) = in_ns.query("SELECT rms(ts) AS r, rms(ts - ts) AS zero FROM packets", *paths).to_pylist()
    times = [row["ts"] for path in paths for batch in in_ns.packets(path, ["ts"]) for row in batch.to_pylist()]
    assert math.isclose(row["r"], math.sqrt(sum(ts * ts for ts in times) / len(times)))
    assert row["zero"] == 0


def test_parts_are_kept_next_to_the_packets_and_equal_ones_once() -> None:
    plan = compile_query("SELECT srcIP, rms(len), count(*), sum(len * len) FROM packets GROUP BY srcIP")
    assert [str(sub.kind) for sub in plan.leaves[0].low.subaggregates] == ["count", "upper_sum", "lower_sum"]
    assert [out.name for out in plan.aggregation.select] == ["srcIP", "rms_len", "count", "column_4"]
    assert "user's          u0 = rms(len) of n = s0, q = wide_sum(s1, s2), by a function in Python" in explain(plan)


def test_an_aggregate_may_be_defined_anew_and_plans_keep_what_they_were_made_with(tmp_path: Path) -> None:
    inputs = write_links(tmp_path, 2)
    before = compile_query("SELECT rms(len) AS r FROM x")
    wiretide.aggregate("RMS", {"n": "count(x)"}, lambda n: n * 0.0)
    after = compile_query("SELECT rms(len) AS r FROM x")
    run = InlineRun([before, after], inputs)
    found = {number: batch["r"].to_pylist() for number, batch in run.results()}
    assert found[0][0] > 1
    assert found[1] == [0.0]


@pytest.mark.parametrize(
    "name, parts, finish, problem",
    [
        ("2x", RMS, lambda n, q: n, "got the name '2x' of an aggregate, expected a word like rms"),
        ("sum", RMS, lambda n, q: n, "the name 'sum' is taken"),
        ("Median", RMS, lambda n, q: n, "the name 'Median' is taken"),
        ("tumble", RMS, lambda n, q: n, "the name 'tumble' is taken"),
        ("select", RMS, lambda n, q: n, "the name 'select' is taken"),
        ("f", {}, lambda: 0, "f has no parts"),
        ("f", {"a b": "sum(x)"}, lambda: 0, "got the part 'a b'"),
        ("f", {"a": "sum(y)"}, lambda a: a, "the part 'a' is not a bounded aggregate of x: line 1, column 5: got 'y'"),
        ("f", {"a": "x"}, lambda a: a, "expected aggregates of x only, for example sum(x)"),
        ("f", {"a": "5"}, lambda a: a, "got a constant; expected an aggregate"),
        ("f", {"a": "median(x)"}, lambda a: a, "got an aggregate without parts of a fixed size; expected count, sum"),
        ("f", {"a": "rms(x)"}, lambda a: a, "got an aggregate without parts of a fixed size"),
        ("f", {"a": "sum(x"}, lambda a: a, "the part 'a' is not a bounded aggregate of x"),
        ("f", {"a": ""}, lambda a: a, "the part 'a' is not a bounded aggregate of x"),
        ("f", {"a": "sum(x)"}, lambda b: b, "f: its function takes b, and its parts are a"),
        ("f", {"a": "sum(x)", "b": "max(x)"}, lambda a: a, "f: its function takes a, and its parts are a, b"),
        ("f", {"a": "sum(x)"}, 5, "f: got int to finish with"),
    ],
)
def test_a_wrong_definition_is_refused(name: str, parts: Any, finish: Any, problem: str) -> None:
    before = dict(DEFINED)
    with pytest.raises(AggregateError) as caught:
        wiretide.aggregate(name, parts, finish)
    assert problem in str(caught.value)
    assert before == DEFINED


@pytest.mark.parametrize(
    "finish, problem",
    [
        (lambda n, q: n[:-1], "rms(len): its function returned an array of shape ("),
        (lambda n, q: 5.0, "rms(len): its function returned a single value, expected one value for each of "),
        (lambda n, q: ["a"] * len(n), "rms(len): its function returned list, expected numbers"),
        (lambda n, q: None, "rms(len): its function returned NoneType, expected numbers"),
    ],
)
def test_what_a_function_returns_is_checked(finish: Callable[..., Any], problem: str, tmp_path: Path) -> None:
    paths = [str(each.path) for each in write_links(tmp_path, 3)]
    wiretide.aggregate("rms", RMS, finish)
    with pytest.raises(AggregateError) as caught:
        in_ns.query("SELECT srcIP, rms(len) FROM packets GROUP BY srcIP", *paths)
    assert problem in str(caught.value)


def test_an_error_of_a_function_names_the_aggregate_and_the_line(tmp_path: Path) -> None:
    paths = [str(each.path) for each in write_links(tmp_path, 3)]
    wiretide.aggregate("rms", RMS, lambda n, q: {}["nothing"])
    message = (
        r"rms\(len\): its function raised KeyError in line \d+ of .*test_user_aggregates.py: 'nothing'; "
        r"its arguments: 8 values of int64, 8 values of int64"
    )
    with pytest.raises(AggregateError, match=message) as caught:
        in_ns.query("SELECT srcIP, rms(len) FROM packets GROUP BY srcIP", *paths)
    assert isinstance(caught.value.__cause__, KeyError)


def test_masked_results_are_null_and_integers_become_floats(tmp_path: Path) -> None:
    paths = [str(each.path) for each in write_links(tmp_path, 3)]
    wiretide.aggregate("few", {"n": "count(x)"}, lambda n: np.ma.masked_greater(n, 10**9))
    wiretide.aggregate("none", {"n": "count(x)"}, lambda n: np.ma.masked_less(n, 10**9))
    found = in_ns.query("SELECT few(len) AS f, none(len) AS n, count(*) AS c FROM packets", *paths).to_pylist()
    assert found[0] == {"f": float(found[0]["c"]), "n": None, "c": found[0]["c"]}


@pytest.mark.parametrize(
    "select, problem",
    [
        ("rms(srcIP)", "rms(srcIP), of which a part is 'sum(x * x)': * over a value of type address"),
        ("rms(len, len)", "rms with 2 arguments; expected one argument"),
        ("sum(rms(len))", "the aggregate rms in the argument of sum"),
        ("rsm(len)", "unknown function 'rsm'"),
        ("rms(*)", "rms(*)"),
    ],
)
def test_a_wrong_use_is_a_wrong_query(select: str, problem: str) -> None:
    with pytest.raises(QueryError) as caught:
        compile_query(f"SELECT {select} FROM packets")
    assert problem in str(caught.value)


@pytest.mark.spark
def test_spark_gives_the_same(spark, tmp_path: Path) -> None:
    from highlevel.spark.batch import run_batch
    from highlevel.spark.stream import StreamRun
    from tests.harness.spark_results import ordered, read_results

    inputs = write_links(tmp_path, 4)
    wiretide.aggregate("rms", RMS, lambda n, q: np.sqrt(q / n))  # of this module, which the workers do not have
    plan = compile_query("SELECT srcIP, rms(len) AS r FROM packets [RANGE 5 minutes] GROUP BY srcIP", "rms")
    batches = [batch for _, batch in InlineRun([plan], inputs).results()]
    import pyarrow as pa

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
