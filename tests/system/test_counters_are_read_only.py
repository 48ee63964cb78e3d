"""Reading counters changes nothing: two calls of samples() are equal, and all reachable state is as before.

The tests detect a counter that advances when it is read. Then a second reader of the same host would miss events.
Values would depend on the time of the reads.
"""

import dataclasses
import time
from collections import deque
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from capture.collector.collector import Collector
from capture.collector.inspection import ExportInspector
from capture.collector.metrics import DATAGRAMS
from capture.lazy_dataclasses import STORED_HASH
from capture.metrics import FLOW_DATAGRAMS, RECORDS_READ, Samples
from capture.open import open_capture
from highlevel.inline.engine import InlineRun, Input
from highlevel.metrics import WINDOWS_CLOSED
from lowlevel.metrics import SPOOL_RETRIES, SPOOL_SEGMENTS_WRITTEN
from lowlevel.node.link_worker import LinkWorker
from lowlevel.node.node import Node
from lowlevel.spool import writer as spool_writer
from lowlevel.spool.fingerprint import fingerprint
from lowlevel.spool.writer import SpoolWriter
from queries.gsql import compile_query
from tests.harness.collected import sender
from tests.harness.collector_settings import settings
from tests.harness.streamed import as_stream
from tests.references.netflow_bytes import v5, v5_record
from tests.references.node_oracle import write_capture
from tests.references.spool_items import LINK, pairs_plan, random_batch

PRODUCT = ("capture", "lowlevel", "highlevel", "queries", "dashboards")

WINDOWS = {
    "sliding": "[RANGE 2 s, SLIDE 1 s]",
    "gapped": "[RANGE 1 s, SLIDE 3 s]",
    "landmark": "[RANGE ALL, SLIDE 1 s]",
    "session": "[SESSION 10 ms]",
    "rows": "[RANGE 9 rows]",
    "long rows": "[RANGE 5000 rows, SLIDE 70 rows]",
    "partitioned": "[RANGE 3 rows, PA srcIP]",
    "slide by rows": "[RANGE 1 s, SLIDE 5 rows]",
}
QUERIES = {name: f"SELECT count(*) FROM M {window}" for name, window in WINDOWS.items()} | {
    "sketch": "SELECT approx_count_distinct(srcIP) FROM M [RANGE 2 s, SLIDE 1 s]",
    "rows of a select": "SELECT ts, len FROM M WHERE len > 80",
    "distinct": "SELECT DISTINCT time, srcIP FROM M",
    "join": "SELECT A.len FROM M S [RANGE 1 s] JOIN M A [RANGE 1 s] ON A.srcIP = S.srcIP",
}


def state_of(value: object) -> dict[str, Any]:
    """Return all numbers, texts and arrays that can be reached through objects of the product, by their path."""
    state: dict[str, Any] = {}
    _walk(value, "host", state, set())
    return state


def _walk(value: object, path: str, state: dict[str, Any], seen: set[int]) -> None:
    if isinstance(value, (bool, int, float, str, bytes, type(None))):
        state[path] = value
    elif id(value) in seen:
        state[path] = ...
    elif isinstance(value, np.ndarray):
        state[path] = value.shape, hash(value.tobytes())
    else:
        seen.add(id(value))
        for name, item in _parts(value).items():
            _walk(item, f"{path}.{name}", state, seen)


def _parts(value: Any) -> dict[str, object]:
    if isinstance(value, (dict, Samples)):
        return {str(key): item for key, item in value.items()}
    if isinstance(value, (list, tuple, deque)):
        return {"length": len(value)} | {str(number): item for number, item in enumerate(value)}
    if isinstance(value, pa.RecordBatch | pa.Table):
        return {"rows": value.num_rows}
    if not type(value).__module__.startswith(PRODUCT):
        return {}
    names = [*getattr(value, "__dict__", ()), *(name for kind in type(value).__mro__ for name in _slots(kind))]
    caches = {name for name in names if isinstance(getattr(type(value), name, None), cached_property)}
    return {name: getattr(value, name, None) for name in names if name not in caches}


def _slots(kind: type) -> list[str]:
    slots = vars(kind).get("__slots__", ())
    names = (slots,) if isinstance(slots, str) else slots
    return [name for name in names if not name.startswith("__") and name != STORED_HASH]


def check_reading(host: object, read: Callable[[], Samples]) -> Samples:
    """Read twice, and compare all numbers that the host holds. Return the samples."""
    before = state_of(host)
    first = Samples(read())
    assert state_of(host) == before
    assert read() == first
    assert state_of(host) == before
    return first


def test_the_walk_sees_counters_inside_objects_lists_and_arrays() -> None:
    @dataclasses.dataclass
    class Inner:
        counts: Any

    Inner.__module__ = "capture.example"
    values: list[Callable[[], Any]] = [lambda: [0], lambda: np.zeros(1), lambda: {"a": 0}, lambda: Inner([0])]
    for make in values:
        inner = make()
        host = Inner([inner])
        before = state_of(host)
        assert state_of(host) == before
        changed = inner.counts if isinstance(inner, Inner) else inner
        changed["a" if isinstance(changed, dict) else 0] += 1
        assert state_of(host) != before


@pytest.mark.parametrize("name", QUERIES)
def test_the_inline_engine_with_any_operator(name: str, tmp_path: Path) -> None:
    path = tmp_path / "M.pcap"
    write_capture(path, 1, 400)
    run = InlineRun([compile_query(QUERIES[name], "query")], [Input("M", path)], threads=1, block_records=50)
    operators = run.nodes
    for _ in run.results():
        check_reading(operators, run.samples)
    samples = check_reading(operators, run.samples)
    assert samples.total(RECORDS_READ) > 0
    assert samples.total(WINDOWS_CLOSED) > 0 or name not in WINDOWS


@pytest.mark.parametrize("live", [False, True], ids=["file", "stream"])
def test_a_node_with_its_reader_its_input_and_its_spool(live: bool, tmp_path: Path) -> None:
    path = tmp_path / "M.pcap"
    write_capture(path, 2, 400)
    plan = compile_query("SELECT srcIP, count(*) FROM M [RANGE 1 s] GROUP BY srcIP", "query").leaves[0].low
    capture = as_stream(path) if live else open_capture(path)
    node = Node("M", capture, [plan], 64)
    spool = SpoolWriter(tmp_path / "spool", "M", [("query", fingerprint(plan))], cuts=not live)
    worker = LinkWorker(capture, node, [("query", plan)], spool, clock=iter(range(10**9, 10**15, 10**9)).__next__)
    check_reading(worker, lambda: worker.samples)
    check_reading(worker, worker._collect_samples)
    worker.run(lambda: False)
    assert check_reading(worker, worker._collect_samples).total(RECORDS_READ) > 0
    assert check_reading(worker, lambda: worker.samples).total(SPOOL_SEGMENTS_WRITTEN) > 0


def test_a_spool_whose_commits_cannot_be_read_for_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = pairs_plan()
    writer = SpoolWriter(tmp_path, LINK, [("pairs", fingerprint(plan))])
    writer.append(0, random_batch(Random(3), plan, 20))
    writer.flush()

    def raise_shortage(folder: Path) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(spool_writer, "committed_number", raise_shortage)
    assert check_reading(writer, writer.samples).total(SPOOL_RETRIES) == 0
    writer.close(has_ended=True)


def test_a_collector_with_its_inspector(tmp_path: Path) -> None:
    inspector = ExportInspector(tmp_path, print)
    export = v5([v5_record(octets=100, packets=3, first=1, last=2, protocol=6)], uptime=3, seconds=4, sequence=5)
    with Collector(settings(tmp_path), inspector) as running, sender() as exporter:
        for _ in range(20):
            exporter.sendto(export, ("127.0.0.1", running.sockets[0].port))
        while running.samples().total(FLOW_DATAGRAMS) < 20:
            time.sleep(0.01)
    assert check_reading(running, running.samples).total(DATAGRAMS) == 20
    assert check_reading(inspector, inspector.samples).total(FLOW_DATAGRAMS) == 20
