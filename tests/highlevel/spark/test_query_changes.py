"""Runs whose queries change between two starts: added, changed, removed, renamed, and in another order.

Each test restarts at random micro-batches with random queries, without a JVM. It finds three bugs: a query that loses
open windows, a query that loads the windows of another one, and an input that is read twice or not at all.
"""

from collections.abc import Sequence
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from capture import arrow_compute as pc
from highlevel.inline.engine import Input
from highlevel.metrics import RESULT_ROWS
from highlevel.plan.plan import Plan
from highlevel.spark.inputs.assignment import InputAssignment
from highlevel.spark.inputs.reading import COUNTERS
from highlevel.spark.inputs.source import CaptureReader, StreamSpec, index_captures, open_captures
from highlevel.spark.run_folder.identity import RunIdentity, apply_identity, continue_identity, describe_run
from highlevel.spark.run_folder.totals import Totals
from highlevel.spark.tasks.host import LevelTask
from highlevel.spark.tasks.packing import unpack
from queries.gsql import compile_query
from tests.harness.links import write_links
from tests.harness.spool_node import write_spools
from tests.harness.stream_steps import hosted, inline, same_rows, source_rows
from tests.references.graph_step_plans import PAIR
from tests.references.pcap_bytes import NS

PARTITIONS = 2

MARGIN = {"captures": 20 * NS, "spools": 120 * NS}
"""The windows of a join contain pairs of which one row is earlier. A spool states times as starts of panes, and only
of the partials that were read: panes of a minute may hide that other queries are a minute further.
"""

SQL = {
    "hosts": "SELECT srcIP, count(*) AS n FROM packets [RANGE 40 s, SLIDE 10 s] GROUP BY srcIP",
    "total": "SELECT count(*) AS n, sum(len) AS s FROM packets [RANGE 1 minute]",
    "first link": "SELECT len, count(*) AS n FROM Main1 [RANGE 30 s] GROUP BY len",
    "second link": "SELECT count(*) AS n FROM Main2 [RANGE 20 s]",
    "two levels": "WITH t AS (SELECT srcIP, count(*) AS n FROM packets [RANGE 10 s] GROUP BY srcIP) "
    "SELECT n, count(*) AS sources FROM t [RANGE 1 minute] GROUP BY n",
    "joined": f"SELECT A.len, count(*) AS n [RANGE 20 s, SLIDE 10 s, WA A.ts] {PAIR} GROUP BY A.len",
}


def chosen(random: Random, sql: dict[str, str]) -> list[Plan]:
    """Return some queries in any order."""
    names = random.sample(list(sql), random.randrange(1, len(sql) + 1))
    return [compile_query(sql[name], name) for name in names]


class ChangingRun:
    """A run that is started again and again with other queries. Nothing survives a stop except what Spark and the
    folder of the run keep: offsets, totals, states, and the identity.
    """

    def __init__(self, inputs: Sequence[Input], folder: Path) -> None:
        self.inputs, self.folder = inputs, folder
        self.offsets: list[dict[str, int]] = []
        self.totals = Totals()
        self.identity: RunIdentity | None = None
        self.rows: dict[str, list[pa.Table]] = {}
        self.newest_at_start: dict[str, int] = {}

    def start(self, plans: Sequence[Plan]) -> None:
        """Start with these queries. A query that begins discards the rows that its name had before."""
        used = [each for each in self.inputs if any(each.feeds(leaf) for plan in plans for leaf in plan.leaves)]
        self.assignment = InputAssignment.of(plans, used, PARTITIONS)
        new = describe_run(self.assignment, PARTITIONS, 50, False, open_captures(self.assignment.inputs))
        begun = {plan.name for plan in plans}
        if self.identity is not None:
            batch = len(self.offsets)
            self.identity, changes = continue_identity(self.folder, self.identity, new, batch, batch)
            self.assignment = apply_identity(self.assignment, new, self.identity)
            begun = {*changes.changed, *changes.added}
            for old, name in changes.renamed:
                self.rows[name], self.newest_at_start[name] = self.rows[old], self.newest_at_start[old]
        else:
            self.identity = new
        names = (plan.name for plan in plans)
        self.totals.rename_queries(dict(zip(self.assignment.query_ids, names, strict=True)))
        newest = max(self.totals.newest_times.values(), default=-1)
        self.rows |= {name: [] for name in begun}
        self.newest_at_start |= dict.fromkeys(begun, newest)
        self.spec = StreamSpec(self.assignment, 64, 50, 2, None, 2, 5_000)
        self.reader = CaptureReader(self.spec, index_captures(self.spec))

    def step(self, random: Random) -> bool:
        """Run one micro-batch, perhaps twice. Return False if all inputs have been read."""
        start = self.offsets[-1] if self.offsets else self.reader.initialOffset()
        for spool in self.reader.spools.values():
            spool.discard_listing()
        end = self.reader.latestOffset(start, self.reader.getDefaultReadLimit())
        if end == start:
            return False
        for _ in range(random.choice([1, 1, 2])):
            batches = source_rows(self.reader, start, end)
            for level in range(self.assignment.levels):
                batch, ended = len(self.offsets), self.totals.ended_inputs
                host = LevelTask(self.assignment, self.folder / "state", batch, level, ended)
                answers = hosted(host, batches, PARTITIONS)
                batches = answers.to_batches()
            self.reader = CaptureReader(self.spec, index_captures(self.spec))
        told: dict[bool, list[bytes]] = {True: [], False: []}
        for part, query, payload in zip(*(answers[name].to_pylist() for name in answers.column_names), strict=True):
            if query == COUNTERS:
                told[part == COUNTERS].append(payload)
            else:
                self.rows[self.assignment.plans[query].name].append(unpack(payload))
        self.offsets.append(end)
        self.totals.add(self.assignment, told[True], told[False])
        return True

    def check(self, captures: Sequence[Input], margin: int) -> None:
        """Compare the rows of all queries with the inline engine.

        A query that began later has all windows that begin `margin` after the rows that were read before.
        """
        plans = list(self.assignment.plans)
        want, _ = inline(plans, list(captures))
        for plan in plans:
            rows = pa.concat_tables([plan.schema.empty_table(), *self.rows[plan.name]])
            newest = self.newest_at_start[plan.name]
            expected = want[plan.name]
            assert same_rows(rows, expected) or newest >= 0, plan.name
            whole, complete = (
                table.filter(pc.greater(table["window_start"], newest + margin)) for table in (rows, expected)
            )
            assert same_rows(whole, complete), plan.name
            assert self.totals.samples.total(RESULT_ROWS, query=plan.name) == rows.num_rows
        labels = {labels[0] for (name, labels) in self.totals.samples if name == RESULT_ROWS.name}
        assert labels <= {plan.name for plan in plans}


@pytest.mark.parametrize("kind", ["captures", "spools"])
@pytest.mark.parametrize("seed", range(6))
def test_queries_that_stay_keep_their_windows_while_others_come_go_and_change(
    seed: int, kind: str, tmp_path: Path
) -> None:
    random = Random(f"changes {seed}")
    (tmp_path / "captures").mkdir()
    captures = write_links(tmp_path / "captures", seed)[:2]
    captures = [Input(each.link, each.path, each.link) for each in captures]
    plans = [compile_query(text, name) for name, text in SQL.items()]
    inputs = captures if kind == "captures" else write_spools(captures, tmp_path / "spools", plans, random)
    run = ChangingRun(inputs, tmp_path)
    sql = dict(SQL)
    always = random.choice(list(SQL))
    while True:
        running = chosen(random, sql)
        if always not in {plan.name for plan in running}:
            running.insert(random.randrange(len(running) + 1), compile_query(sql[always], always))
        run.start(running)
        steps = random.randrange(1, 6)
        if not all(run.step(random) for _ in range(steps)):
            break
        if kind == "captures" and random.random() < 0.3:
            name = random.choice([name for name in SQL if name != always])
            sql[name] = SQL[name].replace("count(*)", f"count(*) + {random.randrange(9)}", 1)
    assert run.totals.is_finished(run.assignment.input_ids)
    run.check(captures, MARGIN[kind])
    assert run.newest_at_start[always] == -1


def test_a_query_that_begins_after_the_end_of_a_link_does_not_wait_for_it(tmp_path: Path) -> None:
    random = Random(3)
    captures = [Input(each.link, each.path, each.link) for each in write_links(tmp_path, 8)[:2]]
    captures = sorted(captures, key=lambda each: each.path.stat().st_size)
    short, long = captures
    run = ChangingRun(captures, tmp_path)
    first = compile_query(f"SELECT count(*) AS n FROM {short.link} [RANGE 10 s]", "short")
    run.start([first])
    while run.step(random):
        pass
    both = compile_query("SELECT count(*) AS n FROM packets [RANGE 10 s]", "both")
    run.start([first, both])
    assert not run.totals.is_finished(run.assignment.input_ids)
    while run.step(random):
        pass
    (plan,) = [plan for plan in run.assignment.plans if plan.name == "both"]
    assert same_rows(pa.concat_tables(run.rows["both"]), inline([plan], [long])[0]["both"])


def test_a_renamed_query_keeps_windows_and_counters_and_a_removed_one_has_no_counters(tmp_path: Path) -> None:
    random = Random(4)
    captures = [Input(each.link, each.path, each.link) for each in write_links(tmp_path, 8)[:2]]
    run = ChangingRun(captures, tmp_path)
    run.start([compile_query(SQL["hosts"], "old"), compile_query(SQL["total"], "gone")])
    for _ in range(3):
        run.step(random)
    run.start([compile_query(SQL["hosts"], "new")])
    while run.step(random):
        pass
    run.check(captures, 0)
    assert run.newest_at_start["new"] == -1
    assert not any("gone" in labels or "old" in labels for _, labels in run.totals.samples)
