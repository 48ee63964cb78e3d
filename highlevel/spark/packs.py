"""Packs: small tables of one query with the same columns are combined to one table.

A long window that slides by seconds has thousands of panes of a few rows. As separate messages each would need a schema
that is longer than its rows, and some calls per column. A pack needs these once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate

import pyarrow as pa


@dataclass
class Pack:
    """Concatenated tables of one schema, with the names and the row counts of the tables."""

    schema: pa.Schema
    names: list[str] = field(default_factory=list)
    tables: list[pa.Table] = field(default_factory=list)

    @property
    def rows(self) -> list[int]:
        """Number of rows of each table."""
        return [table.num_rows for table in self.tables]

    @property
    def table(self) -> pa.Table:
        """All rows as one table in one piece."""
        return self.tables[0] if len(self.tables) == 1 else pa.concat_tables(self.tables).combine_chunks()


def together(tables: Mapping[str, pa.Table]) -> list[Pack]:
    """Put tables of the same schema, its metadata included, into one pack each."""
    packs: list[Pack] = []
    for name, table in tables.items():
        pack = next((each for each in packs if each.schema.equals(table.schema, check_metadata=True)), None)
        if pack is None:
            pack = Pack(table.schema)
            packs.append(pack)
        pack.names.append(name)
        pack.tables.append(table)
    return packs


def apart(table: pa.Table, names: list[str], rows: list[int]) -> Iterator[tuple[str, pa.Table]]:
    """Yield the tables of a pack by their names. They share its memory."""
    for name, end, count in zip(names, accumulate(rows), rows, strict=True):
        yield name, table.slice(end - count, count)
