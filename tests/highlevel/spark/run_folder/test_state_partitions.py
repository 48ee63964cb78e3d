"""A restart with another number of operator partitions: rows as by definition, and crashes between its steps.

The random streams detect a row that is lost, doubled, or in a partition in which its group does not continue; windows
and sessions are open at the change. The tables of crashes detect a folder that no start can continue.
"""

from collections import Counter
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from highlevel.inline.engine import Input
from highlevel.spark.errors import FolderError
from highlevel.spark.inputs.assignment import InputAssignment
from highlevel.spark.inputs.reading import COUNTERS
from highlevel.spark.run_folder.state import PartitionState
from highlevel.spark.run_folder.state_partitions import divide_state, finish_division
from highlevel.spark.tasks.fragment_task import FragmentTask
from highlevel.spark.tasks.host import LevelTask
from highlevel.spark.tasks.packing import unpack
from queries.gsql import compile_query
from tests.conftest import Rounds
from tests.harness.hosted_batches import INPUTS, hosted, source_batches, told_rows
from tests.references.window_streams import of_panes, of_wids, session

QUERIES_PER_RUN = 20


@pytest.mark.parametrize("family", [of_wids, of_panes, session], ids=lambda each: each.__name__)
def test_open_windows_continue_in_other_partitions(family, tmp_path: Path, rounds: Rounds) -> None:
    moved = 0
    for seed in rounds(10):
        random = Random(f"partitions of {family.__name__} {seed}")
        queries = [family(random) for _ in range(QUERIES_PER_RUN)]
        plans = [query.plan_of(str(number)) for number, query in enumerate(queries)]
        counts = random.choice([(1, 3), (2, 1), (2, 5), (3, 2), (4, 4)])
        assignments = [InputAssignment.of(plans, INPUTS, count) for count in counts]
        stream_seed = random.random()
        before, after = (source_batches(Random(stream_seed), feeds, queries) for feeds in assignments)
        folder = tmp_path / str(seed)
        change = random.randrange(1, len(before))
        found: list[Counter[tuple]] = [Counter() for _ in queries]
        for batch_id in range(len(before)):
            if batch_id == change:
                divide_state(folder, assignments[1], counts[0], batch_id - 1)
                finish_division(folder, counts[1])
                moved += sum(path.stat().st_size for path in (folder / "state").rglob("*.json"))
            is_changed = batch_id >= change
            host = LevelTask(assignments[is_changed], folder / "state", batch_id)
            rows = hosted(host, (after if is_changed else before)[batch_id], [COUNTERS, *range(counts[is_changed])])
            for query, payload in zip(rows["query"].to_pylist(), rows["payload"].to_pylist(), strict=True):
                if query != COUNTERS:
                    found[query] += told_rows(unpack(payload))
        for number, (query, got) in enumerate(zip(queries, found, strict=True)):
            assert got == query.rows, (seed, counts, number, query.aggregation.window)
        assert sorted(path.name for path in folder.iterdir()) == ["state"]
    assert moved > 1000


def assignment_of(sql: str, partitions: int) -> InputAssignment:
    return InputAssignment.of([compile_query(sql, "q")], [Input("M", Path("m"))], partitions)


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        (
            "SELECT a.srcIP, b.len FROM M a [RANGE 1 minute], M b [RANGE 1 minute] WHERE a.srcIP = b.destIP",
            "stores rows in the operator Join",
        ),
        (
            "SELECT srcIP, count(*) AS n FROM M [RANGE ALL, SLIDE 1 minute] GROUP BY srcIP",
            "stores rows in the operator Windowed",
        ),
    ],
)
def test_a_state_that_cannot_be_divided_is_refused_and_kept(sql: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    with pytest.raises(FolderError, match=rf"query q {reason}.*got partitions = 3, expected 2, or another folder"):
        divide_state(tmp_path, assignment_of(sql, 3), 2, 5)
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


KEY = FragmentTask(assignment_of("SELECT count(*) FROM M [RANGE 1 s]", 1), 0, 0, 0).state_key
"""The key of the state of the only query."""

WINDOWS = "SELECT srcIP, count(*) AS n FROM M [RANGE 1 minute] GROUP BY srcIP"


def write_state(folder: Path, partitions: int, ports: list[list[int]]) -> None:
    for part, bounds in zip(range(partitions), ports, strict=True):
        tables = {"0.meld": pa.table({"bound": bounds}), "1.0.closed": pa.table({"closed": [3]})}
        PartitionState(folder / "state", part).save(5, {KEY: tables})


def test_watermarks_that_differ_are_damage(tmp_path: Path) -> None:
    write_state(tmp_path, 2, [[7, 7], [7, 6]])
    with pytest.raises(FolderError, match="the watermarks of its partitions differ"):
        divide_state(tmp_path, assignment_of(WINDOWS, 3), 2, 5)
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


@pytest.mark.parametrize("step", ["first rename", "second rename", "run.json", "never"])
def test_a_crash_between_the_steps_is_continued(step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The state is that of the partitions that run.json names, whatever has happened."""
    write_state(tmp_path, 2, [[7, 7], [7, 7]])
    rename, count = Path.rename, 0

    def rename_or_crash(path: Path, target: Path) -> Path:
        nonlocal count
        count += path.is_dir()
        if path.is_dir() and count == {"first rename": 1, "second rename": 2}.get(step):
            raise KeyboardInterrupt
        return rename(path, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", rename_or_crash)
        try:
            divide_state(tmp_path, assignment_of(WINDOWS, 3), 2, 5)
        except KeyboardInterrupt:
            assert step.endswith("rename")
    named = 3 if step == "never" else 2
    finish_division(tmp_path, named)
    parts = [PartitionState(tmp_path / "state", part).load(5, {KEY: False})[KEY] for part in range(named)]
    assert [part["0.meld"]["bound"].to_pylist() for part in parts] == [[7, 7]] * named
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


def test_a_row_in_a_wrong_partition_is_damage(tmp_path: Path) -> None:
    feeds = assignment_of(WINDOWS, 2)
    write_state(tmp_path, 2, [[7, 7], [7, 7]])
    addresses = pa.array([bytes([4, *([0] * 12), 10, 0, 0, last])[:17] for last in range(9)], pa.binary())
    (key,) = (column.name for column in feeds.fragments[0].sources[0].key)
    rows = pa.table({key: addresses, "n": list(range(9))})
    for part in range(2):
        state = PartitionState(tmp_path / "state", part)
        tables = state.load(5, {KEY: False})[KEY]
        state.save(5, {KEY: tables | {"1.0.4-5": rows}})
    with pytest.raises(FolderError, match="contains rows of another partition"):
        divide_state(tmp_path, assignment_of(WINDOWS, 3), feeds.partitions, 5)


def test_before_the_first_micro_batch_there_is_no_state(tmp_path: Path) -> None:
    divide_state(tmp_path, assignment_of(WINDOWS, 3), 2, -1)
    finish_division(tmp_path, 3)
    assert list(tmp_path.iterdir()) == []
