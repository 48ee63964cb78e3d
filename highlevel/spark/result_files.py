"""Results as files, exactly once: one Parquet file per query and micro-batch that had any.

    output/<query>/part-<batch id>.parquet

A micro-batch that is done again writes the same name again, whole and at once, so a reader of the folder sees every
row once. Addresses are their 4 or 16 bytes in network order, times int64 ns, as in every result.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from capture.private_files import make_private_folder, replacing


def query_folder(output: Path, query: str) -> Path:
    """Folder of one query's results; characters that no file name holds are spelled %XX."""
    return output / quote(query, safe=" ")


def result_file(output: Path, query: str, batch_id: int) -> Path:
    """File of the results of one query and micro-batch; later ones have names that sort behind it."""
    return query_folder(output, query) / f"part-{batch_id:08d}.parquet"


def write_results(output: Path, batch_id: int, results: dict[str, pa.Table]) -> None:
    """Write the results of one micro-batch; a query without rows has no file, whatever an attempt before left."""
    for query, table in results.items():
        path = result_file(output, query, batch_id)
        if table.num_rows == 0:
            path.unlink(missing_ok=True)
            continue
        make_private_folder(path.parent)
        with replacing(path) as (_, part):
            pq.write_table(table, part, write_page_checksum=True)
