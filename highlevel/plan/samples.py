"""What a query that is a graph counts: what every query does, and of each operator that holds something."""

from __future__ import annotations

from typing import TYPE_CHECKING

from capture.metrics import Samples
from highlevel.metrics import (
    JOIN_PAIRS,
    JOIN_ROWS_STORED,
    LATE_PARTIALS,
    LATE_ROWS,
    OPERATOR_LATE_ROWS,
    OPERATOR_RESULT_ROWS,
    OPERATOR_ROWS_HELD,
    OPERATOR_ROWS_RECEIVED,
    OPERATOR_STATE_BYTES,
    OUTSIDE_WINDOWS,
    PARTIALS_BEYOND_CAP,
    PARTIALS_RECEIVED,
    RESULT_ROWS,
    ROWS_BEYOND_CAP,
    STATE_BYTES,
    WINDOWS_CLOSED,
    WINDOWS_OPEN,
    set_progress,
)
from highlevel.operators.meld import Meld
from highlevel.pipeline import number_of
from highlevel.plan.nodes import Leaf
from highlevel.plan.operators.operator import HoldingOperator, StoringOperator
from highlevel.plan.operators.windowed import WindowedOperator

if TYPE_CHECKING:
    from highlevel.plan.pipeline import GraphPipeline


def samples_of(pipeline: GraphPipeline, newest: int) -> Samples:
    """Return the counters and gauges of a pipeline; `newest` is the largest packet time seen on any link, in ns.

    The closed windows are those since this was last asked, added to those before.
    """
    query = pipeline.plan.name
    samples = Samples()
    for name, operator in zip(pipeline.plan.node_names, pipeline.operators, strict=True):
        if isinstance(operator, Meld):
            samples.add(PARTIALS_RECEIVED, operator.received, query)
        elif isinstance(operator, WindowedOperator):
            _add_windows(samples, operator, query)
            pipeline.windows_closed += number_of(operator.take_closed())
            late = operator.late_rows
            _add_operator(samples, (query, name), operator.received, operator.results, late, operator.bytes)
        elif isinstance(operator, HoldingOperator):
            samples.add(LATE_PARTIALS, operator.late, query)
            samples.add(LATE_ROWS, operator.late, query)
            late = operator.late
            _add_operator(samples, (query, name), operator.received, operator.results, late, operator.bytes)
            samples.set(OPERATOR_ROWS_HELD, operator.rows_held, query, name)
            if isinstance(operator, StoringOperator):
                samples.add(JOIN_ROWS_STORED, operator.stored, query, name)
                samples.add(JOIN_PAIRS, operator.pairs, query, name)
    if any(isinstance(operator, WindowedOperator) for operator in pipeline.operators):
        samples.add(WINDOWS_CLOSED, pipeline.windows_closed, query)
    samples.add(RESULT_ROWS, pipeline.results, query)
    set_progress(samples, query, bounds_of(pipeline), newest)
    return samples


def _add_windows(samples: Samples, operator: WindowedOperator, query: str) -> None:
    samples.add(OUTSIDE_WINDOWS, operator.outside, query)
    samples.add(LATE_PARTIALS, operator.late, query)
    samples.add(LATE_ROWS, operator.late_rows, query)
    partials, rows = operator.beyond_cap
    samples.add(PARTIALS_BEYOND_CAP, partials, query)
    samples.add(ROWS_BEYOND_CAP, rows, query)
    samples.add(WINDOWS_OPEN, number_of(operator.open_windows()), query)  # of all nodes of the query together


def _add_operator(samples: Samples, labels: tuple[str, str], received: int, results: int, late: int, held: int) -> None:
    samples.add(OPERATOR_ROWS_RECEIVED, received, *labels)
    samples.add(OPERATOR_RESULT_ROWS, results, *labels)
    samples.add(OPERATOR_LATE_ROWS, late, *labels)
    samples.set(OPERATOR_STATE_BYTES, held, *labels)
    samples.add(STATE_BYTES, held, labels[0])


def bounds_of(pipeline: GraphPipeline) -> list[tuple[str, int]]:
    """Return the link and the promise of each port that a link stands behind: others may promise boxes."""
    leaves = (
        each for each, node in zip(pipeline.operators, pipeline.plan.nodes, strict=True) if isinstance(node, Leaf)
    )
    return [
        pair
        for links, leaf in zip(pipeline.leaf_links, leaves, strict=True)
        if isinstance(leaf, Meld)
        for pair in zip(links, leaf.bounds, strict=True)
    ]
