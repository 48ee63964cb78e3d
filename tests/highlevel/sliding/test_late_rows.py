"""Rows that are late for a window: dropped and counted, or reported as rows of their own.

The tests detect a supplement that is doubled, lost or not marked. They detect a row that is late only for some of its
windows and is added to others twice.
"""

import gzip
from collections import Counter, defaultdict
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from highlevel.aggregation import LATE
from highlevel.inline.engine import InlineRun
from highlevel.metrics import LATE_ROWS
from highlevel.plan.operators.windowed import WindowedOperator
from highlevel.plan.pipeline import Pipeline
from highlevel.plan.plan import Plan
from highlevel.sliding import aggregate as late_windows
from lowlevel.punctuation import END, Punctuation
from queries.gsql import compile_query
from queries.pipeline.inputs import bind_files
from queries.text.errors import QueryError
from tests.references import small_captures
from tests.references.operator_contract import rows_of, through_ipc
from tests.references.windows_oracle import Spec

SELECT = "SELECT destPort, count(*) AS n, sum(len) AS bytes, min(len) AS least FROM M "


def plan_of(spec: Spec, late: str) -> Plan:
    clause = f"[RANGE {spec.range} ns, SLIDE {spec.slide} ns, ORIGIN {spec.origin}, LATE {late}]"
    return compile_query(f"{SELECT} {clause} GROUP BY destPort")


def windows_in(pipeline: Pipeline) -> WindowedOperator:
    ((_, operator),) = pipeline.window_operators
    return operator


def partial(plan: Plan, ts: int, port: int, length: int) -> pa.RecordBatch:
    pane = (ts - plan.leaves[0].low.origin) // plan.leaves[0].low.pane
    row = {"link": "M", "pane": pane, "k0": port, "s0": 1, "s1": length, "s2": length}
    return pa.RecordBatch.from_pylist([row], schema=plan.leaves[0].low.schema)


@pytest.mark.parametrize("seed", range(200))
def test_what_was_reported_and_what_is_added_is_the_definition(seed: int) -> None:
    random = Random(seed)
    spec = Spec(random.randint(1, 60), random.randint(1, 20))
    plan = plan_of(spec, "EMIT")
    assert [each.kind for each in plan.leaves[0].low.subaggregates] == ["count", "sum", "min"]
    pipeline = Pipeline(plan, [["M"]])
    wanted: dict[tuple, list[int]] = defaultdict(list)
    low, items, late = -1, [], 0
    for _ in range(random.randrange(1, 60)):
        if random.random() < 0.3:
            low += random.randrange(0, 30)
            items += pipeline.punctuate(0, Punctuation("M", low))
        else:
            ts, port, length = random.randrange(100), random.choice([80, 443]), random.randrange(9)
            for wid in spec.wids(ts):
                wanted[(*spec.extent(wid), port)].append(length)
                late += spec.extent(wid)[1] <= low
            items += pipeline.process_rows(0, partial(plan, ts, port, length))
        if random.random() < 0.1:
            stopped, pipeline = pipeline, Pipeline(plan, [["M"]])
            pipeline.restore(through_ipc(stopped.snapshot()))
            windows_in(pipeline).windows.aggregate.late = windows_in(stopped).windows.aggregate.late  # type: ignore[attr-defined]
    items += pipeline.punctuate(0, Punctuation("M", END))
    added: dict[tuple, list[tuple[int, int, int]]] = defaultdict(list)
    in_time: set[tuple] = set()
    for row in rows_of(items).elements():
        *key, count, total, least, is_late = row
        added[tuple(key)].append((count, total, least))
        if not is_late:
            assert tuple(key) not in in_time, "a window is reported once"
            in_time.add(tuple(key))
    found = {
        key: (sum(count for count, *_ in parts), sum(total for _, total, _ in parts), min(least for *_, least in parts))
        for key, parts in added.items()
    }
    assert found == {key: (len(lengths), sum(lengths), min(lengths)) for key, lengths in wanted.items()}
    assert windows_in(pipeline).late == late


def test_a_flood_of_late_rows_is_not_laid_out_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late_windows, "MERGE_ROWS", 1000)
    plan = compile_query(f"{SELECT} [RANGE 500 ns, SLIDE 1 ns, LATE EMIT] GROUP BY destPort")
    pipeline = Pipeline(plan, [["M"]])
    list(pipeline.punctuate(0, Punctuation("M", 10_000)))
    flood = pa.Table.from_batches([partial(plan, 1000 + ts, port, 1) for ts in range(9) for port in range(20)])
    items = list(pipeline.process_rows(0, flood.combine_chunks().to_batches()[0]))
    assert len(items) == 9 * 20 * 500 // 1000
    assert max(item.num_rows for item in items) <= 1000 + 500
    added = pa.Table.from_batches(items).group_by(["window_end", "destPort"]).aggregate([("n", "sum")]).to_pylist()
    wanted = Counter((1000 + ts + late + 1, port) for ts in range(9) for late in range(500) for port in range(20))
    assert {(row["window_end"], row["destPort"]): row["n_sum"] for row in added} == wanted


def test_they_are_dropped_unless_told_otherwise() -> None:
    for clause in ("", ", LATE DROP"):
        plan = compile_query(f"{SELECT} [RANGE 10 ns{clause}] GROUP BY destPort")
        pipeline = Pipeline(plan, [["M"]])
        list(pipeline.punctuate(0, Punctuation("M", 10)))
        assert list(pipeline.process_rows(0, partial(plan, 5, 80, 1))) == []
        assert (windows_in(pipeline).late, windows_in(pipeline).late_rows) == (1, 1)
        assert LATE not in plan.schema.names


def test_a_link_with_a_short_slack_adds_to_its_windows(tmp_path: Path) -> None:
    frame = small_captures.udp("10.0.0.1", "10.0.0.2", 1, 2)
    times = [1] * 100 + [15] * 100 + [5] * 10 + [25] * 100
    path = small_captures.write(tmp_path / "a.pcap", [(seconds, frame) for seconds in times])
    compressed = path.with_suffix(".pcap.gz")
    compressed.write_bytes(gzip.compress(path.read_bytes()))
    plan = compile_query("SELECT count(*) AS n FROM packets [RANGE 10 seconds, LATE EMIT]")
    run = InlineRun([plan], bind_files([str(compressed)]), slack=10**9, threads=1, block_records=10)
    rows = [tuple(row.values()) for _, batch in run.results() for row in batch.to_pylist()]
    ends = [end // 10**9 for _, end, _, _ in rows]
    assert [(end, count, late) for end, (*_, count, late) in zip(ends, rows, strict=True)] == [
        (10, 100, False),
        (10, 10, True),
        (20, 100, False),
        (30, 100, False),
    ]
    assert run.samples().total(LATE_ROWS) == 10


@pytest.mark.parametrize("clause", ["SESSION 5 s", "RANGE ALL, SLIDE 5 s", "RANGE 5 s, SLIDE 1 row"])
def test_other_windows_cannot_be_added_to(clause: str) -> None:
    with pytest.raises(QueryError, match="LATE EMIT for this kind of window"):
        compile_query(f"SELECT count(*) FROM M [{clause}, LATE EMIT]")


def test_no_column_may_have_its_name() -> None:
    with pytest.raises(QueryError, match="'late' is already taken"):
        compile_query("SELECT count(*) AS late FROM M [RANGE 1 s, LATE EMIT]")
    assert compile_query("SELECT count(*) AS late FROM M [RANGE 1 s]").schema.names[-1] == LATE
