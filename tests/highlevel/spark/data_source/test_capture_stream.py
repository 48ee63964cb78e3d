"""Captures of a folder as a stream of Spark: files that appear, restarts, limits, and files that are not complete.

Planning and tasks are called as Spark calls them. A file that is read twice or not at all changes the rows.
"""

import json
from collections.abc import Callable
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles

import wiretide
from capture.errors import InputError
from highlevel.spark.data_source import capture_stream
from highlevel.spark.data_source.capture_stream import CaptureStreamReader
from highlevel.spark.data_source.options import SourceOptions
from queries.pipeline.inputs import bind_files
from tests.harness.links import write_links

COLUMNS = "ts, link, srcIP, len"


def make_reader(path: Path, **options: str) -> CaptureStreamReader:
    parsed = SourceOptions.parse({"path": str(path), "columns": COLUMNS, "times": "ns"} | options)
    return CaptureStreamReader(parsed, parsed.columns, bind_files, 2, None)


def rows_between(reader: CaptureStreamReader, start: dict, end: dict) -> list[tuple]:
    batches = [batch for part in reader.partitions(start, end) for batch in reader.read(part)]
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def rows_of(paths: list[Path]) -> list[tuple]:
    """The rows of files, each of which is a link of its own."""
    rows = []
    for path in paths:
        for batch in wiretide.packets(path, columns=COLUMNS.split(", ")):
            times = batch.column("ts").cast(pa.int64())
            others = (batch.column(name) for name in batch.schema.names[1:])
            rows += zip(*(column.to_pylist() for column in (times, *others)), strict=True)
    return rows


@pytest.mark.parametrize("seed", range(5))
def test_each_file_is_read_once_through_restarts_repetitions_and_removals(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    (tmp_path / "made").mkdir()
    folder = tmp_path / "archive"
    folder.mkdir()
    waiting = [each.path for each in write_links(tmp_path / "made", seed)]
    random.shuffle(waiting)
    limit: ReadLimit = random.choice([ReadAllAvailable(), ReadMaxFiles(1), ReadMaxFiles(2)])
    reader = make_reader(folder)
    offset, got, moved = reader.initialOffset(), [], []
    while True:
        for path in waiting[: random.randrange(3)]:
            waiting.remove(path)
            moved.append(path.rename(folder / path.name))
        end = json.loads(json.dumps(reader.latestOffset(offset, limit)))
        for _ in range(random.choice([1, 2])):
            rows = rows_between(reader, offset, end)
            reader = make_reader(folder)
        got += rows
        if isinstance(limit, ReadMaxFiles):
            assert len(end["files"]) <= len(offset["files"]) + limit.max_files
        if end == offset and not waiting:
            break
        offset = end
        if offset["files"] and random.random() < 0.2:
            done = Path(random.choice(list(offset["files"])))
            moved[moved.index(done)] = done.rename(tmp_path / "made" / done.name)
    assert sorted(got) == sorted(rows_of(moved))
    assert set(offset["files"]) == {str(path) for path in folder.iterdir()}


def test_available_now_ends_with_the_files_of_the_start(tmp_path: Path) -> None:
    first, second = (each.path for each in write_links(tmp_path, 8)[:2])
    folder = tmp_path / "archive"
    folder.mkdir()
    first.rename(folder / first.name)
    reader = make_reader(folder)
    reader.prepareForTriggerAvailableNow()
    second.rename(folder / second.name)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert list(end["files"]) == [str(folder / first.name)]
    assert reader.latestOffset(end, ReadAllAvailable()) == end


@pytest.mark.parametrize("name", [".partial.pcap", "_partial.pcap"])
def test_a_file_that_is_being_written_is_not_read_before_it_is_renamed(name: str, tmp_path: Path) -> None:
    path = write_links(tmp_path / "..", 8)[0].path
    path.rename(tmp_path / name)
    reader = make_reader(tmp_path)
    start = reader.initialOffset()
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    (tmp_path / name).rename(tmp_path / "a.pcap")
    assert len(reader.latestOffset(start, ReadAllAvailable())["files"]) == 1


def grown(reader: CaptureStreamReader, path: Path, end: dict) -> None:
    with path.open("ab") as file:
        file.write(b"more")
    reader.latestOffset(end, ReadAllAvailable())


def grown_before_its_tasks(reader: CaptureStreamReader, path: Path, end: dict) -> None:
    with path.open("ab") as file:
        file.write(b"more")
    reader.partitions(reader.initialOffset(), end)


@pytest.mark.parametrize("change", [grown, grown_before_its_tasks])
def test_a_file_that_grows_is_an_error(change: Callable[..., None], tmp_path: Path) -> None:
    path = write_links(tmp_path, 8)[0].path
    reader = make_reader(path)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    with pytest.raises(InputError, match=r"got \d+ bytes, expected \d+: it changed after a stream read it"):
        change(reader, path, end)


def test_too_many_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture_stream, "MAX_FILES", 2)
    write_links(tmp_path, 8)
    reader = make_reader(tmp_path)
    with pytest.raises(InputError, match="got 6 files, expected at most 2: move files away that were read"):
        reader.latestOffset(reader.initialOffset(), ReadAllAvailable())


@pytest.mark.spark
def test_spark_reads_new_files_of_a_folder_once(spark, tmp_path: Path) -> None:
    wiretide.register(spark)
    (tmp_path / "made").mkdir()
    folder = tmp_path / "archive"
    folder.mkdir()
    paths = [each.path for each in write_links(tmp_path / "made", 8)]
    options = {"columns": COLUMNS, "times": "ns", "maxFilesPerTrigger": "1"}
    stream = spark.readStream.format("wiretide").options(**options).load(str(folder))
    moved: list[Path] = []
    for count in (0, 2, 0, 2):  # the folder is empty at first
        for _ in range(count):
            path = paths.pop()
            moved.append(path.rename(folder / path.name))
        writer = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.option("path", str(tmp_path / "rows")).trigger(availableNow=True).start()
        assert query.awaitTermination(60)
        rows = spark.read.schema("ts long, link string, srcIP string, len long").parquet(str(tmp_path / "rows"))
        assert sorted(map(tuple, rows.collect())) == sorted(rows_of(moved))
