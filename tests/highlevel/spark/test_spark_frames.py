"""A DataFrame of Spark is the input of a query, with and without a schema: its rows are those of Spark SQL.

The tests detect times in another zone, and types of Spark that do not become types of queries.
"""

import pytest

import wiretide

pytestmark = pytest.mark.spark

ROWS = """SELECT timestamp_millis(1700000000000 + id * 1000) AS ts, concat('10.0.0.', id % 5) AS srcIP,
          cast(id AS int) AS len, if(id % 7 = 0, null, id) AS v FROM range(0, 1000, 1, 4)"""
EXPECTED = """SELECT unix_seconds(window.start) AS start, srcIP, count(*) AS n, sum(len) AS bytes, sum(v) AS v
              FROM rows GROUP BY window(ts, '5 minutes'), srcIP"""
SQL = "SELECT srcIP, count(*) AS n, sum(len) AS bytes, sum(v) AS v FROM rows [RANGE 5 minutes] GROUP BY srcIP"
SCHEMA = "PROTOCOL rows { TIME ts (increasing); IP srcIP; INT len; LLONG v; }"


@pytest.mark.parametrize(
    "options",
    [{}, {"schema": SCHEMA}, {"schema": SCHEMA, "on": "local"}],
    ids=["no schema", "schema", "schema on Spark"],
)
def test_a_frame_of_spark_is_a_stream(options: dict[str, str], spark) -> None:
    frame = spark.sql(ROWS)
    frame.createOrReplaceTempView("rows")
    expected = sorted(tuple(row) for row in spark.sql(EXPECTED).collect())
    answer = wiretide.query(SQL, frame, **options)
    starts = [int(time.timestamp()) for time in answer["window_start"].to_pylist()]
    others = [answer[name].to_pylist() for name in ("srcIP", "n", "bytes", "v")]
    assert sorted(zip(starts, *others, strict=True)) == expected
    assert len(expected) == 20
