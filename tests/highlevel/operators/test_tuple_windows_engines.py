"""Windows of a number of rows on all engines, against plain lists of the rows in the order of the file.

The tests detect rows that reach the operator in another order than they were written in (threads, byte ranges, tasks, a
shuffle). They detect partitions that share a count, and a query over an input without an order.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from capture.errors import InputError
from highlevel.inline import schedule
from highlevel.inline.engine import InlineRun, Input
from highlevel.metrics import LATE_ROWS, OUTSIDE_WINDOWS, PARTIALS_RECEIVED, RESULT_ROWS, WINDOWS_CLOSED
from highlevel.plan.plan import Plan
from highlevel.windows.kind import TupleWindow
from lowlevel.metrics import TABLE_DIRECT
from queries.explain.plan import explain
from queries.gsql import compile_query
from queries.pipeline.file import parse_pipeline
from tests.harness import in_ns
from tests.references import small_captures

NS = 10**9
ROWS = 2500


@dataclass(frozen=True)
class Packet:
    """A packet that was written: ts in ns, its source and destination port, its length."""

    ts: int
    source: str
    port: int
    length: int


def packets() -> list[Packet]:
    """In the order of the file: disordered by up to 40 seconds, with ties, sources that pause, and a gap of years."""
    random = Random("rows")
    sources = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "2001:db8::1", "2001:db8::2"]
    weights = [20, 10, 5, 5, 1]
    found = []
    for number in range(ROWS):
        seconds = number // 2 + random.randrange(40) + (100_000_000 if number > ROWS * 4 // 5 else 0)
        source = random.choices(sources, weights)[0]
        found.append(Packet(seconds * NS, source, random.randrange(3), random.randrange(60, 1000)))
    return found


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    frames = []
    for each in packets():
        destination = "10.0.0.9" if ip_address(each.source).version == 4 else "2001:db8::9"
        frames.append((each.ts // NS, small_captures.udp(each.source, destination, 1, each.port, each.length)))
    return small_captures.write(tmp_path_factory.mktemp("rows") / "Main.pcap", frames)


def by_lists(
    window: TupleWindow,
    partition: Callable[[Packet], Hashable],
    group: Callable[[Packet], tuple],
    values: Callable[[list[Packet]], tuple | None],
    where: Callable[[Packet], bool] = lambda row: True,
) -> Counter[tuple]:
    """Return the rows of a query: bounds, and the results of `group` and `values`. HAVING removes None."""
    lists: list[list[Packet]] = []
    current: dict[Hashable, list[Packet]] = {}
    for row in filter(where, packets()):
        of = current.get(partition(row))
        if of is None or (window.idle is not None and row.ts - max(each.ts for each in of) >= window.idle):
            of = current[partition(row)] = []
            lists.append(of)
        of.append(row)
    found: Counter[tuple] = Counter()
    for rows in lists:
        wid = 0
        while (start := (wid + 1) * window.slide_rows - window.range) < len(rows):
            groups = defaultdict(list)
            for row in rows[max(0, start) : start + window.range]:
                groups[group(row)].append(row)
            for key, seen in groups.items():
                if (said := values(seen)) is not None:
                    found[start, start + window.range, *key, *said] += 1
            wid += 1
    return found


def longest(rows: list[Packet]) -> tuple:
    return (max(row.length for row in rows),)


QUERIES: dict[str, tuple[str, Callable[[], Counter[tuple]]]] = {
    "printed_q5_2": (
        """SELECT srcIP, max(length)
                 [RANGE 1000 rows, SLIDE 10 rows, WA row-num, PA srcIP]
           FROM   Main""",
        lambda: by_lists(TupleWindow(1000, 10, True), lambda row: row.source, lambda row: (row.source,), longest),
    ),
    "printed_q5_3": (
        """SELECT srcIP, max(length)
                 [RANGE 1000 rows, SLIDE 10 rows, WA row-num]
           FROM   Main
           GROUP-BY srcIP""",
        lambda: by_lists(TupleWindow(1000, 10), lambda row: None, lambda row: (row.source,), longest),
    ),
    "some": (
        """SELECT destPort, count(*), avg(len) FROM Main [RANGE 25 rows, SLIDE 10 rows]
           WHERE len < 500 GROUP BY destPort HAVING count(*) > 8""",
        lambda: by_lists(
            TupleWindow(25, 10),
            lambda row: None,
            lambda row: (row.port,),
            lambda rows: (len(rows), sum(row.length for row in rows) / len(rows)) if len(rows) > 8 else None,
            lambda row: row.length < 500,
        ),
    ),
    "long": (
        "SELECT srcIP, max(len) FROM Main [RANGE 9000 rows, SLIDE 300 rows] GROUP BY srcIP",
        lambda: by_lists(TupleWindow(9000, 300), lambda row: None, lambda row: (row.source,), longest),
    ),
    "gapped": (
        "SELECT count(*), min(ts), max(ts) FROM Main [RANGE 3 rows, SLIDE 7 rows, WA row-num]",
        lambda: by_lists(
            TupleWindow(3, 7),
            lambda row: None,
            lambda row: (),
            lambda rows: (len(rows), min(row.ts for row in rows), max(row.ts for row in rows)),
        ),
    ),
    "idle": (
        """SELECT srcIP, destPort, len / 500, sum(len) FROM Main
                  [RANGE 6 rows, SLIDE 4 rows, WA row-num, PA srcIP, destPort, IDLE 30 s]
           GROUP BY len / 500, srcIP, destPort""",
        lambda: by_lists(
            TupleWindow(6, 4, True, 30 * NS),
            lambda row: (row.source, row.port),
            lambda row: (row.source, row.port, row.length // 500),
            lambda rows: (sum(row.length for row in rows),),
        ),
    ),
}
PLANS = {name: compile_query(sql, name) for name, (sql, _) in QUERIES.items()}
COUNTERS = (PARTIALS_RECEIVED, OUTSIDE_WINDOWS, WINDOWS_CLOSED, RESULT_ROWS, LATE_ROWS)


def answer(table: pa.Table) -> Counter[tuple]:
    return Counter(
        tuple(str(ip_address(value)) if isinstance(value, bytes) else value for value in row.values())
        for row in table.to_pylist()
    )


def inline(plan: Plan, inputs: list[Input], **options) -> tuple[Counter[tuple], InlineRun]:
    run = InlineRun([plan], inputs, **options)
    return answer(pa.Table.from_batches([batch for _, batch in run.results()], plan.schema)), run


@pytest.mark.drawn
@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.slow("thousands of rows in blocks of seven")
def test_the_inline_engine_reads_rows_in_their_order(name: str, capture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "SHARD_BYTES", 1000)  # so small that other queries would be dealt
    monkeypatch.setattr(schedule, "PIECE_BYTES", 1000)
    want = QUERIES[name][1]()
    assert len(want) > 50
    for options in ({"threads": 1}, {"threads": 5, "block_records": 7}):
        found, run = inline(PLANS[name], [Input("Main", capture)], **options)
        assert found == want
        assert len(run.shards) == 1
        samples = run.samples()
        assert samples.total(TABLE_DIRECT) == samples.total(PARTIALS_RECEIVED)
        assert samples.total(WINDOWS_CLOSED) >= len({row[:2] for row in want})
        assert samples.total(LATE_ROWS) == 0


def test_rows_between_windows_are_counted(capture: Path) -> None:
    samples = inline(PLANS["gapped"], [Input("Main", capture)])[1].samples()
    assert samples.total(OUTSIDE_WINDOWS) == sum(number % 7 < 4 for number in range(ROWS))


def test_several_inputs_are_refused_as_there_is_no_order_between_them(capture: Path, tmp_path: Path) -> None:
    sql = "SELECT count(*) FROM Main [RANGE 9 rows]"
    other = small_captures.write(tmp_path / "other.pcap", [(1, small_captures.udp("10.0.0.1", "10.0.0.2", 1, 2))])
    for many in ([str(capture), str(other)], [str(tmp_path), str(capture)]):
        with pytest.raises(
            InputError, match=r"depend on the order .* got 2 .*Main.pcap.*, expected one capture: merge"
        ):
            in_ns.query(sql, *many)
    with pytest.raises(InputError, match=r"files come to .* in any order"):
        in_ns.query(sql, str(tmp_path), follow=True)
    with pytest.raises(InputError, match="got 2"):
        in_ns.query("SELECT count(*) FROM A UNION B [RANGE 9 rows]", streams={"A": [str(capture)], "B": [str(other)]})
    assert in_ns.query(sql, streams={"Main": [str(other)], "Other": [str(capture)]}).num_rows == 1
    assert in_ns.query("SELECT count(*) FROM Main [RANGE 9 s]", str(capture), str(other)).num_rows > 1


def test_a_pipeline_whose_link_is_several_files_is_refused(capture: Path, tmp_path: Path) -> None:
    pipeline = parse_pipeline(
        f'[links]\nMain = ["{capture}", "{capture.parent}/M*.pcap"]\nOther = "{capture}"\n'
        '[queries.rows]\nsql = "SELECT count(*) FROM Main [RANGE 9 rows]"\n'
        '[queries.all]\nsql = "SELECT count(*) FROM packets [RANGE 9 rows]"\n',
        tmp_path,
    )
    one, every = pipeline.plans()
    with pytest.raises(InputError):
        pipeline.inputs([one])
    linked = parse_pipeline(
        f'[links]\nMain = "{capture}"\nOther = "{capture}"\n[queries.rows]\nsql = "{one.sql}"\n', tmp_path
    )
    assert len(linked.inputs([one])) == 2
    with pytest.raises(InputError, match="got 2"):
        linked.inputs([every])


@pytest.mark.spark
@pytest.mark.parametrize("name", QUERIES)
def test_spark_batch_says_and_counts_the_same(name: str, spark, capture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from highlevel.spark.batch import BatchRun

    inputs = [Input("Main", capture)]
    batch = BatchRun(spark, [PLANS[name]], inputs)
    assert answer(batch.run()[0]) == QUERIES[name][1]()
    samples = inline(PLANS[name], inputs)[1].samples()
    assert [batch.samples.total(each) for each in COUNTERS] == [samples.total(each) for each in COUNTERS]


def test_what_a_task_hands_on_is_put_back_into_its_order(capture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    from capture.open import open_finite
    from highlevel.spark.inputs import byte_ranges
    from highlevel.spark.inputs.assignment import InputAssignment
    from highlevel.spark.inputs.reading import COUNTERS
    from highlevel.spark.tasks.finite_host import FiniteLevelTask
    from highlevel.spark.tasks.packing import unpack

    monkeypatch.setattr(byte_ranges, "BUFFERED_PARTIALS", 1)
    monkeypatch.setattr(byte_ranges, "BLOCK_RECORDS", 100)
    for name in ("printed_q5_3", "idle"):
        file = open_finite(capture, "a test")
        tasks = tuple(byte_ranges.make_whole_tasks([file]))
        feeds = InputAssignment.of([PLANS[name]], [Input("Main", capture)], 3)
        reader = byte_ranges.RangeReader(feeds, (byte_ranges.input_size(file),), tasks, 64)
        handed = list(reader(iter([pa.RecordBatch.from_pydict({"id": [0]})])))
        assert len(handed) > 20
        Random(name).shuffle(handed)
        output = pa.Table.from_batches(FiniteLevelTask(feeds, 0)(iter(handed)))
        packed = output.filter(pc.not_equal(output["query"], COUNTERS))["payload"]
        assert answer(pa.concat_tables(unpack(payload.as_buffer()) for payload in packed)) == QUERIES[name][1]()


@pytest.mark.spark
@pytest.mark.parametrize("partitions", [1, 3])
def test_spark_streams_say_and_count_the_same(partitions: int, spark, capture: Path, tmp_path: Path) -> None:
    """In small blocks, several tasks of one input in a micro-batch, and several micro-batches."""
    from highlevel.spark.stream import StreamRun
    from tests.harness.spark_results import read_results

    inputs = [Input("Main", capture)]
    plans = list(PLANS.values())
    run = StreamRun(spark, plans, inputs, tmp_path, partitions=partitions, block_records=100, max_blocks=9)
    run.start()
    try:
        assert run.wait()
    finally:
        run.stop()
    for plan in plans:
        assert answer(read_results(tmp_path, plan)) == QUERIES[plan.name][1]()
        want = inline(plan, inputs)[1].samples()
        for each in COUNTERS:
            labelled = {key: value for key, value in run.samples.items() if key[0] == each.name}
            mine = sum(value for (_, labels), value in labelled.items() if labels[0] == plan.name)
            assert mine == want.total(each), f"{plan.name}: {each.name}"


@pytest.mark.spark
def test_a_spool_keeps_the_order(spark, capture: Path, tmp_path: Path) -> None:
    """Many small segments, several to a task and several tasks to a micro-batch."""
    from highlevel.spark.stream import StreamRun
    from tests.harness.spark_results import read_results
    from tests.harness.spool_node import write_spools

    plans = list(PLANS.values())
    spools = write_spools([Input("Main", capture)], tmp_path / "spools", plans, Random(1), block_records=100)
    run = StreamRun(spark, plans, spools, tmp_path / "run", partitions=2, max_bytes=100_000)
    run.start()
    try:
        assert run.wait()
    finally:
        run.stop()
    for plan in plans:
        assert answer(read_results(tmp_path / "run", plan)) == QUERIES[plan.name][1]()


@pytest.mark.spark
def test_spark_refuses_several_inputs(spark, capture: Path, tmp_path: Path) -> None:
    from highlevel.spark.batch import BatchRun
    from highlevel.spark.stream import StreamRun

    inputs = [Input("Main", capture), Input("Main", capture)]
    with pytest.raises(InputError, match="got 2"):
        BatchRun(spark, [PLANS["some"]], inputs)
    with pytest.raises(InputError, match="got 2"):
        StreamRun(spark, [PLANS["some"]], inputs, tmp_path)


def test_explain_says_whose_rows_are_counted() -> None:
    text = explain(PLANS["idle"])
    assert "of each partition's rows as they arrive, RANGE 6 rows, SLIDE 4 rows" in text
    assert "panes of 2 rows, 3 per window, each row in 1 or 2 windows" in text
    assert "starts again if its next row is 30 seconds or more later" in text
    assert "window_start, window_end: numbers of rows, half-open" in text
    assert "and each row is passed on unchanged" in text
