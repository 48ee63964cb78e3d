"""Back-fill: samples at the end of their windows, in a real Prometheus too, equal to the rows of the query.

These tests detect samples that promtool drops without a message, a window that is missing or counted twice, and a
series that `wiretide run` names differently.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

import wiretide
from dashboards.prometheus.backfill import DAY_MS, Backfill, BackfillError, create_blocks, write_daily_files
from dashboards.prometheus.query_series import QuerySeries
from highlevel.aggregation import LATE
from queries.gsql import compile_query
from tests.conformance.traffic import LINKS, generate_links
from tests.harness.command_line import run
from tests.harness.prometheus_server import program, prometheus
from tests.references.exporter_rows import SECOND, plan, rows

TALKERS = plan("srcIP, count(*) AS packets, sum(len) AS bytes", "srcIP")
SQL = "SELECT srcIP, count(*) AS packets, sum(len) AS bytes FROM packets [RANGE 5 s] GROUP BY srcIP"

PIPELINE = f"""
[links]
office = "office.pcap"
Backbone_2 = "Backbone_2.pcap"
[queries]
talkers.sql = "{SQL}"
selected.sql = "SELECT ts FROM packets WHERE len > 1000"
[metrics]
top = 3
"""

Sample = tuple[str, str, float, float]
"""Metric, label `src_ip`, time in s, and value."""


EQUAL_NAMES = """
[queries.a-b]
sql = "SELECT count(*) AS n FROM packets [RANGE 1 s]"
[queries.a_b]
sql = "SELECT sum(len) AS n FROM packets [RANGE 1 s]"
"""
"""Two queries whose columns have one name in Prometheus."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, path in zip(LINKS, generate_links(tmp_path)[0], strict=True):
        path.rename(tmp_path / f"{name}.pcap")
    (tmp_path / "pipeline.toml").write_text(PIPELINE)
    return tmp_path


def read_samples(path: Path) -> list[Sample]:
    families = text_string_to_metric_families(path.read_text())
    return [
        (one.name.rpartition("_")[2], one.labels.get("src_ip", ""), float(one.timestamp), one.value)
        for family in families
        for one in family.samples
    ]


def windows_of_query(folder: Path) -> dict[float, dict[str, tuple[int, int]]]:
    """Return packets and bytes of each group of each window, by its end."""
    table = wiretide.query(SQL, *(folder / f"{link}.pcap" for link in LINKS))
    windows: dict[float, dict[str, tuple[int, int]]] = {}
    for row in table.to_pylist():
        windows.setdefault(row["window_end"].timestamp(), {})[row["srcIP"]] = (row["packets"], row["bytes"])
    return windows


def check_samples(samples: list[Sample], windows: dict[float, dict[str, tuple[int, int]]], top: int) -> None:
    """Every sample of a group is its value in the query, and with the others they add up to the window."""
    own = [(metric, group, time, value) for metric, group, time, value in samples if group != "other"]
    for metric, group, time, value in own:
        assert value == windows[time][group][metric == "bytes"]
    expected: Counter[tuple[str, float]] = Counter()
    for time, groups in windows.items():
        for metric in ("packets", "bytes"):
            expected[metric, time] = sum(group[metric == "bytes"] for group in groups.values())
            shown = [sample for sample in own if sample[0] == metric and sample[2] == time]
            assert len(shown) <= top
            assert len(shown) > 0
    assert totals(samples) == expected


def totals(samples: list[Sample]) -> Counter[tuple[str, float]]:
    """Return the sum of the values of each metric and time."""
    sums: Counter[tuple[str, float]] = Counter()
    for metric, _, time, value in samples:
        sums[metric, time] += int(value)
    return sums


def test_samples_are_the_windows_of_the_query(folder: Path) -> None:
    status, out, err = run("backfill", "pipeline.toml", "-o", "samples", cwd=folder)
    assert (status, "query selected has no windows of time, so it has no series" in err) == (0, True)
    (path,) = (folder / "samples").iterdir()
    found = read_samples(path)
    assert out == f"samples/{path.name}: {len(found):,} samples\n"
    assert path.name == "wiretide-2023-11-14.om"
    check_samples(found, windows_of_query(folder), 3)


@pytest.mark.slow("a real Prometheus")
def test_a_real_prometheus_has_them_at_their_own_time(folder: Path) -> None:
    promtool = Path(program("promtool"))
    path = os.pathsep.join([str(promtool.parent), os.environ["PATH"]])
    words = ("backfill", "pipeline.toml", "-o", "samples", "--blocks", "data", "--job", "j", "--instance", "i")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", path)
        status, out, err = run(*words, cwd=folder)
    assert status == 0, err
    (file,) = (folder / "samples").iterdir()
    samples = read_samples(file)
    assert out == f"samples/{file.name}: {len(samples):,} samples, 1 block in data\n"
    times = sorted({time for _, _, time, _ in samples})
    with prometheus(folder, retention="100y") as server:
        for metric in ("packets", "bytes"):
            expression = f'wiretide_query_talkers_{metric}{{job="j",instance="i"}}[1y]'
            stored = server.ask("query", query=expression, time=str(times[-1]))["result"]
            found = [
                (metric, one["metric"].get("src_ip", ""), float(time), float(value))
                for one in stored
                for time, value in one["values"]
            ]
            assert sorted(found) == sorted(sample for sample in samples if sample[0] == metric)


@pytest.mark.slow("a real Prometheus")
def test_a_real_prometheus_receives_them_by_remote_write(folder: Path) -> None:
    (folder / "token").write_text("0123456789abcdef")
    with prometheus(folder, retention="100y", options=["--web.enable-remote-write-receiver"]) as server:
        words = ("--remote-write", f"{server.url}/api/v1/write", "--token-file", "token", "--job", "j")
        status, out, err = run("backfill", "pipeline.toml", "-o", "samples", *words, cwd=folder)
        assert status == 0, err
        (file,) = (folder / "samples").iterdir()
        samples = read_samples(file)
        assert out.splitlines()[-1] == f"{server.url}/api/v1/write: {len(samples):,} samples"
        times = sorted({time for _, _, time, _ in samples})
        for metric in ("packets", "bytes"):
            expression = f'wiretide_query_talkers_{metric}{{job="j"}}[1y]'
            found = [
                (metric, one["metric"].get("src_ip", ""), float(time), float(value))
                for one in server.ask("query", query=expression, time=str(times[-1]))["result"]
                for time, value in one["values"]
            ]
            assert sorted(found) == sorted(sample for sample in samples if sample[0] == metric)


def test_each_day_is_a_file_and_samples_that_prometheus_would_drop_are_counted(tmp_path: Path) -> None:
    backfill = Backfill(QuerySeries(TALKERS, 2))
    day = DAY_MS // 1000
    for end in (-60, 60, day - 1, day, day + 60):
        backfill.add(rows(TALKERS, end, ("10.0.0.1", 5, 500), ("10.0.0.2", 3, 200), ("10.0.0.3", 1, 60)))
    backfill.complete()
    assert backfill.samples_before_1970 == 6
    written = dict(write_daily_files([backfill], {"job": "j"}, tmp_path))
    assert {path.name: count for path, count in written.items()} == {
        "wiretide-1970-01-01.om": 12,
        "wiretide-1970-01-02.om": 12,
    }
    for path, count in written.items():
        assert len(read_samples(path)) == count
        assert path.read_text().endswith("# EOF\n")


def test_windows_of_less_than_a_millisecond_have_one_sample(tmp_path: Path) -> None:
    short = compile_query("SELECT count(*) AS n FROM packets [RANGE 400 us]", "short")
    backfill = Backfill(QuerySeries(short, 2))
    for number in range(10):
        bounds = [number * 400_000, (number + 1) * 400_000]
        backfill.add(pa.table([[bounds[0]], [bounds[1]], [number]], schema=short.schema))
    backfill.complete()
    ((path, count),) = write_daily_files([backfill], {}, tmp_path)
    assert [time for _, _, time, _ in read_samples(path)] == [0, 0.001, 0.002, 0.003, 0.004]
    assert (count, backfill.samples_within_1_ms) == (5, 5)


def test_rows_of_one_window_in_several_batches_are_one_sample() -> None:
    backfill = Backfill(QuerySeries(TALKERS, 1))
    for end, group in ((60, "10.0.0.1"), (60, "10.0.0.2"), (120, "10.0.0.1")):
        backfill.add(rows(TALKERS, end, (group, 5, 500)))
    backfill.complete()
    found = {(value.column, labels): [*samples.values] for (value, labels), samples in backfill.samples.items()}
    assert found["packets", ("10.0.0.1",)] == [5, 5]
    assert found["packets", ("other",)] == [5]


def test_late_rows_are_no_samples() -> None:
    late = compile_query("SELECT count(*) AS n FROM packets [RANGE 1 s, LATE EMIT]", "late")
    backfill = Backfill(QuerySeries(late, 2))
    for start, is_late, number in ((0, False, 5), (1, False, 7), (0, True, 1)):
        row = {"window_start": start * SECOND, "window_end": (start + 1) * SECOND, LATE: is_late, "n": number}
        backfill.add(pa.Table.from_pylist([row], late.schema))
    backfill.complete()
    assert [[*samples.values] for samples in backfill.samples.values()] == [[5, 7]]
    assert backfill.samples_within_1_ms == 0


def test_wrong_blocks_are_an_error(tmp_path: Path) -> None:
    fake = tmp_path / "promtool"
    fake.write_text("#!/bin/sh\nexit 0\n")
    fake.chmod(0o755)
    with pytest.raises(BackfillError, match=r"the blocks have 0 samples, expected the 1,234 of the file"):
        create_blocks(str(fake), tmp_path / "a.om", tmp_path / "data", 1234)
    fake.write_text("#!/bin/sh\necho 'no such thing' >&2\nexit 3\n")
    with pytest.raises(BackfillError, match="promtool ended with status 3: no such thing"):
        create_blocks(str(fake), tmp_path / "a.om", tmp_path / "data", 1)


@pytest.mark.parametrize(
    ("text", "words", "expected", "message"),
    [
        ("", ("--blocks", "data"), 1, "--blocks needs promtool, which is not on the PATH (Debian package prometheus)"),
        ('\n[links.live]\ncapture = "p"\nspool = "s"\n', (), 2, "links.live.spool: a spool is not a finished capture"),
        (
            '\n[links.t]\ntopic = "t"\nbrokers = "127.0.0.1:1"\nschema = "PROTOCOL t { TIME ts (increasing); }"\n',
            (),
            2,
            "links.t: got the topic t, expected links with captures only",
        ),
        (
            EQUAL_NAMES,
            (),
            2,
            "would both have the metric name 'wiretide_query_a_b_n'; rename one of them",
        ),
    ],
)
def test_what_is_wrong_is_told(folder: Path, text: str, words: tuple[str, ...], expected: int, message: str) -> None:
    (folder / "pipeline.toml").write_text(PIPELINE + text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", "/nowhere")
        status, out, err = run("backfill", "pipeline.toml", "-o", "samples", *words, cwd=folder)
    assert (status, out) == (expected, "")
    assert message in err
