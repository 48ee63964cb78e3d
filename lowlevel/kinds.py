"""The kinds of rows, and the columns of each kind."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping

from capture.lazy_dataclasses import dataclass
from capture.packets.columns import COLUMNS, FRAME_COLUMNS, INNER_COLUMNS, PACKET_COLUMNS, ColumnSpec
from capture.packets.fields import INNER_PREFIX
from lowlevel.expressions.tree import Column
from lowlevel.expressions.types import Type
from lowlevel.layers import Layer

OUTER = "outer."
"""Prefix of a column name for the outermost IP layer."""

KINDS = ("packets", "frames", "flows", "samples")
"""Names of the kinds in FROM that the low level reads."""

TABLE = "table"
"""The kind of the rows of Arrow tables. Tables define their own columns, and the low level does not read them."""

RECORD_KINDS = frozenset({"packets", "frames", "samples"})
"""Kinds whose rows have the time of the capture record that contains them. So a watermark of the records is also valid
for the rows."""

SEPARABLE_KINDS = frozenset({"packets", "frames"})
"""Kinds of rows whose blocks can be divided among several readers. The other kinds depend on earlier blocks: flow
records need templates, and samples need sequence numbers.
"""


@dataclass(frozen=True)
class RowKind:
    """One kind of rows and its columns.

    * `name`: its name in FROM. `row_description`: a description of a row.
    * `listed_names`: names of the columns that error messages list.
    * `unlisted_names`: other names, of the inner layer and of hundreds of information elements. Messages contain them
      only if they are similar to a wrong name.
    * `find`: returns a column by its name.
    * `is_layered`: whether the columns exist for the outer and for the inner IP header.
    """

    name: str
    row_description: str
    listed_names: tuple[str, ...]
    unlisted_names: Callable[[], Iterable[str]]
    find: Callable[[str], ColumnSpec | None]
    is_layered: bool

    def column(self, name: str, layer: str = Layer.OUTER) -> Column | None:
        """Return a column by its case-insensitive name. A name without a prefix means the column of `layer`, if any.

        >>> row_kind_of("packets").column("SRCIP", "inner").name, row_kind_of("frames").column("outer.len").name
        ('inner.srcIP', 'len')
        """
        key = name.lower()
        spec = self.find(INNER_PREFIX + key) if self.is_layered and layer == Layer.INNER else None
        if spec is None:
            spec = self.find(key.removeprefix(OUTER) if self.is_layered else key)
        return None if spec is None else Column(spec.name, Type(spec.type), spec.nullable, spec.bits or 64)


def _by_key(specs: Mapping[str, ColumnSpec]) -> Callable[[str], ColumnSpec | None]:
    by_key = {name.lower(): spec for name, spec in specs.items()}
    return lambda name: by_key.get(name.lower())


def _inner_names() -> Iterable[str]:
    return INNER_COLUMNS


@functools.cache
def row_kind_of(kind: str) -> RowKind:
    """Return a kind by its name; raises ValueError for an unknown kind. Columns of flows are loaded at first use."""
    match kind:
        case "packets":
            find = _by_key(PACKET_COLUMNS)
            return RowKind(kind, "an IP packet", tuple(COLUMNS), _inner_names, find, is_layered=True)
        case "frames":
            find = _by_key(FRAME_COLUMNS)
            return RowKind(kind, "a record of a capture", tuple(COLUMNS), _inner_names, find, is_layered=True)
        case "flows":
            from capture.flows.columns import FLOW_COLUMNS, flow_column, flow_columns

            return RowKind(kind, "a flow record", tuple(FLOW_COLUMNS), flow_columns, flow_column, is_layered=False)
        case "samples":
            from capture.sflow.columns import SAMPLE_COLUMNS, SAMPLING_COLUMNS

            find = _by_key(SAMPLE_COLUMNS)
            listed_names = (*COLUMNS, *SAMPLING_COLUMNS)
            return RowKind(kind, "a flow sample of sFlow", listed_names, _inner_names, find, is_layered=True)
    raise ValueError(f"no rows are of the kind {kind}; the kinds are {', '.join(KINDS)}")
