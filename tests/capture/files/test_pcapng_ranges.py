"""pcapng in parts: ranges of a file, and every engine that reads by parts, against the file read in one go.

* Ranges cut anywhere must together equal the whole file. Every range is read in a fresh process. A section's byte order
  or an interface that does not reach a task changes a time, link type or name.
* Engines that group by interface catch one that numbers interfaces by part instead of by file.
"""

import pickle
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from capture.files.capture import Capture
from capture.files.scan import scan
from capture.files.split import ranges_are_contiguous, split
from capture.metrics import TIMES_REPLACED
from capture.open import open_capture
from capture.packets.decoder import Decoder
from highlevel.inline.engine import InlineRun, Input
from highlevel.spark.inputs import byte_ranges
from highlevel.spark.inputs.byte_ranges import guess_tasks, make_exact_tasks
from queries.gsql import compile_query
from tests.references.packet_rows import rows_of
from tests.references.pcapng_bytes import block, enhanced, interface, section, simple
from tests.references.pcapng_rows import NAMES, read_file
from tests.references.random_pcapng import random_pcapng

PLANS = [
    compile_query("SELECT interface, count(*), sum(len), min(ts), max(ts) FROM frames GROUP BY interface", "frames"),
    compile_query(
        "SELECT interface, srcIP, destIP, count(*), sum(caplen) FROM p [RANGE 1 hour, SLIDE 1 hour, WA ts]"
        " GROUP BY interface, srcIP, destIP",
        "pairs",
    ),
]


def read_ranges(path: Path, count: int) -> Iterator[dict[str, Any]]:
    """Return the rows of all ranges. A task of the batch engine reads each range and receives only pickled bytes."""
    file = open_capture(path)
    assert isinstance(file, Capture)
    for task in pickle.loads(pickle.dumps(byte_ranges._split_input(0, file, count))):
        part = task.open(path, len(file.data))
        decoder = Decoder(part, NAMES, 1 << 14, every_frame=True)
        for each in task.scan(part):
            names = part.format.interface_names
            for row in rows_of(decoder.decode(each), part.data, NAMES):
                yield row | {"name": names[row["interface"]]}


@pytest.mark.parametrize("count", [1, 2, 5, 30])
@pytest.mark.parametrize("seed", range(6))
def test_ranges_are_the_whole_file_wherever_they_are_cut(seed: int, count: int, tmp_path: Path) -> None:
    path = tmp_path / "cut.pcapng"
    data = random_pcapng(Random(seed), 120)
    path.write_bytes(data if seed % 2 else data[: -Random(seed).randrange(1, 40)])
    rows, _, names, _ = read_file(path, 64)
    assert list(read_ranges(path, count)) == [row | {"name": names[row["interface"]]} for row in rows]
    file = open_capture(path)
    assert isinstance(file, Capture)
    ranges = split(file, count)
    assert len(ranges) <= count
    assert ranges_are_contiguous(ranges, 0, len(data))
    assert ranges[-1].damage == scan(file).damage
    assert all(each.damage is None for each in ranges[:-1])


def test_ranges_may_hold_nothing_but_blocks_without_packets(tmp_path: Path) -> None:
    path = tmp_path / "empty-ranges.pcapng"
    filler = block(5, bytes(400)) * 20
    path.write_bytes(section() + filler + interface() + filler + enhanced(1, b"a") + filler + simple(b"b") + filler)
    assert [row["caplen"] for row in read_ranges(path, 12)] == [1, 1]


def test_a_big_file_is_cut_for_the_batch_engine_only_at_proved_boundaries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "big.pcapng"
    path.write_bytes(random_pcapng(Random(1), 200, (1,)))
    file = open_capture(path)
    assert isinstance(file, Capture)
    assert [(task.start, task.cut, task.is_exact) for task in guess_tasks([file], 2)] == [(0, len(file.data), True)]
    monkeypatch.setattr(byte_ranges, "MIN_RANGE_BYTES", 1000)
    tasks = guess_tasks([file], 4)
    assert len(tasks) == 4
    assert all(task.is_exact for task in tasks)
    assert tasks == make_exact_tasks([file], 4)


def answers(inputs: list[Input], threads: int = 1) -> list[Counter[tuple]]:
    found: list[list[pa.RecordBatch]] = [[] for _ in PLANS]
    for number, batch in InlineRun(PLANS, inputs, threads=threads, block_records=16).results():
        found[number].append(batch)
    return [counted(pa.Table.from_batches(rows, plan.schema)) for plan, rows in zip(PLANS, found, strict=True)]


def counted(table: pa.Table) -> Counter[tuple]:
    return Counter(tuple(row.values()) for row in table.to_pylist())


def test_threads_of_the_inline_engine_name_interfaces_alike(tmp_path: Path) -> None:
    path = tmp_path / "threads.pcapng"
    path.write_bytes(random_pcapng(Random(3), 400, (1, 101, 113)))
    rows, _, names, _ = read_file(path, 64)
    one, other = answers([Input("link", path)]), answers([Input("link", path)], 3)
    assert one == other
    by_name = Counter(names[row["interface"]] for row in rows)
    assert {row[0]: row[1] for row in one[0]} == by_name


def test_times_that_are_not_the_captures_are_counted_by_kind_of_rows(tmp_path: Path) -> None:
    path = tmp_path / "times.pcapng"
    path.write_bytes(section() + interface() + simple(b"a") * 3 + enhanced(2**63, b"b") * 2 + enhanced(9, b"c"))
    run = InlineRun(PLANS, [Input("link", path)])
    assert len(list(run.results())) == 1  # no packet is among the frames
    samples = run.samples()
    for kind in ("packets", "frames"):
        assert samples.total(TIMES_REPLACED, link="link", kind=kind, cause="no_timestamp") == 3
        assert samples.total(TIMES_REPLACED, link="link", kind=kind, cause="out_of_range") == 2


@pytest.mark.spark
def test_spark_reads_pcapng_as_the_inline_engine_does(spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from highlevel.spark.batch import BatchRun
    from highlevel.spark.stream import StreamRun
    from tests.references.spark_packets import packets_dataframe

    monkeypatch.setattr(byte_ranges, "MAX_RANGE_BYTES", 6000)  # several ranges of each file
    inputs = []
    for seed in (4, 5):
        path = tmp_path / f"{seed}.pcapng"
        path.write_bytes(random_pcapng(Random(seed), 300))
        inputs.append(Input(f"link{seed}", path))
    want = answers(inputs)
    for plan, rows, expected in zip(PLANS, BatchRun(spark, PLANS, inputs).run(), want, strict=True):
        assert counted(rows) == expected, f"batch, {plan.name}"
    tables: dict[str, list[pa.Table]] = {plan.name: [] for plan in PLANS}
    run = StreamRun(
        spark, PLANS, inputs, tmp_path / "run", block_records=16, max_blocks=3,
        on_batch=lambda _, results, __: [tables[name].append(table) for name, table in results.items()],
    )  # fmt: skip
    run.start()
    try:
        while not run.wait(1):
            pass
    finally:
        run.stop()
    for plan, expected in zip(PLANS, want, strict=True):
        assert counted(pa.concat_tables(tables[plan.name])) == expected, f"stream, {plan.name}"
    frames = packets_dataframe(spark, inputs, ["interface", "len", "ts"], "frames")
    assert frames.rdd.getNumPartitions() > len(inputs)
    sums = frames.selectExpr("interface", "len", "ts").toArrow().group_by("interface")
    table = sums.aggregate([("len", "count"), ("len", "sum"), ("ts", "min"), ("ts", "max")])
    names = ["interface", "len_count", "len_sum", "ts_min", "ts_max"]
    assert Counter(zip(*(table[name].to_pylist() for name in names), strict=True)) == want[0]
