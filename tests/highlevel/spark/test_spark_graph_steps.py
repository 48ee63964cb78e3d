"""Queries that are graphs, in fragments and partitions: what Spark's tasks do, compared with the inline engine.

No JVM is needed, as in `tests.highlevel.spark.test_spark_stream_steps`. The tests call planning, tasks and hosts level
by level, repeat micro-batches and shuffle their rows.
"""

from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from capture.metrics import RECORDS_READ
from highlevel.metrics import LATE_ROWS, OPERATOR_ROWS_HELD, RESULT_ROWS, WINDOWS_CLOSED, WINDOWS_OPEN
from highlevel.plan.fragments import cut, sources_of
from highlevel.spark.run_folder.totals import Totals
from lowlevel.punctuation import END
from queries.gsql import compile_query
from tests.harness.links import write_links
from tests.harness.spark_tasks import batch_answers
from tests.harness.stream_steps import inline, same_rows, spec, steps
from tests.references.graph_step_plans import PLANS, QUERIES


@pytest.mark.parametrize("seed", range(5))
def test_partitions_give_the_rows_of_one_process(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    inputs = write_links(tmp_path, seed)
    plans = random.sample(PLANS, 5)
    got: dict[str, list[pa.Table]] = {plan.name: [] for plan in plans}
    totals = Totals()
    for results, after in steps(spec(inputs, random, plans), tmp_path / "state", random):
        totals = after
        for name, table in results.items():
            got[name].append(table)
    want, run = inline(plans, inputs)
    expected = run.samples()
    for plan in plans:
        assert same_rows(pa.concat_tables([plan.schema.empty_table(), *got[plan.name]]), want[plan.name]), plan.name
        for metric in (RESULT_ROWS, WINDOWS_CLOSED, LATE_ROWS):
            told = totals.samples.total(metric, query=plan.name)
            assert told == expected.total(metric, query=plan.name), (plan.name, metric.name)
        assert totals.watermarks[plan.name] == END
    assert totals.samples.total(RECORDS_READ) == expected.total(RECORDS_READ)
    for metric in (WINDOWS_OPEN, OPERATOR_ROWS_HELD):
        assert totals.samples.total(metric) == 0, metric.name
    assert totals.is_finished(range(len(inputs)))


@pytest.mark.parametrize("seed", range(5))
def test_one_batch_job_gives_each_query_its_rows(seed: int, tmp_path: Path) -> None:
    """The queries have different numbers of levels and partitions. Their ports have equal numbers."""
    random = Random(seed)
    inputs = write_links(tmp_path, seed)
    plans = random.sample([plan for plan in PLANS if not plan.has_changes], 12)
    want, _ = inline(plans, inputs)
    answers = batch_answers(plans, inputs, random.choice([1, 3]), random)
    for plan in plans:
        assert same_rows(answers[plan.name], want[plan.name]), plan.name
    assert len({max(cut(plan).levels) for plan in plans}) > 1


def levels(sql: str) -> list[int]:
    return list(cut(compile_query(sql)).levels)


def test_rows_are_dealt_anew_only_where_they_have_to_be() -> None:
    assert levels(QUERIES["no graph"]) == [0]
    assert levels(QUERIES["rows"]) == [0]
    assert levels(QUERIES["pairs"]) == [0]
    assert levels(QUERIES["by the key"]) == [0]
    assert levels(QUERIES["by another"]) == [0, 1]
    assert levels(QUERIES["by nothing"]) == [0, 1]
    assert levels(QUERIES["three times"]) == [0, 1, 2]
    assert levels(QUERIES["with a leaf"]) == [0, 1]


@pytest.mark.parametrize("name", QUERIES)
def test_fragments_hand_on_what_the_query_has(name: str) -> None:
    plan = compile_query(QUERIES[name], name)
    stages = cut(plan)
    assert stages.fragments[-1].schema == plan.schema
    handed = [source for fragment in stages.fragments for source in sources_of(fragment)]
    assert sorted(set(handed)) == list(range(len(stages.sources)))
    assert {source.leaf for source in stages.sources} - {None} == set(range(len(plan.leaves)))
    for number in range(len(stages.fragments) - 1):
        assert any(source.fragment == number for source in stages.sources), "a fragment is read by another, or the last"
