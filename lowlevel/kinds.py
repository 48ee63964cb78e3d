"""The kinds of rows, and the columns of each kind."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from capture.packets.columns import COLUMNS, FRAME_COLUMNS, INNER_COLUMNS, PACKET_COLUMNS, ColumnSpec
from capture.packets.fields import INNER
from lowlevel.expressions.tree import Column
from lowlevel.expressions.types import Type
from lowlevel.layers import Layer

OUTER = "outer."
"""Prefix of a column name for the outermost IP layer."""

KINDS = ("packets", "frames", "flows", "samples")
"""Every kind by its name in FROM."""

TABLE = "table"
"""The kind of the rows of Arrow tables, which have columns of their own and are not read by the low level."""

RECORD_KINDS = frozenset({"packets", "frames", "samples"})
"""Kinds of rows with the ts of their record: watermarks of records are right for them."""

DEALT_KINDS = frozenset({"packets", "frames"})
"""Kinds of rows that can be decoded separately. Flow records need earlier templates, and samples need the sequence
numbers of earlier datagrams, so one reader reads all blocks of a capture."""


@dataclass(frozen=True)
class RowKind:
    """One kind of rows: its name in FROM, what a row is, and its columns.

    `shown`: names listed in error messages. `hidden`: names of the inner layer, and of hundreds of information
    elements, which are listed only if they are similar to a wrong name. `layered`: whether columns have inner
    counterparts.
    """

    name: str
    row: str
    shown: tuple[str, ...]
    hidden: Callable[[], Iterable[str]]
    find: Callable[[str], ColumnSpec | None]
    layered: bool

    def column(self, name: str, layer: str = Layer.OUTER) -> Column | None:
        """Return a column by its case-insensitive name; a plain name means the column of `layer`, if that has one.

        >>> columns_of_kind("packets").column("SRCIP", "inner").name, columns_of_kind("frames").column("outer.len").name
        ('inner.srcIP', 'len')
        """
        key = name.lower()
        spec = self.find(INNER + key) if self.layered and layer == Layer.INNER else None
        if spec is None:
            spec = self.find(key.removeprefix(OUTER) if self.layered else key)
        return None if spec is None else Column(spec.name, Type(spec.type), spec.nullable, spec.bits or 64)


def _by_key(specs: Mapping[str, ColumnSpec]) -> Callable[[str], ColumnSpec | None]:
    by_key = {name.lower(): spec for name, spec in specs.items()}
    return lambda name: by_key.get(name.lower())


def _inner() -> Iterable[str]:
    return INNER_COLUMNS


@functools.cache
def columns_of_kind(kind: str) -> RowKind:
    """Return a kind by its name. Raises ValueError for an unknown kind. Columns of flows are loaded at first use."""
    match kind:
        case "packets":
            find = _by_key(PACKET_COLUMNS)
            return RowKind(kind, "an IP packet", tuple(COLUMNS), _inner, find, layered=True)
        case "frames":
            find = _by_key(FRAME_COLUMNS)
            return RowKind(kind, "a record of a capture", tuple(COLUMNS), _inner, find, layered=True)
        case "flows":
            from capture.flows.columns import FLOW_COLUMNS, flow_column, flow_columns

            return RowKind(kind, "a flow record", tuple(FLOW_COLUMNS), flow_columns, flow_column, layered=False)
        case "samples":
            from capture.sflow.columns import SAMPLE_COLUMNS, SAMPLING_COLUMNS

            find = _by_key(SAMPLE_COLUMNS)
            shown = (*COLUMNS, *SAMPLING_COLUMNS)
            return RowKind(kind, "a flow sample of sFlow", shown, _inner, find, layered=True)
    raise ValueError(f"no rows are of the kind {kind}; the kinds are {', '.join(KINDS)}")
