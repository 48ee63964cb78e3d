"""The quarantine of a run.

The tests detect a damage that is listed twice after a repeated micro-batch, a segment that its node deletes before it
is copied, and a damage that a restart forgets.
"""

import json
from pathlib import Path

import pytest

from dashboards.commands.checkpoint import summary_text
from highlevel.spark.inputs import quarantine
from highlevel.spark.inputs.quarantine import Damage, keep_damages
from highlevel.spark.run_folder.inspection import RunSummary
from highlevel.spark.run_folder.totals import Totals, TotalsFiles


def test_damages_are_listed_once_and_damaged_segments_stay(tmp_path: Path) -> None:
    segment = tmp_path / "spool" / "0000000007.seg"
    segment.parent.mkdir()
    segment.write_bytes(b"damaged")
    folder = tmp_path / "state"
    capture = Damage("/data/a.pcap", "byte 1,234", "cut off", 2)
    spooled = Damage(str(segment), "segment 7", "not whole", 3, "main 1/2")
    dropped = Damage(str(tmp_path / "spool" / "0000000008.seg"), "segment 8", "not whole", 3, "main 1/2")
    keep_damages(folder, [capture], 1)
    assert not folder.exists(), "a micro-batch without damage writes nothing"
    keep_damages(folder, [capture], 2)
    for _ in range(2):
        keep_damages(folder, [capture, spooled, dropped], 3)
    segment.unlink()  # by the node
    keep_damages(folder, [capture, spooled, dropped, Damage("/data/b.pcap", "byte 24", "cut off", 4)], 4)
    lines = [json.loads(line) for line in (folder / "quarantine" / "damages.jsonl").read_text("utf-8").splitlines()]
    assert [(line["place"], line["micro-batch"], line["copy"]) for line in lines] == [
        ("byte 1,234", 2, None),
        ("segment 7", 3, "quarantine/main 1%2F2/0000000007.seg"),
        ("segment 8", 3, None),
        ("byte 24", 4, None),
    ]
    assert (folder / spooled.copy).read_bytes() == b"damaged"


def spooled_damages(folder: Path, batch: int) -> list[Damage]:
    (folder / "spool").mkdir()
    damages = []
    for number in range(3):
        path = folder / "spool" / f"{number:010}.seg"
        path.write_bytes(bytes(400))
        damages.append(Damage(str(path), f"segment {number}", "not whole", batch, "main"))
    return damages


def test_a_segment_that_a_full_spool_deletes_during_the_copy_does_not_end_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damages, copy = spooled_damages(tmp_path, 1), quarantine.shutil.copyfile

    def delete_before(source: str, target: Path) -> None:
        if source == damages[1].path:
            Path(source).unlink()
        copy(source, target)

    monkeypatch.setattr(quarantine.shutil, "copyfile", delete_before)
    assert keep_damages(tmp_path / "state", damages, 1) == []
    copies = [path.name for path in sorted((tmp_path / "state" / "quarantine" / "main").iterdir())]
    assert copies == ["0000000000.seg", "0000000002.seg"]


def test_the_copies_have_a_maximum_and_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quarantine, "MAX_COPIED_BYTES", 1000)
    damages, folder = spooled_damages(tmp_path, 1), tmp_path / "state"
    for _ in range(2):  # a repeated micro-batch
        (warning,) = keep_damages(folder, damages, 1)
        assert warning.startswith("micro-batch 1: 1 damaged segments have no copy: ")
        assert warning.endswith("has at most 1,000 bytes of copies; move them away")
    lines = [json.loads(line) for line in (folder / "quarantine" / "damages.jsonl").read_text("utf-8").splitlines()]
    assert [line["copy"] is None for line in lines] == [False, False, True]


def test_a_restart_and_the_command_know_the_damages(tmp_path: Path) -> None:
    files = TotalsFiles(tmp_path / "totals")
    damages = [Damage(f"/data/{number}.pcap", "byte 24", "cut off", number) for number in range(3)]
    files.save(5, Totals(damages=damages))
    totals = files.load(5)
    assert totals.damages == damages
    text = summary_text(RunSummary(6, 5, totals))
    assert text.splitlines()[-1].split() == ["/data/2.pcap", "byte", "24", "cut", "off", "-"]
    assert "damaged input" not in summary_text(RunSummary(6, 5, Totals()))
