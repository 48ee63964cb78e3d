"""Queries with a consistency on Spark, without a JVM: hosts are called in the order in which Spark calls them.

The changes are compared with those of the inline engine. The tests detect a newest time that some partitions do not
receive, a task that forgets the time of its link, and changes that are lost or doubled by a repeated micro-batch.
"""

from collections import Counter
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from capture.errors import InputError
from highlevel.inline.engine import InlineRun, Input
from highlevel.metrics import LATE_ROWS, WINDOWS_OPEN
from highlevel.plan.plan import Plan
from highlevel.spark.inputs import byte_ranges
from highlevel.spark.inputs.assignment import InputAssignment
from highlevel.spark.inputs.source import StreamSpec
from highlevel.spark.run_folder.totals import Totals
from highlevel.spark.stream import StreamRun
from highlevel.speculation.changes import final_changes
from queries.gsql import compile_query
from tests.conftest import Rounds
from tests.harness.disordered_links import disordered_links
from tests.harness.spark_tasks import batch_answer
from tests.harness.spool_node import write_spools
from tests.harness.stream_steps import inline, same_rows, steps
from tests.references.pcap_bytes import pcap_bytes
from tests.references.small_captures import RAW_IP

GROUPS = "SELECT srcIP, count(*) AS n, sum(len) AS bytes [RANGE 10 seconds] FROM packets GROUP BY srcIP"
BASES = [
    GROUPS,
    f"{GROUPS} HAVING count(*) > 20",
    f"{GROUPS} HAVING top(2, count(*))",
    "SELECT count(*) AS n [RANGE 10 seconds, SLIDE 4 seconds] FROM packets WHERE srcIP <> '10.0.0.3'",
]
STATED = ["", "WAIT 2 seconds", "WAIT FOREVER", "REMEMBER 9 seconds", "WAIT 0, REMEMBER 1 second", "REMEMBER 0"]


SENT = "SELECT srcIP, count(*) AS n FROM packets [RANGE 5 seconds] GROUP BY srcIP"
GRAPHS = {
    "coarser windows": f"SELECT count(*) AS k, sum(n) AS n, max(n) AS high FROM ({SENT}) [RANGE 20 seconds]",
    "union": f"SELECT window_end, n FROM ({SENT}) UNION SELECT window_end, n FROM ({SENT.replace('5', '10')})",
    "join": f"SELECT a.window_end, a.srcIP, a.n, b.n AS m FROM ({SENT}) a [RANGE 0 s, WA window_end] "
    f"JOIN ({GROUPS}) b [RANGE 0 s, WA window_end] ON a.srcIP = b.srcIP",
    "without copies": "SELECT srcIP, count(*) AS n FROM packets DISTINCT ON (srcIP, len) WITHIN 1 s [RANGE 10 seconds] "
    "GROUP BY srcIP",
    "limit": f"{SENT} ORDER BY n DESC LIMIT 2",
    "lifetimes": "SELECT srcIP, count(*) AS n, max(len) AS m FROM packets [LIFETIME 4 s] GROUP BY srcIP",
    "first of lifetimes": "SELECT srcIP, count(*) AS n FROM packets [LIFETIME 4 s] GROUP BY srcIP "
    "ORDER BY n DESC LIMIT 2",
    "overlaps": "SELECT a.len, count(*) AS n FROM packets DISTINCT ON (srcIP, len) WITHIN 1 s [LIFETIME 2 s] a "
    "JOIN packets [LIFETIME 1 s] b ON a.srcIP = b.srcIP GROUP BY a.len",
    "overlaps or none": "SELECT a.len, b.len AS other, window_end FROM packets [LIFETIME 2 s] a "
    "FULL JOIN packets [LIFETIME 1 s] b ON a.srcIP = b.destIP AND a.len > b.len",
    "times of overlaps": "SELECT a.len, window_start FROM packets [LIFETIME 2 s] a SEMI JOIN packets [LIFETIME 1 s] b "
    "ON a.srcIP = b.destIP",
    "absence": "SELECT p.ts, p.srcIP FROM packets p [RANGE 2 seconds] ANTI JOIN packets q [RANGE 0 s] "
    "ON q.srcIP = p.srcIP",
}
"""Queries with several operators."""


def sql_of(base: str, options: str, emit: str = "EMIT CHANGES") -> str:
    return f"{base} {f'WITH CONSISTENCY ({options})' if options else ''} {emit}"


def changes_in(table: pa.Table) -> Counter[tuple]:
    """Return the number of each change, the rows with a weight of 2 as two changes."""
    changes: Counter[tuple] = Counter()
    for row in table.to_pylist():
        *result, weight, final = row.values()
        changes[*result, 1 if weight > 0 else -1, final] += abs(weight)
    return changes


def sums_of(changes: Counter[tuple]) -> Counter[tuple]:
    """Return the result that the changes add up to."""
    sums: Counter[tuple] = Counter()
    for (*row, weight, _), times in changes.items():
        sums[tuple(row)] += weight * times
    assert min(sums.values(), default=0) >= 0, "a row was withdrawn that was not returned"
    return +sums


def rows_of(table: pa.Table) -> Counter[tuple]:
    return Counter(tuple(row.values()) for row in table.to_pylist())


def inline_table(plan: Plan, inputs: list[Input], block_records: int) -> tuple[pa.Table, InlineRun]:
    run = InlineRun([plan], inputs, block_records=block_records, threads=1)
    batches = [batch for _, batch in run.results()]
    return pa.Table.from_batches(batches, plan.schema), run


def test_micro_batches_of_one_block_have_the_changes_of_the_inline_engine(tmp_path: Path, rounds: Rounds) -> None:
    for seed in rounds(2):
        random = Random(f"one block {seed}")
        folder = tmp_path / str(seed)
        folder.mkdir()
        inputs = disordered_links(folder, random, 1, 300, random.choice([0.5, 3, 8]))
        plans = [compile_query(sql_of(random.choice(BASES), stated), f"q{n}") for n, stated in enumerate(STATED)]
        block = random.choice([15, 40])
        spec = StreamSpec(InputAssignment.of(plans, inputs, random.choice([1, 2, 5])), 64, block, 1, None, 1)
        found: dict[str, Counter[tuple]] = {plan.name: Counter() for plan in plans}
        totals = Totals()
        for results, totals in steps(spec, folder / "state", random):  # noqa: B007
            for name, table in results.items():
                found[name] += changes_in(table)
        for plan in plans:
            expected, run = inline_table(plan, inputs, block)
            assert found[plan.name] == changes_in(expected), (seed, plan.sql)
            late = run.samples().total(LATE_ROWS, query=plan.name)
            assert totals.samples.total(LATE_ROWS, query=plan.name) == late, (seed, plan.sql)
        assert totals.samples.total(WINDOWS_OPEN) == 0


def test_changes_of_any_micro_batches_add_up_to_the_exact_answer(tmp_path: Path, rounds: Rounds) -> None:
    for seed in rounds(3):
        random = Random(f"sums {seed}")
        folder = tmp_path / str(seed)
        folder.mkdir()
        inputs = disordered_links(folder, random, random.choice([1, 2, 3]), 500, 8)
        (folder / "silent.pcap").write_bytes(pcap_bytes([], RAW_IP))
        inputs.append(Input("silent", folder / "silent.pcap"))
        stated = [
            random.choice(["", "EARLY 2 seconds", "WAIT 3 s, EARLY 700 ms", "WAIT 1 s, REMEMBER 9 s"]) for _ in BASES
        ]
        plans = [
            compile_query(sql_of(base, each), f"q{n}") for n, (base, each) in enumerate(zip(BASES, stated, strict=True))
        ]
        plans.append(compile_query(GROUPS, "plain"))
        assignment = InputAssignment.of(plans, inputs, random.choice([1, 2, 5]))
        spec = StreamSpec(
            assignment, 64, random.choice([20, 100]), random.choice([1, 3, 40]), None, random.choice([1, 3])
        )
        found: dict[str, Counter[tuple]] = {plan.name: Counter() for plan in plans[:-1]}
        plain: list[pa.Table] = [plans[-1].schema.empty_table()]
        for results, _ in steps(spec, folder / "state", random):
            plain += [table for name, table in results.items() if name == "plain"]
            for name, table in results.items():
                if name != "plain":
                    found[name] += changes_in(table)
                    sums_of(found[name])
        exact, _ = inline([compile_query(base, f"q{n}") for n, base in enumerate(BASES)], inputs)
        for plan in plans[:-1]:
            columns = plan.schema.names[:-2]
            assert sums_of(found[plan.name]) == rows_of(exact[plan.name].select(columns)), (seed, plan.sql)
        assert same_rows(pa.concat_tables(plain), exact["q0"]), seed


def test_changes_over_spools_add_up_to_the_exact_answer(tmp_path: Path) -> None:
    random = Random("spools")
    captures = disordered_links(tmp_path, random, 2, 800, 5)
    stated = ["", "WAIT 2 seconds, REMEMBER 6 seconds", "WAIT FOREVER, REMEMBER 7 seconds"]
    plans = [compile_query(sql_of(GROUPS, each), f"q{number}") for number, each in enumerate(stated)]
    inputs = write_spools(captures, tmp_path / "spools", plans, random, 0.1, 30)
    spec = StreamSpec(InputAssignment.of(plans, inputs, 3), 64, 100, 1, None, 2, max_bytes=1)
    found: dict[str, list[Counter[tuple]]] = {plan.name: [] for plan in plans}
    for results, _ in steps(spec, tmp_path / "state", random):
        for name, table in results.items():
            found[name].append(changes_in(table))
    exact, _ = inline([compile_query(GROUPS, "q")], captures)
    for name, batches in found.items():
        assert sums_of(sum(batches, Counter())) == rows_of(exact["q"]), name
        assert len(batches) > (1 if name == "q0" else 3)


@pytest.mark.drawn
@pytest.mark.parametrize("name", GRAPHS)
def test_changes_of_several_operators_add_up_to_the_exact_answer(name: str, tmp_path: Path) -> None:
    random = Random(f"graph {name}")
    inputs = disordered_links(tmp_path, random, 2, 200, 6)
    exact, _ = inline([compile_query(GRAPHS[name], "q")], inputs)
    plan = compile_query(sql_of(GRAPHS[name], random.choice(["", "WAIT 2 seconds", "REMEMBER 7 seconds"])), "q")
    expected = rows_of(exact["q"].select(plan.schema.names[:-2]))
    spec = StreamSpec(InputAssignment.of([plan], inputs, 3), 64, 20, 2, None, 2)
    batches = [changes_in(results["q"]) for results, _ in steps(spec, tmp_path / "state", random) if "q" in results]
    assert sums_of(sum(batches, Counter())) == expected
    remembering = compile_query(sql_of(GRAPHS[name], "REMEMBER 7 seconds", "EMIT FINAL"), "q")
    for final in (plan.with_final_rows(), remembering):
        assert rows_of(batch_answer(final, inputs, 3, random).select(plan.schema.names[:-2])) == expected


def test_a_result_is_corrected_at_most_once_in_a_micro_batch(tmp_path: Path) -> None:
    inputs = disordered_links(tmp_path, Random(1), 2, 1500, 8)
    plan = compile_query(sql_of("SELECT count(*) AS n [RANGE 10 seconds] FROM packets", ""), "q")
    spec = StreamSpec(InputAssignment.of([plan], inputs, 2), 64, 10, 20, None, 3)
    batches = [results["q"] for results, _ in steps(spec, tmp_path / "state", Random(1)) if "q" in results]
    assert sum(row["weight"] < 0 for table in batches for row in table.to_pylist()) > 3
    for table in batches:
        new = Counter(row["window_start"] for row in table.to_pylist() if row["weight"] > 0)
        assert set(new.values()) == {1}


@pytest.mark.parametrize("parts", [1, 3])
def test_the_batch_answer_of_a_capture_has_the_late_rows_of_the_inline_engine(
    parts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rounds: Rounds
) -> None:
    monkeypatch.setattr(byte_ranges, "BLOCK_RECORDS", 50)
    late = 0.0
    for seed in rounds(2):
        random = Random(f"batch {seed}")
        inputs = disordered_links(tmp_path, random, 1, 600, random.choice([0.5, 8]))
        for base in BASES:
            plan = compile_query(sql_of(base, random.choice(STATED[3:]), "EMIT FINAL")).with_row_counts()
            expected, run = inline_table(plan, inputs, 50)
            assert rows_of(batch_answer(plan, inputs, parts, random)) == rows_of(expected), (seed, plan.sql)
            late += run.samples().total(LATE_ROWS)
    assert late > 0


def test_links_of_a_batch_advance_together_so_that_no_row_within_the_memory_is_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(byte_ranges, "BLOCK_RECORDS", 50)
    inputs = disordered_links(tmp_path, Random(3), 3, 600, 8)
    exact, _ = inline([compile_query(GROUPS, "q")], inputs)
    plan = compile_query(sql_of(GROUPS, "REMEMBER 9 seconds", "EMIT FINAL"))
    assert rows_of(batch_answer(plan, inputs, 3, Random(3))) == rows_of(exact["q"])


@pytest.mark.parametrize("stated", ["", "WAIT 2 seconds", "WAIT FOREVER"])
def test_changes_of_a_batch_are_the_final_rows(stated: str, tmp_path: Path) -> None:
    inputs = disordered_links(tmp_path, Random(4), 2, 300, 8)
    plan = compile_query(sql_of(GROUPS, stated))
    exact, _ = inline([compile_query(GROUPS, "q")], inputs)
    final = plan.with_final_rows()
    assert not final.is_by_arrival
    changes = final_changes(batch_answer(final, inputs, 2, Random(4)))
    assert changes.schema.equals(plan.schema)
    assert changes_in(changes) == Counter({(*row, 1, True): times for row, times in rows_of(exact["q"]).items()})
    assert final_changes(final.schema.empty_table()).equals(plan.schema.empty_table())


def test_changes_of_flows_in_captures_are_refused_on_spark(tmp_path: Path) -> None:
    plan = compile_query("SELECT srcIP, count(*) [RANGE 10 s] FROM flows GROUP BY srcIP EMIT CHANGES", "q")
    with pytest.raises(InputError, match=r"query q: flows must be read in one pass: expected wiretide query"):
        StreamRun(lambda: None, [plan], [Input("a", tmp_path / "a.pcap")], tmp_path / "run")  # type: ignore[arg-type, return-value]
