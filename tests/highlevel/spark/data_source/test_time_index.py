"""The time index of captures: rows by the definition of a condition, with fewer bytes, and never with fewer rows.

Random conditions on the time detect a range that is left out although it has rows, also in captures that are not in the
order of time. The tables of damage detect an index that is used although it is incomplete or of another capture.
"""

import os
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from capture.errors import InputError
from highlevel.spark.data_source import capture_rows, time_index
from highlevel.spark.data_source.capture_rows import FileRange, plan_ranges, read_rows
from highlevel.spark.data_source.options import SourceOptions
from highlevel.spark.data_source.row_condition import compile_condition
from highlevel.spark.data_source.time_index import index_folder
from highlevel.spark.inputs import byte_ranges
from queries.gsql import compile_query
from queries.pipeline.inputs import bind_files
from tests.harness.links import write_links


@pytest.fixture(autouse=True)
def small_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(time_index, "MIN_INDEXED_BYTES", 0)
    monkeypatch.setattr(time_index, "PIECE_BYTES", 3000)
    monkeypatch.setattr(byte_ranges, "BLOCK_RECORDS", 16)
    monkeypatch.setattr(byte_ranges, "MIN_RANGE_BYTES", 20_000)
    monkeypatch.setattr(capture_rows, "compile_kernels", lambda kind: None)


def read(path: Path, where: str | None, cores: int = 4) -> tuple[list[dict], int]:
    """Return the rows, and the bytes of the ranges that tasks read."""
    options = SourceOptions.parse({"path": str(path), "columns": "ts, len", "times": "ns"})
    condition = None if where is None else compile_condition(where, "packets", compile_query)
    parts = plan_ranges(bind_files(options.paths), options, cores, condition)
    assert parts, "Spark reads at least one range"
    batches = [batch for part in parts for batch in read_rows(part, options, options.columns, condition)]
    size = sum(part.task.cut - part.task.start for part in parts if isinstance(part, FileRange))
    return pa.Table.from_batches(batches).to_pylist() if batches else [], size


@pytest.mark.parametrize("seed", range(8))
def test_an_index_selects_the_rows_of_the_definition(seed: int, tmp_path: Path) -> None:
    random = Random(f"time index {seed}")
    path = write_links(tmp_path, seed)[0].path
    rows, size = read(path, None, random.choice([1, 4]))
    assert index_folder(path).is_dir()
    saved = 0
    times = sorted(row["ts"] for row in rows)
    for _ in range(12):
        first = random.randrange(len(times))
        least, most = times[first], times[min(len(times) - 1, first + random.choice([0, 5, 100, 2000]))]
        got, read_bytes = read(path, f"ts >= {least} AND ts <= {most}", random.choice([1, 4, 30]))
        assert got == [row for row in rows if least <= row["ts"] <= most], (seed, least, most)
        saved += size - read_bytes
    assert read(path, f"ts > {times[-1] + 10**17}") == ([], 0)
    assert saved > 0


def test_an_incomplete_or_damaged_index_is_not_used(tmp_path: Path) -> None:
    path = write_links(tmp_path, 3)[0].path
    rows, size = read(path, None)
    where = f"ts <= {rows[0]['ts']}"
    expected, selected = read(path, where)
    assert selected < size
    files = sorted(index_folder(path).iterdir())
    assert len(files) > 1
    for file in files:
        content = file.read_bytes()
        for damaged in (b"", content[: len(content) // 2], content.replace(b"[", b"(", 1), None):
            file.unlink() if damaged is None else file.write_bytes(damaged)
            assert read(path, where) == (expected, size), file.name  # this also writes the file again
            assert read(path, where) == (expected, selected)
    index_folder(path).chmod(0o777)
    assert read(path, where) == (expected, size), "other users can write to the folder"


def test_without_a_home_folder_captures_are_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def raise_error() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", raise_error)
    path = write_links(tmp_path, 3)[0].path
    rows, size = read(path, None)
    assert read(path, f"ts <= {rows[0]['ts']}")[1] == size


def test_a_capture_that_changes_has_another_index(tmp_path: Path) -> None:
    path = write_links(tmp_path, 3)[0].path
    rows, _ = read(path, None)
    before = path.stat()
    (tmp_path / "other").mkdir()
    content = write_links(tmp_path / "other", 4)[0].path.read_bytes()
    path.write_bytes((content * (1 + before.st_size // len(content)))[: before.st_size])
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    where = f"ts <= {rows[0]['ts']}"
    options = SourceOptions.parse({"path": str(path), "columns": "ts", "damage": "stop"})
    parts = plan_ranges(bind_files(options.paths), options, 4, compile_condition(where, "packets", compile_query))
    assert not any(part.is_indexed for part in parts if isinstance(part, FileRange))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # as if nothing had changed
    middle = rows[len(rows) // 2]["ts"]
    with pytest.raises(InputError, match=r"as in its time index: the capture has changed|damaged"):
        read(path, f"ts >= {middle} AND ts <= {middle}")
