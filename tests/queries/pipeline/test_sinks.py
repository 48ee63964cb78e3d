"""The sinks of a pipeline and their keys. The tests detect a query whose sinks cannot find the rows of a correction,
a query that is refused although its rows have a time, a sink that the documentation does not describe, and a wrong
object store that is accepted.
"""

from pathlib import Path

import pytest

from queries.pipeline.file import parse_pipeline
from queries.pipeline.sections import PipelineError
from queries.pipeline.sinks import SINKS

GROUPS = "SELECT srcIP, count(*) AS n FROM M [RANGE 10 seconds] GROUP BY srcIP"
ACCEPTED = {
    GROUPS: "window_end",
    f"{GROUPS} ORDER BY n DESC LIMIT 2": "window_end",
    f"{GROUPS} FILL 0": "window_end",
    f"SELECT max(n) AS high FROM ({GROUPS}) [RANGE 1 minute]": "window_end",
    f"SELECT window_end AS until, n FROM ({GROUPS})": "until",
    f"SELECT window_end, n FROM ({GROUPS}) UNION SELECT window_end, 0 AS n FROM ({GROUPS})": "window_end",
    f"SELECT a.window_end AS at, a.n, b.n AS m FROM ({GROUPS}) a [RANGE 0 s, WA window_end] "
    f"JOIN ({GROUPS}) b [RANGE 10 s, WA window_end] ON a.srcIP = b.srcIP": "at",
    "SELECT s.ts, s.srcIP FROM M s [RANGE 5 s] ANTI JOIN M r [RANGE 0 s] ON r.srcIP = s.destIP": "ts",
}


def pipeline(sql: str) -> str:
    return f"[links]\nM = 'm.pcap'\n[queries.q]\nsql = '''{sql}'''\nemit = 'changes'\nfinal = 'certain'\n"


@pytest.mark.parametrize("sql", ACCEPTED)
def test_a_query_whose_rows_have_a_time_has_a_key(sql: str, tmp_path: Path) -> None:
    (plan,) = parse_pipeline(pipeline(sql), tmp_path).plans()
    assert plan.has_changes
    assert plan.time_column == ACCEPTED[sql]


def test_a_query_whose_rows_have_no_time_is_refused_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(PipelineError) as refused:
        parse_pipeline(pipeline(f"SELECT srcIP, n FROM ({GROUPS})"), tmp_path).plans()
    assert str(refused.value) == (
        "queries.q.sql: got EMIT CHANGES of results without a time (srcIP, n): results that the key final names, "
        "wiretide compact would not find the rows of a correction; expected window_end or the time of the rows in "
        "the select list"
    )


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_an_object_store_has_one_name_for_both_schemes(scheme: str, tmp_path: Path) -> None:
    text = f"[sinks.archive]\nkind = 's3'\nurl = '{scheme}://lake/a/b=1/'\nregion = 'eu-west-1'\n"
    (sink,) = parse_pipeline(f"[links]\nM = 'm.pcap'\n[queries.q]\nsql = '{GROUPS}'\n{text}", tmp_path).sinks
    assert (sink.target, dict(sink.conf)) == ("s3://lake/a/b=1", {"region": "eu-west-1"})


@pytest.mark.parametrize(
    ("keys", "error"),
    [
        ("url = 'hdfs://host/x'", "sinks.archive.url: got 'hdfs://host/x', expected s3://BUCKET/PREFIX or s3a://"),
        ("url = 's3://lake/../x y'", "sinks.archive.url: got 's3://lake/../x y'"),
        ("url = 's3://lake'\nendpoint = 'minio:9000'", "endpoint: got 'minio:9000', expected http://HOST:PORT"),
        ("url = 's3://lake'\nregion = 'a b'", "region: got 'a b', expected a region such as eu-west-1"),
        ("endpoint = 'http://minio:9000'", "sinks.archive.url is missing: expected s3://BUCKET/PREFIX"),
        ("url = 's3://lake'\npath = '/x'", "sinks.archive.path is not known"),
    ],
)
def test_wrong_object_stores_are_errors(keys: str, error: str, tmp_path: Path) -> None:
    text = f"[links]\nM = 'm.pcap'\n[queries.q]\nsql = '{GROUPS}'\n[sinks.archive]\nkind = 's3'\n{keys}\n"
    with pytest.raises(PipelineError) as refused:
        parse_pipeline(text, tmp_path)
    assert error in str(refused.value)


def test_the_guide_has_the_table_of_the_sinks() -> None:
    guide = Path("docs/guide/consistency.md").read_text("utf-8")
    for sink in SINKS:
        assert f"| {sink.name} | {sink.key} | {sink.effect} | {sink.effect_without_windows} |\n" in guide
