"""`wiretide checkpoint`: what it tells about a folder of a run, and which damage it finds. Without Spark."""

import fcntl
import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from dashboards.commands.checkpoint import Action, checkpoint
from highlevel.spark.errors import FolderError
from highlevel.spark.run_folder.checkpoint import offsets_checksum
from highlevel.spark.run_folder.identity import (
    STATE_FORMAT,
    RunIdentity,
    StoredInput,
    StoredQuery,
    read_identity,
    write_identity,
)
from highlevel.spark.run_folder.inspection import summarise, verify
from highlevel.spark.run_folder.result_files import write_results
from highlevel.spark.run_folder.state import PartitionState
from highlevel.spark.run_folder.totals import Totals, TotalsFiles


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a run with two micro-batches; the second one is not committed."""
    folder = tmp_path / "state"
    settings = {"state format": STATE_FORMAT, "operator partitions": 2}
    queries = (StoredQuery(0, "q", "f", "SELECT 1", (0,)),)
    inputs = (StoredInput(0, "/a.pcap", "M", "M", "5 bytes"),)
    write_identity(folder, RunIdentity(settings, queries, inputs, 1))
    (folder / "lock").touch()
    for name in ("offsets", "commits"):
        (folder / "checkpoint" / name).mkdir(parents=True)
    (folder / "checkpoint" / "metadata").write_text('{"id":"x"}')
    table = pa.table({"k": [bytes(9)] * 2000})
    for batch in range(2):
        (folder / "checkpoint" / "offsets" / str(batch)).write_text(
            "v1\n{}\n" + json.dumps({"0 /a.pcap": 3 * batch + 3})
        )
        for part in range(2):
            PartitionState(folder / "state", part).save(batch, {"0.0": {"large": table}})
        write_results(folder / "output", batch, {"q": pa.table({"n": list(range(500))})})
        totals = Totals(progress={0: (3 * batch + 3, 9)}, watermarks={"q": 60 * 10**9}, query_ids={"q": 0})
        totals.offsets = offsets_checksum(folder / "checkpoint", batch)
        TotalsFiles(folder / "totals").save(batch, totals)
    (folder / "checkpoint" / "commits" / "0").write_text("v1\n{}")
    return folder


def test_show_has_progress_and_sizes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    summary = summarise(folder)
    assert (summary.next_batch, summary.planned) == (1, 1)
    assert summary.files["output"][0] == 1
    assert summary.files["state"] == (8, sum(file.stat().st_size for file in (folder / "state").glob("*/*")))
    checkpoint(Action.SHOW, str(folder))
    out = capsys.readouterr().out
    assert "finished micro-batches: 1; micro-batch 1 is planned and not committed, so it is repeated" in out
    assert [line.split() for line in out.splitlines() if line.startswith("/a.pcap")] == [["/a.pcap", "6", "9"]]
    assert "1970-01-01T00:01:00Z" in out


def test_show_has_no_progress_of_a_query_that_was_replaced_by_one_of_its_name(folder: Path) -> None:
    identity = read_identity(folder)
    assert identity is not None
    write_identity(folder, replace(identity, queries=(replace(identity.queries[0], id=1, since=1),), next_query_id=2))
    assert summarise(folder).totals.watermarks == {}


def test_an_intact_folder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint(Action.VERIFY, str(folder))
    assert capsys.readouterr().out == "9 parts are intact\n"


@pytest.mark.parametrize(
    "name",
    [
        "checkpoint/metadata",
        "checkpoint/offsets/0",
        "totals/0.json",
        "state/0/0.json",
        "state/1/0.0-large-0.arrow",
        "output/q/part-00000000.parquet",
    ],
)
@pytest.mark.parametrize("kind", ["changed", "missing"])
def test_damage_is_named(name: str, kind: str, folder: Path) -> None:
    path = folder / name
    if kind == "missing":
        path.unlink()
    else:
        content = bytearray(path.read_bytes())
        content[0 if path.name == "metadata" else len(content) // 3] ^= 0x55
        path.write_bytes(content)
    problems = [problem for _, problem in verify(folder) if problem is not None]
    if kind == "missing" and name.startswith("output"):
        assert problems == []  # a micro-batch without rows has no file
        return
    assert problems
    assert all("\n" not in problem for problem in problems)
    assert any(str(path) in problem for problem in problems)


def test_a_partition_that_was_deleted(folder: Path) -> None:
    for path in (folder / "state" / "1").iterdir():
        path.unlink()
    (folder / "state" / "1").rmdir()
    problems = [problem for _, problem in verify(folder) if problem is not None]
    assert len(problems) == 1
    assert problems[0].startswith(f"{folder / 'state' / '1' / '0.json'}: missing")


def test_a_folder_in_use_is_shown_and_not_verified(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (folder / "lock").open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        checkpoint(Action.SHOW, str(folder))
        with pytest.raises(FolderError, match="is in use by a run"):
            checkpoint(Action.VERIFY, str(folder))
    assert "finished micro-batches" in capsys.readouterr().out


def test_damage_is_an_error_of_the_command(folder: Path) -> None:
    (folder / "totals" / "1.json").write_bytes(b"{}")
    with pytest.raises(FolderError, match="parts are damaged or missing"):
        checkpoint(Action.VERIFY, str(folder))


def test_another_folder_is_refused(tmp_path: Path) -> None:
    for action in Action:
        with pytest.raises(FolderError, match=r"got no run\.json, expected the folder of a run"):
            checkpoint(action, str(tmp_path))
