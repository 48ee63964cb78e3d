"""Every entry of the registry keeps the operator contract, and has the rows of its reference implementation.

These tests detect an operator without a reference implementation, wrong rows, and watermarks that a later row
contradicts. They detect state that a restart loses (`tests.references.graph_streams`), a partitioning that separates
rows of one group, and counters that are not declared. They detect rows of runs that are forgotten too early, or that
are returned twice because others were forgotten.
"""

from collections import Counter
from random import Random

import pytest

from capture.metrics import Samples, by_name
from highlevel.metrics import METRICS
from highlevel.patterns.store import Mask
from highlevel.plan.automaton_nodes import DistinctRowsOfRuns, RowsOfRuns
from highlevel.plan.change_nodes import is_changing
from highlevel.plan.nodes import Apply, Leaf, Node, nodes_of
from highlevel.plan.operators import rows_of_runs
from highlevel.plan.pipeline import make_operator
from highlevel.plan.registry import REGISTRY, entry_of
from lowlevel.expressions.tree import Column
from queries.gsql import compile_query
from queries.plans.table_lookup import NamedQuery
from tests.conftest import Rounds
from tests.references.change_references import REFERENCES, made_changes, net
from tests.references.graph_streams import check, feed, interleaved, rows_of, stream
from tests.references.plan_references import by_both, by_ts, made_rows, schema_of

KINDS = pytest.mark.parametrize("kind", REGISTRY, ids=lambda kind: kind.__name__)
DECLARED = by_name(METRICS)


def inputs_of(random: Random, node: Node) -> list[list[tuple]]:
    """Rows or changes for each input of a node, which may have fewer columns than rows that are drawn."""
    return [
        [(*row[: len(below.columns) - 2], *row[-2:]) for row in made_changes(random)]
        if is_changing(below)
        else [row[: len(below.columns)] for row in made_rows(random)]
        for below in node.inputs
    ]


def events_of(random: Random, node: Node, inputs: list[list[tuple]]) -> list:
    streams = [
        stream(random, rows, by_both if len(below.time_columns) == 2 else by_ts, max(1, len(below.time_columns)))
        for below, rows in zip(node.inputs, inputs, strict=True)
    ]
    return interleaved(random, streams)


def test_every_entry_has_a_reference_implementation() -> None:
    assert set(REFERENCES) == set(REGISTRY)


def test_a_node_type_without_an_entry_is_refused() -> None:
    leaf = next(node for kind in REGISTRY for node in REFERENCES[kind].node(Random(0)).inputs[0].inputs)
    assert isinstance(leaf, Leaf)
    with pytest.raises(TypeError, match="no operator for Leaf: expected one of Union, Filter"):
        entry_of(leaf)


@KINDS
def test_an_operator_keeps_the_contract_and_has_the_rows_of_its_reference(kind: type[Node], rounds: Rounds) -> None:
    for seed in rounds(20):
        check_kind(kind, seed)


def check_kind(kind: type[Node], seed: int) -> None:
    """Compare the rows of a random node with those of its reference implementation, and check its contract."""
    reference = REFERENCES[kind]
    random = Random(f"{kind.__name__} {seed}")
    node = reference.node(random)
    inputs = inputs_of(random, node)
    (schema,) = {schema_of(below) for below in node.inputs}
    events = events_of(random, node, inputs)
    found = check(lambda: make_operator(node), events, schema, node.time_columns, random, is_changing=is_changing(node))
    assert net(node, found) == reference.rows(node, inputs), seed


@pytest.mark.parametrize("kind", [RowsOfRuns, DistinctRowsOfRuns])
def test_operators_that_forget_rows_early_have_the_rows_of_their_reference(
    kind: type[Node], rounds: Rounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows_of_runs, "MIN_ROOM", 2)
    select, forgotten = rows_of_runs.RowsAndTracedRuns._select, []

    def count(runs: rows_of_runs.RowsAndTracedRuns, is_kept: Mask) -> None:
        forgotten.append(int((~is_kept).sum()))
        select(runs, is_kept)

    monkeypatch.setattr(rows_of_runs.RowsAndTracedRuns, "_select", count)
    for seed in rounds(60):
        check_kind(kind, seed)
    assert sum(forgotten) > 0


@KINDS
def test_partitions_by_the_required_key_have_together_the_rows_of_all(kind: type[Node], rounds: Rounds) -> None:
    reference = REFERENCES[kind]
    for seed in rounds(10):
        random = Random(f"partitions of {kind.__name__} {seed}")
        node = reference.node(random)
        inputs = inputs_of(random, node)
        keys = entry_of(node).partitioning.required(node, None)
        events = events_of(random, node, inputs)
        found: Counter[tuple] = Counter()
        for part in range(3):
            operator = make_operator(node)
            for port, what in events:
                if isinstance(what, list):
                    names = [column.name for column in node.inputs[port].columns]
                    what = [row for row in what if part_of(names, row, keys[port]) == part]
                if what:
                    schema = schema_of(node.inputs[port])
                    found += rows_of(feed(operator, (port, what), schema))
        assert net(node, found) == reference.rows(node, inputs), seed


def part_of(names: list[str], row: tuple, key: tuple | None) -> int:
    """Return the partition of a row. The parts of these keys are columns, or columns divided by a number."""
    if key is None:
        return hash(row) % 3
    values = dict(zip(names, row, strict=True))
    parts = [
        values[part.name] if isinstance(part, Column) else values[part.left.name] // part.right.value for part in key
    ]
    return hash(str(parts)) % 3


@KINDS
def test_counters_are_declared_and_have_the_labels_of_their_metrics(kind: type[Node]) -> None:
    random = Random(kind.__name__)
    node = REFERENCES[kind].node(random)
    operator = make_operator(node)
    for event in events_of(random, node, inputs_of(random, node)):
        feed(operator, event, schema_of(node.inputs[event[0]]))
    samples = Samples()
    entry_of(node).count(samples, operator, "q", "name")
    for (name, labels), value in samples.items():
        assert len(labels) == len(DECLARED[name].labels), name
        assert value >= 0
    of_query = Samples()
    entry_of(node).count(of_query, operator, "q", None)
    assert of_query.keys() == {key for key in samples if len(key[1]) == 1}
    assert operator.bytes >= 0


@KINDS
def test_nodes_are_values_and_are_rebuilt_from_their_inputs(kind: type[Node]) -> None:
    node, again = (REFERENCES[kind].node(Random(5)) for _ in range(2))
    assert node == again
    assert hash(node) == hash(again)
    assert node.with_inputs(node.inputs) == node
    renamed = node.transform(lambda each: Leaf("q", ("other",), each.low) if isinstance(each, Leaf) else each)
    assert renamed != node
    assert {each.streams for below in renamed.inputs for each in below.inputs} == {("other",)}
    assert all(isinstance(below, Apply) for below in renamed.inputs)


def test_the_plans_of_several_queries_share_equal_nodes() -> None:
    inner = "SELECT srcIP, count(*) AS n FROM packets [RANGE 1 minute] GROUP BY srcIP"
    named = {"inner": NamedQuery(inner)}
    queries = {"inner": inner, "hours": "SELECT srcIP, sum(n) AS n FROM inner [RANGE 1 hour] GROUP BY srcIP"}
    plans = [compile_query(sql, name, queries=named) for name, sql in queries.items()]
    shared = nodes_of(*(plan.root for plan in plans))
    assert [type(node).__name__ for node in shared] == ["Leaf", "Windowed", "Apply", "Windowed"]
    assert [leaf.name for plan in plans for leaf in plan.leaves] == ["inner", "hours"]
