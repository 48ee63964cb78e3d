"""Rows of the sampling operator, which receives its input in batches of random sizes and is sometimes restored."""

from __future__ import annotations

from random import Random

import pyarrow as pa

from highlevel.plan.pipeline import make_operator
from highlevel.plan.sample_node import Sample
from lowlevel.punctuation import END, Punctuation
from queries.gsql import compile_query


def sample_rows(sql: str, rows: list[tuple], sizes: Random) -> list[tuple]:
    """Run the root of a query over rows of its input, in batches of random sizes."""
    node = compile_query(sql).root
    assert isinstance(node, Sample)
    names = [column.name for column in node.input.columns]
    operator = make_operator(node)
    at, items = 0, []
    while at < len(rows):
        count = sizes.randint(1, 60)
        columns = zip(*rows[at : at + count], strict=True)
        batch = pa.RecordBatch.from_arrays([pa.array(values, pa.int64()) for values in columns], names)
        items += operator.process_rows(0, batch)
        at += count
        if sizes.random() < 0.1:
            copy = make_operator(node)
            copy.restore(operator.snapshot())
            operator = copy
    items += operator.punctuate(0, Punctuation("M", END))
    return [tuple(row.values()) for item in items if isinstance(item, pa.RecordBatch) for row in item.to_pylist()]
