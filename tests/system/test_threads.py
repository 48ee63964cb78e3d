"""Threads of the inline engine: the answer does not depend on their number, nor on how blocks fall to them.

* Disordered files, cut into blocks of a few records and distributed to up to seven threads, are compared with one
  thread. If the watermark of one thread covered rows of another, a window would close early and late partials would be
  counted.
* Counters in balance catch a block that is taken twice or never.
* After failures in one thread, and after a consumer that stops, no thread may remain.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from capture.generate import three_links
from capture.metrics import BYTES_READ, PACKETS_DECODED, RECORDS_READ, RECORDS_SKIPPED, Metric
from highlevel.inline import schedule
from highlevel.inline.engine import InlineRun, Input
from highlevel.inline.shards import MappedShard
from highlevel.metrics import LATE_PARTIALS, PARTIALS_RECEIVED
from lowlevel.metrics import ROWS_ACCEPTED, ROWS_FILTERED, TABLE_BYTES, TABLE_EVICTIONS, TABLE_FLUSHED
from queries.gsql import compile_query
from queries.pipeline.inputs import bind_files
from tests.conftest import StartedThreads
from tests.harness.inline_rows import rows_of
from tests.harness.links import write_links
from tests.references.mixed_captures import mixed
from tests.references.pcap_bytes import pcap_bytes
from tests.references.window_queries import QUERIES

COUNTERS: tuple[Metric, ...] = (
    BYTES_READ,
    PACKETS_DECODED,
    RECORDS_READ,
    RECORDS_SKIPPED,
    ROWS_ACCEPTED,
    ROWS_FILTERED,
)
PLANS = [compile_query(query.gsql, query.name) for query in QUERIES]
PLANS.append(compile_query("SELECT srcIP, count(*), min(len), max(ts), avg(len) FROM p GROUP BY srcIP", "whole"))
PLANS.append(
    compile_query(
        "SELECT link, srcIP, destIP, srcPort, destPort, protocol, sum(len) FROM p "
        "[RANGE 70 seconds, SLIDE 40 seconds, WA ts] GROUP BY link, srcIP, destIP, srcPort, destPort, protocol",
        "flows of packets",
    )
)


@pytest.fixture(autouse=True)
def _small_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let small files be scanned and read in many shares, as big ones are."""
    monkeypatch.setattr(schedule, "SHARD_BYTES", 64)
    monkeypatch.setattr(schedule, "PIECE_BYTES", 4096)


def answer(inputs: list[Input], threads: int, records: int = 40, slots: int = 64) -> tuple[Counter[tuple], InlineRun]:
    engine = InlineRun(PLANS, inputs, slots, threads=threads, block_records=records)
    found = Counter((number, *row) for number, batch in engine.results() for row in rows_of(batch))
    return found, engine


@pytest.mark.slow("many runs of the engine")
@pytest.mark.parametrize("seed", range(3))
def test_the_answer_is_the_same_for_every_number_of_threads(seed: int, tmp_path: Path) -> None:
    inputs = write_links(tmp_path, seed)
    expected, single = answer(inputs, 1)
    assert max(map(len, single.shards_of)) == len(inputs)
    assert {number for number, *_ in expected} == set(range(len(PLANS)))
    before = single.samples()
    for threads in (2, 7):
        found, engine = answer(inputs, threads, Random(seed).choice([11, 30, 100]), Random(threads).choice([8, 64]))
        assert found == expected
        samples = engine.samples()
        assert len(engine.shards) > len(inputs)
        assert {metric: samples.total(metric) for metric in COUNTERS} == {
            metric: before.total(metric) for metric in COUNTERS
        }
        assert samples.total(PARTIALS_RECEIVED) == samples.total(TABLE_EVICTIONS) + samples.total(TABLE_FLUSHED)
        assert samples.total(LATE_PARTIALS) == 0


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.slow("many queries over two captures with each number of threads")
def test_files_out_of_order_by_years_are_the_same_answer_too(seed: int, tmp_path: Path) -> None:
    for number in range(2):
        (tmp_path / f"{number}.pcap").write_bytes(pcap_bytes(mixed(seed * 2 + number)))
    inputs = bind_files([str(tmp_path)])
    expected, _ = answer(inputs, 1)
    for threads in (2, 5):
        found, engine = answer(inputs, threads, 20)
        assert found == expected
        assert engine.samples().total(LATE_PARTIALS) == 0


def test_a_big_file_has_a_shard_for_each_thread_and_a_small_one_has_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule, "SHARD_BYTES", 10_000)
    for name, records in (("small", 10), ("middle", 300), ("big", 4000)):
        (tmp_path / f"{name}.pcap").write_bytes(pcap_bytes([(0, bytes(60))] * records))
    inputs = bind_files([str(tmp_path)])
    engine = InlineRun(PLANS[:1], inputs, threads=5)
    assert Counter(shard.input.link for shard in engine.shards) == {"small": 1, "middle": 2, "big": 5}
    assert len(InlineRun(PLANS[:1], inputs, threads=1).shards) == 3


def test_every_shard_has_tables_of_its_own_and_they_are_counted(tmp_path: Path) -> None:
    three_links(tmp_path, 60, 20)
    inputs = bind_files([str(tmp_path / "Main1.pcap")])
    held = [answer(inputs, threads, 100, 1 << 12)[1].samples().total(TABLE_BYTES) for threads in (1, 3)]
    assert held[1] == 3 * held[0] > 0
    # Five shards share the memory of four whole tables: theirs have half the slots.
    _, engine = answer(inputs, 5, 100, 1 << 12)
    assert len([shard for shard in engine.shards if isinstance(shard, MappedShard)]) == 5
    assert 5 * held[0] / 2 < engine.samples().total(TABLE_BYTES) < 5 * held[0]


@pytest.mark.parametrize("threads", [1, 2, 6])
def test_results_that_nobody_takes_any_more_end_all_threads(
    threads: int, tmp_path: Path, started_threads: StartedThreads
) -> None:
    engine = InlineRun(PLANS, write_links(tmp_path, 1), 64, threads=threads, block_records=20)
    results = engine.results()
    next(results)
    results.close()  # type: ignore[attr-defined]
    assert not started_threads()


class BrokenProgressError(Exception):
    """Exception that a callback raises."""


@pytest.mark.drawn
@pytest.mark.parametrize("threads", [1, 2, 6])
@pytest.mark.parametrize("half", ["scan", "reduce"])
def test_what_one_thread_raises_is_raised_here_and_ends_the_others(
    half: str, threads: int, tmp_path: Path, started_threads: StartedThreads
) -> None:
    def fail(done: int, total: int) -> None:
        assert done <= total
        if done > (0 if half == "scan" else 0.7 * total):
            raise BrokenProgressError

    engine = InlineRun(PLANS, write_links(tmp_path, 1), 64, threads=threads, block_records=20)
    engine.progress = fail
    with pytest.raises(BrokenProgressError):
        for _ in engine.results():
            pass
    assert not started_threads()
    assert engine.bytes_done < engine.bytes_total


def test_progress_adds_up_to_all_bytes(tmp_path: Path) -> None:
    reached: list[int] = []
    inputs = write_links(tmp_path, 2)
    engine = InlineRun(PLANS, inputs, 64, threads=4, block_records=30)
    engine.progress = lambda done, total: reached.append(done)
    assert sum(1 for _ in engine.results())
    assert reached == sorted(reached)
    header = 24
    assert (
        reached[-1]
        == engine.bytes_total - header * len(inputs) // 2  # headers are scanned, and hold nothing to decode
        == sum(each.path.stat().st_size for each in inputs) - header * len(inputs) // 2
    )
