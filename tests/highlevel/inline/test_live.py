"""Live and compressed inputs of the inline engine: pipes that are written while it reads, and gzip files.

* A window must be emitted while its pipe is still open, but not before its slack has passed.
* Rows in the answer and late rows together are all rows: what is dropped without a count shows, and what is counted
  and not dropped.
* Compressed files have the answer of the plain ones, for every number of threads. With a slack their windows close
  before the end, and no file is read far ahead of the others.
* Inputs that are stopped, or whose consumer stops, leave no running thread.
"""

from __future__ import annotations

import gzip
import os
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from random import Random

import pytest

from capture.errors import InputError
from capture.files.stream import StreamedCapture
from capture.generate import three_links
from capture.open import open_capture
from highlevel.inline.engine import EXACT_SLACK, LIVE_SLACK, InlineRun, Input
from highlevel.metrics import LATE_ROWS
from highlevel.plan.operators.counters import window_count
from highlevel.plan.plan import Plan
from lowlevel.metrics import ROWS_ACCEPTED
from queries.gsql import compile_query
from queries.pipeline.inputs import bind_files
from tests.conftest import StartedThreads
from tests.harness.inline_rows import rows_of
from tests.harness.live_pipes import AGREED, COUNT, FRAME, START, Pipe, counts
from tests.references.pcap_bytes import NS, pcap_bytes
from tests.references.small_captures import RAW_IP

LARGEST = compile_query("SELECT srcIP, max(len) FROM p [RANGE 10 seconds] GROUP BY srcIP")


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipe]:
    made = Pipe(tmp_path / "link.pipe")
    yield made
    if not made.end.closed:
        made.close()


def test_a_window_is_answered_while_the_pipe_is_open(pipe: Pipe, started_threads: StartedThreads) -> None:
    run = InlineRun([COUNT], [Input("link", pipe.path)], slack=5 * NS)
    assert run.live
    results = run.results()
    pipe.write(*[1] * AGREED, 3, 8, 9.999, 14.999, 10, 15)
    assert counts([next(results)]) == [(0, AGREED + 3)]  # type: ignore[arg-type]
    pipe.write(17, 60)
    assert counts([next(results)]) == [(10, 4)]  # type: ignore[arg-type]
    pipe.close()
    assert counts(results) == [(60, 1)]
    assert not started_threads()


@pytest.mark.parametrize(
    ("slack", "answered"), [(None, LIVE_SLACK // NS), (0, 0), (500 * NS // 1000, 0.5), (EXACT_SLACK, None)]
)
def test_the_slack_decides_when_a_window_is_over(slack: int | None, answered: float | None, pipe: Pipe) -> None:
    run = InlineRun([COUNT], [Input("link", pipe.path)], slack=slack)
    results = run.results()
    pipe.write(*[1] * AGREED)
    if answered is not None:
        pipe.write(10 + answered - 0.001, 10 + answered)
        assert counts([next(results)])[0][0] == 0  # type: ignore[arg-type]
        assert run.shards[0].newest_time == START + round((10 + answered) * NS)
    pipe.write(2)
    pipe.close()
    left = counts(results)
    late = run.samples().total(LATE_ROWS)
    assert late == (0 if answered is None else 1)
    assert (left[0] == (0, AGREED + 1)) == (answered is None)


def disordered(seed: int, count: int, late: int) -> list[int]:
    """Times over five minutes, each arriving up to `late` seconds after it."""
    random = Random(seed)
    times = [START + random.randrange(300 * NS) for _ in range(count)]
    return sorted(times, key=lambda ts: ts + random.randrange(late * NS))


def missing(times: list[int], slack: int, blocks: list[int]) -> int:
    """Packets whose window was over when their block came, by the definition of the watermark: newest - slack.

    `blocks` are the numbers of records in the blocks that they come in.
    """
    newest = promised = 0
    found = 0
    for end, size in zip(accumulate(blocks), blocks, strict=True):
        place = end - size
        here = times[place:end]
        found += sum((ts // (10 * NS) + 1) * 10 * NS <= promised for ts in here)
        if place + len(here) >= AGREED:
            newest = max(newest, min(times[:AGREED]), *times[AGREED : place + len(here)], 0)
            promised = max(promised, (newest - slack) // (10 * NS) * 10 * NS)
    return found


@pytest.mark.parametrize("plan", [COUNT, LARGEST], ids=["count(*)", "max(len)"])
@pytest.mark.parametrize("late", [3, 30])
@pytest.mark.parametrize("seed", range(3))
def test_rows_of_the_answer_and_late_rows_are_all_rows(seed: int, late: int, plan: Plan, tmp_path: Path) -> None:
    times = disordered(seed, 2000, late)
    path = tmp_path / "link.pcap.gz"
    path.write_bytes(gzip.compress(pcap_bytes([(ts, FRAME) for ts in times], RAW_IP)))
    slack = 4 * NS
    run = InlineRun([plan], [Input("link", path)], slack=slack, block_records=50, threads=2)
    assert not run.live
    found = [row for _, batch in run.results() for row in rows_of(batch)]
    stream = open_capture(path)
    assert isinstance(stream, StreamedCapture)
    lost = missing(times, slack, [block.records for block in stream.blocks(50) if block is not None])
    assert (lost > 0) == (late == 30)
    assert run.samples().total(LATE_ROWS) == lost
    assert run.samples().total(ROWS_ACCEPTED) == 2000
    if plan is COUNT:
        assert sum(n for *_, n in found) + lost == 2000


def compressed(folder: Path, into: Path) -> list[Input]:
    """The captures of a folder, compressed."""
    into.mkdir()
    for each in folder.iterdir():
        (into / f"{each.name}.gz").write_bytes(gzip.compress(each.read_bytes(), 1))
    return bind_files([str(into)])


@pytest.fixture(scope="module")
def links(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three links of six minutes: disordered mains with clocks apart, and a control link with lulls of minutes."""
    folder = tmp_path_factory.mktemp("links")
    three_links(folder, 360, 20)
    return folder


@pytest.mark.parametrize("threads", [1, 3])
def test_compressed_files_have_the_answer_of_the_plain_ones(threads: int, links: Path, tmp_path: Path) -> None:
    plan = compile_query(
        "SELECT link, destIP, count(*), sum(len) FROM p [RANGE 1 minute, SLIDE 20 seconds, WA ts] GROUP BY link, destIP"
    )

    def answer(inputs: list[Input]) -> tuple[Counter[tuple], InlineRun]:
        run = InlineRun([plan], inputs, 64, threads=threads, block_records=100)
        return Counter(row for _, batch in run.results() for row in rows_of(batch)), run

    expected, plain = answer(bind_files([str(links)]))
    found, run = answer(compressed(links, tmp_path / "gz"))
    assert found == expected
    assert run.samples().total(ROWS_ACCEPTED) == plain.samples().total(ROWS_ACCEPTED)
    assert run.samples().total(LATE_ROWS) == 0
    assert run.bytes_done == run.bytes_total == sum(each.path.stat().st_size for each in run.inputs)


@pytest.mark.parametrize("threads", [1, 3])
def test_with_a_slack_compressed_files_advance_together_and_windows_close(
    threads: int, links: Path, tmp_path: Path
) -> None:
    """One link has twice the packets of another, and the third is nearly silent: none may run ahead to its end."""
    inputs = compressed(links, tmp_path / "gz")
    run = InlineRun([COUNT], inputs, slack=20 * NS, threads=threads, block_records=20)
    most = max(window_count(next(run.nodes.window_operators)[1].open_windows()) for _ in run.results())
    assert run.samples().total(LATE_ROWS) == 0
    # Two windows of slack, two of lead, and blocks that span some. There are 36 windows in all.
    assert 1 <= most <= 12


def test_a_stream_that_begins_later_is_opened_later(tmp_path: Path) -> None:
    for number in range(30):
        content = pcap_bytes([(START + (number * 100 + each) * NS, FRAME) for each in range(100)], RAW_IP)
        (tmp_path / f"{number:02}.pcap.gz").write_bytes(gzip.compress(content))
    run = InlineRun([COUNT], bind_files([str(tmp_path)]), slack=0, threads=1)
    nodes = [sum(shard.node is not None for shard in run.shards) for _ in run.results()]
    assert len(nodes) > 20
    assert max(nodes) <= 2
    assert run.samples().total(LATE_ROWS) == 0


def test_a_stopped_pipe_is_answered_with_what_it_held(
    pipe: Pipe, tmp_path: Path, started_threads: StartedThreads
) -> None:
    plain = tmp_path / "plain.pcap"
    plain.write_bytes(pcap_bytes([(START + NS, FRAME)] * 7, RAW_IP))
    run = InlineRun([COUNT], [Input("link", pipe.path), Input("plain", plain)])
    results = run.results()
    pipe.write(*[1] * AGREED, 30)
    assert counts([next(results)]) == [(0, AGREED + 7)]  # type: ignore[arg-type]
    run.stop()
    pipe.write(31)
    assert counts(results) == [(30, 2)]
    assert not started_threads()


def test_a_pipe_whose_results_nobody_takes_is_not_listened_to(pipe: Pipe, started_threads: StartedThreads) -> None:
    results = InlineRun([COUNT], [Input("link", pipe.path)]).results()
    pipe.write(*[1] * AGREED, 30)
    next(results)
    results.close()
    assert not started_threads()


def test_a_pipe_that_was_never_written_to_is_an_empty_answer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "silent")
    run = InlineRun([COUNT], [Input("link", tmp_path / "silent")])
    run.stop()
    assert list(run.results()) == []
    assert run.samples().total(ROWS_ACCEPTED) == 0
    assert [reading.records for reading in run.readings()] == [0]


def test_a_pipe_of_something_else_is_an_error(tmp_path: Path, started_threads: StartedThreads) -> None:
    os.mkfifo(tmp_path / "text")
    run = InlineRun([COUNT], [Input("link", tmp_path / "text")])
    end = os.open(tmp_path / "text", os.O_WRONLY)
    os.write(end, b"these are no packets, but there are many of them")
    os.close(end)
    with pytest.raises(InputError, match="it begins with 74 68 65 73"):
        list(run.results())
    assert not started_threads()
