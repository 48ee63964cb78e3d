"""Output of a spool's inspection, line by line, for a spool with known content."""

from pathlib import Path
from random import Random

import pytest

from lowlevel.punctuation import Punctuation
from lowlevel.spool.folder import BLOCK_BYTES, SpoolError, segment_path
from lowlevel.spool.inspection import inspect
from lowlevel.spool.reader import Gap, SpoolReader
from lowlevel.spool.segment import LinkCounts
from lowlevel.spool.writer import SpoolWriter
from tests.references.spool_items import LINK, pairs_plan, random_batch

SECOND = 10**9
START = 1_700_000_000 * SECOND


def written(folder: Path, ended: bool = False) -> None:
    """Segments 0 to 3 of 10 partials and a promise each, a second apart; segment 0 is committed."""
    writer = SpoolWriter(folder, LINK, [("pairs", "0"), ("others", "1")])
    for number in range(4):
        writer.tick(START + number * SECOND)
        writer.append(0, random_batch(Random(number), pairs_plan(), 10))
        writer.append(0, Punctuation(LINK, START + number))
        writer.flush()
    SpoolReader(folder).commit(0)
    writer.close(ended)


def test_a_spool_is_described(tmp_path: Path) -> None:
    written(tmp_path)
    found = inspect(tmp_path)
    assert (found.segments, found.committed, found.rows, found.uncommitted) == ([1, 2, 3], 0, 30, 30)
    assert (found.gaps, found.damaged, found.bytes) == ([], [], 3 * BLOCK_BYTES)
    assert list(found.lines()) == [
        f"{tmp_path}: link eth0",
        "  segments   3 (1 to 3), 0.0 MB on the disk",
        "  holding    30 partials in 6 items, 30 still to be read",
        "  committed  0",
        "  came       2023-11-14T22:13:21.000Z to 2023-11-14T22:13:23.000Z",
        "  promised   pairs: nothing older than 2023-11-14T22:13:20.000Z",
        "  promised   others: nothing yet",
        "  writer     start 1, 0 partials shed ever",
    ]


def test_what_is_lost_and_damaged_is_said(tmp_path: Path) -> None:
    written(tmp_path, ended=True)
    segment_path(tmp_path, 1).unlink()
    path = segment_path(tmp_path, 3)
    path.write_bytes(path.read_bytes()[:-1])
    found = inspect(tmp_path)
    assert found.gaps == [Gap(1, 1, 10), Gap(3, 3, None)]
    assert list(found.lines())[-6:] == [
        "  promised   pairs: the end",
        "  promised   others: the end",
        "  writer     start 1, 0 partials shed ever",
        "  lost       1, 10 partials",
        "  lost       3, an unknown number of partials",
        "  damaged    000000000003.segment",
    ]
    (tmp_path / "committed").write_bytes(b"x")
    assert "  committed  damaged" in list(inspect(tmp_path).lines())


def test_the_lateness_of_the_newest_segment_is_described(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, LINK, [("pairs", "0")])
    for lateness in (10**9, 2_996_250_498):
        writer.link_counts = LinkCounts(lateness=lateness)
        writer.append(0, Punctuation(LINK, lateness))
        writer.flush()
    writer.close()
    assert list(inspect(tmp_path).lines())[-1] == "  lateness   3 s or less for 99 % of the late rows"


def test_an_empty_folder_is_a_spool_of_nothing(tmp_path: Path) -> None:
    assert list(inspect(tmp_path).lines()) == [
        f"{tmp_path}: link not known yet",
        "  segments   none",
        "  holding    0 partials in 0 items, 0 still to be read",
        "  committed  nothing",
    ]
    with pytest.raises(SpoolError, match="no folder, expected a spool"):
        inspect(tmp_path / "none")
