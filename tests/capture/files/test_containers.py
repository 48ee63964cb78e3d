"""The containers of every real capture, well-formed and hostile, against the truth: what is in them and how they end.

No file is left out, with any name, format or link type. Counts detect records that are skipped or invented, sums of
both lengths detect a wrong length. Times detect a wrong clock, backward steps a wrong order.
"""

import csv
import tracemalloc
from itertools import pairwise
from pathlib import Path

import pytest

from capture.files.blocks import BLOCK_RECORDS
from capture.files.scan import scan
from capture.open import open_capture
from capture.packets.columns import FRAME_COLUMNS
from capture.packets.decoder import Decoder

MOST_MEMORY = 96 << 20
"""Additional bytes that reading any capture may use.

These are the decode buffers of every column, and the memory that docs/guide/captures.md states for a hostile pcapng
file.
"""

NAMED = {
    "": None,
    "cut in a record header": "cut_in_record_header",
}
"""Endings of files in the truth's container scan, and the damage that each of them means."""


def container(path: Path) -> tuple[dict[str, int], str | None]:
    """Columns of the manifest, computed from every record as a row of `frames`, and the damage."""
    file = open_capture(path)
    index = scan(file, 64)
    decoder = Decoder(file, {"ts", "len", "caplen", "interface"}, 64, every_frame=True)
    times: list[int] = []
    captured = wire = 0
    for block in index.blocks:
        frames = decoder.decode(block)
        here = frames.field("ts").tolist()
        assert (block.min_ts, block.max_ts, block.records) == (min(here), max(here), len(here))
        times += here
        captured += int(frames.field("caplen").sum())
        wire += int(frames.field("len").sum())
        assert (
            0 <= frames.field("interface").min() <= frames.field("interface").max() < len(file.format.interface_names)
        )
    assert not decoder.skipped.any()
    found = {"packets": index.records, "captured_bytes": captured, "wire_bytes": wire}
    found["packets_without_timestamp"] = int(decoder.replaced_time_counts[0])
    found["interfaces"] = len(file.format.interface_names)
    if times:
        steps = [after - before for before, after in pairwise(times)]
        found |= {"first_ts_ns": times[0], "last_ts_ns": times[-1], "min_ts_ns": min(times), "max_ts_ns": max(times)}
        found |= {"backward_steps": sum(step < 0 for step in steps), "max_backward_step_ns": -min([0, *steps])}
    return found, index.damage


@pytest.mark.parametrize(("folder", "files"), [("pcap", 190), ("hostile", 451)])
def test_every_container_holds_what_the_truth_says_and_ends_as_it_says(folder: str, files: int, captures: Path) -> None:
    with (captures / "manifest.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["file"].startswith(folder + "/")]
    assert len(rows) >= files
    wrong = {}
    for row in rows:
        found, damage = container(captures / row["file"])
        said = {name: (value, row[name]) for name, value in found.items() if row[name] not in ("", str(value))}
        if damage != NAMED[row["scan_error"]] or found["packets"] != int(row["libpcap_packets"]):
            said["damage"] = (damage, row["scan_error"])
        if said:
            wrong[row["file"]] = said
    assert wrong == {}


def test_no_hostile_capture_takes_more_memory_than_the_bound(captures: Path) -> None:
    tracemalloc.start()
    for path in sorted((captures / "hostile").iterdir()):
        tracemalloc.reset_peak()
        file = open_capture(path)
        decoder = Decoder(file, set(FRAME_COLUMNS) - {"link"}, BLOCK_RECORDS, every_frame=True)
        for block in scan(file).blocks:
            decoder.decode(block)
        assert tracemalloc.get_traced_memory()[1] < MOST_MEMORY, path.name
    tracemalloc.stop()
