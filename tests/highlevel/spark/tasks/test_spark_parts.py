"""The parts of the Spark engines that need no Spark: admission, state files, partitions, packed rows and errors.

Hash partitions are checked against other batches and other neighbours of the same group, since one that moves loses
its state. State files are checked against every version that a repeated micro-batch may read.
"""

import json
import math
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from capture.errors import InputError
from capture.files.blocks import END_OF_FILE, Block, Index
from highlevel.operators import finite
from highlevel.operators.finite import windows_of
from highlevel.spark.errors import FolderError, RunError, find_root_cause
from highlevel.spark.inputs.admission import (
    FIRST_BLOCKS,
    GROWTH,
    LONGEST_PAUSE,
    MOST_BLOCKS,
    UNREAD,
    BatchGrowth,
    BlockSelector,
    compute_moments,
    divide_blocks,
    due_time,
    watermark_after,
)
from highlevel.spark.run_folder.checked_files import checksum
from highlevel.spark.run_folder.state import KEPT_VERSIONS, PartitionState
from highlevel.spark.tasks import packing
from highlevel.spark.tasks.operator_part import compute_parts
from highlevel.spark.tasks.packing import pack, unpack
from highlevel.windows.kind import SlidingWindow
from lowlevel.integer_ranges import Ranges, append_ids, count, unite
from tests.references.pcap_bytes import NS


def index(*blocks: tuple[int, int]) -> Index:
    """An index of blocks with the given smallest and largest times, in seconds."""
    lows = [min((first for first, _ in blocks[n + 1 :]), default=END_OF_FILE // NS) for n in range(len(blocks))]
    made = [
        Block(n, n + 1, 1, first * NS, last * NS, END_OF_FILE if n + 1 == len(blocks) else low * NS)
        for n, ((first, last), low) in enumerate(zip(blocks, lows, strict=True))
    ]
    return Index(made, None)


def test_the_input_that_lags_behind_goes_on_first() -> None:
    behind, ahead = index((0, 1), (1, 2), (2, 3), (3, 4)), index((2, 3), (9, 10))
    assert BlockSelector([behind, ahead], 2).select_blocks([UNREAD, UNREAD], 0) == [2, 0]
    assert BlockSelector([behind, ahead], 3).select_blocks([UNREAD, UNREAD], 0) == [3, 1]
    assert BlockSelector([behind, ahead], 3).select_blocks([3, 1], 0) == [4, 2]


@pytest.mark.parametrize("seed", range(5))
def test_a_micro_batch_grows_only_if_the_expected_bytes_are_few(seed: int) -> None:
    random = Random(seed)
    inputs, most = random.choice([1, 3]), random.choice([1_000, 1_000_000])
    growth = BatchGrowth(inputs, most)
    blocks = bytes_ = 0
    sizes = [growth.next_blocks(0, 0)]
    assert sizes == [FIRST_BLOCKS]
    for _ in range(30):
        rate = random.choice([0, 0.1, 3, 50, 400])
        read = random.randint(1, inputs * sizes[-1])
        blocks, bytes_ = blocks + read, bytes_ + int(rate * read)
        sizes.append(growth.next_blocks(blocks, bytes_))
        assert 1 <= sizes[-1] <= min(GROWTH * sizes[-2], MOST_BLOCKS)
        expected = max(int(rate * read) / read, bytes_ / blocks) * inputs * sizes[-1]
        assert sizes[-1] == 1 or expected <= most
        assert growth.next_blocks(blocks, bytes_) == sizes[-1], "no block was read since"
    assert max(sizes) > FIRST_BLOCKS or most == 1_000


def test_an_empty_input_is_done_with_its_first_promise() -> None:
    assert BlockSelector([index(), index((0, 1))], 1).select_blocks([UNREAD, UNREAD], 0) == [0, 1]


def test_a_block_is_there_when_the_trace_clock_has_passed_its_newest_time() -> None:
    admission = BlockSelector([index((100, 105), (105, 110), (110, 120))], 10, speed=2.0)
    assert admission.select_blocks([UNREAD], 7 * NS) == [0]
    assert admission.select_blocks([0], 7 * NS + 2 * NS) == [0]
    assert admission.select_blocks([0], 7 * NS + 5 * NS // 2) == [1]
    assert admission.select_blocks([1], 7 * NS + 9 * NS) == [2]
    assert admission.select_blocks([2], 7 * NS + 10 * NS) == [3]


def test_the_trace_clock_goes_on_from_the_offsets_after_a_restart() -> None:
    admission = BlockSelector([index((100, 105), (105, 110), (110, 120))], 10, speed=4.0)
    assert admission.select_blocks([2], 0) == [2]
    assert admission.select_blocks([2], 2 * NS) == [2]
    assert admission.select_blocks([2], 10 * NS // 4) == [3]


YEAR = 365 * 86_400


@pytest.mark.parametrize(
    "blocks",
    [
        [(-50 * YEAR, 2), (2, 3), (3, 4)],  # a packet dated 1970
        [(-50 * YEAR, -50 * YEAR), (2, 3), (3, 4)],  # alone in its block
        [(0, 1), (1, 50 * YEAR), (2, 3), (3, 4)],  # one of the future
        [(0, 1), (50 * YEAR, 50 * YEAR), (2, 3), (3, 4)],  # alone in its block
        [(0, 1), (20_000, 20_001), (90_000, 90_001)],  # lulls of hours
    ],
)
@pytest.mark.parametrize("speed", [0.5, 1.0, 600.0])
@pytest.mark.parametrize("restarts", [False, True])
def test_no_pause_of_a_replay_is_longer_than_five_seconds(blocks, speed: float, restarts: bool) -> None:
    indexes = [index(*blocks), index((0, 0), (1, 1), (40_000, 40_000))]
    admission, places, wall = BlockSelector(indexes, 10, speed), [0, 0], 0
    admission.select_blocks([UNREAD, UNREAD], wall)
    while places != [len(each.blocks) for each in indexes]:
        before, places = places, admission.select_blocks(places, wall + LONGEST_PAUSE * NS)
        wall += LONGEST_PAUSE * NS
        assert places != before
        if restarts:
            admission = BlockSelector(indexes, 10, speed)
            admission.select_blocks(places, wall)


def test_pauses_that_are_short_enough_are_kept() -> None:
    made = [index((0, 4), (5, 8), (8, 11)), index((3, 3), (9, 9))]
    assert compute_moments(made, 1.0) == [[4 * NS, 8 * NS, 11 * NS], [3 * NS, 9 * NS]]


def test_a_link_that_waits_for_its_time_does_not_hold_back_another() -> None:
    admission = BlockSelector([index((0, 50), (50, 60)), index((0, 1), (2, 3), (90, 91))], 10, speed=1.0)
    admission.select_blocks([UNREAD, UNREAD], 0)
    assert admission.select_blocks([0, 0], 4 * NS) == [0, 2]


def test_a_packet_dated_next_year_does_not_stop_a_paced_replay() -> None:
    year = 365 * 86_400
    strange = index((0, 5), (5, year), (10, 15), (15, year))
    assert [due_time(strange, place) // NS for place in range(4)] == [5, 10, 15, 15]


def test_the_low_watermark_of_a_place_is_that_of_the_block_before() -> None:
    made = index((5, 9), (7, 8))
    assert [watermark_after(made, place) for place in range(3)] == [5 * NS, 7 * NS, END_OF_FILE]


@pytest.mark.parametrize(
    ("blocks", "tasks", "expected"),
    [
        ([5], 2, [[(0, 0, 2), (1, 2, 5)]]),
        ([1], 4, [[(3, 0, 1)]]),
        ([0], 2, [[(1, 0, 0)]]),
        ([4, 4, 4], 2, [[(0, 0, 4)], [(0, 0, 2), (1, 2, 4)], [(1, 0, 4)]]),
        ([0, 3, 0], 3, [[(0, 0, 0)], [(0, 0, 1), (1, 1, 2), (2, 2, 3)], [(2, 0, 0)]]),
    ],
)
def test_blocks_of_inputs_are_divided_evenly_among_tasks(
    blocks: list[int], tasks: int, expected: list[list[tuple[int, int, int]]]
) -> None:
    assert divide_blocks(blocks, tasks) == expected


@pytest.mark.parametrize("seed", range(5))
def test_every_block_of_every_input_is_in_one_task_and_no_task_has_more_than_its_share(seed: int) -> None:
    random = Random(seed)
    blocks = [random.choice([0, 1, random.randrange(40)]) for _ in range(random.randrange(1, 6))]
    tasks = random.randrange(1, 8)
    divided = divide_blocks(blocks, tasks)
    for block_count, ranges in zip(blocks, divided, strict=True):
        assert [begin for _, begin, _ in ranges] == [0, *(end for *_, end in ranges[:-1])], (seed, divided)
        assert ranges[-1][2] == block_count, (seed, divided)
    for task in range(tasks):
        size = sum(end - begin for ranges in divided for number, begin, end in ranges if number == task)
        assert size <= -(-sum(blocks) // tasks), (seed, divided)


def keys(seed: int, rows: int) -> pa.RecordBatch:
    """Columns of every type a key can have, NULLs, both versions, NaN and both zeros among them."""
    random = Random(seed)
    addresses = ["10.0.0.1", "10.0.0.2", "::1", "::10.0.0.1", "2001:db8::1"]
    columns = {
        "address": pa.array([ip_address(random.choice(addresses)).packed for _ in range(rows)], pa.binary()),
        "number": pa.array([random.choice([None, 0, -1, 2**62, 5]) for _ in range(rows)], pa.int64()),
        "real": pa.array([random.choice([None, 0.0, -0.0, math.nan, 1.5]) for _ in range(rows)], pa.float64()),
        "flag": pa.array([random.choice([None, True, False]) for _ in range(rows)], pa.bool_()),
        "text": pa.array([random.choice(["", "main1", "main2", None]) for _ in range(rows)], pa.string()),
    }
    return pa.RecordBatch.from_pydict(columns)


@pytest.mark.parametrize("parts", [1, 2, 7])
def test_a_group_is_in_the_same_partition_in_whatever_batch_it_comes(parts: int) -> None:
    found: dict[str, int] = {}
    for seed in range(5):
        batch = keys(seed, 400)
        for size in (400, 3):
            piece = batch.slice(Random(seed).randrange(397), size) if size < 400 else batch
            rows = [repr(row).replace("-0.0", "0.0") for row in piece.to_pylist()]
            for row, part in zip(rows, compute_parts(piece, batch.schema.names, parts).tolist(), strict=True):
                assert 0 <= part < parts
                assert found.setdefault(row, part) == part
    assert len(set(found.values())) == parts


@pytest.mark.parametrize("column", ["address", "number", "text"])
def test_every_column_tells_groups_apart(column: str) -> None:
    assert len(set(compute_parts(keys(1, 500), [column], 64).tolist())) >= 3


def test_many_groups_are_spread_evenly() -> None:
    ends = pa.array([ip_address(f"10.1.{n // 256}.{n % 256}").packed for n in range(20_000)], pa.binary())
    parts = compute_parts(pa.RecordBatch.from_pydict({"srcIP": ends, "destIP": ends}), ["srcIP", "destIP"], 4)
    assert np.bincount(parts).min() > 4500


def test_without_groups_everything_is_in_one_partition() -> None:
    assert set(compute_parts(keys(1, 5), [], 4).tolist()) == {0}


@pytest.fixture(params=[0, packing.MAX_PLAIN_BYTES], ids=["narrowed", "as it is"])
def packed_from(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "MAX_PLAIN_BYTES", request.param)


@pytest.mark.usefixtures("packed_from")
def test_what_is_packed_is_unpacked_unchanged() -> None:
    table = pa.Table.from_batches([keys(1, 100), keys(2, 7)])
    assert unpack(pack(table)).schema == table.schema
    assert unpack(pack(table)).to_pylist().__repr__() == table.to_pylist().__repr__()
    assert unpack(pack(table.slice(0, 0))).num_rows == 0


SMALL = pa.table({"bound": [1, 2]})


ONE = {"0.0": False}
"""The state of one query that is not new."""


def large(number: int) -> pa.Table:
    return pa.table({"n": np.arange(5000) + number})


def test_state_is_what_was_saved_for_the_micro_batch_before(tmp_path: Path) -> None:
    for batch_id in range(6):
        state = PartitionState(tmp_path, 0)
        loaded = state.load(batch_id - 1, {"0.0": False, "1.0": False})
        want: dict = {} if batch_id == 0 else {"0.meld": SMALL, "2.5-6": large(batch_id - 1)}
        assert loaded == {"0.0": want, "1.0": {}}
        state.save(batch_id, {"0.0": {"0.meld": SMALL, "2.5-6": large(batch_id)}, "1.0": {}})


def test_a_query_that_begins_has_no_state_and_one_that_was_removed_is_ignored(tmp_path: Path) -> None:
    assert PartitionState(tmp_path, 0).load(4, {"7.0": True}) == {"7.0": {}}, "a level that no query had before"
    PartitionState(tmp_path, 0).save(4, {"0.0": {"x": SMALL}, "1.0": {}})
    assert PartitionState(tmp_path, 0).load(4, {"7.0": True, "0.0": False}) == {"7.0": {}, "0.0": {"x": SMALL}}
    with pytest.raises(FolderError, match=r"4\.json: got the state of 0\.0, 1\.0, expected that of 7\.0 too"):
        PartitionState(tmp_path, 0).load(4, {"7.0": False, "0.0": False})


def test_only_the_last_versions_stay(tmp_path: Path) -> None:
    for batch_id in range(10):
        state = PartitionState(tmp_path, 3)
        state.load(batch_id - 1, ONE)
        state.save(batch_id, {"0.0": {"x": large(batch_id)}})
    names = {f"{batch_id}.json" for batch_id in range(7, 10)} | {f"0.0-x-{batch_id}.arrow" for batch_id in range(7, 10)}
    assert len(names) == 2 * KEPT_VERSIONS
    assert {path.name for path in (tmp_path / "3").iterdir()} == names


def test_a_table_that_did_not_change_is_written_once_and_outlives_the_version_that_wrote_it(tmp_path: Path) -> None:
    tables = {"still": large(0), "busy": large(0)}
    for batch_id in range(8):
        state = PartitionState(tmp_path, 0)
        loaded = state.load(batch_id - 1, ONE)["0.0"]
        state.save(batch_id, {"0.0": {"still": loaded.get("still", tables["still"]), "busy": large(batch_id)}})
    assert sorted(path.name for path in (tmp_path / "0").glob("0.0-still*")) == ["0.0-still-0.arrow"]
    assert PartitionState(tmp_path, 0).load(7, ONE) == {"0.0": {"still": large(0), "busy": large(7)}}


def test_a_micro_batch_done_again_reads_and_writes_the_same_versions(tmp_path: Path) -> None:
    for batch_id in (0, 1, 1, 2, 2, 2, 3):
        state = PartitionState(tmp_path, 0)
        loaded = state.load(batch_id - 1, ONE)["0.0"]
        assert loaded == ({} if batch_id == 0 else {"x": large(batch_id - 1)})
        state.save(batch_id, {"0.0": {"x": large(batch_id)}})


def test_a_version_that_is_gone_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(
        FolderError, match=r"7\.json: missing: the checkpoint continues after micro-batch 7.*another folder"
    ):
        PartitionState(tmp_path, 0).load(7, ONE)


def test_window_ids_are_united_appended_and_counted() -> None:
    random = Random(3)
    for _ in range(200):
        pairs = [(first, first + random.randrange(-1, 6)) for first in (random.randrange(30) for _ in range(5))]
        ids = {wid for first, end in pairs for wid in range(first, end)}
        united = unite(pairs)
        assert {wid for first, end in united for wid in range(first, end)} == ids
        assert count(united) == len(ids)
        told: Ranges = []
        rising = sorted(random.choices(sorted(ids), k=40)) if ids else []
        for first in range(0, len(rising), 8):
            append_ids(told, np.array(rising[first : first + 8]))
        assert told == unite((wid, wid + 1) for wid in rising)


@pytest.mark.parametrize("seed", range(20))
def test_windows_hold_the_times_that_their_extents_do(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = []

    def holding(*arguments: Any) -> Iterator[int]:
        for wid in original(*arguments):
            looked_at.append(wid)
            yield wid

    original = finite._windows_containing
    monkeypatch.setattr(finite, "_windows_containing", holding)
    random = Random(seed)
    window = SlidingWindow(random.randrange(1, 100), random.randrange(1, 30), random.randrange(-50, 50))
    times = sorted(random.randrange(-100, 300) for _ in range(random.randrange(1, 40)))
    got = {wid: times[first:end] for wid, first, end in windows_of(window, np.array(times))}
    want = {}
    for wid in range(500):
        held = [time for time in times if window.start(wid) <= time < window.end(wid)]
        if held:
            want[wid] = held
    assert got == want
    assert looked_at == sorted(want), "each is found once, however many times it holds"


SPARK_REPORT = """Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times, most recent failure:
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 1, in main
{cause}

\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:99)
Caused by: java.io.EOFException: gone
"""


def test_an_input_error_in_a_task_arrives_as_one() -> None:
    cause = find_root_cause(
        SPARK_REPORT.format(cause="capture.errors.InputError: a.pcap: truncated in the file header")
    )
    assert isinstance(cause, InputError)
    assert str(cause) == "a.pcap: truncated in the file header"


def test_another_error_in_a_task_is_named_in_one_line() -> None:
    cause = find_root_cause(SPARK_REPORT.format(cause="ZeroDivisionError: division by zero"))
    assert isinstance(cause, RunError)
    assert str(cause) == "the job on Spark failed: ZeroDivisionError: division by zero"


@pytest.mark.parametrize(
    ("cause", "message"),
    [
        (
            "ModuleNotFoundError: No module named 'geo'",
            "the Python processes of Spark have no module geo: install it on",
        ),
        ("capture.errors.InputError: /data/No module named foo.pcap: cut", "/data/No module named foo.pcap: cut"),
        (
            "ModuleNotFoundError: No module named 'geo'\n\nDuring …:\n\ncapture.errors.InputError: watch.csv: line 3",
            "watch.csv: line 3",
        ),
        (
            "ModuleNotFoundError: No module named 'geo'\n\nDuring handling …:\n\nValueError: no country",
            "the job on Spark failed: ValueError: no country",
        ),
    ],
)
def test_a_missing_module_is_the_cause_only_if_its_exception_is_the_last(cause: str, message: str) -> None:
    assert str(find_root_cause(SPARK_REPORT.format(cause=cause))).startswith(message)


def test_a_missing_module_on_this_machine_is_installed_here() -> None:
    lost = "Lost task 0.0 in stage 0.0 (TID 0) (vm executor driver): org.apache.spark.X: Traceback\n"
    cause = find_root_cause(f"{lost}ModuleNotFoundError: No module named 'geo'\n")
    assert str(cause).endswith("on host vm have no module geo: install it in the environment of Wiretide")


def test_a_failure_of_spark_itself_is_its_first_line() -> None:
    cause = find_root_cause("\nNo space left on device\n\tat java.io.write(X.java:1)\n")
    assert str(cause) == "the job on Spark failed: No space left on device"


def test_a_manifest_is_json_for_people_who_look(tmp_path: Path) -> None:
    PartitionState(tmp_path, 0).save(0, {"0.0": {"2.5-6": large(0), "0.meld": SMALL}})
    manifest = json.loads((tmp_path / "0" / "0.json").read_text())["content"]
    ((file,),) = manifest["0.0"]["files"].values()
    written = (tmp_path / "0" / "0.0-2.5-6-0.arrow").read_bytes()
    assert file == {"name": "0.0-2.5-6-0.arrow", "bytes": len(written), "checksum": checksum(written)}
    assert [(each["names"], each["rows"]) for each in manifest["0.0"]["packs"]] == [(["0.meld"], [2])]
    assert set(manifest["0.0"]["packs"][0]) == {"names", "rows", "data"}


def test_small_tables_are_put_together_and_come_apart_as_they_were(tmp_path: Path) -> None:
    random = Random(9)
    tables = {"1.closed": pa.table({"closed": [7]}), "0.meld": pa.table({"bound": pa.array([], pa.int64())})}
    for number in range(500):
        columns = {"k": pa.array([None, b"\1\2\3\4", b""], pa.binary()), "n": pa.array([number, None, -(2**60)])}
        if number % 50 == 49:
            columns["n"] = columns["n"].cast(pa.float64(), safe=False)
        told = None if number % 3 else {b"told": b"so"}
        tables[f"1.{number}-{number + 9}"] = pa.table(columns).slice(random.randrange(4)).replace_schema_metadata(told)
    PartitionState(tmp_path, 0).save(0, {"0.0": {}, "1.0": tables})
    for version in range(1, 3):
        state = PartitionState(tmp_path, 0)
        stored = state.load(version - 1, {"0.0": False, "1.0": False})
        loaded = stored["1.0"]
        assert stored["0.0"] == {}
        assert loaded == tables
        assert all(loaded[name].schema.equals(table.schema, check_metadata=True) for name, table in tables.items())
        state.save(version, stored)
    manifest = json.loads((tmp_path / "0" / "2.json").read_text())["content"]
    assert len(manifest["1.0"]["packs"]) == 6  # that is how many schemas there are
    assert sum(path.stat().st_size for path in (tmp_path / "0").glob("*2.*")) < 60 * len(tables)
    PartitionState(tmp_path, 0).save(3, {"0.0": {}, "1.0": {}})
    for version in range(4, 3 + KEPT_VERSIONS):
        PartitionState(tmp_path, 0).save(version, {"0.0": {}, "1.0": {}})
    assert not list((tmp_path / "0").glob("*.arrow"))


@pytest.mark.usefixtures("packed_from")
@pytest.mark.parametrize("edge", [0, 7, 8, 15, 16, 31, 32, 63])
def test_numbers_at_the_edges_of_the_narrow_types_travel_unchanged(edge: int) -> None:
    for low, high in ((-(2**edge), 2**edge - 1), (-(2**edge) - (edge < 63), 0), (0, min(2**edge, 2**63 - 1))):
        table = pa.table({"n": pa.array([low, None, high], pa.int64()), "none": pa.array([None] * 3, pa.int64())})
        assert unpack(pack(table)).equals(table)


@pytest.mark.usefixtures("packed_from")
@pytest.mark.parametrize(
    "addresses", [[b"\0" * 4] * 2, [b"\1" * 16] * 2, [b"\1" * 4, b"\2" * 16], [b"\1" * 4, None], [None], [b"abc"]]
)
def test_addresses_of_one_version_or_both_travel_unchanged(addresses: list) -> None:
    table = pa.table({"srcIP": pa.array(addresses, pa.binary())})
    assert unpack(pack(table)).equals(table)
    assert unpack(pack(table)).schema == table.schema
