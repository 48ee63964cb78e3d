"""Queries of one run share equal nodes. The answer and the counters of each are those of a run of its own."""

from pathlib import Path
from random import Random

import pytest

from capture.metrics import Samples
from highlevel.inline.engine import InlineRun, Input
from highlevel.plan.nodes import Join, Leaf, Node, Windowed
from highlevel.plan.pipeline import Pipeline
from highlevel.plan.plan import Plan
from lowlevel.metrics import TABLE_BURST, TABLE_BYTES, TABLE_PANES, TABLE_RESIDENT
from queries.gsql import compile_query
from tests.harness.inline_rows import rows_of
from tests.references.node_oracle import write_capture

GROUPS = "SELECT srcIP, count(*) AS n [RANGE 2 s, WA ts] FROM M GROUP BY srcIP"
PAIRS = "FROM M A [RANGE 1 s], M B [RANGE 0 s] WHERE A.len > 60 AND B.ttl > 30 AND A.srcIP = B.srcIP"

TEXTS = [
    GROUPS,
    f"{GROUPS} ORDER BY n DESC LIMIT 1",
    f"{GROUPS} ORDER BY n LIMIT 2",
    f"SELECT max(n) AS most FROM ({GROUPS}) [RANGE 6 s, WA window_end]",
    f"SELECT A.ts, B.len {PAIRS}",
    f"SELECT srcIP, count(*) AS pairs FROM (SELECT A.srcIP, B.len {PAIRS}) GROUP BY srcIP",
    GROUPS,
    "SELECT ts, srcIP, len FROM M WHERE len > 200",
    "SELECT srcIP, max(len) AS longest FROM (SELECT ts, srcIP, len FROM M WHERE len > 200) GROUP BY srcIP",
]

TABLES = {TABLE_BYTES.name, TABLE_RESIDENT.name, TABLE_BURST.name, TABLE_PANES.name}
"""Figures of tables: they differ for queries that share a table with others."""


def answers(plans: list[Plan], path: Path, threads: int) -> tuple[list[list[tuple]], InlineRun]:
    run = InlineRun(plans, [Input("M", path)], 64, threads=threads, block_records=40)
    rows: list[list[tuple]] = [[] for _ in plans]
    for number, batch in run.results():
        rows[number] += rows_of(batch)
    return [sorted(each, key=repr) for each in rows], run


def of_query(samples: Samples, name: str) -> dict[object, float]:
    return {key: value for key, value in samples.items() if name in key[1] and key[0] not in TABLES}


@pytest.mark.parametrize("threads", [1, 3])
def test_the_rows_and_counters_of_each_query_are_those_of_its_own_run(threads: int, tmp_path: Path) -> None:
    path = tmp_path / "M.pcap"
    write_capture(path, 7, 600)
    order = [*range(len(TEXTS))]
    Random(threads).shuffle(order)
    plans = [compile_query(TEXTS[number], f"q{number}") for number in order]
    together, run = answers(plans, path, threads)
    samples = run.samples()
    for plan, rows in zip(plans, together, strict=True):
        (expected,), alone = answers([plan], path, threads)
        assert rows == expected != []
        if threads == 1:  # with several threads the number of partials varies
            assert of_query(samples, plan.name) == of_query(alone.samples(), plan.name)


def test_equal_nodes_of_several_queries_have_one_operator(tmp_path: Path) -> None:
    path = tmp_path / "M.pcap"
    write_capture(path, 7, 600)
    made: list[Node] = []
    _, run = answers([compile_query(text, f"q{number}") for number, text in enumerate(TEXTS)], path, 1)
    made += run.nodes.nodes
    # GROUPS, most and the two aggregates of the last sub-queries; the leaf of GROUPS, two of PAIRS, one of the rows.
    assert sum(isinstance(node, Windowed) for node in made) == 4
    assert sum(isinstance(node, Join) for node in made) == 1
    assert sum(isinstance(node, Leaf) for node in made) == 4
    assert len(set(made)) == len(made) == len(run.nodes.operators)


def test_a_name_in_from_without_input_is_an_error() -> None:
    plan = compile_query("SELECT A.ts, B.ts FROM L1 A [RANGE 1 s], L2 B [RANGE 0 s] WHERE A.srcIP = B.srcIP", "q")
    with pytest.raises(ValueError, match="query q: no input for L2, expected at least one"):
        Pipeline(plan, [["L1"], []])
