"""One snapshot for the state of several operators. The name of each table begins with the position of its operator."""

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


def snapshot_of(parts: Sequence[StateOwner]) -> dict[str, pa.Table]:
    """Return the state of all parts."""
    return {
        f"{position}.{name}": table for position, part in enumerate(parts) for name, table in part.snapshot().items()
    }


def restore_to(parts: Sequence[StateOwner], tables: Mapping[str, pa.Table]) -> None:
    """Restore each part from its tables of `snapshot_of`. A part without tables is not changed."""
    tables_of_parts: list[dict[str, pa.Table]] = [{} for _ in parts]
    for prefixed_name, table in tables.items():
        position, _, name = prefixed_name.partition(".")
        tables_of_parts[int(position)][name] = table
    for part, part_tables in zip(parts, tables_of_parts, strict=True):
        if part_tables:
            part.restore(part_tables)
