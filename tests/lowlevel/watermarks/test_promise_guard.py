"""Progress of a link by its own rows, and which of them are accepted.

* Random streams against the rule, row by row, detect a watermark that falls, that is too near to the newest row, or
  that one wrong clock moves. They detect rows that are counted twice or never.
* The cases by hand catch a jump that is never followed, and a beginning in the future that makes all the rest late.
* Every kind of promise is given one row from the future and one from the past, wherever they may come.
"""

from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capture.files.blocks import NO_WATERMARK, Block
from capture.files.scan import scan
from capture.open import open_mapped
from highlevel.plan.pipeline import Pipeline
from lowlevel.metrics import ROWS_FROM_THE_FUTURE, ROWS_FROM_THE_PAST
from lowlevel.node.node import Node
from lowlevel.punctuation import BEGINNING, END, Punctuation
from lowlevel.watermarks.generators import LateByTime
from lowlevel.watermarks.jumps import AGREEING_ROWS, FUTURE_ROWS, JUMP, PAST_ROWS, JumpGuard, filter_times
from lowlevel.watermarks.lateness import BOUNDS
from lowlevel.watermarks.rule import EXACT, Kind, WatermarkRule, parse_jump, parse_rule
from queries.gsql import compile_query
from tests.harness.plain_kernels import plain
from tests.references.pcap_bytes import NS, pcap_bytes
from tests.references.promised import MadeRows
from tests.references.random_frames import random_frame

START = 1_700_000_000 * NS
YEAR = 365 * 86400 * NS
MINUTE = 60 * NS


def begun(agreeing_rows: int = 1) -> JumpGuard:
    """A guard whose newest row is START."""
    guard = JumpGuard(agreeing_rows=agreeing_rows)
    guard.process(np.array([START] * agreeing_rows), BEGINNING)
    assert guard.newest == START
    return guard


@pytest.mark.parametrize(("ahead", "newest"), [(JUMP, START + JUMP), (JUMP + 1, START)])
def test_a_row_is_believed_up_to_a_jump_ahead_and_no_further(ahead: int, newest: int) -> None:
    guard = begun(agreeing_rows=2)
    guard.process(np.array([START + ahead]), BEGINNING)
    assert guard.newest == newest


def test_a_row_may_be_of_the_past_by_what_came_in_its_own_batch() -> None:
    guard = begun()
    guard.process(np.array([START + JUMP, START - 1]), BEGINNING)
    assert guard.state[PAST_ROWS] == 1


def test_of_rows_that_agree_the_least_is_believed() -> None:
    guard = begun(agreeing_rows=2)
    assert guard.accepted_times(np.array([START + YEAR, START + YEAR + 5]), BEGINNING).tolist() == [START + YEAR]


def test_what_is_believed_from_elsewhere_ends_the_waiting_of_rows_that_are_no_jump_ahead_of_it() -> None:
    guard = begun(agreeing_rows=3)
    guard.process(np.array([START + JUMP + 5, START + JUMP + 6]), BEGINNING)
    guard.accept(START + 5)
    guard.process(np.array([START + 6]), BEGINNING)
    assert guard.state[FUTURE_ROWS] == 1


KINDS = ["ordered", "late 5s", "late 3 rows", "late 100 rows", "blocks 10s", "exact", "blocks"]


def words_of(amounts: list[int]) -> list[int]:
    """The number of late rows by step, and the largest lateness, by a loop over the bounds."""
    words = [0] * (len(BOUNDS) + 2)
    for amount in amounts:
        words[sum(bound < amount for bound in BOUNDS.tolist())] += 1
    return [*words[:-1], max(amounts, default=0)]


class Twin:
    """The rule, row by row."""

    def __init__(self, back: int) -> None:
        self.back = back
        self.newest: int | None = None
        self.ahead: list[int] = []
        self.future_rows = self.past_rows = self.after = 0
        self.late: list[int] = []

    def take(self, time: int, arrival: int | None = None) -> None:
        agree = arrival is not None and abs(time - arrival) <= JUMP
        if arrival is not None:
            self.after += time > arrival and not agree
            time = min(time, arrival)
        if self.newest is not None and time <= self.newest + JUMP:
            self.past_rows += time < self.newest - self.back
            if self.newest - self.back <= time < self.newest:
                self.late.append(self.newest - time)
            self.newest = max(self.newest, time)
            self.future_rows += len(self.ahead)
            self.ahead = []
            return
        if agree:
            self.future_rows += sum(each > time + JUMP for each in self.ahead)
            self.past_rows += sum(each < time - self.back for each in self.ahead)
            self.newest, self.ahead = time, []
            return
        self.ahead.append(time)
        if len(self.ahead) == AGREEING_ROWS:
            self.newest = min(self.ahead)
            self.ahead = [each for each in self.ahead if each > self.newest + JUMP]


def paced(times: list[int], slack: int = 0, batch: int = 7) -> LateByTime:
    promise = LateByTime(slack)
    for first in range(0, len(times), batch):
        promise.advance(MadeRows(times[first : first + batch]))
    return promise


STEPS = st.sampled_from([-YEAR, -JUMP * 3, -JUMP - 1, -JUMP, -NS, 0, 1, NS, JUMP - 1, JUMP, JUMP + 1, YEAR])


@given(st.lists(st.tuples(STEPS, st.integers(1, AGREEING_ROWS + 3)), max_size=12), st.sampled_from([0, NS, 3 * JUMP]))
def test_it_is_where_the_rule_says_after_every_batch_and_never_goes_back(
    runs: list[tuple[int, int]], slack: int
) -> None:
    twin, pace, now, lowest = Twin(max(slack, JUMP)), LateByTime(slack), START, BEGINNING
    below = 0
    for step, repeats in runs:
        now += step
        times = [now + number for number in range(repeats)]
        below += sum(time < pace.watermark for time in times)
        pace.advance(MadeRows(times))
        for time in times:
            twin.take(time)
        assert pace.watermark == (BEGINNING if twin.newest is None else twin.newest - slack)
        assert pace.watermark >= lowest
        assert (pace.future_rows, pace.past_rows, pace.rows_below) == (twin.future_rows, twin.past_rows, below)
        assert pace.guard.lateness.words.tolist() == words_of(twin.late)
        lowest = pace.watermark


OFFSETS = st.sampled_from([0, 0, 0, 1, -NS, NS, JUMP, -JUMP, JUMP + 1, -JUMP - 1, 3 * JUMP, -3 * JUMP, YEAR, -YEAR])


@given(
    st.lists(st.tuples(STEPS, OFFSETS, st.integers(1, AGREEING_ROWS + 3)), max_size=12), st.sampled_from([0, 3 * JUMP])
)
def test_rows_with_times_of_arrival_are_followed_as_the_rule_says(runs: list[tuple[int, int, int]], slack: int) -> None:
    twin, pace, now, below = Twin(max(slack, JUMP)), LateByTime(slack), START, 0
    for step, offset, repeats in runs:
        now += step
        arrived = [now + number for number in range(repeats)]
        times = [each + offset for each in arrived]
        below += sum(time < pace.watermark for time in times)
        pace.advance(MadeRows(times, arrived=arrived))
        for time, arrival in zip(times, arrived, strict=True):
            twin.take(time, arrival)
        assert pace.watermark == (BEGINNING if twin.newest is None else twin.newest - slack)
        assert (pace.future_rows, pace.past_rows, pace.rows_below, pace.rows_after_arrival) == (
            twin.future_rows,
            twin.past_rows,
            below,
            twin.after,
        )
        assert pace.guard.lateness.words.tolist() == words_of(twin.late)


def test_times_at_the_edges_of_64_bits_are_compared_with_arrivals_as_they_are() -> None:
    pace = LateByTime(0)
    pace.advance(MadeRows([START, 2**63 - 1, -(2**63) + 1], arrived=[START + 1, START + 2, START + 3]))
    assert (pace.watermark, pace.rows_after_arrival, pace.past_rows, pace.future_rows) == (START + 2, 1, 1, 0)
    pace.advance(MadeRows([2**63 - 1], arrived=[-(2**63)]))
    assert (pace.watermark, pace.rows_after_arrival, pace.past_rows) == (START + 2, 2, 2)


STEADY = [START + number * NS for number in range(AGREEING_ROWS)]


def test_nothing_is_promised_before_enough_rows_agree_on_the_time() -> None:
    assert paced(STEADY[:-1]).watermark == BEGINNING
    assert paced(STEADY).watermark == START
    assert paced([*STEADY, STEADY[-1] + 5], slack=3).watermark == STEADY[-1] + 2


@pytest.mark.parametrize("place", [0, 1, AGREEING_ROWS - 1, AGREEING_ROWS, AGREEING_ROWS + 5])
def test_a_row_of_next_year_moves_nothing_wherever_it_comes(place: int) -> None:
    times = [*STEADY, *(STEADY[-1] + number for number in range(AGREEING_ROWS))]
    with_it = [*times[:place], START + YEAR, *times[place:]]
    pace = paced(with_it)
    assert pace.watermark == times[-1]
    assert (pace.future_rows, pace.past_rows, pace.rows_below) == (1, 0, 0)


def test_a_jump_is_followed_once_enough_rows_in_a_row_are_beyond_it() -> None:
    begun = [*STEADY, STEADY[-1]]
    beyond = [START + YEAR + number for number in range(AGREEING_ROWS)]
    assert paced([*begun, *beyond[:-1]]).watermark == STEADY[-1]
    pace = paced([*begun, *beyond])
    assert (pace.watermark, pace.future_rows) == (START + YEAR, 0)
    broken = paced([*begun, *beyond[:40], STEADY[-1], *beyond[40:]])
    assert (broken.watermark, broken.future_rows) == (STEADY[-1], 40)


def test_a_jump_goes_to_the_least_of_the_rows_that_agree() -> None:
    beyond = [START + YEAR] * (AGREEING_ROWS - 2) + [START + 100 * YEAR, START + YEAR - 5]
    pace = paced([*STEADY, *beyond])
    assert (pace.watermark, pace.future_rows) == (START + YEAR - 5, 0)
    assert paced([*STEADY, *beyond, START + YEAR]).future_rows == 1  # the row with which no other row agreed


@pytest.mark.parametrize("place", [0, 5, AGREEING_ROWS - 1])
def test_a_link_that_begins_with_a_row_of_the_past_goes_on_with_the_others(place: int) -> None:
    begun = [*STEADY[:place], NS, *STEADY[place:]]
    assert paced(begun[:AGREEING_ROWS]).watermark == NS  # safe, and of no use
    assert paced(begun).watermark == START
    assert paced(begun).future_rows == 0


def test_times_at_the_edges_of_64_bits_neither_wrap_nor_close_windows() -> None:
    wild = [2**63 - 1, -(2**63), -(2**63) + 1]
    pace = paced([*STEADY, *wild * 10, STEADY[-1] + 1])
    assert (pace.watermark, pace.future_rows, pace.past_rows) == (STEADY[-1] + 1, 10, 20)
    assert paced([-(2**63) + 1] * AGREEING_ROWS, slack=NS).watermark == BEGINNING + 1


@pytest.mark.parametrize("watermark_rule", KINDS)
def test_how_far_ahead_a_row_is_believed_can_be_set(watermark_rule: str) -> None:
    """A row one ns beyond the limit is refused like a row of next year. A row at the limit is accepted."""
    for jump in ("1s", "10s", "1d"):
        distance = parse_jump(jump)
        for ahead, believed in ((distance, True), (distance + 1, False)):
            promise = parse_rule(watermark_rule, None, jump).make()
            promise.advance(MadeRows([START] * AGREEING_ROWS))
            promise.advance(MadeRows([START + ahead]))
            promise.advance(MadeRows([START]))
            assert promise.newest == START + (ahead if believed else 0), (jump, ahead)
            assert promise.future_rows == (not believed)


def test_a_clock_that_leaps_further_than_is_believed_must_say_so_again_and_again() -> None:
    for jump, believed in (("10s", False), ("11s", True)):
        promise = parse_rule("late 2s", "0", jump).make()
        promise.tick(START)
        promise.tick(START + 11 * NS)
        assert promise.watermark == START + 11 * NS * believed
        for _ in range(AGREEING_ROWS - 1):
            promise.tick(START + 11 * NS)
        assert promise.watermark == START + 11 * NS


def test_a_guard_that_resumes_accepts_the_times_that_the_first_one_would() -> None:
    random = Random("resumed")
    for _ in range(200):
        first = JumpGuard(agreeing_rows=random.choice([1, 3, 64]))
        second = JumpGuard(agreeing_rows=first.agreeing_rows)
        batches = [
            np.array([START + random.choice([0, 1, 1, YEAR]) + random.randrange(MINUTE) for _ in range(length)])
            for length in random.choices(range(1, 9), k=12)
        ]
        resumes = random.randrange(12)
        for number, times in enumerate(batches):
            if number == resumes:
                second.resume(first.link_time)
            first.process(times, BEGINNING)
            if number >= resumes:
                second.process(times, BEGINNING)
                assert second.link_time == first.link_time


def test_a_jump_is_at_least_a_second() -> None:
    with pytest.raises(ValueError, match="got a clock jump of 999999999 ns, expected at least 1000000000"):
        JumpGuard(NS - 1)


def test_a_slack_is_not_negative() -> None:
    with pytest.raises(ValueError, match="got a slack of -1 ns, expected 0 or more"):
        LateByTime(-1)


def test_the_kernel_as_plain_python_agrees_with_its_machine_code(monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(3)
    times = [START + random.choice([0, NS, -NS, YEAR, JUMP + 1]) + place for place in range(400)]
    arrivals = [START + random.choice([0, NS, -NS, JUMP + 1, -YEAR]) + place for place in range(400)]

    def run() -> list[tuple[list[int], list[int], list[int]]]:
        found = []
        for told in (False, True):
            guard = JumpGuard(agreeing_rows=8)
            kept: list[int] = []
            for first in range(0, len(times), 7):
                arrived = np.array(arrivals[first : first + 7]) if told else None
                kept += guard.accepted_times(np.array(times[first : first + 7]), START, arrived).tolist()
            found.append((guard.state.tolist(), guard.lateness.words.tolist(), kept))
        return found

    fast = run()
    monkeypatch.setattr("lowlevel.watermarks.jumps.filter_times", plain(filter_times))
    assert run() == fast
    assert all(len(kept) > 100 for *_, kept in fast)
    assert fast[0] != fast[1]


@pytest.mark.parametrize("lull", [None, "5s"])
@pytest.mark.parametrize("watermark_rule", KINDS)
def test_one_row_from_the_future_or_the_past_changes_no_promise_of_any_kind(
    watermark_rule: str, lull: str | None
) -> None:
    times = [START + number * NS for number in range(3 * AGREEING_ROWS)]
    undisturbed = parse_rule(watermark_rule, lull).make()
    lows = []
    for time in times:
        undisturbed.advance(MadeRows([time]))
        lows.append(undisturbed.watermark)
    for wrong in (START + YEAR, START - YEAR, 2**63 - 1, -(2**63)):
        for place in (AGREEING_ROWS, AGREEING_ROWS + 1, 2 * AGREEING_ROWS, len(times) - 1):
            promise = parse_rule(watermark_rule, lull).make()
            for number, time in enumerate(times):
                if number == place:
                    promise.advance(MadeRows([wrong]))
                promise.advance(MadeRows([time]))
                assert promise.watermark == lows[number]
            assert (promise.future_rows, promise.past_rows) == ((1, 0) if wrong > START else (0, 1))
            assert promise.newest == times[-1]


SQL = "SELECT srcIP, count(*) AS n FROM packets [RANGE 1 minute, SLIDE 1 minute, WA ts] GROUP BY srcIP"


def stream(path: Path, times: list[int], slack: int | None) -> tuple[list[list], list[int], Node, Pipeline]:
    """Return results by the block after which they left, and watermarks, of a link whose blocks have no watermarks."""
    frame = random_frame(Random(1), 228)[0]
    path.write_bytes(pcap_bytes([(ts, frame) for ts in times], 101))
    file = open_mapped(path, "a test")
    plan = compile_query(SQL)
    promise = EXACT if slack is None else WatermarkRule(Kind.LATE_BY_TIME, slack)
    node, pipeline = Node("link", file, [plan.leaves[0].low], 16, 16, promise), Pipeline(plan, [["link"]])
    came: list[list] = []
    marks: list[int] = []

    def take(items: object) -> None:
        came.append([])
        for _, item in items:  # type: ignore[attr-defined]
            if isinstance(item, Punctuation):
                marks.append(item.watermark)
                results = pipeline.punctuate(0, item)
            else:
                results = pipeline.process_rows(0, item)
            came[-1] += [row for batch in results if isinstance(batch, pa.RecordBatch) for row in batch.to_pylist()]

    for block in scan(file, 16).blocks:
        take(node.process(Block(block.start, block.end, block.records, block.min_ts, block.max_ts, NO_WATERMARK)))
    take(node.declare_watermark(END))
    return came, marks, node, pipeline


def test_windows_of_a_live_link_close_a_slack_behind_its_newest_packet(tmp_path: Path) -> None:
    times = [START + number * NS for number in range(320)]
    came, marks, _, _ = stream(tmp_path / "live.pcap", times, 30 * NS)
    newest = [times[min(len(times), 16 * (number + 1)) - 1] for number in range(len(came) - 1)]
    for rows, reached in zip(came[:-1], newest, strict=True):
        assert all(row["window_end"] <= reached - 30 * NS for row in rows)
    live = [row["window_end"] for rows in came[:-1] for row in rows]
    assert live == [START + seconds * NS for seconds in (40, 100, 160, 220, 280)]  # the last packet is at 319
    assert sum(row["n"] for rows in came for row in rows) == len(times)
    assert marks == sorted(set(marks))


def test_one_packet_of_next_year_closes_no_window_and_is_counted(tmp_path: Path) -> None:
    times = [START + number * NS for number in range(100)]
    came, marks, node, pipeline = stream(tmp_path / "wrong.pcap", [*times[:80], START + YEAR, *times[80:]], 30 * NS)
    assert all(mark < times[-1] for mark in marks[:-1])
    assert node.samples([("q",)]).total(ROWS_FROM_THE_FUTURE, kind="packets", link="link") == 1
    assert node.samples([("q",)]).total(ROWS_FROM_THE_PAST) == 0
    assert next(pipeline.window_operators)[1].late == 0
    assert sum(row["n"] for rows in came for row in rows) == 101


def test_a_link_that_really_jumps_goes_on_from_there(tmp_path: Path) -> None:
    times = [START + number * NS for number in range(100)]
    later = [START + YEAR + number * NS for number in range(200)]
    came, marks, node, pipeline = stream(tmp_path / "jump.pcap", [*times, *later], 30 * NS)
    assert marks[-2] > START + YEAR
    assert node.samples([("q",)]).total(ROWS_FROM_THE_FUTURE) == 0
    assert next(pipeline.window_operators)[1].late == 0
    before_the_end = [row for rows in came[:-1] for row in rows]
    assert sum(row["n"] for row in before_the_end if row["window_end"] < START + YEAR) == len(times)


def test_without_a_slack_a_link_that_cannot_promise_does_so_at_its_end(tmp_path: Path) -> None:
    came, marks, _, _ = stream(tmp_path / "silent.pcap", [START + number * NS for number in range(100)], None)
    assert marks == [END]
    assert all(not rows for rows in came[:-1])
