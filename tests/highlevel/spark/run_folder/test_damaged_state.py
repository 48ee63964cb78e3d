"""Damaged folders of a run: a flipped byte, a shorter file or a missing file gives the exact content or a FolderError.

Each test damages the real files that a run wrote, one place at a time, and reads them with the function that a restart
uses. The tests detect a file without a checksum, and a checksum that does not cover all bytes. They detect an error
without the name of the file, and an error of another class, which the user would see as a traceback.
"""

import gzip
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from capture.metrics import RECORDS_READ, Samples
from highlevel.spark.errors import FolderError
from highlevel.spark.inputs.assignment import InputAssignment
from highlevel.spark.inputs.decompressed_inputs import decompress_once
from highlevel.spark.inputs.reading import COUNTERS
from highlevel.spark.run_folder.identity import describe_run, read_identity, write_identity
from highlevel.spark.run_folder.state import PartitionState
from highlevel.spark.run_folder.totals import Totals, TotalsFiles
from highlevel.spark.tasks.host import LevelTask
from highlevel.spark.tasks.packing import unpack
from queries.gsql import compile_query
from tests.harness.hosted_batches import INPUTS, hosted, source_batches, told_rows
from tests.harness.links import write_links
from tests.references.window_streams import of_panes

MOST = 400
"""Positions that are damaged of a file, at random if it has more bytes."""


def damages(path: Path, random: Random) -> Iterator[str]:
    """Damage a file, yield the kind of damage, and put it back; again and again."""
    whole = path.read_bytes()
    positions = range(len(whole)) if len(whole) <= MOST else random.sample(range(len(whole)), MOST)
    try:
        for position in positions:
            changed = bytearray(whole)
            changed[position] ^= 1 << random.randrange(8)
            path.write_bytes(changed)
            yield f"byte {position} of {path.name}"
        for length in {0, 1, len(whole) - 1, len(whole) // 2, *random.choices(range(len(whole)), k=40)}:
            path.write_bytes(whole[:length])
            yield f"{length} bytes of {path.name}"
        path.write_bytes(whole + b"\n")
        yield f"one byte more than {path.name}"
        path.unlink()
        yield f"no {path.name}"
    finally:
        path.write_bytes(whole)


def check(path: Path, load: Callable[[], Any], same: Callable[[Any], bool], random: Random) -> int:
    """Count the damages that are refused. Every other one must leave the content as it was."""
    messages = []
    for damage in damages(path, random):
        try:
            got = load()
        except FolderError as error:
            messages.append((damage, str(error)))
        else:
            assert same(got), damage
    for damage, message in messages:
        assert "\n" not in message, damage
        assert path.name in message, damage
        assert "start again with another folder" in message, damage
    return len(messages)


TWO = {"0.0": False, "1.0": False}


def large(random: Random) -> pa.Table:
    return pa.table({"k": pa.array([random.randbytes(4) for _ in range(2000)]), "n": pa.array(range(2000))})


def test_damaged_state_is_never_restored(tmp_path: Path) -> None:
    random = Random(3)
    packed = {f"small {number}": pa.table({"k": [random.randbytes(60) for _ in range(40)]}) for number in range(4)}
    tables = {"large": large(random), "0.meld": pa.table({"bound": [5]}), **packed}
    expected = {"0.0": tables, "1.0": {}}
    PartitionState(tmp_path, 0).save(0, expected)
    files = sorted((tmp_path / "0").iterdir())
    assert [path.name for path in files] == ["0.0-large-0.arrow", "0.0-pack1-0.arrow", "0.json"]
    for path in files:
        refused = check(path, lambda: PartitionState(tmp_path, 0).load(0, TWO), lambda got: got == expected, random)
        assert refused > MOST
    assert PartitionState(tmp_path, 0).load(0, TWO) == expected


def test_damaged_old_versions_do_not_stop_a_run(tmp_path: Path) -> None:
    random = Random(4)
    for batch_id in range(3):
        PartitionState(tmp_path, 0).save(batch_id, {"0.0": {"large": large(random)}})
    (tmp_path / "0" / "1.json").write_bytes(b"{}")
    for batch_id in range(3, 6):
        state = PartitionState(tmp_path, 0)
        state.load(batch_id - 1, {"0.0": False})
        state.save(batch_id, {"0.0": {"large": large(random)}})
    assert sorted(path.name for path in (tmp_path / "0").iterdir()) == [
        *(f"0.0-large-{batch_id}.arrow" for batch_id in range(3, 6)),
        *(f"{batch_id}.json" for batch_id in range(3, 6)),
    ]


def test_a_micro_batch_after_damage_has_the_rows_of_an_undisturbed_one_or_none(tmp_path: Path) -> None:
    random = Random("damage")
    queries = [of_panes(random) for _ in range(20)]
    feeds = InputAssignment.of([query.plan_of(str(number)) for number, query in enumerate(queries)], INPUTS, 1)
    first, second, *_ = source_batches(random, feeds, queries)
    hosted(LevelTask(feeds, tmp_path, 0), first, [0])

    def rows() -> list[tuple[int, Any]]:
        answers = hosted(LevelTask(feeds, tmp_path, 1), second, [0])
        found = zip(answers["query"].to_pylist(), answers["payload"].to_pylist(), strict=True)
        return [(query, told_rows(unpack(payload))) for query, payload in found if query != COUNTERS]

    expected = rows()
    refused = 0
    for path in sorted((tmp_path / "0").glob("*0.*")):
        refused += check(path, rows, lambda got: got == expected, random)
    assert refused > MOST


def test_damaged_totals_are_never_continued(tmp_path: Path) -> None:
    samples = Samples()
    samples.add(RECORDS_READ, 12345, "eth0")
    files = TotalsFiles(tmp_path)
    files.save(7, Totals(samples, {0: 99}, {0: (3, 4)}, {"q": -5}))
    expected = files.load(7)
    assert check(tmp_path / "7.json", lambda: files.load(7), lambda got: got == expected, Random(5)) > 100


def test_a_damaged_description_of_a_run_is_refused(tmp_path: Path) -> None:
    plans = [compile_query("SELECT count(*) FROM packets [RANGE 1 second]", "q")]
    described = describe_run(InputAssignment.of(plans, []), 2, 100, False, {})
    (tmp_path / "checkpoint").mkdir()
    write_identity(tmp_path, described)
    assert read_identity(tmp_path) == described
    refused = 0
    for damage in damages(tmp_path / "run.json", Random(6)):
        with pytest.raises(FolderError, match=r"run\.json.*another folder"):
            read_identity(tmp_path)
        refused += 1
        assert damage
    assert refused > 100


def test_a_damaged_decompressed_capture_is_decompressed_again(tmp_path: Path) -> None:
    capture = write_links(tmp_path, 5)[0].path
    compressed = tmp_path / "a.pcap.gz"
    compressed.write_bytes(gzip.compress(capture.read_bytes()))
    said: list[str] = []
    target = decompress_once(compressed, tmp_path / "inputs", said.append)
    random = Random(7)
    for path in (target, target.with_name(target.name + ".json")):
        whole = path.read_bytes()
        for _ in range(20):
            changed = bytearray(whole)
            changed[random.randrange(len(whole))] ^= 4
            path.write_bytes(changed)
            assert decompress_once(compressed, tmp_path / "inputs", said.append) == target
            assert target.read_bytes() == capture.read_bytes()
    assert sum("decompressed again" in line for line in said) >= 20
