"""Change the number of operator partitions at a restart: divide the state of open windows among the new partitions.

    state/        of N partitions    ──►  state/        of M partitions
    state of N/   the old state, kept until run.json contains M

Each row of a table is moved to the new partition of its group (`spark.tasks.operator_part`). Watermarks are copied:
they are equal in all partitions, because every partition receives all of them.

This is possible if the only state of a query is that of sliding windows or sessions over partials of links, because
these tables contain the columns of the group. For other operators an error is raised: their tables may contain
positions in another table, or a limit for each partition.

A crash between two steps loses nothing, because `run.json` is replaced last. At the next start, `state of N` becomes
`state` again if `run.json` still contains N, and is deleted otherwise.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from highlevel.operators.session import EMITTED, LOW, OPEN, SessionAggregate
from highlevel.plan.fragments import sources_of
from highlevel.plan.nodes import Leaf, Windowed
from highlevel.plan.operators.windowed import WindowedOperator
from highlevel.sliding.aggregate import CLOSED, SlidingAggregate
from highlevel.spark.errors import FolderError
from highlevel.spark.inputs.assignment import InputAssignment
from highlevel.spark.run_folder.checked_files import REMEDY
from highlevel.spark.run_folder.state import PartitionState
from highlevel.spark.tasks.fragment_task import FragmentTask
from highlevel.spark.tasks.operator_part import compute_parts
from lowlevel.expressions.tree import Column

DIVISIBLE = (SlidingAggregate, SessionAggregate)
"""The operators whose state can be divided."""

WATERMARK_TABLES = ("meld", CLOSED, LOW)
"""Names of tables with watermarks, which are equal in all partitions."""

SESSION_TABLES = (OPEN, EMITTED)
"""Names of the tables of sessions. A partition has both of them or none. One of them may be empty."""

Tables = dict[str, pa.Table]
"""The tables of one query in one partition, by name."""


def old_state_folder(folder: Path, partitions: int) -> Path:
    """Return the folder for the old state, which has `partitions` partitions, until the change is finished."""
    return folder / f"state of {partitions}"


def finish_division(folder: Path, partitions: int) -> None:
    """Finish or undo a change that a crash has interrupted. `partitions` is the number in `run.json`."""
    for path in folder.glob("state of *"):
        if path == old_state_folder(folder, partitions):
            shutil.rmtree(folder / "state", ignore_errors=True)
            path.rename(folder / "state")
        else:
            shutil.rmtree(path)


def divide_state(folder: Path, assignment: InputAssignment, old_partition_count: int, batch_id: int) -> None:
    """Divide the state after micro-batch `batch_id` among the partitions of `assignment`.

    The state has `old_partition_count` partitions.

    Afterwards the caller must replace `run.json` and call `finish_division`. Raises FolderError, and changes nothing,
    if a query has a state that cannot be divided.
    """
    # A new query has no state, so it may have any operator.
    queries = [query for query, first in enumerate(assignment.first_batches) if first <= batch_id]
    keys = {query: _find_keys(assignment, query, old_partition_count) for query in queries}
    if batch_id < 0:
        return
    state_keys = {query: FragmentTask(assignment, query, 0, 0).state_key for query in queries}
    is_new = dict.fromkeys(state_keys.values(), False)
    old_states = [PartitionState(folder / "state", part).load(batch_id, is_new) for part in range(old_partition_count)]
    new_states: list[dict[str, Tables]] = [{} for _ in range(assignment.partitions)]
    for query, state_key in state_keys.items():
        new = _divide_query([state[state_key] for state in old_states], keys[query], assignment.partitions, folder)
        for state, tables in zip(new_states, new, strict=True):
            state[state_key] = tables
    unfinished = folder / "state of new partitions"
    shutil.rmtree(unfinished, ignore_errors=True)
    for part, state in enumerate(new_states):
        PartitionState(unfinished, part).save(batch_id, state)
    (folder / "state").rename(old_state_folder(folder, old_partition_count))
    unfinished.rename(folder / "state")


Keys = Mapping[str, Sequence[str]]
"""For each operator with state, by its position: the columns that determine the partition of its rows."""


def _find_keys(assignment: InputAssignment, query_number: int, old_partition_count: int) -> Keys:
    """Return the keys of the operators of a query. Raises FolderError if its state cannot be divided."""
    plan, fragments = assignment.plans[query_number], assignment.fragments[query_number]

    def refuse(reason: str) -> FolderError:
        return FolderError(
            f"query {plan.name} {reason}, so its state cannot be divided into another number of partitions: got "
            f"partitions = {assignment.partitions}, expected {old_partition_count}, or another folder"
        )

    if len(fragments.fragments) > 1:
        raise refuse("partitions its rows more than once")
    task = FragmentTask(assignment, query_number, 0, 0)
    sources = dict(zip(task.fragment.leaves, sources_of(task.fragment), strict=True))
    keys: dict[str, Sequence[str]] = {}
    for position, (node, operator) in enumerate(zip(task.pipeline.nodes.nodes, task.pipeline.operators, strict=True)):
        if isinstance(node, Leaf) or (not isinstance(operator, WindowedOperator) and not operator.snapshot()):
            continue
        if not (
            isinstance(node, Windowed)
            and isinstance(operator, WindowedOperator)
            and isinstance(operator.windows, DIVISIBLE)
            and isinstance(node.input, Leaf)
            and node.merges_partials
        ):
            raise refuse(f"stores rows in the operator {type(node).__name__} that is not a sliding window or session")
        key = fragments.sources[sources[node.input]].key
        if not all(isinstance(part, Column) for part in key):
            raise refuse("is partitioned by an expression")
        keys[str(position)] = [part.name for part in key if isinstance(part, Column)]
    return keys


def _divide_query(old_tables: Sequence[Tables], keys: Keys, partition_count: int, folder: Path) -> list[Tables]:
    """Return the tables of one query, divided among `partition_count` partitions."""
    new: list[Tables] = [{} for _ in range(partition_count)]
    for name in dict.fromkeys(name for tables in old_tables for name in tables):
        position, *_, table_name = name.split(".")
        if table_name in WATERMARK_TABLES:
            watermarks = [tables.get(name) for tables in old_tables]
            if any(watermark is None or not watermark.equals(watermarks[0]) for watermark in watermarks):
                raise FolderError(f"{folder / 'state'}: the watermarks of its partitions differ; {REMEDY}")
            for tables in new:
                tables[name] = watermarks[0]
            continue
        rows = _concatenate([tables.get(name) for tables in old_tables], keys[position], folder)
        parts = compute_parts(rows, keys[position], partition_count)
        for part, tables in enumerate(new):
            chosen = rows.filter(pa.array(parts == part))
            if chosen.num_rows or table_name in SESSION_TABLES:
                tables[name] = pa.Table.from_batches([chosen])
    return new


def _concatenate(old: Sequence[pa.Table | None], key: Sequence[str], folder: Path) -> pa.RecordBatch:
    """Return the rows of all partitions. Raises FolderError if a row is in a partition that it does not belong to."""
    batches = []
    for part, table in enumerate(old):
        for batch in [] if table is None else table.combine_chunks().to_batches():
            if (compute_parts(batch, key, len(old)) != part).any():
                raise FolderError(f"{folder / 'state' / str(part)}: contains rows of another partition; {REMEDY}")
            batches.append(batch)
    schema = next(table.schema for table in old if table is not None)
    return pa.concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], schema)
