"""Where the wanted columns are in the matrix of decoded flow records, and what each of them is filled from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from capture.flows.columns import CORE, Source, element_column
from capture.flows.elements import DataType, Element, element, element_named
from capture.flows.kernels import datagrams as kernel
from capture.flows.kernels import values
from capture.packets.columns import ColumnSpec

CODES: dict[DataType, int] = {
    DataType.SIGNED8: values.SIGNED,
    DataType.SIGNED16: values.SIGNED,
    DataType.SIGNED32: values.SIGNED,
    DataType.SIGNED64: values.SIGNED,
    DataType.FLOAT32: values.FLOAT,
    DataType.FLOAT64: values.FLOAT,
    DataType.BOOLEAN: values.BOOLEAN,
    DataType.STRING: values.TEXT,
    DataType.OCTET_ARRAY: values.OCTETS,
    DataType.UNSIGNED256: values.OCTETS,
    DataType.BASIC_LIST: values.OCTETS,
    DataType.SUB_TEMPLATE_LIST: values.OCTETS,
    DataType.SUB_TEMPLATE_MULTI_LIST: values.OCTETS,
    DataType.SECONDS: values.SECONDS,
    DataType.MILLISECONDS: values.MILLISECONDS,
    DataType.MICROSECONDS: values.MICROSECONDS,
    DataType.NANOSECONDS: values.NANOSECONDS,
    DataType.IPV4_ADDRESS: values.ADDRESS4,
    DataType.IPV6_ADDRESS: values.ADDRESS6,
}
"""What is done with a field of each type; UNSIGNED where nothing else is said."""

ADDRESS_CODES = (values.ADDRESS4, values.ADDRESS6)
TEXT_CODES = (values.TEXT, values.OCTETS)

COMMON: dict[str, int] = {
    "exporter": kernel.COMMON_EXPORTER,
    "exporter_port": kernel.COMMON_PORT,
    "observation_domain": kernel.COMMON_DOMAIN,
    "version": kernel.COMMON_VERSION,
    "export_ts": kernel.COMMON_EXPORT,
    "arrival_ts": kernel.COMMON_ARRIVAL,
}
"""Columns that every version's header, or the sender, says."""

TIMES: dict[str, str] = {"ts": "end_ts", "start_ts": "start_ts", "end_ts": "end_ts"}
CORRECTED: dict[str, str] = {"packets": "raw_packets", "bytes": "raw_bytes"}
"""Columns that are made of another and of how the record was sampled."""


@dataclass(frozen=True, slots=True)
class Target:
    """One column that fields of a record are written to, from row `row` of the matrix on."""

    row: int
    sources: tuple[tuple[Element, Source], ...]
    limit: int


class Places:
    """Where the wanted columns are in the matrix, and what each is filled from."""

    def __init__(self, columns: Iterable[str]) -> None:
        """Place `columns`, named as in `flow_column`; KeyError for a name that is no column's."""
        self.rows: dict[str, int] = {}
        self.specs: dict[str, ColumnSpec] = {}
        self.targets: list[Target] = []
        self.common = np.full(kernel.COMMON_WORDS, -1, np.int64)
        self.height = values.SCRATCH_ROWS
        self.sampled = False
        self.texts = False
        for name in columns:
            self._place(name)

    def _place(self, name: str) -> None:
        if name in self.rows or name == "link" or name in TIMES:
            return
        if name in CORRECTED:
            self.sampled = True
            self._place(CORRECTED[name])
        elif name == "sampling_rate":
            self.sampled = True
        elif name == "ip_version":
            self._place("srcIP")
            self._place("destIP")
        elif name in COMMON:
            self.common[COMMON[name]] = self._take(name, CORE[name].spec)
        elif name in CORE:
            column = CORE[name]
            sources = tuple((element(source.id), source) for source in column.sources)
            limit = column.spec.bits if column.spec.type in ("integer", "mac") and column.spec.bits < 64 else 0
            self.targets.append(Target(self._take(name, column.spec), sources, limit))
        else:
            found = element_named(name)
            if found is None:
                raise KeyError(name)
            self.texts |= CODES.get(found.type) in TEXT_CODES
            limit = 48 if found.type is DataType.MAC_ADDRESS else 0
            sources = ((found, Source(found.id)),)
            self.targets.append(Target(self._take(name, element_column(found)), sources, limit))

    def _take(self, name: str, spec: ColumnSpec) -> int:
        row = self.rows[name] = self.height
        self.specs[name] = spec
        self.height += 3 if spec.type == "address" else 1
        return row
