"""Spools on Spark itself: segments that appear while they are read, stops and starts, kill -9, and what the user hears.

Everything is compared with the inline engine over the captures of the spools. A segment read twice counts its packets
twice. A segment that was deleted too early or skipped is missing. The driver is killed at named lines of the code and
at random moments, while a node writes and deletes committed segments.
"""

import json
import signal
import threading
from pathlib import Path
from random import Random

import pytest

from capture.errors import InputError
from dashboards.monitors.pipeline import Monitor
from highlevel.inline.engine import Input
from highlevel.metrics import (
    PARTIALS_RECEIVED,
    SPOOL_PARTIALS_PASSED_OVER,
    SPOOL_PARTIALS_READ,
    SPOOL_SEGMENTS_LOST,
    SPOOL_SEGMENTS_READ,
)
from highlevel.spark.errors import FolderError
from highlevel.spark.run_folder.result_files import read_results
from highlevel.spark.run_folder.totals import TotalsFiles
from lowlevel.spool.folder import SpoolError, segment_numbers
from lowlevel.spool.reader import SpoolReader
from queries.gsql import compile_query
from queries.pipeline.file import parse_pipeline
from tests.harness.crashed_runs import start, wait_for_all_of
from tests.harness.links import write_links
from tests.harness.spool_node import SpoolNode, spool_of, write_spools
from tests.harness.stream_steps import PLANS, inline, same_rows
from tests.references.window_queries import QUERIES

pytestmark = pytest.mark.spark


def make(spark, inputs: list[Input], folder: Path, plans=PLANS, **options):
    from highlevel.spark.stream import StreamRun

    return StreamRun(spark, plans, inputs, folder, **options)


@pytest.fixture
def captures(tmp_path: Path) -> list[Input]:
    folder = tmp_path / "captures"
    folder.mkdir()
    return write_links(folder, 8)[:2]


def check(folder: Path, captures: list[Input], plans=PLANS) -> None:
    """Compare all that a run has ever written with what the inline engine answers over `captures`."""
    want, _ = inline(plans, captures)
    for plan in plans:
        assert same_rows(read_results(folder / "output", plan), want[plan.name]), plan.name


def test_segments_that_appear_while_the_run_is_on_are_read_through_a_stop_and_a_start(
    spark, captures, tmp_path: Path
) -> None:
    class EnoughError(Exception):
        pass

    def until_two(batch_id: int, *_: object) -> None:
        node.step(4)
        if batch_id == 2:
            raise EnoughError("no more")

    node, later = (SpoolNode(each, tmp_path / "spools" / each.link, PLANS) for each in captures)
    inputs = [spool_of(node.folder, "main1"), spool_of(later.folder, "main2")]
    run = make(spark, inputs, tmp_path / "run", on_batch=until_two)
    run.start()
    with pytest.raises(EnoughError):
        run.wait()
    run.stop()
    again = make(spark, inputs, tmp_path / "run")
    again.start()
    while node.step(10):
        pass
    assert not again.wait(1)  # the other link has not spoken
    later.finish()
    assert again.wait()
    again.stop()
    check(tmp_path / "run", captures)
    samples = again.samples
    assert samples.total(SPOOL_SEGMENTS_READ) == sum(segment_numbers(each.path)[-1] + 1 for each in inputs)
    assert samples.total(SPOOL_PARTIALS_READ) == samples.total(PARTIALS_RECEIVED)
    assert samples.total(SPOOL_SEGMENTS_LOST) == samples.total(SPOOL_PARTIALS_PASSED_OVER) == 0


def checkpointed(folder: Path, node: SpoolNode) -> int:
    """The offset of a spool at the end of the last micro-batch that is in Spark's log of commits."""
    done = max((int(path.name) for path in (folder / "checkpoint" / "commits").glob("[0-9]*")), default=None)
    if done is None:
        return 0
    *_, offsets = (folder / "checkpoint" / "offsets" / str(done)).read_text().splitlines()
    return next(place for key, place in json.loads(offsets).items() if key.endswith(str(node.folder)))


def test_a_run_that_is_killed_reads_every_segment_once(captures, tmp_path: Path, soak: bool) -> None:
    random = Random(5)
    plans = [compile_query(query.gsql, query.name) for query in QUERIES]
    nodes = [SpoolNode(each, tmp_path / "spools" / each.link, plans) for each in captures]
    writing = list(nodes)
    sessions = []
    deleted = False
    kills = [("planned", 1), ("anywhere", 3)] if soak else []
    for moment, batch in (*kills, ("uncommitted", 5), ("never", -1)):
        with start(tmp_path / "run", tmp_path / "spools", moment, batch) as driver:
            sessions.append(driver.pid)
            dies = None
            # Write a segment before the first batch, and one per batch. Write the rest when no more kills follow.
            writing = [node for node in writing if node.step(1)]
            for line in driver.stdout:
                if moment == "anywhere" and line == f"batch {batch}\n":
                    dies = threading.Timer(random.random() / 2, driver.kill)
                    dies.start()
                writing = [node for node in writing if node.step(1 if moment != "never" else 20)]
            if dies is not None:
                dies.join()
        assert driver.returncode == (0 if moment == "never" else -signal.SIGKILL), (moment, batch)
        deleted = deleted or segment_numbers(nodes[0].folder)[0] > 0
        assert all(SpoolReader(node.folder).committed < checkpointed(tmp_path / "run", node) for node in nodes)
    assert deleted
    check(tmp_path / "run", captures, plans)
    files = TotalsFiles(tmp_path / "run" / "totals")
    samples = files.load(files.last_batch_id()).samples
    for node in nodes:
        last = SpoolReader(node.folder).read(segment_numbers(node.folder)[-1])
        assert samples.total(SPOOL_SEGMENTS_READ, link=node.link) == last.number + 1
        assert samples.total(SPOOL_PARTIALS_READ, link=node.link) == last.header.rows_before + last.rows
    assert samples.total(SPOOL_SEGMENTS_LOST) == 0
    for session in sessions:
        wait_for_all_of(session)


PIPELINE = """
folder = "state"
[links]
control = "captures/main2.pcap"
[links.main1]
capture = "captures/main1.pcap"
spool = "spool"
[queries.per_link]
sql = "SELECT link, count(*) AS n FROM packets [RANGE 1 minute, SLIDE 1 minute, WA ts] GROUP BY link"
[metrics]
port = 0
"""


def test_a_pipeline_reads_links_with_spools_from_them(spark, captures, tmp_path: Path) -> None:
    pipeline = parse_pipeline(PIPELINE, tmp_path)
    plans = pipeline.plans()
    write_spools(captures[:1], tmp_path / "made", plans)
    (tmp_path / "made" / "0-main1").rename(tmp_path / "spool")
    said: list[str] = []
    with Monitor(pipeline, said.append) as monitor:
        monitor.wait()
        summary = monitor.summary()
    check(tmp_path / "state", [captures[0], Input("control", captures[1].path)], plans)
    assert any(line.startswith("replaying 1 capture ") and "reading the spool of main1" in line for line in said)
    header, _, row = summary.split("\n\n")[1].splitlines()
    assert header.split()[:3] == ["spool", "segments", "lost"]
    assert row.split()[:3] == ["main1", str(len(SpoolReader(tmp_path / "spool").segments())), "0"]


def test_what_is_wrong_with_a_spool_is_one_error_in_one_line(spark, captures, tmp_path: Path) -> None:
    (spool,) = write_spools(captures[:1], tmp_path / "spools", PLANS)
    wrong = make(spark, [spool_of(spool.path, "main2")], tmp_path / "wrong")
    wrong.start()
    with pytest.raises(SpoolError, match=r"0-main1: got the spool of the link main1, expected that of main2$"):
        wrong.wait()
    wrong.stop()


def test_a_spool_has_one_reader_and_a_query_that_its_node_does_not_know_is_told(
    spark, captures, tmp_path: Path
) -> None:
    node = SpoolNode(captures[0], tmp_path / "spool", PLANS[:1])
    node.step(3)
    said: list[str] = []
    run = make(spark, [spool_of(node.folder, "main1")], tmp_path / "run", plans=PLANS[:2], say=said.append)
    run.start()
    with pytest.raises(FolderError, match="spool is read by another run; stop that run"):
        make(spark, [spool_of(node.folder, "main1")], tmp_path / "other").start()
    node.finish()
    assert run.wait()
    run.stop()
    check(tmp_path / "run", captures[:1], PLANS[:1])
    (line,) = said
    assert line.startswith(f"warning: {node.folder}: has no query ports: got pairs (")


def test_flows_are_read_from_spools_and_refused_from_captures(spark, captures, tmp_path: Path) -> None:
    flows = [compile_query("SELECT exporter, count(*) FROM flows [RANGE 1 minute] GROUP BY exporter", "flows")]
    make(spark, [spool_of(tmp_path / "spool", "main1")], tmp_path / "run", plans=flows)
    with pytest.raises(InputError, match="flows must be read in one pass"):
        make(spark, [spool_of(tmp_path / "spool", "main1"), captures[0]], tmp_path / "run", plans=flows)
