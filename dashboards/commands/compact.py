"""`wiretide compact`: write the results of a query with EMIT CHANGES, which a run stored as changes, as one table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from dashboards.command_options import Argument, Option


def compact(
    folder: Annotated[Path, Argument(metavar="FOLDER", help="The folder of a run (`folder` of the pipeline).")],
    queries: Annotated[
        list[str] | None,
        Argument(metavar="[QUERY]...", help="Queries with changes. Default: all of them.", show_default=False),
    ] = None,
    final: Annotated[bool, Option("--final", help="Write only final rows.")] = False,
    output: Annotated[
        Path | None,
        Option("-o", "--output", metavar="FOLDER", help="The folder of the tables. Default: `compact` in FOLDER."),
    ] = None,
) -> None:
    """Write one table from the changes of each query with EMIT CHANGES.

    For such a query a run writes changes: result rows, each with a weight. The table is a Parquet file. It contains
    each row whose weights do not add up to 0 over all changes. Its column `final` is true if the row is final. The run
    may continue during this time. The changes are not deleted.

    \b
    wiretide compact state
    wiretide compact state talkers --final
    """  # noqa: D301  # click needs the character \b: the paragraph keeps its lines
    from dashboards.changes.compaction import compact as write_tables
    from dashboards.wire_text import escape

    for table in write_tables(folder, queries or [], output, only_final=final):
        provisional = f", {table.provisional:,} of them not final" if table.provisional else ""
        rows = "1 row" if table.rows == 1 else f"{table.rows:,} rows"
        print(escape(f"{table.path}: {rows}{provisional}, from {table.changes:,} changes"))
