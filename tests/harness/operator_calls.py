"""Calls of an operator with rows and watermarks, for tests that follow it step by step."""

from __future__ import annotations

import pyarrow as pa

from highlevel.plan.nodes import Node
from highlevel.plan.operators.operator import NodeOperator
from lowlevel.punctuation import Punctuation
from tests.references.plan_references import schema_of


def give_rows(operator: NodeOperator, source: Node, *rows: tuple) -> None:
    """Give rows of `source` to an operator that stores them."""
    schema = schema_of(source)
    columns = [pa.array(values, field.type) for values, field in zip(zip(*rows, strict=True), schema, strict=True)]
    assert list(operator.process_rows(0, pa.RecordBatch.from_arrays(columns, schema=schema))) == []


def pass_watermark(operator: NodeOperator, watermark: int) -> tuple[list[tuple], int | None]:
    """Return the rows that a watermark releases, and the watermark that follows; None if there is none."""
    *batches, last = [*operator.punctuate(0, Punctuation("", watermark)), None]
    if batches and isinstance(batches[-1], Punctuation):
        last = batches.pop().watermark
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()], last
