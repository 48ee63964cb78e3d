"""Results as files, exactly once: one Parquet file per query and micro-batch with results.

    output/<query>/part-<batch id>.parquet

A repeated micro-batch replaces its file atomically, so a reader of the folder sees every row once. The columns are the
same as for `wiretide query --format parquet`: addresses are text, times `timestamp[ns, UTC]`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from capture.private_files import make_private_folder, replacing
from highlevel.plan.plan import Plan
from highlevel.results.stored_columns import KEY, decode_columns
from highlevel.results.user_types import internal
from lowlevel.expressions.tree import Column
from lowlevel.expressions.types import Type


def query_folder(output: Path, query: str) -> Path:
    """Return the folder of one query's results. Characters that are not allowed in file names become %XX."""
    return output / quote(query, safe=" ")


def result_file(output: Path, query: str, batch_id: int) -> Path:
    """Return the result file of a query and micro-batch."""
    return query_folder(output, query) / f"part-{batch_id:08d}.parquet"


def write_results(output: Path, batch_id: int, results: dict[str, pa.Table]) -> None:
    """Write the readable results of a micro-batch. A query without rows has no file, even if an attempt wrote one."""
    for query, table in results.items():
        path = result_file(output, query, batch_id)
        if table.num_rows == 0:
            path.unlink(missing_ok=True)
            continue
        make_private_folder(path.parent)
        with replacing(path) as (_, part):
            pq.write_table(table, part, write_page_checksum=True)


def remove_results(output: Path, batch_id: int) -> None:
    """Remove the results of a micro-batch that is repeated with other queries."""
    for path in output.glob(f"*/part-{batch_id:08d}.parquet"):
        path.unlink(missing_ok=True)


def set_aside_results(output: Path, plan: Plan) -> Path | None:
    """Rename the folder of a query's results if they have other columns than the plan now.

    Return the new folder, otherwise None. Without this, readers of the folder would find files with different columns.
    """
    folder = query_folder(output, plan.name)
    files = sorted(folder.glob("part-*.parquet"))
    if not files:
        return None
    stored = (pq.read_schema(files[-1]).metadata or {}).get(KEY)
    columns = plan.root.columns
    if stored is not None and stored_types(decode_columns(stored))[: len(columns)] == stored_types(columns):
        return None
    newest = int(files[-1].stem.removeprefix("part-"))
    target = query_folder(output, f"{plan.name} until {newest}")
    folder.rename(target)
    return target


def stored_types(columns: Iterable[Column]) -> list[tuple[str, Type]]:
    """Return names and types of columns."""
    return [(column.name, column.type) for column in columns]


def read_results(output: Path, plan: Plan) -> pa.Table:
    """Return the rows of all result files of a query in the plan's schema."""
    files = sorted(query_folder(output, plan.name).glob("part-*.parquet"))
    tables = [internal(pq.read_table(path, partitioning=None), plan.schema) for path in files]
    return pa.concat_tables([plan.schema.empty_table(), *tables])
