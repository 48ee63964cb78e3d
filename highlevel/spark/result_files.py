"""Results as files, exactly once: one Parquet file per query and micro-batch with results.

    output/<query>/part-<batch id>.parquet

A repeated micro-batch replaces its file atomically, so a reader of the folder sees every row once. The columns are the
same as for `wiretide query --format parquet`: addresses are text, times `timestamp[ns, UTC]`.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from capture.private_files import make_private_folder, replacing
from highlevel.plan.plan import Plan
from highlevel.results.user_types import internal


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


def read_results(output: Path, plan: Plan) -> pa.Table:
    """Return the rows of all result files of a query in the plan's schema."""
    files = sorted(query_folder(output, plan.name).glob("part-*.parquet"))
    tables = [internal(pq.read_table(path, partitioning=None), plan.schema) for path in files]
    return pa.concat_tables([plan.schema.empty_table(), *tables])
