"""`wiretide.lifetimes`: flow records and tables as rows with lifetimes, from a file to the final rows.

What can go wrong: a record that counts outside its lifetime, or not at all; operations that disagree with their
definition on whole streams; a wrong argument that fails late or with a message about something else.
"""

from collections import Counter
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import wiretide
from tests.conftest import Rounds
from tests.references.lifetimes import at_each_instant, denote
from tests.references.written_exports import write_exports


def history(table: pa.Table) -> Counter:
    """The rows of a result as (vs, ve, row)."""
    rows: Counter = Counter()
    columns = [table.column(0).cast(pa.int64()), table.column(1).cast(pa.int64()), *table.columns[2:]]
    for vs, ve, *row in zip(*(column.to_pylist() for column in columns), strict=True):
        rows[vs, float("inf") if ve is None else ve, row[0] if len(row) == 1 else tuple(row)] += 1
    return rows


def table_of(rows: list, name: str = "x") -> pa.Table:
    return pa.table(
        {
            "start_ts": pa.array([row[0] for row in rows], pa.int64()),
            "end_ts": pa.array([row[1] for row in rows], pa.int64()),
            name: pa.array([row[2] for row in rows], pa.int64()),
        }
    )


def random_rows(random: Random, count: int = 12) -> list:
    return [
        (vs, None if random.random() < 0.1 else vs + random.randint(1, 12), random.randrange(4))
        for vs in (random.randrange(20) for _ in range(count))
    ]


def as_history(rows: list) -> Counter:
    return Counter((vs, float("inf") if ve is None else ve, x) for vs, ve, x in rows)


def test_open_flows_are_those_of_the_definition_at_every_instant(tmp_path: Path) -> None:
    path = tmp_path / "exports.pcap"
    flows = write_exports(path, Random(3), 40)
    rows = Counter((flow["start_ts"], max(flow["ts"], flow["start_ts"] + 1), flow["bytes"]) for flow in flows)
    expected = denote(rows, lambda values: [(len(values), sum(values))])
    read = wiretide.lifetimes("SELECT start_ts, end_ts, bytes FROM flows", path)
    assert read.columns == ["bytes"]
    for variant in ("perfect", "ordered", "earliest"):
        found = read.aggregate(variant=variant, flows="count(*)", bytes="sum(bytes)").table()
        assert history(found) == expected
    final = read.wait(release="perfect").aggregate(flows="count(*)", bytes="sum(bytes)")
    changes = final.table("changes")
    assert set(changes.column("type").to_pylist()) == {0, 2}
    assert history(final.table()) == expected


def test_windows_of_lifetimes_equal_windows_of_sql(tmp_path: Path) -> None:
    path = tmp_path / "exports.pcap"
    write_exports(path, Random(4), 40)
    rows = wiretide.lifetimes("SELECT ts, ts AS until, bytes FROM flows", path, start="ts", end="until")
    found = rows.tumbling("7s").aggregate(n="count(*)", total="sum(bytes)").table()
    expected = wiretide.query("SELECT count(*), sum(bytes) FROM flows [RANGE 7 s]", path)
    assert history(found) == history(expected)


def test_set_operations_and_unions_are_those_of_the_definition(rounds: Rounds) -> None:
    operations = {
        "minus": lambda left, right: left - right,
        "intersect": lambda left, right: left & right,
        "union": lambda left, right: left + right,
    }
    for seed in rounds(150):
        random = Random(f"sets {seed}")
        left, right = random_rows(random), random_rows(random)
        streams = [
            wiretide.lifetimes(table_of(rows), remember=random.choice([None, "1 hour"])) for rows in (left, right)
        ]
        times = sorted({time for rows in (left, right) for vs, ve, _ in rows for time in (vs, ve) if time is not None})
        for name, combine in operations.items():
            found = history(getattr(streams[0], name)(streams[1]).table())
            for time in times:
                true = [
                    Counter(x for vs, ve, x in rows if vs <= time and (ve is None or time < ve))
                    for rows in (left, right)
                ]
                now = Counter(x for (vs, ve, x), n in found.items() if vs <= time < ve for _ in range(n))
                assert now == combine(*true), (seed, name, time)
        once = history(streams[0].distinct().table())
        assert at_each_instant(once) == at_each_instant(Counter(set(lifetimes_of_values(left)))), seed


def lifetimes_of_values(rows: list) -> list:
    """Lifetimes in which each value is true at least once."""
    merged = []
    for x in {row[2] for row in rows}:
        spans = sorted((vs, float("inf") if ve is None else ve) for vs, ve, each in rows if each == x)
        begin, end = spans[0]
        for vs, ve in spans[1:]:
            if vs > end:
                merged.append((begin, end, x))
                begin, end = vs, ve
            end = max(end, ve)
        merged.append((begin, end, x))
    return merged


def test_sequences_and_absences_are_those_of_the_definition(rounds: Rounds) -> None:
    within, shown = 6, 4
    for seed in rounds(150):
        random = Random(f"sequences {seed}")
        requests, replies = random_rows(random, 5), random_rows(random, 5)
        streams = [
            wiretide.lifetimes(table_of(rows), remember=random.choice([None, "1 hour"])) for rows in (requests, replies)
        ]
        pairs: Counter = Counter()
        overdue: Counter = Counter()
        for t, _, x in requests:
            own = [r for r, _, y in replies if x == y]
            pairs.update((r, r + 1, x) for r in own if t < r <= t + within)
            end = min([t + within + shown, *(r for r in own if r >= t)])
            if end > t + within:
                overdue[t + within, end, x] += 1
        assert history(streams[0].followed_by(streams[1], ["x"], within).table()) == pairs, seed
        found = history(streams[0].not_followed_by(streams[1], ["x"], within, shown).table())
        assert at_each_instant(found) == at_each_instant(overdue), seed


def test_joins_select_and_where_work_on_changes() -> None:
    leases = pa.table({"start_ts": [0, 50], "end_ts": [50, 90], "ip": ["a", "a"], "host": ["h1", "h2"]})
    flows = pa.table({"start_ts": [40, 60], "end_ts": [55, 95], "address": ["a", "a"], "bytes": [10, 20]})
    joined = wiretide.lifetimes(flows).select("bytes", ip="address").join(wiretide.lifetimes(leases), on=["ip"])
    assert history(joined.table()) == Counter(
        [(40, 50, (10, "a", "h1")), (50, 55, (10, "a", "h2")), (60, 90, (20, "a", "h2"))]
    )
    large = joined.where(pc.field("bytes") > 10).select("host")
    assert history(large.table()) == Counter([(60, 90, "h2")])


def test_versions_of_a_row_end_it_and_replace_it() -> None:
    records = pa.table(
        {
            "start_ts": [10, 20, 10, 20],
            "end_ts": pa.array([None, None, 30, 25], pa.int64()),
            "flow": ["a", "b", "a", "b"],
            "bytes": [1, 2, 1, 7],
        }
    )
    flows = wiretide.lifetimes(records, identifier="flow")
    assert history(flows.table()) == Counter([(10, 30, ("a", 1)), (20, 25, ("b", 7))])
    kinds = [row["kind"] for row in flows.table("flink").to_pylist()]
    assert kinds == ["+I", "+I", "-U", "+U", "-D", "+I"]
    operations = [row["op"] for row in flows.table("debezium").to_pylist()]
    assert operations == ["c", "c", "u", "d", "c"]


def test_a_row_without_a_start_ends_its_row_also_before_that_arrives() -> None:
    records = pa.table(
        {
            "start_ts": pa.array([10, None, None, 20, None, None], pa.int64()),
            "end_ts": pa.array([None, 15, 28, None, 5, None], pa.int64()),
            "flow": ["a", "a", "b", "b", "b", "c"],
        }
    )
    with pytest.warns(RuntimeWarning, match="without a start, or with an end before it: 1 dropped"):
        table = wiretide.lifetimes(records, identifier="flow").table()
    assert history(table) == Counter([(10, 15, "a")])
    first = wiretide.lifetimes(records.slice(0, 4).append_column("x", pa.array([1, 2, 3, 4])), identifier="flow")
    assert history(first.table()) == Counter([(10, 15, ("a", 1)), (20, 28, ("b", 4))])


def test_streams_are_compared_by_lifetimes_or_at_every_instant() -> None:
    one = wiretide.lifetimes(table_of([(0, 10, 1), (2, 4, 1)]))
    divided = wiretide.lifetimes(table_of([(0, 3, 1), (3, 10, 1), (2, 4, 1)]))
    assert one.equals(one)
    assert not one.equals(divided)
    assert one.equals(divided, at_every_instant=True)
    assert not one.equals(wiretide.lifetimes(table_of([(0, 10, 1)])), at_every_instant=True)
    counts = [each.aggregate(n="count(*)") for each in (one, divided)]
    assert counts[0].equals(counts[1], at_every_instant=True)


def test_changes_in_any_order_are_repaired_and_counts_make_results_final() -> None:
    schema = pa.schema(
        [("type", pa.uint8()), ("vs", pa.int64()), ("ve", pa.int64()), ("vnew", pa.int64()), ("x", pa.int64())]
    )
    rows = [(1, 0, 10, 8, 0), (1, 0, 6, 4, 0), (1, 0, 8, 6, 0), (0, 0, 10, 0, 0), (3, 0, 8, 4, None), (0, 1, 5, 0, 1)]
    batches = [pa.table([[value] for value in row], schema=schema) for row in rows]
    stream = wiretide.lifetimes(pa.concat_tables(batches), counts_from=0)
    assert history(stream.table()) == Counter([(0, 4, 0), (1, 5, 1)])
    found = stream.table("changes")
    assert found.column("type").to_pylist() == [0, 0, 2, 2]
    assert found.column("vs").cast(pa.int64()).to_pylist() == [0, 1, 8, None]


def test_every_form_has_the_same_history(rounds: Rounds) -> None:
    for seed in rounds(60):
        random = Random(f"forms {seed}")
        rows = random_rows(random)
        stream = wiretide.lifetimes(pa.concat_tables(table_of([row]) for row in rows)).aggregate(n="count(*)")
        expected = denote(as_history(rows), lambda values: [len(values)])
        weights: Counter = Counter()
        for vs, ve, n, weight in (tuple(row.values()) for row in plain(stream.table("weights"))):
            weights[vs, ve, n] += weight
        assert +weights == expected, seed
        assert min(weights.values()) >= 0, seed
        flink: Counter = Counter()
        for kind, vs, ve, n in (tuple(row.values()) for row in plain(stream.table("flink"))):
            flink[vs, ve, n] += 1 if kind[0] == "+" else -1
        assert +flink == expected, seed
        instants: Counter = Counter()
        for at, n, weight in (tuple(row.values()) for row in plain(stream.table("instants"))):
            instants[at, n] += weight
        for (vs, ve, n), copies in expected.items():
            instants[vs, n] -= copies
            if ve < float("inf"):
                instants[ve, n] += copies
        assert not any(instants.values()), seed


def plain(table: pa.Table) -> list[dict]:
    """Rows with times as integers."""
    columns = [
        pc.fill_null(column.cast(pa.int64()), -1) if pa.types.is_timestamp(column.type) else column
        for column in table.columns
    ]
    rows = pa.table(columns, names=table.schema.names).to_pylist()
    return [
        {name: float("inf") if name == "ve" and value == -1 else value for name, value in row.items()} for row in rows
    ]


def test_late_and_invalid_rows_are_dropped_with_a_warning() -> None:
    rows = pa.concat_tables(
        [table_of([(10**10, 2 * 10**10, 1)]), table_of([(5, 9, 2), (10**10, 5, 3), (9_500_000_000, None, 4)])]
    )
    stream = wiretide.lifetimes(rows, remember="1s")
    with pytest.warns(RuntimeWarning) as caught:
        table = stream.table()
    assert [str(each.message) for each in caught] == [
        "rows without a start, or with an end before it: 1 dropped",
        "rows that are older than `remember` allows: 1 dropped",
    ]
    assert caught[0].filename == __file__
    assert sorted(table.column("x").to_pylist()) == [1, 4]


def test_waiting_by_the_clock_changes_no_row() -> None:
    rows = wiretide.lifetimes(table_of([(0, 10, 1), (12, 20, 2), (4, 14, 3)]))
    expected = rows.aggregate(n="count(*)").table().to_pylist()
    for length in ("1ns", "1 hour"):
        assert rows.wait(length, by="clock").aggregate(n="count(*)").table().to_pylist() == expected


@pytest.mark.parametrize(
    "make, message",
    [
        (
            lambda rows: wiretide.lifetimes(rows, start="begin"),
            "got no column 'begin', expected it among start_ts, end_ts, x",
        ),
        (lambda rows: wiretide.lifetimes(rows, remember="soon"), "got remember 'soon', expected a duration"),
        (lambda rows: wiretide.lifetimes(rows, slack="1s"), "expected only the table"),
        (lambda rows: wiretide.lifetimes("SELECT ts FROM flows", "x.pcap", speed=3), "got the option 'speed'"),
        (lambda rows: wiretide.lifetimes(rows.rename_columns(["start_ts", "vs", "x"]), end="x"), "got a column 'vs'"),
        (lambda rows: wiretide.lifetimes(rows).aggregate(), "got no aggregate"),
        (lambda rows: wiretide.lifetimes(rows).aggregate(["y"], n="count(*)"), "got the column 'y' to group by"),
        (
            lambda rows: wiretide.lifetimes(rows).aggregate(variant="fast", n="count(*)"),
            "expected one of perfect, ordered",
        ),
        (lambda rows: wiretide.lifetimes(rows).select("y"), "got the column 'y', expected one of x"),
        (lambda rows: wiretide.lifetimes(rows).last("3 parsecs"), "got the duration '3 parsecs'"),
        (lambda rows: wiretide.lifetimes(rows).last("0s"), "got a length of 0 ns"),
        (
            lambda rows: wiretide.lifetimes(rows).followed_by(wiretide.lifetimes(rows), ["y"], "1s"),
            "got the column 'y'",
        ),
        (
            lambda rows: wiretide.lifetimes(rows).not_followed_by(wiretide.lifetimes(rows), ["y"], "1s"),
            "got the column 'y'",
        ),
        (lambda rows: wiretide.lifetimes(rows).wait(release="late"), "expected one of sync, perfect, ends"),
        (lambda rows: wiretide.lifetimes(rows).wait("2s", by="sun"), "got the by 'sun', expected one of rows, clock"),
        (lambda rows: wiretide.lifetimes(rows).wait(by="clock"), "got by='clock' without a length"),
        (lambda rows: wiretide.lifetimes(rows).table("xml"), "got the form 'xml', expected one of changes"),
        (lambda rows: wiretide.lifetimes(rows).changes("xml"), "got the form 'xml', expected one of changes"),
        (
            lambda rows: wiretide.lifetimes(rows).union(wiretide.lifetimes(rows).select(y="x")),
            "got the columns x int64 and y int64, expected equal columns",
        ),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_read(make, message: str) -> None:
    with pytest.raises(wiretide.LifetimeError, match=message):
        make(table_of([(0, 10, 1)]))
