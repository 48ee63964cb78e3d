"""The sinks of a query with changes in a pipeline on Spark, whose process fails at several moments.

The exact answer of the same query without changes, in the same run, is the truth. The test detects a change that a
restart loses or repeats in the change log, in the final rows, or in the gauges.
"""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from capture.files.scan import scan
from capture.open import open_capture
from dashboards.changes.compaction import compact
from dashboards.monitors.pipeline import Monitor
from highlevel.metrics import CORRECTIONS
from highlevel.results.stored_files import list_files
from lowlevel.node.node import Node
from lowlevel.punctuation import BEGINNING
from lowlevel.spool.writer import SpoolWriter
from queries.pipeline.file import PipelineFile, parse_pipeline
from tests.harness.spool_node import leaves, named
from tests.references.exporter_rows import samples
from tests.references.pcap_bytes import NS, pcap_bytes
from tests.references.small_captures import RAW_IP, udp

pytestmark = pytest.mark.spark

START = 1_700_000_000 * NS
SQL = "SELECT srcIP, count(*) AS n, sum(len) AS bytes [RANGE 10 seconds] FROM packets GROUP BY srcIP"
BUSY = "SELECT srcIP, count(*) AS n [RANGE 5 seconds] FROM packets GROUP BY srcIP"
GRAPHS = {
    "top": f"{BUSY} ORDER BY n DESC LIMIT 2",
    "coarse": f"SELECT srcIP, sum(n) AS n, max(n) AS bytes FROM ({BUSY}) [RANGE 20 seconds] GROUP BY srcIP",
    "joined": f"SELECT a.window_end AS window_start, a.srcIP AS srcIP, a.n AS n, b.bytes AS bytes FROM ({BUSY}) a "
    f"[RANGE 0 s, WA window_end] JOIN ({SQL}) b [RANGE 0 s, WA window_end] ON a.srcIP = b.srcIP",
}
"""Queries with several operators; each also as exact answer and with its final rows."""

PIPELINE = f"""
[links.uplink]
capture = "a.pcap"
spool = "spool"
promise = "late 12s"
[queries.now]
sql = "{SQL}"
emit = "changes"
final = "certain"
[queries.exact]
sql = "{SQL}"
[metrics]
port = 0
""" + "".join(
    f'[queries.{name}]\nsql = "{sql}"\nemit = "changes"\nfinal = "{name}-certain"\n'
    f'[queries.{name}-exact]\nsql = "{sql}"\n'
    for name, sql in GRAPHS.items()
)


class CrashError(Exception):
    """The process ends here."""


def write_spool(folder: Path) -> PipelineFile:
    """Write a capture whose packets are up to 8 s late, and its spool: a segment for each 100 packets."""
    random = Random(7)
    arrivals = sorted((ts + 8 * random.random(), ts) for ts in (60 * random.random() for _ in range(2000)))
    frames = [udp(f"10.0.0.{host}", "10.0.0.9", 1, 2) for host in range(1, 5)]
    records = [(START + round(ts * NS), random.choice(frames)) for _, ts in arrivals]
    (folder / "a.pcap").write_bytes(pcap_bytes(records, RAW_IP))
    pipeline = parse_pipeline(PIPELINE, folder)
    plans, file = pipeline.plans(), open_capture(folder / "a.pcap")
    rule = pipeline.spooled["uplink"].watermark_rule(live=True)
    node = Node("uplink", file, [leaf.low for leaf in leaves(plans)], 64, 100, rule)
    writer, clock = SpoolWriter(folder / "spool", "uplink", named(plans)), NS
    for block in scan(file, 100).blocks:  # type: ignore[arg-type]
        for number, item in node.process(replace(block, watermark=BEGINNING)):
            writer.append(number, item)
        clock += NS
        writer.tick(clock)
        writer.flush()
    for number, item in node.flush():
        writer.append(number, item)
    writer.close(has_ended=True)
    return pipeline


def rows_in(*tables: pa.Table) -> Counter[tuple[Any, ...]]:
    names = [name for name in ("window_start", "srcIP", "n", "bytes") if name in tables[0].column_names]
    return Counter(row for table in tables for row in zip(*(table[name].to_pylist() for name in names), strict=True))


def tables_of(output: Path, name: str) -> list[pa.Table]:
    return [pq.read_table(path, partitioning=None) for path in list_files(output / name)]


def test_a_pipeline_that_fails_at_any_moment_has_the_exact_answer_in_every_sink(
    spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from highlevel.spark import stream

    pipeline = write_spool(tmp_path)
    run_class, on_batch = stream.StreamRun, Monitor._on_batch
    monkeypatch.setattr(stream, "StreamRun", lambda *args, **options: run_class(*args, **options, max_bytes=4_000))
    for moment, last in (("before the sinks", 1), ("after the sinks", 3), ("never", 10**9)):

        def crash(monitor: Monitor, batch: int, *arguments: Any, moment: str = moment, last: int = last) -> None:
            if batch == last and moment == "before the sinks":
                raise CrashError
            on_batch(monitor, batch, *arguments)
            if batch == last:
                raise CrashError

        monkeypatch.setattr(Monitor, "_on_batch", crash)
        with Monitor(pipeline, lambda _: None) as monitor:
            if moment == "never":
                monitor.wait()
            else:
                with pytest.raises(CrashError):
                    monitor.wait()
            shown = samples(monitor.exporter, "wiretide_query_now_n")
            exact_shown = samples(monitor.exporter, "wiretide_query_exact_n")
            shown_samples = monitor.exporter.current_samples
            corrections = {name: shown_samples.get((CORRECTIONS.name, (name,)), 0) for name in ("now", *GRAPHS)}
    output = tmp_path / "state" / "output"
    exact, certain, log = (tables_of(output, name) for name in ("exact", "certain", "now"))
    assert len(rows_in(*exact)) > 20
    assert rows_in(*certain) == rows_in(*exact)
    compacted = {table.path.stem: table for table in compact(tmp_path / "state", only_final=True)}
    for name in GRAPHS:
        truth = rows_in(*tables_of(output, f"{name}-exact"))
        assert truth, name
        assert rows_in(*tables_of(output, f"{name}-certain")) == truth, name
        assert rows_in(pq.read_table(compacted[name].path)) == truth, name
        weights = [weight for part in tables_of(output, name) for weight in part["weight"].to_pylist()]
        assert corrections[name] == -sum(weight for weight in weights if weight < 0) > 0, name
    table = compacted["now"]
    assert rows_in(pq.read_table(table.path)) == rows_in(*exact)
    assert (table.provisional, table.changes) == (0, sum(part.num_rows for part in log))
    assert corrections["now"] == sum(row < 0 for part in log for row in part["weight"].to_pylist()) > 0
    assert shown == exact_shown != []
