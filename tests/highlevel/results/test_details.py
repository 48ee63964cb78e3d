"""Aggregates over all values of a group, against plain Python over the very rows.

The functions are tested with every type, ties, NULLs, NaN and groups without a value. The queries are tested with panes
that overlap, tables that evict, several arguments at once, and restarts. Only these tests detect values sorted across
groups, a value counted once per value of another argument, a pane counted twice, and a window that is split.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from ipaddress import ip_address
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from highlevel.aggregation import DetailFunction
from highlevel.inline.engine import InlineRun
from highlevel.plan.pipeline import Pipeline
from highlevel.results.holistic import ValueCounts, compute_aggregate, values_by_time
from highlevel.slide_by_tuple import extent
from lowlevel.expressions.tree import AtEnd
from lowlevel.punctuation import END, Punctuation
from queries.explain.plan import explain
from queries.gsql import compile_query
from queries.text.errors import QueryError
from tests.conftest import Rounds
from tests.harness import in_ns
from tests.harness.links import write_links
from tests.references.holistic_twin import twin
from tests.references.operator_contract import Contract, all_rows, batched, check, check_restart, interleaved
from tests.references.windows_oracle import Arrival, Spec, numbers_by_window, random_inputs

NS = 10**9


def close(got: Any, want: Any) -> bool:
    return got == want or (isinstance(want, float) and math.isclose(got, want, rel_tol=1e-12, abs_tol=1e-12))


VALUES = {
    pa.int64(): lambda random: random.choice([0, 1, 2, -5, 2**62, random.randrange(100)]),
    pa.float64(): lambda random: random.choice([0.5, -1.5, 3.0, 1e9]),
    pa.bool_(): lambda random: random.random() < 0.5,
    pa.string(): lambda random: random.choice(["", "a", "b", "ba", "é", "a" * 30]),
    pa.binary(): lambda random: random.choice([bytes([10, 0, 0, 9]), bytes([9, 0, 0, 200]), bytes(15) + b"\x01"]),
}
FUNCTIONS = [(DetailFunction.QUANTILE, share) for share in (0.0, 0.25, 0.5, 0.9, 1.0)]
FUNCTIONS += [(DetailFunction.TOP, 1), (DetailFunction.TOP, 3)]
FUNCTIONS += [(each, 0) for each in (DetailFunction.COUNT_DISTINCT, DetailFunction.MODE, DetailFunction.ENTROPY)]
FUNCTIONS += [(DetailFunction.MIN, 0), (DetailFunction.MAX, 0)]


@pytest.mark.parametrize("kind", VALUES, ids=str)
def test_each_function_says_of_every_group_what_its_values_say(kind: pa.DataType, rounds: Rounds) -> None:
    for seed in rounds(200):
        random = Random(seed)
        groups, rows = random.randrange(1, 6), random.choice([0, 1, 5, 40])
        ids = [random.randrange(groups) for _ in range(rows)]
        values = [None if random.random() < 0.1 else VALUES[kind](random) for _ in range(rows)]
        counts = [random.choice([0, 1, 1, 3]) for _ in range(rows)]
        of_group = defaultdict(list)
        for group, value, count in zip(ids, values, counts, strict=True):
            of_group[group] += [value] * count if value is not None else []
        found = ValueCounts(np.array(ids, np.int64), groups, pa.array(values, kind), np.array(counts, np.int64))
        assert found.totals.tolist() == [len(of_group[group]) for group in range(groups)]
        for function, parameter in FUNCTIONS:
            if function is DetailFunction.QUANTILE and kind not in (pa.int64(), pa.float64()):
                continue
            if function is DetailFunction.TOP and kind == pa.float64():
                continue  # Arrow spells floats its own way
            got = compute_aggregate(function, parameter, found).to_pylist()
            want = [twin(function, parameter, of_group[group]) for group in range(groups)]
            assert all(map(close, got, want)), (seed, function, parameter, got, want)


@pytest.mark.parametrize("kind", VALUES, ids=str)
def test_first_and_last_are_the_values_of_the_smallest_and_the_greatest_time(kind: pa.DataType, rounds: Rounds) -> None:
    for seed in rounds(100):
        random = Random(f"times {seed}")
        groups, rows = random.randrange(1, 6), random.choice([0, 1, 5, 40])
        entries = [
            (
                random.randrange(groups),
                None if random.random() < 0.2 else VALUES[kind](random),
                random.choice([0, 1, 3]),
                random.randrange(-3, 3),
            )
            for _ in range(rows)
        ]
        ids, values, counts, times = zip(*entries, strict=True) if entries else ((), (), (), ())
        arrays = [np.array(each, np.int64) for each in (ids, counts, times)]
        for last in (False, True):
            found = values_by_time(arrays[0], groups, pa.array(values, kind), arrays[1], arrays[2], last)
            for group in range(groups):
                timed = [
                    (time, isinstance(value, bytes) and len(value), value)
                    for of, value, count, time in entries
                    if of == group and count and value is not None
                ]
                want = (max if last else min)(timed)[2] if timed else None
                assert found[group].as_py() == want, (seed, last, group)


def test_nan_is_one_value_and_the_greatest_and_the_two_zeros_are_one() -> None:
    column = pa.array([np.nan, -0.0, 0.0, float("inf"), -np.nan])
    found = ValueCounts(np.zeros(5, np.int64), 1, column, np.ones(5, np.int64))
    assert compute_aggregate(DetailFunction.COUNT_DISTINCT, 0, found).to_pylist() == [3]
    assert compute_aggregate(DetailFunction.QUANTILE, 0.5, found).to_pylist() == [math.inf]
    assert math.isnan(compute_aggregate(DetailFunction.QUANTILE, 1.0, found)[0].as_py())
    assert compute_aggregate(DetailFunction.TOP, 9, found).to_pylist() == ["-0=2 nan=2 inf=1"]


def test_a_mac_is_spelled_and_stays_a_mac(tmp_path: Path) -> None:
    paths = [str(each.path) for each in write_links(tmp_path, 3)]
    sql = "SELECT mode(smac) AS m, top(smac, 1) AS t FROM packets HAVING mode(smac) <> '00:00:00:00:00:01'"
    found = in_ns.query(sql.replace("smac", "srcMAC"), *paths).to_pylist()
    (row,) = found
    assert row["m"] == "00:00:00:00:00:00"
    assert row["t"].startswith("00:00:00:00:00:00=")


DETAILS = (
    "count(*) AS n, sum(len) AS bytes, count(DISTINCT destIP) AS hosts, median(srcPort) AS mid, "
    "quantile(len, 0.9) AS long, mode(destPort) AS port, entropy(destPort) AS bits, top(destIP, 2) AS most, "
    "first(destIP) AS one, last(destIP) AS other"
)


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    def present(name: str) -> list[Any]:
        return [row[name] for row in rows if row[name] is not None]

    addresses = [ip_address(each).packed for each in present("destIP")]
    return {
        "n": len(rows),
        "bytes": sum(row["len"] for row in rows),
        "hosts": len(set(addresses)),
        "mid": twin(DetailFunction.QUANTILE, 0.5, present("srcPort")),
        "long": twin(DetailFunction.QUANTILE, 0.9, present("len")),
        "port": twin(DetailFunction.MODE, 0, present("destPort")),
        "bits": twin(DetailFunction.ENTROPY, 0, present("destPort")),
        "most": twin(DetailFunction.TOP, 2, addresses),
        "one": first_of(rows, "destIP"),
        "other": first_of(rows, "destIP", last=True),
    }


def first_of(rows: list[dict[str, Any]], name: str, *, last: bool = False) -> str | None:
    """Return the address with the smallest ts, or the greatest; of equal ts the smallest address, or the greatest."""
    times = [(row["ts"], ip_address(row[name])) for row in rows if row[name] is not None]
    ordered = sorted(times, key=lambda pair: (pair[0], pair[1].version, pair[1]))
    return str(ordered[-1 if last else 0][1]) if ordered else None


def packets(paths: Iterable[Path]) -> list[dict[str, Any]]:
    names = ["ts", "srcIP", "destIP", "srcPort", "destPort", "len"]
    return [row for path in paths for batch in in_ns.packets(path, names) for row in batch.to_pylist()]


def equal(got: list[dict[str, Any]], want: list[dict[str, Any]]) -> bool:
    def key(row: dict[str, Any]) -> str:
        return str([row.get("window_end"), row.get("window_start"), row["srcIP"]])

    got, want = sorted(got, key=key), sorted(want, key=key)
    return len(got) == len(want) and all(
        one.keys() == other.keys() and all(close(one[name], other[name]) for name in one)
        for one, other in zip(got, want, strict=True)
    )


def windows(rows: list[dict[str, Any]], bounds: Iterable[tuple[int, int]]) -> list[dict[str, Any]]:
    """The answer to DETAILS by source, for some windows of time."""
    found = []
    for start, end in bounds:
        of_source = defaultdict(list)
        for row in rows:
            if start <= row["ts"] < end:
                of_source[row["srcIP"]].append(row)
        for source, its in of_source.items():
            found.append({"window_start": start, "window_end": end, "srcIP": source, **summary(its)})
    return found


@pytest.mark.parametrize("seed", range(3))
def test_queries_over_windows_of_time_say_what_their_packets_say(seed: int, tmp_path: Path) -> None:
    paths = [Path(each.path) for each in write_links(tmp_path, seed)]
    rows = packets(paths)
    times = [row["ts"] for row in rows]
    for clause, range_, slide in (
        ("RANGE 5 minutes, SLIDE 2 minutes", 300 * NS, 120 * NS),
        ("RANGE 90 s", 90 * NS, 90 * NS),
    ):
        got = in_ns.query(f"SELECT srcIP, {DETAILS} FROM packets [{clause}] GROUP BY srcIP", *paths).to_pylist()
        ends = {(time // slide + ahead) * slide for time in times for ahead in range(1, range_ // slide + 2)}
        assert equal(got, windows(rows, [(end - range_, end) for end in sorted(ends)])), clause
    got = in_ns.query(f"SELECT srcIP, {DETAILS} FROM packets GROUP BY srcIP", *paths).to_pylist()
    want = windows(rows, [(-(2**62), 2**62)])
    assert equal(got, [{name: each for name, each in row.items() if "window" not in name} for row in want])


def test_a_landmark_window_tells_of_all_values_so_far(tmp_path: Path) -> None:
    paths = [Path(each.path) for each in write_links(tmp_path, 8) if "main" in str(each.path)]
    rows = packets(paths)
    got = in_ns.query(f"SELECT srcIP, {DETAILS} FROM packets [RANGE ALL, SLIDE 5 min] GROUP BY srcIP", *paths)
    ends = sorted({(row["ts"] // (300 * NS) + 1) * 300 * NS for row in rows})
    assert equal(got.to_pylist(), windows(rows, [(0, end) for end in ends]))


def test_columns_grouped_by_and_the_link_are_asked_about_without_another_key(tmp_path: Path) -> None:
    inputs = write_links(tmp_path, 4)
    plan = compile_query(
        "SELECT srcIP, count_distinct(srcIP) AS one, count_distinct(link) AS links FROM x GROUP BY srcIP"
    )
    assert len(plan.leaves[0].low.keys) == 1
    run = InlineRun([plan], inputs, slots=64)
    rows = [row for _, batch in run.results() for row in batch.to_pylist()]
    assert rows
    assert {row["one"] for row in rows} == {1}
    assert max(row["links"] for row in rows) > 1


def test_any_order_of_arrival_and_a_restart_give_the_same(rounds: Rounds) -> None:
    query = compile_query(
        "SELECT destPort, count(*) AS n, count_distinct(len) AS d, median(len) AS m, top(srcPort, 2) AS t "
        "FROM a UNION b [RANGE 20 ns, SLIDE 10 ns] GROUP BY destPort"
    )

    def partials(arrivals: list[Arrival]) -> pa.RecordBatch:
        low = query.leaves[0].low
        rows = []
        for each in arrivals:
            row = {"link": "link", "pane": each.ts // low.pane}
            row |= {key.name: (each.group, each.number, each.number % 3)[place] for place, key in enumerate(low.keys)}
            rows.append(row | {sub.name: 1 for sub in low.subaggregates})
        return pa.RecordBatch.from_pylist(rows, schema=low.schema)

    for seed in rounds(100):
        random = Random(seed)
        inputs = random_inputs(random)
        kept = Contract(
            make=lambda inputs=inputs: Pipeline(query, [[f"link{port}" for port in range(len(inputs))]]),
            ports=len(inputs),
            progress=lambda rows: min(rows["window_end"].to_pylist()),
            watermark=lambda bounds: (
                min(bounds)
                if min(bounds) == END
                else max(0, min(bounds) // 10) * 10 + 1
                if min(bounds) >= 10
                else -(2**63)
            ),
            held=lambda tables: sum(t.num_rows for name, t in tables.items() if name not in ("0.meld", "1.0.closed")),
        )
        arrivals = [each for events in inputs for each in events if not isinstance(each, int)]
        events = batched(random, interleaved(random, inputs), partials)
        trace = check(kept, events)
        assert all_rows(trace) == Counter(by_definition(arrivals)), seed
        check_restart(kept, events, trace, random.randint(0, len(events)), ipc=True)


def by_definition(arrivals: list[Arrival]) -> list[tuple[Any, ...]]:
    return [
        (
            wid * 10 - 10, wid * 10 + 10, group, len(numbers), len(set(numbers)),
            twin(DetailFunction.QUANTILE, 0.5, numbers),
            twin(DetailFunction.TOP, 2, [number % 3 for number in numbers]),
        )
        for (wid, group), numbers in numbers_by_window(arrivals, Spec(20, 10)).items()
    ]  # fmt: skip


@pytest.mark.parametrize(
    "select, problem",
    [
        ("count(DISTINCT payload)", "count_distinct over bytes; expected another column"),
        ("median(srcIP)", "median over a value of type address; expected integer or float or time"),
        ("quantile(len)", "quantile with 1 argument; expected quantile(x, 0.99)"),
        ("quantile(len, 2)", "a quantile outside 0 to 1; expected a number from 0 to 1"),
        ("quantile(len, len)", "a quantile outside 0 to 1"),
        ("top(len, 0)", "an invalid number of values; expected an integer from 1 to 1000"),
        ("top(len, 2.5)", "an invalid number of values"),
        ("mode(5)", "mode over a constant; expected mode(x)"),
        ("entropy(sum(len))", "the aggregate sum in the argument of entropy"),
        ("sum(DISTINCT len)", "DISTINCT is not supported"),
        ("medain(len)", "unknown function 'medain'"),
    ],
)
def test_what_is_wrong_is_said_with_what_was_expected(select: str, problem: str) -> None:
    with pytest.raises(QueryError) as caught:
        compile_query(f"SELECT {select} FROM packets")
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    "window, problem",
    [("SESSION 5 s", "median over sessions"), ("RANGE 5 s, LATE EMIT", "median over rows that are late")],
)
def test_windows_that_values_cannot_be_told_of_are_refused(window: str, problem: str) -> None:
    with pytest.raises(QueryError, match=problem):
        compile_query(f"SELECT srcIP, count(*), median(len) FROM packets [{window}] GROUP BY srcIP")


def test_an_explained_plan_says_which_values_are_kept_apart_and_what_is_told_of_them() -> None:
    text = explain(compile_query("SELECT srcIP, quantile(len, 0.9) FROM packets [RANGE 1 minute] GROUP BY srcIP"))
    assert "  value           k1 = len: 32 bits" in text
    assert "  detail          d0 = quantile(k1 = len, 0.9), each value s0 times, once a window is final" in text
    assert "  output          quantile_len = d0 (float)" in text


def test_summarise_promises_what_it_was_promised() -> None:
    plan = compile_query("SELECT median(len) FROM packets [RANGE 10 ns]")
    pipeline = Pipeline(plan, [["a"]])
    assert list(pipeline.punctuate(0, Punctuation("a", 25))) == [Punctuation("*", 21)]
    assert list(pipeline.punctuate(0, Punctuation("a", END))) == [Punctuation("*", END)]


@pytest.mark.parametrize(
    "window",
    [
        "RANGE 100 rows, SLIDE 30 rows",
        "RANGE 7 rows, SLIDE 10 rows",
        "RANGE 20 rows, SLIDE 10 rows, PA srcIP",
        "RANGE 2 minutes, RATTR ts, SLIDE 1 row",
        "RANGE 2 minutes, RATTR ts, SLIDE 25 rows",
        "RANGE 2 minutes, RATTR ts, SLIDE 25 rows, SATTR rank(ts)",
    ],
)
def test_queries_over_windows_of_rows_say_what_their_packets_say(
    window: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extent, "OUTPUT_ROWS", 7)  # less than a window has
    (path,) = (Path(each.path) for each in write_links(tmp_path, 5) if "main2b" in str(each.path))
    rows = packets([path])
    sql = f"SELECT srcIP, {DETAILS} FROM packets [{window}] GROUP BY srcIP"
    kind = compile_query(sql).window
    partitions = defaultdict(list)
    for row in rows:
        partitions[row["srcIP"] if "PA" in window else None].append(row)
    want = []
    for its in partitions.values():
        values = np.array([row["ts"] for row in its]) if kind.timed else np.arange(len(its))
        for wid in kind.windows(values).tolist():
            of_source = defaultdict(list)
            for place in np.flatnonzero(kind.extent(wid, values)).tolist():
                of_source[its[place]["srcIP"]].append(its[place])
            for source, chosen in of_source.items():
                start, end = kind.bounds(wid)
                want.append({"window_start": start, "window_end": end, "srcIP": source, **summary(chosen)})
    assert len(want) > 40
    assert equal(in_ns.query(sql, path).to_pylist(), want)


def test_a_flow_that_is_spread_counts_where_it_ends() -> None:
    plan = compile_query("SELECT exporter, mode(destPort) FROM flows [RANGE 1 minute, SPREAD] GROUP BY exporter")
    (detail,) = plan.aggregation.details
    (count,) = (sub for sub in plan.leaves[0].low.subaggregates if sub.name == detail.count)
    assert isinstance(count.argument, AtEnd)
