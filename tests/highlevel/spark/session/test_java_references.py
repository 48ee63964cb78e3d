"""The JVM keeps no Java objects of finished micro-batches. The test detects plans that stay in the JVM for ever."""

import gc
from pathlib import Path

import pytest
from py4j.finalizer import ThreadSafeFinalizer

from highlevel.spark.session import java_references
from highlevel.spark.session.java_references import JavaReferences
from queries.gsql import compile_query
from tests.harness.links import write_links

SQL = "SELECT srcIP, count(*) AS n FROM packets [RANGE 1 second] GROUP BY srcIP"


def test_references_are_freed_at_most_once_in_ten_seconds() -> None:
    class Cycle:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            freed.append(times[-1])

    times, freed = [0.0], []
    references = JavaReferences(lambda: times[-1])
    gc.disable()
    try:
        for seconds in (9.0, 10.0, 19.0, 20.0):
            times.append(seconds)
            Cycle()
            references.release()
    finally:
        gc.enable()
    assert freed == [10.0, 10.0, 20.0, 20.0]


@pytest.mark.spark
def test_references_to_java_objects_do_not_accumulate(spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from highlevel.spark.stream import StreamRun

    monkeypatch.setattr(java_references, "COLLECTION_SECONDS", 0.0)
    counts: list[int] = []

    def count(*_: object) -> None:
        counts.append(len(ThreadSafeFinalizer.finalizers))

    inputs = write_links(tmp_path, 8)[:1]
    options = {"block_records": 200, "max_blocks": 1}
    run = StreamRun(spark, [compile_query(SQL)], inputs, tmp_path / "run", on_batch=count, **options)
    gc.disable()  # Python would collect at other times too
    try:
        run.start()
        assert run.wait()
    finally:
        gc.enable()
        run.stop()
    assert len(counts) > 5
    assert max(counts[2:]) <= counts[1] + 10, counts  # a micro-batch has about 25
