"""One snapshot for the state of several operators. The name of each table begins with the index of its operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import pyarrow as pa


class StateOwner(Protocol):
    """An object with a state, for example an operator."""

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the state as Arrow tables by name."""
        ...

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the state of a snapshot."""
        ...


def snapshot_of(owners: Sequence[StateOwner]) -> dict[str, pa.Table]:
    """Return the state of all owners."""
    return {
        f"{position}.{name}": table for position, part in enumerate(owners) for name, table in part.snapshot().items()
    }


def restore_to(owners: Sequence[StateOwner], tables: Mapping[str, pa.Table]) -> None:
    """Restore each owner from its tables in a result of `snapshot_of`. An owner without tables is not changed."""
    tables_of_parts: list[dict[str, pa.Table]] = [{} for _ in owners]
    for prefixed_name, table in tables.items():
        position, _, name = prefixed_name.partition(".")
        tables_of_parts[int(position)][name] = table
    for part, part_tables in zip(owners, tables_of_parts, strict=True):
        if part_tables:
            part.restore(part_tables)
