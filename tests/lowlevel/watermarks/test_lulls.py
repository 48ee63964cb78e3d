"""Lulls of live inputs: the clock advances the watermark of a silent link, and of no other link.

* The test decides every poll of the scripted inputs. This detects watermarks that are sent while data wait to be read,
  or that use the end time of a poll. It detects watermarks that fall when the link has data again.
* Pipes catch an idle link that holds a busy one's windows back, with the system's clock and with a replay's.
"""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
import pytest

from capture.files.blocks import Block
from capture.files.stream import StreamedCapture
from capture.open import open_capture
from highlevel.inline.engine import EXACT_SLACK, InlineRun, Input
from highlevel.inline.shards import LiveShard, ShardInput, TableSizes
from highlevel.metrics import LATE_ROWS
from lowlevel.metrics import LULL_WATERMARKS, ROWS_ACCEPTED, ROWS_BELOW_WATERMARK, WATERMARK_LAG
from lowlevel.punctuation import END, Punctuation
from lowlevel.watermarks.idle import IdleRule, ReplayClock
from queries.gsql import compile_query
from tests.harness import in_ns
from tests.harness.live_pipes import AGREED, COUNT, FRAME, START, Pipe, counts
from tests.references.pcap_bytes import NS, pcap_bytes
from tests.references.small_captures import RAW_IP


class FakeClock:
    """A clock with a time that the test sets, in seconds after START."""

    def __init__(self, seconds: float = 0) -> None:
        self.now = 0
        self.put(seconds)

    def put(self, seconds: float) -> None:
        self.now = START + round(seconds * NS)

    def __call__(self) -> int:
        return self.now


Step = float | Callable[[], None] | None
"""A step of a script: a packet (its time in seconds after START), a call, or a poll without data."""


class Scripted:
    """A live input whose every poll is written down; the rest is a file's."""

    live = True
    is_idle = True

    def __init__(self, path: Path, script: list[Step]) -> None:
        times = [START + round(step * NS) for step in script if isinstance(step, float | int)]
        path.write_bytes(gzip.compress(pcap_bytes([(ts, FRAME) for ts in times], RAW_IP)))
        self.script = script
        self.capture = open_capture(path)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.capture, name)

    def blocks(self, records: int) -> Iterator[Block | None]:
        assert isinstance(self.capture, StreamedCapture)
        packets = self.capture.blocks(1)
        for step in self.script:
            if step is None:
                yield None
            elif callable(step):
                step()
            else:
                yield next(packets)


def promised(
    script: list[Step], clock: FakeClock, tmp_path: Path, slack: int | None = 0, plan: Any = COUNT
) -> tuple[list[float], LiveShard]:
    """Return the watermarks of a shard in seconds after START, and the shard.

    Its threshold is 5 s, its windows are of 10 s.
    """
    capture: Any = Scripted(tmp_path / "link.pcap.gz", script)
    leaves, queries = [(0, plan.leaves[0])], [(plan.name,)]
    port = ShardInput(0, "link", leaves, queries, TableSizes(64), slack, lull=IdleRule(5 * NS, clock))
    shard = LiveShard(port, capture)
    items = [item for _, item in shard.run(lambda: False, Event())]
    assert sum(item.num_rows for item in items if isinstance(item, pa.RecordBatch)) > 0
    lows = [item.watermark for item in items if isinstance(item, Punctuation)]
    assert lows[-1] == END
    return [(low - START) / NS for low in lows if low != END], shard


def total(shard: LiveShard, metric: Any) -> float:
    return shard.samples().total(metric, link="link", kind="packets")


BEGUN: list[Step] = [1] * AGREED


def test_in_a_lull_a_link_is_promised_to_be_no_further_behind_than_the_threshold(tmp_path: Path) -> None:
    clock = FakeClock(1)
    waits = [step for now in (6, 14.9, 15, 24, 25.5) for step in (lambda now=now: clock.put(now), None, None)]
    # A poll begins before the calls in it, so the next poll reports each of these times.
    lows, shard = promised([*BEGUN, *waits, 26], clock, tmp_path)
    assert lows == [0, 10, 20]
    assert total(shard, LULL_WATERMARKS) == 4  # 9.9, 10, 19 and 20.5: at 6 the link was not further behind
    assert total(shard, ROWS_BELOW_WATERMARK) == 0


def test_what_comes_during_a_poll_is_not_taken_for_late(tmp_path: Path) -> None:
    clock = FakeClock(12)
    lows, _ = promised([*BEGUN, None, lambda: clock.put(40), None, None], clock, tmp_path)
    assert lows == [0, 30]
    clock = FakeClock(12)
    lows, _ = promised([*BEGUN, None, lambda: clock.put(40), None], clock, tmp_path)
    assert lows == [0]  # the poll that found nothing had begun at 12


def test_a_clock_that_is_put_back_takes_nothing_back_and_lulls_go_on_when_it_has_caught_up(tmp_path: Path) -> None:
    clock = FakeClock(1)
    waits = [step for now in (25, 3, 12, 24.9, 36) for step in (lambda now=now: clock.put(now), None, None)]
    lows, shard = promised([*BEGUN, *waits, 36, 40], clock, tmp_path)
    assert lows == [0, 20, 30, 40]
    assert total(shard, LULL_WATERMARKS) == 2
    assert total(shard, ROWS_BELOW_WATERMARK) == 0


@pytest.mark.parametrize("polls", [1, AGREED - 1])
def test_a_clock_that_is_an_hour_ahead_for_a_few_polls_closes_nothing(polls: int, tmp_path: Path) -> None:
    clock = FakeClock(12)
    ahead: list[Step] = [None, lambda: clock.put(4000), *[None] * polls, lambda: clock.put(13), None, None]
    lows, shard = promised([*BEGUN, *ahead, 14, 25, 26], clock, tmp_path)
    assert lows == [0, 10, 20]
    assert total(shard, ROWS_BELOW_WATERMARK) == 0


def test_a_clock_that_stays_ahead_closes_what_is_read_and_counts_what_comes_below_it(tmp_path: Path) -> None:
    """Neither a hang nor a silent loss if the step was wrong and is taken back."""
    clock = FakeClock(12)
    ahead: list[Step] = [None, lambda: clock.put(4005), *[None] * (AGREED + 2), lambda: clock.put(13), None]
    lows, shard = promised([*BEGUN, *ahead, 14, 25, 4100], clock, tmp_path)
    assert lows[:2] == [0, 4000]
    assert lows == sorted(lows)
    assert total(shard, ROWS_BELOW_WATERMARK) == 2


def test_unread_packets_close_no_windows_however_long_they_wait(tmp_path: Path) -> None:
    clock = FakeClock(1)
    script: list[Step] = [*BEGUN]
    for second in (2, 3, 9, 12, 14):
        script += [lambda second=second: clock.put(1000 * second), second]
    lows, shard = promised(script, clock, tmp_path, slack=2 * NS)
    assert lows == [-10, 0, 10]
    assert total(shard, LULL_WATERMARKS) == 0
    assert total(shard, ROWS_BELOW_WATERMARK) == 0


def test_a_record_that_is_there_in_part_is_no_silence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scripted, "is_idle", False)
    clock = FakeClock(100)
    assert promised([*BEGUN, None, None], clock, tmp_path)[0] == [0]
    assert promised([None, None, *BEGUN], clock, tmp_path)[0] == [0]


def test_silence_counts_from_when_it_was_not_yet_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the second None the input reports that it has been silent since before the first."""
    monkeypatch.setattr(Scripted, "is_idle", False)
    clock = FakeClock(12)
    heard = lambda: (clock.put(40), monkeypatch.setattr(Scripted, "is_idle", True))  # noqa: E731
    assert promised([*BEGUN, None, heard, None], clock, tmp_path)[0] == [0]
    monkeypatch.setattr(Scripted, "is_idle", False)
    clock.put(12)
    assert promised([*BEGUN, None, heard, None, None], clock, tmp_path)[0] == [0, 30]


def test_a_pipe_is_not_silent_while_a_record_is_there_in_part(pipe: Pipe) -> None:
    capture = open_capture(pipe.path)
    assert isinstance(capture, StreamedCapture)
    blocks = capture.blocks(10)
    record = pcap_bytes([(START, FRAME)], RAW_IP)[24:]
    pipe.end.write(record + record[:20])
    seen = []
    for block in blocks:
        seen.append(None if block is None else block.records)
        if block is None and sum(filter(None, seen)) == 1:
            assert not capture.is_idle
            if seen.count(None) == 4:
                pipe.end.write(record[20:])
        elif block is None and capture.is_idle:
            break
    assert list(filter(None, seen)) == [1, 1]
    capture.stop()
    pipe.close()
    assert list(blocks) in ([], [None])
    capture.close()


@pytest.mark.parametrize("slack", [0, 3 * NS, None], ids=["0", "3s", "exact"])
def test_a_link_that_has_not_spoken_yet_is_covered_and_what_was_promised_stands(
    slack: int | None, tmp_path: Path
) -> None:
    clock = FakeClock(16)
    script = [None, lambda: clock.put(26), None, None, lambda: clock.put(30), 22, 8, 23]
    lows, shard = promised(script, clock, tmp_path, slack)  # type: ignore[arg-type]
    assert lows == [10, 20]
    assert total(shard, ROWS_BELOW_WATERMARK) == 1  # 8, which broke the rule
    assert shard.samples().total(ROWS_ACCEPTED) == 3


def test_panes_of_each_query_are_told_alone(tmp_path: Path) -> None:
    clock = FakeClock(1)
    plan = compile_query("SELECT count(*) AS n FROM p [RANGE 14 seconds, SLIDE 7 seconds]")
    waits = [step for now in range(6, 40) for step in (lambda now=now: clock.put(now), None)]
    lows, _ = promised([*BEGUN, *waits, 50], clock, tmp_path, plan=plan)
    assert all((START + round(low * NS)) % (7 * NS) == 0 for low in lows)
    assert len(lows) == 7
    assert [after - before for before, after in pairwise(lows)] == [
        7,
        7,
        7,
        7,
        7,
        14,
    ]  # a step each, then the row at 50


@pytest.fixture(name="pipe")
def _pipe(tmp_path: Path) -> Iterator[Pipe]:
    made = Pipe(tmp_path / "busy.pipe")
    yield made
    if not made.end.closed:
        made.close()


@pytest.fixture
def idle(tmp_path: Path) -> Iterator[Pipe]:
    made = Pipe(tmp_path / "idle.pipe")
    yield made
    if not made.end.closed:
        made.close()


@pytest.mark.parametrize("spoken", [0, 3, AGREED])
def test_an_idle_link_does_not_hold_back_a_busy_one_for_longer_than_the_threshold(
    spoken: int, pipe: Pipe, idle: Pipe
) -> None:
    clock = FakeClock(2)
    inputs = [Input("busy", pipe.path), Input("idle", idle.path)]
    run = InlineRun([COUNT], inputs, slack=0, lull=IdleRule(5 * NS, clock))
    results = run.results()
    idle.write(*[1] * spoken)
    pipe.write(*[1] * AGREED, 12, 23, 34)
    for end in (10, 20, 30):
        clock.put(end + 5)
        assert counts([next(results)]) == [(end - 10, AGREED + spoken if end == 10 else 1)]  # type: ignore[arg-type]
    idle.write(31)
    pipe.close()
    idle.close()
    assert counts(results) == [(30, 2)]
    samples = run.samples()
    assert samples.total(LATE_ROWS) == 0
    assert samples.total(LULL_WATERMARKS, link="idle") >= (3 if spoken else 1)
    assert samples.total(ROWS_BELOW_WATERMARK) == 0


def test_without_a_lull_the_idle_link_is_waited_for(pipe: Pipe, idle: Pipe) -> None:
    run = InlineRun([COUNT], [Input("busy", pipe.path), Input("idle", idle.path)], slack=0)
    results = run.results()
    pipe.write(*[1] * AGREED, 12, 23, 34)
    idle.write(*[1] * AGREED, 11)
    assert counts([next(results)]) == [(0, 2 * AGREED)]  # type: ignore[arg-type]
    pipe.close()
    idle.close()
    assert counts(results) == [(10, 2), (20, 1), (30, 1)]
    assert run.samples().total(LULL_WATERMARKS) == 0


def test_in_a_replay_the_other_links_are_the_clock(pipe: Pipe, idle: Pipe) -> None:
    inputs = [Input("busy", pipe.path), Input("idle", idle.path)]
    run = InlineRun([COUNT], inputs, slack=0, lull=IdleRule(5 * NS, ReplayClock()))
    results = run.results()
    pipe.write(*[1] * AGREED, 14.999)
    idle.write(2)
    pipe.write(15)
    assert counts([next(results)]) == [(0, AGREED + 1)]  # type: ignore[arg-type]
    pipe.close()
    idle.close()
    assert counts(results) == [(10, 2)]
    assert run.samples().total(LATE_ROWS) == 0


def test_back_pressure_closes_no_window_though_the_clock_goes_on(pipe: Pipe) -> None:
    """The shard waits for its consumer while hours pass and more data are written. None of these rows is late."""
    clock = FakeClock(1)
    run = InlineRun([COUNT], [Input("link", pipe.path)], slack=0, lull=IdleRule(5 * NS, clock), block_records=1)
    results = run.results()
    steps = range(10, 500, 10)
    pipe.write(*[1] * AGREED, *steps)
    assert counts([next(results)]) == [(0, AGREED)]  # type: ignore[arg-type]
    clock.put(100_000)
    pipe.write(491, 492, 505)
    pipe.close()
    assert counts(results) == [*((start, 1) for start in steps[:-1]), (490, 3), (500, 1)]
    assert run.samples().total(LATE_ROWS) == run.samples().total(ROWS_BELOW_WATERMARK) == 0


def test_late_rows_after_a_lull_promise_that_was_wrong_are_counted(pipe: Pipe) -> None:
    clock = FakeClock(2)
    run = InlineRun([COUNT], [Input("link", pipe.path)], slack=EXACT_SLACK, lull=IdleRule(5 * NS, clock))
    results = run.results()
    pipe.write(*[1] * AGREED)
    clock.put(15)
    assert counts([next(results)]) == [(0, AGREED)]  # type: ignore[arg-type]
    pipe.write(9, 11)
    pipe.close()
    assert counts(results) == [(10, 1)]
    samples = run.samples()
    assert (samples.total(LATE_ROWS), samples.total(ROWS_BELOW_WATERMARK)) == (1, 1)
    assert samples.total(WATERMARK_LAG) == 0  # ended


def test_with_the_systems_clock_a_window_is_answered_though_nothing_follows(pipe: Pipe) -> None:
    now = (time.time_ns() - START) / NS
    batches = in_ns.watch("SELECT count(*) AS n FROM p [RANGE 100 ms]", pipe.path, slack="10s", lull="300ms")
    pipe.write(*[now] * 3)
    assert next(batches).to_pylist()[0]["n"] == 3
    pipe.close()
    assert list(batches) == []


def test_a_lull_that_is_no_duration_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.pcap").write_bytes(pcap_bytes([(START, FRAME)], RAW_IP))
    with pytest.raises(ValueError, match="got a lull of 'soon': expected a duration such as 500ms"):
        in_ns.query("SELECT count(*) FROM p", tmp_path / "a.pcap", lull="soon")
    with pytest.raises(
        ValueError, match="threads, slack, lull and follow need the engine inline; got the engine local"
    ):
        in_ns.query("SELECT count(*) FROM p", tmp_path / "a.pcap", on="local", lull="1s")
    assert in_ns.query("SELECT count(*) AS n FROM p", tmp_path / "a.pcap", lull="1s").to_pylist() == [{"n": 1}]
