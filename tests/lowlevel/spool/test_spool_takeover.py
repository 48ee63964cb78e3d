"""A spool whose newest segments were deleted by hand or damaged, and the writer that starts after that.

A writer that finds its place by the names of the files alone uses a number twice, or reads an input again that was
counted. The model test tries both over random sequences of writes, reads, faults and restarts. Its reader is the
planner of the stream source, with micro-batches that are planned, planned again after a crash, and committed one later.
"""

import re
from pathlib import Path
from random import Random

import pytest

from highlevel.spark.inputs.spool_planner import SpoolPlanner
from lowlevel.punctuation import Punctuation
from lowlevel.spool.folder import SegmentLostError, SpoolError, segment_numbers, segment_path
from lowlevel.spool.inspection import inspect
from lowlevel.spool.reader import Gap, SpoolReader
from lowlevel.spool.segment import Segment
from lowlevel.spool.writer import SpoolWriter
from tests.harness.spool_process import numbered
from tests.references.spool_items import LINK, pairs_plan

PLANS = [("pairs", "0")]
REFUSED = re.compile(
    r"\.segment: (missing|damaged), so the position in the input is unknown: "
    r"(the reader has (committed|read) up to \d+,|no older segment contains)|written: damaged: got"
)


def write(writer: SpoolWriter, first: int, rows: int, cuts: bool) -> None:
    """Write rows `first` to `first + rows - 1` as one segment."""
    writer.append(0, numbered(pairs_plan(), 0, first, rows))
    if cuts:
        writer.cut(str(first + rows))
    writer.flush()


def segments_of(folder: Path, count: int, cuts: bool) -> None:
    """Write segments of three rows each, and end in order."""
    writer = SpoolWriter(folder, LINK, PLANS, cuts=cuts)
    for number in range(count):
        write(writer, 3 * number, 3, cuts)
    writer.close()


def rows_of(segment: Segment) -> list[int]:
    """Return the numbers of the rows in a segment."""
    return [
        row
        for _, _, item in segment.new_items
        if not isinstance(item, Punctuation)
        for row in item["bytes"].to_pylist()
    ]


@pytest.mark.parametrize("fault", ["missing", "damaged"])
@pytest.mark.parametrize("reached", ["committed", "read"])
def test_a_lost_segment_that_the_reader_has_read_is_not_read_again(tmp_path: Path, fault: str, reached: str) -> None:
    segments_of(tmp_path, 3, cuts=True)
    reader = SpoolReader(tmp_path)
    if reached == "committed":
        reader.commit(2)
    else:
        reader.record_plan(2)
    newest = segment_path(tmp_path, 2)
    newest.unlink() if fault == "missing" else newest.write_bytes(b"nonsense")
    for _ in range(2):
        with pytest.raises(SpoolError, match=rf"02\.segment: {fault}, .*the reader has {reached} up to 2, so"):
            SpoolWriter(tmp_path, LINK, PLANS, cuts=True)
    SpoolWriter(tmp_path, LINK, PLANS).close()  # a wire is not read again


def test_a_deleted_segment_that_nobody_read_is_read_again_under_another_number(tmp_path: Path) -> None:
    segments_of(tmp_path, 3, cuts=True)
    segment_path(tmp_path, 2).unlink()
    writer = SpoolWriter(tmp_path, LINK, PLANS, cuts=True)
    assert writer.position == "6"
    write(writer, 6, 5, cuts=True)
    writer.close()
    reader = SpoolReader(tmp_path)
    assert [(each.number, rows_of(each)) for each in reader] == [(0, [0, 1, 2]), (1, [3, 4, 5]), (3, [6, 7, 8, 9, 10])]
    assert reader.gaps() == [Gap(2, 2, 0)]


def test_deleted_segments_of_a_wire_are_a_gap_with_its_rows_before_and_after_the_next_start(tmp_path: Path) -> None:
    segments_of(tmp_path, 4, cuts=False)
    for number in (2, 3):
        segment_path(tmp_path, number).unlink()
    reader = SpoolReader(tmp_path)
    assert reader.gaps() == [Gap(2, 3, 6)]
    assert "  lost       2 to 3, 6 partials" in list(inspect(tmp_path).lines())
    segments_of(tmp_path, 1, cuts=False)
    assert reader.segments() == [0, 1, 4]
    assert reader.gaps() == [Gap(2, 3, 6)]
    assert (reader.read(4).header.epoch, reader.read(4).header.rows_before) == (1, 12)


def test_a_wire_goes_on_with_its_numbers_and_counts_after_all_segments_were_deleted(tmp_path: Path) -> None:
    segments_of(tmp_path, 2, cuts=False)
    for number in (0, 1):
        segment_path(tmp_path, number).unlink()
    segments_of(tmp_path, 1, cuts=False)
    reader = SpoolReader(tmp_path)
    assert reader.segments() == [2]
    assert reader.gaps() == [Gap(0, 1, 6)]
    assert reader.read(2).header.epoch == 1


def test_a_damaged_newest_segment_is_a_gap_at_once(tmp_path: Path) -> None:
    segments_of(tmp_path, 3, cuts=False)
    segment_path(tmp_path, 2).write_bytes(b"nonsense")
    assert SpoolReader(tmp_path).gaps() == [Gap(2, 2, None)]


def test_a_reader_commits_what_it_planned_though_it_was_deleted_meanwhile(tmp_path: Path) -> None:
    segments_of(tmp_path, 3, cuts=False)
    planner = SpoolPlanner(0, tmp_path)
    planner.plan_ranges(0, 3, 1)
    segment_path(tmp_path, 2).unlink()
    assert [run.partials_lost for run in planner.plan_ranges(0, 3, 1)] == [3]
    planner.commit(3)
    assert planner.list_waiting(3, 0) == []
    assert SpoolReader(tmp_path).committed == 2
    assert SpoolReader(tmp_path).gaps() == []


def test_a_spool_without_a_record_is_taken_over_and_gets_one(tmp_path: Path) -> None:
    segments_of(tmp_path, 2, cuts=True)
    (tmp_path / "written").unlink()
    SpoolWriter(tmp_path, LINK, PLANS, cuts=True).close()
    segment_path(tmp_path, 1).unlink()
    writer = SpoolWriter(tmp_path, LINK, PLANS, cuts=True)
    write(writer, 3, 3, cuts=True)
    writer.close()
    assert segment_numbers(tmp_path) == [0, 2]


def test_a_commit_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    segments_of(tmp_path, 2, cuts=True)
    (tmp_path / "committed").write_bytes(b'{"number": 0, "rows": 3}\nec5e093c')
    assert SpoolReader(tmp_path).committed == 0


@pytest.mark.parametrize("cuts", [True, False])
@pytest.mark.parametrize("deleted", [0, 1])
def test_a_record_with_any_byte_changed_never_lets_a_number_be_used_twice(
    tmp_path: Path, cuts: bool, deleted: int
) -> None:
    random = Random(7)
    segments_of(tmp_path, 3, cuts)
    path = tmp_path / "written"
    whole = path.read_bytes()
    if deleted:
        segment_path(tmp_path, 2).unlink()
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= random.randrange(1, 256)
        path.write_bytes(changed)
        writer = SpoolWriter(tmp_path, LINK, PLANS, cuts=cuts)
        assert writer.position == (str(9 - 3 * deleted) if cuts else None)
        write(writer, 9 - 3 * deleted, 1, cuts)
        writer.abandon()
        (new,) = set(segment_numbers(tmp_path)) - {0, 1, 2}
        segment_path(tmp_path, new).unlink()
    assert SpoolReader(tmp_path).newest >= 3


@pytest.mark.parametrize("length", range(0, 96, 5))
def test_a_record_that_was_cut_is_refused_until_it_is_deleted(tmp_path: Path, length: int) -> None:
    segments_of(tmp_path, 3, cuts=False)
    path = tmp_path / "written"
    path.write_bytes(path.read_bytes()[:length])
    for _ in range(2):
        with pytest.raises(SpoolError, match=rf"written: damaged: got {length} bytes .*delete this file"):
            SpoolWriter(tmp_path, LINK, PLANS)
    assert SpoolReader(tmp_path).gaps() == []
    path.unlink()
    SpoolWriter(tmp_path, LINK, PLANS).close()


class Model:
    """A node and a reader of one spool, with what became of each row of the input."""

    def __init__(self, folder: Path, random: Random, cuts: bool) -> None:
        self.folder, self.random, self.cuts = folder, random, cuts
        self.writer = SpoolWriter(folder, LINK, PLANS, cuts=cuts)
        self.planner = SpoolPlanner(0, folder)
        self.next = 0
        self.clock = 10**9
        self.unwritten: set[int] = set()  # rows of a wire that were in memory only when its node crashed
        self.pending: set[int] = set()
        self.batch: tuple[int, int] | None = None
        self.place = 0
        self.results: list[int] = []
        self.lost_rows = self.lost_segments = 0
        self.damaged = False

    def write(self) -> None:
        rows = self.random.randrange(1, 6)
        write(self.writer, self.next, rows, self.cuts)
        self.next += rows
        self.pending.clear()

    def append(self) -> None:
        rows = self.random.randrange(1, 6)
        self.writer.append(0, numbered(pairs_plan(), 0, self.next, rows))
        self.pending |= set(range(self.next, self.next + rows))
        self.next += rows

    def restart(self) -> None:
        """Stop the node normally or kill it, and start another one, which continues at the position of its input."""
        if self.random.random() < 0.5:
            self.writer.close()
        else:
            self.writer.abandon()
            self.unwritten |= set() if self.cuts else self.pending
        self.pending.clear()
        self.writer = SpoolWriter(self.folder, LINK, PLANS, cuts=self.cuts)
        if self.cuts:
            self.next = int(self.writer.position or 0)

    def tick(self) -> None:
        if not self.pending:
            self.clock += 10**9
            self.writer.tick(self.clock)

    def plan(self) -> None:
        """Fix what the next micro-batch reads, commit what was read before it, and cut it into tasks."""
        if self.random.random() < 0.3:
            self.planner = SpoolPlanner(0, self.folder)
        self.planner.discard_listing()
        waiting = self.planner.list_waiting(self.place, 0)
        if self.batch is None and waiting:
            self.batch = self.place, self.random.choice(waiting).number + 1
            self.planner.commit(self.place)
        if self.batch is not None:
            self.planner.plan_ranges(*self.batch, 1)

    def read(self) -> None:
        """Run the planned micro-batch, as it is planned again after a crash."""
        if self.batch is None:
            return
        (run,) = self.planner.plan_ranges(*self.batch, 1)
        reader = SpoolReader(self.folder)
        for number in range(*self.batch):
            try:
                self.results += rows_of(reader.read(number))
            except SegmentLostError:
                self.lost_segments += 1
        self.lost_rows += run.partials_lost
        self.place, self.batch = self.batch[1], None

    def delete_newest(self) -> None:
        for number in segment_numbers(self.folder)[-self.random.randrange(1, 3) :]:
            segment_path(self.folder, number).unlink()

    def damage_newest(self) -> None:
        for number in segment_numbers(self.folder)[-1:]:
            path = segment_path(self.folder, number)
            content = bytearray(path.read_bytes())
            content[self.random.randrange(len(content))] ^= 1
            path.write_bytes(content)
            self.damaged = True

    def check(self) -> None:
        """Read all segments after one more, and account for all rows of the input."""
        self.restart()
        self.write()
        while self.batch is not None or self.place <= segment_numbers(self.folder)[-1]:
            self.plan()
            self.read()
        self.writer.close()
        rows = set(self.results)
        assert len(rows) == len(self.results), "rows were counted twice"
        missing = set(range(self.next)) - rows - self.unwritten
        if missing:
            assert self.lost_segments
        if not self.damaged:
            assert self.lost_rows == len(missing)


STEPS = (
    [Model.write] * 6
    + [Model.append, Model.tick, Model.plan, Model.plan, Model.read, Model.read]
    + [Model.restart, Model.restart, Model.delete_newest, Model.damage_newest]
)


@pytest.mark.parametrize("cuts", [True, False])
def test_each_row_is_read_once_or_counted_as_lost_or_the_folder_is_refused(tmp_path: Path, cuts: bool) -> None:
    refused = []
    for seed in range(100):
        random = Random(seed)
        model = Model(tmp_path / f"{seed}", random, cuts)
        steps = [step for step in STEPS if seed % 3 or step is not Model.damage_newest]
        try:
            for _ in range(random.randrange(4, 30)):
                random.choice(steps)(model)
            model.check()
        except SpoolError as error:
            refused.append(f"seed {seed}: {error}")
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        finally:
            model.writer.abandon()
    assert [message for message in refused if not cuts or not REFUSED.search(message)] == []
    assert len(refused) < 70
