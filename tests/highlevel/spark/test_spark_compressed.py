"""Compressed captures on Spark: a task each for the batch engine, decompressed beforehand for the stream engine.

* Both engines against the inline engine over the plain files catch rows lost or doubled on the way.
* Cut files detect damage that is reported differently from the inline engine, or not at all.
* A second start catches a file that is decompressed again although it is the same, or is not although it is another.
"""

import os
from itertools import cycle
from pathlib import Path

import pyarrow as pa
import pytest

from capture.errors import InputError
from capture.metrics import FILES_DAMAGED, RECORDS_READ, Samples
from highlevel.inline.engine import InlineRun, Input
from highlevel.spark.errors import FolderError
from highlevel.spark.inputs.decompressed_inputs import decompress_once, replace_compressed_inputs
from queries.gsql import compile_query
from tests.harness.links import write_links
from tests.references.compressed_bytes import COMPRESS
from tests.references.window_queries import QUERIES

PLANS = [compile_query(query.gsql, query.name) for query in QUERIES[:2]]


def links(folder: Path, cut: int = 0) -> tuple[list[Input], list[Input]]:
    """Links in plain files and the same compressed, each by another codec and without its last `cut` bytes."""
    folder.mkdir()
    plain = write_links(folder, 41)
    packed = []
    for each, codec in zip(plain, cycle(COMPRESS)):
        path = folder / f"{each.path.name}.{codec}"
        whole = each.path.read_bytes()
        data = b"".join(COMPRESS[codec](part) for part in (whole[:9000], whole[9000:]))
        path.write_bytes(data[: len(data) - cut])
        packed.append(Input(each.link, path, each.stream))
    return plain, packed


def inline(inputs: list[Input]) -> tuple[dict[str, list[tuple]], Samples]:
    run = InlineRun(PLANS, inputs)
    rows: dict[str, list[tuple]] = {plan.name: [] for plan in PLANS}
    for plan, batch in run.results():
        rows[PLANS[plan].name] += tuples(batch)
    return {name: sorted(found) for name, found in rows.items()}, run.samples()


def tuples(rows: pa.RecordBatch | pa.Table) -> list[tuple]:
    return [tuple(str(value) for value in row.values()) for row in rows.to_pylist()]


def damage(samples: Samples) -> dict[tuple[str, ...], float]:
    return {labels: value for (name, labels), value in samples.items() if name == FILES_DAMAGED.name}


@pytest.mark.spark
@pytest.mark.parametrize("cut", [0, 9])
def test_the_batch_engine_reads_compressed_captures(cut: int, spark, tmp_path: Path) -> None:
    from highlevel.spark.batch import BatchRun
    from tests.references.spark_packets import packets_dataframe

    plain, packed = links(tmp_path / "links", cut)
    want, counted = inline(packed if cut else plain)
    batch = BatchRun(spark, PLANS, packed)
    for plan, rows in zip(PLANS, batch.run(), strict=True):
        assert sorted(tuples(rows)) == want[plan.name]
    assert damage(batch.samples) == damage(counted)
    assert batch.samples.total(RECORDS_READ) == counted.total(RECORDS_READ)
    assert not batch.has_wrong_guess
    assert sum(damage(counted).values()) == (len(packed) if cut else 0)
    assert packets_dataframe(spark, packed, ["ts"], "frames").count() == counted.total(RECORDS_READ)


@pytest.mark.spark
@pytest.mark.parametrize("cut", [0, 9])
def test_the_stream_engine_decompresses_first_and_once(cut: int, spark, tmp_path: Path) -> None:
    from highlevel.spark.stream import StreamRun

    plain, packed = links(tmp_path / "links", cut)
    want, counted = inline(packed if cut else plain)
    rows: dict[str, list[tuple]] = {plan.name: [] for plan in PLANS}
    said: list[str] = []

    def collect(batch_id: int, results: dict[str, pa.Table], samples: Samples) -> None:
        for name, table in results.items():
            rows[name] += tuples(table)

    run = StreamRun(spark, PLANS, packed, tmp_path / "run", on_batch=collect, say=said.append)
    run.start()
    assert run.wait()
    run.stop()
    assert {name: sorted(found) for name, found in rows.items()} == want
    assert damage(run.samples) == damage(counted)
    assert run.samples.total(RECORDS_READ) == counted.total(RECORDS_READ)
    warnings = [line for line in said if line.startswith("warning: ") and " damaged " in line]
    assert len(warnings) == (len(packed) if cut else 0)
    assert all("decompress" in line for line in said if line not in warnings)
    assert len(said) == 2 * len(packed) + len(warnings)
    said.clear()
    again = StreamRun(spark, PLANS, packed, tmp_path / "run", say=said.append)
    again.start()
    assert again.finished
    again.stop()
    assert len(said) == len(packed)
    assert all("where it was decompressed before" in line for line in said)
    packed[0].path.write_bytes(COMPRESS["gzip"](plain[0].path.read_bytes()[:-1]))
    with pytest.raises(FolderError, match=r"contains a run in which the query .* reads other inputs"):
        StreamRun(spark, PLANS, packed, tmp_path / "run", say=said.append).start()


def test_a_file_is_decompressed_again_only_where_it_is_another(tmp_path: Path) -> None:
    plain, packed = links(tmp_path / "links")
    said: list[str] = []
    first = decompress_once(packed[0].path, tmp_path / "inputs", said.append)
    assert first.read_bytes() == plain[0].path.read_bytes()
    os.utime(packed[0].path, (1, 1))
    assert decompress_once(packed[0].path, tmp_path / "inputs", said.append) == first
    first.unlink()
    assert decompress_once(packed[0].path, tmp_path / "inputs", said.append) == first
    packed[0].path.write_bytes(COMPRESS["gzip"](plain[1].path.read_bytes()))
    other = decompress_once(packed[0].path, tmp_path / "inputs", said.append)
    assert other != first
    assert first.exists()
    assert [("before" in line) for line in said] == [False, False, True, False, False, False, False]
    assert sorted(path.name for path in (tmp_path / "inputs").iterdir()) == sorted(
        f"{path.name}{more}" for path in (first, other) for more in ("", ".json")
    )


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    _, packed = links(tmp_path / "links")
    (tmp_path / "inputs").write_bytes(b"")  # a file, where a folder is to be
    with pytest.raises(NotADirectoryError, match="inputs"):
        decompress_once(packed[0].path, tmp_path / "inputs", print)


def test_live_inputs_are_refused_with_the_engine_that_reads_them(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", Path("-")):
        with pytest.raises(InputError, match=rf"{path}: got a live input, .*the stream engine.*use the inline engine"):
            replace_compressed_inputs([Input("x", path)], tmp_path, print)


@pytest.mark.spark
def test_the_batch_engine_refuses_what_is_live_or_has_changed(spark, tmp_path: Path) -> None:
    from highlevel.spark.batch import BatchRun

    with pytest.raises(InputError, match="-: got a live input"):
        BatchRun(spark, [PLANS[0]], [Input("x", Path("-"))])
    plain, packed = links(tmp_path / "links")
    batch = BatchRun(spark, [PLANS[0]], packed[:1])
    packed[0].path.write_bytes(plain[0].path.read_bytes())
    with pytest.raises(InputError, match="changed while it was read; expected a compressed capture of"):
        batch.run()
