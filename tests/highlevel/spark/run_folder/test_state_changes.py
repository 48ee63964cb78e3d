"""Changes of open windows in the state of a partition: what is written, what a crash leaves, and older layouts.

Crashes are exceptions at each write of a file, by turns at every position. They detect a version that contains rows of
a newer one, and a file that is removed although a version needs it. Counted bytes detect a window that is written
again.
"""

from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from capture import private_files
from highlevel.groups import merge_buffer
from highlevel.groups.merge_buffer import MergeBuffer
from highlevel.groups.merging import MergeFunction, MergeRule
from highlevel.inline.engine import Input
from highlevel.spark.inputs.assignment import InputAssignment
from highlevel.spark.run_folder import state as state_module
from highlevel.spark.run_folder.checked_files import read_document, write_document
from highlevel.spark.run_folder.identity import STATE_FORMAT, describe_run, read_identity, write_identity
from highlevel.spark.run_folder.state import PartitionState
from queries.gsql import compile_query
from tests.conftest import Rounds

KEY = "0.0"
GROUPS = 40_000
RULES = [MergeRule(("n",), MergeFunction.SUM)]


class Crash(BaseException):
    """The end of a process."""


def change(random: Random, groups: int, rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"k": random.sample(range(groups), rows), "n": [1] * rows})


def advance(folder: Path, batch_id: int, rows: pa.RecordBatch) -> None:
    """Play a micro-batch of a partition with one open window."""
    state = PartitionState(folder, 0)
    tables = state.load(batch_id - 1, {KEY: False})[KEY]
    buffer = MergeBuffer(["k"], RULES, tables["window"].to_batches() if tables else [])
    buffer.add(rows)
    state.save(batch_id, {KEY: {"window": pa.Table.from_batches(buffer.merged_pieces())}})


def counts_of(folder: Path, batch_id: int) -> dict[int, int]:
    table = PartitionState(folder, 0).load(batch_id, {KEY: False})[KEY]["window"]
    found: dict[int, int] = {}
    for k, n in zip(table["k"].to_pylist(), table["n"].to_pylist(), strict=True):
        found[k] = found.get(k, 0) + n
    return found


def test_an_open_window_is_not_written_again(tmp_path: Path) -> None:
    random = Random(16)
    advance(tmp_path, 0, pa.RecordBatch.from_pydict({"k": range(GROUPS), "n": [1] * GROUPS}))
    window = next((tmp_path / "0").glob("*.arrow")).stat().st_size
    inodes = {path.stat().st_ino for path in (tmp_path / "0").iterdir()}
    written = 0
    batches = 120
    for batch_id in range(1, batches + 1):
        advance(tmp_path, batch_id, change(random, GROUPS, GROUPS // 100))
        for path in (tmp_path / "0").iterdir():
            if path.stat().st_ino not in inodes or path.name.endswith(f"{batch_id}.json"):
                written += path.stat().st_size
        inodes = {path.stat().st_ino for path in (tmp_path / "0").iterdir()}
    assert written / batches < 0.05 * window
    assert sum(counts_of(tmp_path, batches).values()) == GROUPS + batches * (GROUPS // 100)


def test_small_changes_of_a_large_table_are_in_the_manifest(tmp_path: Path) -> None:
    advance(tmp_path, 0, pa.RecordBatch.from_pydict({"k": range(GROUPS), "n": [1] * GROUPS}))
    for batch_id in range(1, 4):
        advance(tmp_path, batch_id, pa.RecordBatch.from_pydict({"k": [batch_id], "n": [5]}))
    assert len(list((tmp_path / "0").glob("*.arrow"))) == 1
    counts = counts_of(tmp_path, 3)
    assert {group: n for group, n in counts.items() if n > 1} == {1: 6, 2: 6, 3: 6}


def test_a_crash_at_any_write_changes_no_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rounds: Rounds
) -> None:
    """A repeated micro-batch gives the rows of an undisturbed run, and every kept version stays complete."""
    monkeypatch.setattr(merge_buffer, "FEW_ROWS", 0)
    monkeypatch.setattr(merge_buffer, "SIMILAR_PIECES", 3)
    monkeypatch.setattr(state_module, "MAX_PACKED_BYTES", 300)
    open_replacement = private_files.open_replacement
    crashes = 0
    for seed in rounds(25):
        random = Random(f"crash {seed}")
        folder, expected = tmp_path / str(seed), dict.fromkeys(range(200), 0)
        remaining = random.randrange(1, 12)

        def replace_or_crash(*arguments: Any, **options: Any) -> Any:
            nonlocal remaining, crashes
            remaining -= 1
            if remaining == 0:
                crashes += 1
                raise Crash
            return open_replacement(*arguments, **options)

        monkeypatch.setattr(private_files, "open_replacement", replace_or_crash)
        monkeypatch.setattr(state_module, "open_replacement", replace_or_crash)
        for batch_id in range(20):
            rows = change(random, 200, random.choice([1, 5, 50]))
            before = dict(expected)
            for group in rows["k"].to_pylist():
                expected[group] += 1
            while True:
                try:
                    advance(folder, batch_id, rows)
                    break
                except Crash:
                    remaining = random.randrange(1, 12)
                    if batch_id:
                        found = counts_of(folder, batch_id - 1)
                        assert found == {group: n for group, n in before.items() if n}, (seed, batch_id)
            found = counts_of(folder, batch_id)
            assert found == {group: n for group, n in expected.items() if n}, (seed, batch_id)
    assert crashes > 25


def test_a_late_task_removes_no_file_of_a_later_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that Spark has given up lists the versions before another task has named its new file."""
    rows = pa.RecordBatch.from_pydict({"k": range(5000), "n": [1] * 5000})
    for batch_id in range(3):
        advance(tmp_path, batch_id, rows)
    next_task = PartitionState(tmp_path, 0)
    next_tables = next_task.load(2, {KEY: False})[KEY]
    next_tables["other"] = pa.table({"n": list(range(5000))})
    write = state_module.write_document

    def write_after_the_late_task(path: Path, content: Any) -> None:
        monkeypatch.setattr(state_module, "write_document", write)
        advance(tmp_path, 2, rows)  # the files of version 3 exist, its manifest does not
        write(path, content)

    monkeypatch.setattr(state_module, "write_document", write_after_the_late_task)
    next_task.save(3, {KEY: next_tables})
    assert PartitionState(tmp_path, 0).load(3, {KEY: False})[KEY] == next_tables


def test_a_state_of_the_format_before_is_read_and_continued(tmp_path: Path) -> None:
    advance(tmp_path, 0, pa.RecordBatch.from_pydict({"k": range(5000), "n": [1] * 5000}))
    manifest = tmp_path / "0" / "0.json"
    document = read_document(manifest)
    (file,) = document[KEY]["files"]["window"]
    document[KEY]["files"]["window"] = file  # one file for each table
    write_document(manifest, document)
    advance(tmp_path, 1, pa.RecordBatch.from_pydict({"k": [7], "n": [2]}))
    assert counts_of(tmp_path, 1) == {**dict.fromkeys(range(5000), 1), 7: 3}
    assert read_document(tmp_path / "0" / "1.json")[KEY]["files"] == {"window": [file]}


def test_the_identity_of_the_format_before_is_read(tmp_path: Path) -> None:
    plan = compile_query("SELECT count(*) FROM M [RANGE 1 s]", "q")
    new = describe_run(InputAssignment.of([plan], [Input("M", tmp_path, spool=True)], 1), 1, 100, False, {})
    write_identity(tmp_path, new)
    document = read_document(tmp_path / "run.json")
    assert document["state format"] == STATE_FORMAT
    write_document(tmp_path / "run.json", document | {"state format": STATE_FORMAT - 1})
    stored = read_identity(tmp_path)
    assert stored is not None
    assert stored.settings == {**new.settings, "state format": STATE_FORMAT - 1}


def test_rows_after_a_changed_file_are_written_in_one_file(tmp_path: Path) -> None:
    """The operator has merged pieces: the files before them stay, and one file has the rest."""
    pieces = [pa.RecordBatch.from_pydict({"k": np.arange(3000) + start}) for start in (0, 3000, 6000)]
    for batch_id, piece in enumerate(pieces):
        state = PartitionState(tmp_path, 0)
        old = state.load(batch_id - 1, {KEY: False})[KEY]
        tables = [*([old["t"]] if old else []), pa.Table.from_batches([piece])]
        state.save(batch_id, {KEY: {"t": pa.concat_tables(tables)}})
    state = PartitionState(tmp_path, 0)
    first, *others = state.load(2, {KEY: False})[KEY]["t"].to_batches()
    assert len(others) == 2
    merged = pa.concat_batches(others)
    state.save(3, {KEY: {"t": pa.Table.from_batches([first, merged])}})
    names = [file["name"] for file in read_document(tmp_path / "0" / "3.json")[KEY]["files"]["t"]]
    assert names == ["0.0-t-0.arrow", "0.0-t-3.arrow"]
    assert PartitionState(tmp_path, 0).load(3, {KEY: False})[KEY]["t"]["k"].to_pylist() == list(range(9000))
