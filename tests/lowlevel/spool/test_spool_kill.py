"""A writer that is killed (kill -9) at twenty random moments, while this process reads its spool and commits.

The tests detect a segment that is visible before it is complete, and a number that is used for two segments. They
detect rows on disk that are not read, rows that are read twice, and segments deleted before they were committed.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest

from lowlevel.punctuation import Punctuation
from lowlevel.spool.folder import segment_numbers
from lowlevel.spool.reader import SpoolReader
from lowlevel.spool.segment import Segment

pytestmark = pytest.mark.slow("twenty killed processes")

ROOT = Path(__file__).resolve().parents[3]
KILLS = 20


class Reading:
    """Reads a spool as it grows, and keeps what it read."""

    def __init__(self, folder: Path) -> None:
        self.reader = SpoolReader(folder)
        self.segments: list[Segment] = []

    def poll(self) -> None:
        """Read what is new, and commit it."""
        for segment in self.reader:
            self.segments.append(segment)
        if self.segments:
            self.reader.commit(self.segments[-1].number)


def kill_one(parent: subprocess.Popen[str], reading: Reading, seconds: float, after: int) -> None:
    """Let a child write for some time, and until a number of segments were read in all. Then kill it."""
    assert parent.stdin
    assert parent.stdout
    parent.stdin.write("start\n")
    parent.stdin.flush()
    child = os.pidfd_open(int(parent.stdout.readline()))
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end or len(reading.segments) < after:
            reading.poll()
            signal.pidfd_send_signal(child, 0)  # raises if it has ended without the kill
    finally:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(child, signal.SIGKILL)
        os.close(child)
    assert parent.stdout.readline() == "ended\n"
    reading.poll()


def test_a_writer_killed_at_any_moment_loses_nothing_that_was_on_the_disk(tmp_path: Path) -> None:
    random = Random(7)
    folder, log = tmp_path / "spool", tmp_path / "log"
    folder.mkdir()
    reading = Reading(folder)
    command = [sys.executable, "-m", "tests.harness.spool_process", str(folder), str(log)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        try:
            for kill in range(KILLS):
                kill_one(parent, reading, random.uniform(0, 0.15), after=len(reading.segments) + kill % 2)
        finally:
            parent.kill()  # its child sees that
    segments = reading.segments
    assert [segment.number for segment in segments] == list(range(len(segments)))
    assert len({segment.header.epoch for segment in segments}) >= KILLS // 2
    rows: dict[int, list[int]] = {}
    before = 0
    for segment in segments:
        assert segment.header.rows_before == before
        before += segment.rows
        for _, _, item in segment.new_items:
            if not isinstance(item, Punctuation):
                (child,) = set(item.column("pane").to_pylist())
                rows.setdefault(child, []).extend(item.column("bytes").to_pylist())
    epochs = [segment.header.epoch for segment in segments]
    assert epochs == sorted(epochs)
    on_disk: dict[int, int] = {}
    for line in log.read_text().splitlines():
        child, done = map(int, line.split())
        on_disk[child] = done
    assert on_disk
    for child, found in rows.items():
        assert found == list(range(len(found)))
        assert len(found) >= on_disk.get(child, 0)
    assert set(on_disk) <= set(rows)
    # The remaining files are at most those that the last child had no time to delete.
    assert segment_numbers(folder)[-1] == segments[-1].number == reading.reader.committed
