"""Results of a spool by its reader and the operators: a reference for `wiretide run`, without Spark."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa

from highlevel.inline.engine import InlineRun, Input
from highlevel.plan.pipeline import Pipeline
from highlevel.plan.plan import Plan
from lowlevel.punctuation import Punctuation
from lowlevel.spool.fingerprint import fingerprint
from lowlevel.spool.reader import SpoolReader
from lowlevel.spool.segment import Segment

Row = tuple[object, ...]


def rows_of(batches: Iterable[pa.RecordBatch]) -> list[Row]:
    """Return rows in an order that depends only on their values."""
    rows = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
    return sorted(rows, key=repr)


def through_spools(plans: Sequence[Plan], folders: Sequence[Path], *, others: bool = False) -> list[list[Row]]:
    """The answer of each plan over all spools, read to the end.

    Unless there may be `others`, every item must be of a plan that was asked for.
    """
    readers = [SpoolReader(folder) for folder in folders]
    names = {(plan.name, fingerprint(plan.leaves[0].low)): number for number, plan in enumerate(plans)}
    pipelines = [Pipeline(plan, [[reader.link for reader in readers]]) for plan in plans]
    results: list[list[pa.RecordBatch]] = [[] for _ in plans]
    for port, reader in enumerate(readers):
        for segment in reader:
            for name, print_of, item in segment.new_items:
                if others and (name, print_of) not in names:
                    continue
                number = names[name, print_of]
                found = (
                    pipelines[number].punctuate(port, item)
                    if isinstance(item, Punctuation)
                    else pipelines[number].process_rows(port, item)
                )
                results[number] += [each for each in found if isinstance(each, pa.RecordBatch)]
    assert not any(windows.late for pipeline in pipelines for _, windows in pipeline.window_operators)
    return [rows_of(each) for each in results]


def inline(plans: Sequence[Plan], inputs: Sequence[Input]) -> list[list[Row]]:
    """The answer of each plan in one process."""
    results: list[list[pa.RecordBatch]] = [[] for _ in plans]
    for number, batch in InlineRun(plans, inputs, threads=1).results():
        results[number].append(batch)
    return [rows_of(each) for each in results]


def segments(folder: Path) -> list[Segment]:
    """All segments of a spool, which must be numbered from 0 without a gap and follow one another."""
    reader = SpoolReader(folder)
    found = [reader.read(number) for number in reader.segments()]
    assert [each.number for each in found] == list(range(len(found)))
    for before, after in itertools.pairwise(found):
        assert after.header.rows_before == before.header.rows_before + before.rows
    return found
