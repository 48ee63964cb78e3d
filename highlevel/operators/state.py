"""The state of what is made of several operators, as one: each table's name begins with the number of its operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import pyarrow as pa


class Part(Protocol):
    """What has a state, as every operator does."""

    def snapshot(self) -> dict[str, pa.Table]:
        """State as Arrow tables by name."""
        ...

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Take over the state of a snapshot."""
        ...


def snapshot_of(parts: Sequence[Part]) -> dict[str, pa.Table]:
    """Return the state of all parts."""
    return {f"{number}.{name}": table for number, part in enumerate(parts) for name, table in part.snapshot().items()}


def restore_to(parts: Sequence[Part], tables: Mapping[str, pa.Table]) -> None:
    """Give each part its own of what `snapshot_of` returned; one that had nothing to keep is left alone."""
    own: list[dict[str, pa.Table]] = [{} for _ in parts]
    for named, table in tables.items():
        number, _, name = named.partition(".")
        own[int(number)][name] = table
    for part, its in zip(parts, own, strict=True):
        if its:
            part.restore(its)
