"""Time literals: their values, where they are allowed, and the errors of wrong ones.

The tests detect an offset with the wrong sign, a lost fraction, and a time outside int64. They detect a comparison that
is not made at the low level, and a type that is lost on the way to the result.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

import wiretide
from highlevel.results.user_types import TIMESTAMP
from lowlevel.expressions.predicate import Condition, IntervalTest
from lowlevel.times import EARLIEST, LATEST, TimeError, parse_time, time_text
from queries.gsql import compile_query
from queries.text.errors import QueryError
from queries.text.printer import expression_text
from tests.references.pcap_bytes import NS, pcap_bytes
from tests.references.small_captures import RAW_IP, udp

T0 = 1_470_104_340 * NS  # 2016-08-02T02:19:00Z


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2016-08-02", T0 / NS - 8340),
        ("2016-08-02T02:19", T0 / NS),
        ("2016-08-02 02:19:00", T0 / NS),
        ("2016-08-02T02:19:00Z", T0 / NS),
        ("2016-08-02t02:19:00z", T0 / NS),
        ("2016-08-02T04:19:00+02:00", T0 / NS),
        ("2016-08-01T21:49:00-0430", T0 / NS),
        ("2016-08-02T04:19+02", T0 / NS),
        ("1969-12-31T23:59:59.5Z", -0.5),
    ],
)
def test_a_text_is_a_time_in_utc_or_with_its_offset(text: str, seconds: float) -> None:
    assert parse_time(text) == round(seconds * NS)


@pytest.mark.parametrize("seed", range(3))
def test_texts_of_times_are_exact_and_read_back(seed: int) -> None:
    random = Random(seed)
    for _ in range(300):
        unit = 10 ** random.randrange(12)
        time = random.randrange(EARLIEST // unit + 1, LATEST // unit) * unit
        text = time_text(time)
        assert parse_time(text) == time, text
        seconds, fraction = divmod(time, NS)
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
        assert text.startswith(moment.strftime("%Y-%m-%dT%H:%M:%S"))
        digits = text.partition(".")[2].removesuffix("Z")
        assert len(digits) in (0, 3, 6, 9)
        assert digits.ljust(9, "0") == f"{fraction:09d}"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("yesterday", "is not a time"),
        ("2016-13-01", "is not a time (month must be in 1..12)"),
        ("2016-02-30", "is not a time (day"),
        ("2016-08-02T25:00", "is not a time (hour"),
        ("2016-08-02T02:19:00.0000000001Z", "has 10 digits after the decimal point"),
        ("2016-12-31T23:59:60Z", "is a leap second"),
        ("1600-01-01", "is out of range: times are from 1677-09-21T00:12:43.145224192Z to 2262-04-11"),
        ("9999-12-31", "is out of range"),
        ("2016-08", "is not a time"),
        ("02.08.2016", "is not a time"),
        ("", "is not a time"),
    ],
)
def test_a_text_that_is_no_time_is_an_error_that_says_why(text: str, reason: str) -> None:
    with pytest.raises(TimeError) as caught:
        parse_time(text)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    "where",
    [
        "ts < '{}'",
        "ts BETWEEN '{}' AND '2016-08-02'",
        "ts IN ('2016-08-02', '{}')",
        "ts >= TIMESTAMP '{}'",
        "'{}' < ts",
    ],
)
def test_the_error_is_at_the_place_of_the_text_and_shows_examples(where: str) -> None:
    sql = f"SELECT ts FROM packets WHERE {where.format('2016-13-01')}"
    with pytest.raises(QueryError, match=r"expected a time like '2016-08-02', '2016-08-02T02:19:00Z' or") as caught:
        compile_query(sql)
    assert caught.value.position == sql.index("TIMESTAMP" if "TIMESTAMP" in sql else "'2016-13-01'")


def test_a_number_beside_a_time_is_refused_with_what_to_compare_it_with() -> None:
    with pytest.raises(QueryError, match="< between integer and text; expected a time column such as ts"):
        compile_query("SELECT ts FROM packets WHERE ts/1000000000 < '2016-08-02'")


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    """A packet every ten seconds from 02:19:00 on, of rising length, the last at 02:20:00.000001."""
    times = [T0 + 10 * number * NS for number in range(6)] + [T0 + 60 * NS + 1000]
    records = [(ts, udp("10.0.0.1", "10.0.0.2", 1, 53, 100 + number)) for number, ts in enumerate(times)]
    path = tmp_path / "a.pcap"
    path.write_bytes(pcap_bytes(records, RAW_IP))
    return path


@pytest.mark.parametrize(
    ("where", "rows"),
    [
        ("ts BETWEEN '2016-08-02T02:19:00Z' AND '2016-08-02T02:20:00Z'", 6),
        ("ts >= '2016-08-02'", 7),
        ("ts > '2016-08-02T02:20:00.000000999Z'", 1),
        ("ts > '2016-08-02T04:20:00.000000999+02:00'", 1),
        ("ts <= TIMESTAMP '2016-08-02 02:19:10'", 2),
        ("ts IN ('2016-08-02T02:19:10', 1470104360000000000)", 2),
        ("ts - TIMESTAMP '2016-08-02 02:19:00' < 20000000000", 2),
        ("ts < \"2016-08-02T02:19:10\"", 1),
        ("NOT '2016-08-02T02:19:10' < ts", 2),
    ],
)  # fmt: skip
def test_times_compare_with_texts_in_where(where: str, rows: int, capture: Path) -> None:
    table = wiretide.query(f"SELECT count(*) AS n FROM packets WHERE {where}", capture)
    assert table["n"].to_pylist() == [rows]


def test_times_compare_with_texts_above_the_low_level(capture: Path) -> None:
    having = "SELECT count(*) AS n FROM packets [RANGE 20 s] HAVING window_end > '2016-08-02T02:19:40'"
    assert wiretide.query(having, capture)["n"].to_pylist() == [2, 1]
    having = (
        "SELECT srcPort, max(ts) AS t FROM packets [RANGE 20 s] GROUP BY srcPort HAVING max(ts) < '2016-08-02T02:19:20'"
    )
    assert wiretide.query(having, capture)["t"].cast(pa.int64()).to_pylist() == [T0 + 10 * NS]
    nested = "SELECT n FROM (SELECT count(*) AS n FROM packets [RANGE 20 s]) v WHERE v.ts = '2016-08-02T02:19:20'"
    assert wiretide.query(nested, capture)["n"].to_pylist() == [2]
    join = (
        "SELECT a.ts, b.ts - a.ts AS later FROM packets a [RANGE 1 s, WA ts] JOIN packets b [RANGE 1 s, WA ts] "
        "ON a.len = b.len WHERE a.ts > '2016-08-02T02:19:40' AND b.ts < '2016-08-02T02:20:00'"
    )
    table = wiretide.query(join, streams={"packets": [str(capture)]})
    assert table.schema.types == [TIMESTAMP, pa.int64()]
    assert table["later"].to_pylist() == [0]


def test_a_join_meets_equal_times_though_one_of_them_is_computed(capture: Path) -> None:
    join = (
        "SELECT count(*) AS n FROM packets a [RANGE 1 minute, WA ts] JOIN packets b [RANGE 1 minute, WA ts] "
        "ON a.ts + 10000000000 = b.ts"
    )
    assert wiretide.query(join, streams={"packets": [str(capture)]})["n"].to_pylist() == [5]
    computed = join.replace("a.ts + 10000000000 = b.ts", "(a.ts / 10000000000 + 1) * 10000000000 = b.ts")
    assert wiretide.query(computed, streams={"packets": [str(capture)]})["n"].to_pylist() == [5]


@pytest.mark.parametrize("origin", ["'2016-08-02T02:19:05Z'", "TIMESTAMP '2016-08-02 04:19:05+02:00'"])
def test_an_origin_is_a_time(origin: str, capture: Path) -> None:
    sql = f"SELECT count(*) AS n FROM packets [RANGE 1 minute, SLIDE 1 minute, WA ts, ORIGIN {origin}]"
    table = wiretide.query(sql, capture)
    assert table["window_start"].cast(pa.int64()).to_pylist() == [T0 + 5 * NS]
    assert table["n"].to_pylist() == [6]  # no window begins before the origin


def test_a_comparison_with_a_time_is_an_interval_test_next_to_the_packets() -> None:
    plan = compile_query("SELECT count(*) FROM packets WHERE ts BETWEEN '2016-08-02T02:19:00Z' AND '2016-08-02T02:20'")
    assert plan.leaves[0].low.where is not None
    tests = Condition(plan.leaves[0].low.where)._tests
    assert [(test.minimum, test.maximum) for test in tests if isinstance(test, IntervalTest)] == [
        (T0, 2**63 - 1),
        (-(2**63), T0 + 60 * NS),
    ]
    again = expression_text(plan.leaves[0].low.where)
    assert "TIMESTAMP '2016-08-02T02:19:00Z'" in again
    assert compile_query(f"SELECT count(*) FROM packets WHERE {again}").leaves[0].low.where == plan.leaves[0].low.where


TYPES = {
    "ts": TIMESTAMP,
    "ts + 5": TIMESTAMP,
    "5 + ts": TIMESTAMP,
    "ts - 5": TIMESTAMP,
    "ts - ts": pa.int64(),
    "ts / 60": pa.int64(),
    "ts % 60": pa.int64(),
    "-ts": pa.int64(),
    "ts * 1.0": pa.float64(),
    "ts - TIMESTAMP '2016-08-02'": pa.int64(),
    "time": pa.int64(),
}


def test_rows_know_which_of_their_columns_are_times(capture: Path) -> None:
    items = ", ".join(f"{item} AS c{number}" for number, item in enumerate(TYPES))
    table = wiretide.query(f"SELECT {items} FROM packets", capture)
    assert table.schema.types == list(TYPES.values())


def test_groups_know_which_of_their_columns_are_times(capture: Path) -> None:
    wanted = {
        "min(ts)": TIMESTAMP,
        "max(ts)": TIMESTAMP,
        "first(ts)": TIMESTAMP,
        "last(ts)": TIMESTAMP,
        "mode(ts)": TIMESTAMP,
        "max(ts) - min(ts)": pa.int64(),
        "max(ts) + 1": TIMESTAMP,
        "count(ts)": pa.int64(),
        "avg(ts)": pa.float64(),
        "max(ts - 1)": TIMESTAMP,
        "sum(ts % 10)": pa.int64(),
        "window_end - window_start": pa.int64(),
    }
    items = ", ".join(f"{item} AS c{number}" for number, item in enumerate(wanted))
    table = wiretide.query(f"SELECT {items} FROM packets [RANGE 1 h]", capture)
    assert table.schema.types == [TIMESTAMP, TIMESTAMP, *wanted.values()]
    rows = wiretide.query("SELECT count(*) AS n FROM packets [RANGE 2 rows, SLIDE 2 rows, WA row-num]", capture)
    assert rows.schema.types == [pa.int64()] * 3


@pytest.mark.parametrize("function", ["top", "approx_top"])
def test_the_most_frequent_times_are_iso_texts(capture: Path, function: str) -> None:
    (row,) = wiretide.query(
        f"SELECT {function}(ts, 1) AS t, {function}(ts + 1, 1) AS later, {function}(ts / 1, 1) AS ns FROM packets",
        capture,
    ).to_pylist()
    assert row == {"t": f"{time_text(T0)}=1", "later": f"{time_text(T0 + 1)}=1", "ns": f"{T0}=1"}


def test_packets_and_watched_windows_have_timestamps_too(capture: Path) -> None:
    (batch,) = wiretide.packets(capture, ["TS", "len"])
    assert batch.schema.types == [TIMESTAMP, pa.int64()]
    assert batch["ts"][0].value == T0
    (window,) = wiretide.watch("SELECT count(*) AS n FROM packets [RANGE 1 h]", capture)
    assert window["window_end"].type == TIMESTAMP


def test_a_union_of_a_time_and_a_number_is_a_number(capture: Path) -> None:
    sql = (
        "WITH a AS (SELECT ts, ts AS t FROM packets), b AS (SELECT ts, ts/1 AS t FROM packets) "
        "SELECT t, count(*) AS n FROM a UNION b GROUP BY t"
    )
    table = wiretide.query(sql, capture)
    assert table["t"].type == pa.int64()
    assert set(table["n"].to_pylist()) == {2}
