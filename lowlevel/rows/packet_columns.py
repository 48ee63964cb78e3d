"""The columns of decoded packets, for expressions. A column is created at its first access."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from capture.files.capture import AnyCapture
from capture.files.formats import FileFormat
from capture.packets.columns import ColumnSpec
from capture.packets.decoder import Packets
from capture.packets.fields import NULL, PHYSICAL_COLUMNS
from lowlevel.expressions.columns import (
    AddressVector,
    AnyVector,
    BufferColumns,
    BytesVector,
    Names,
    TextVector,
    Vector,
)

Numbers = npt.NDArray[np.int64]


class Interfaces:
    """The names of a capture's interfaces. Several interfaces may have the same name."""

    def __init__(self, capture: AnyCapture) -> None:
        """Use the interfaces of `capture`. The list may grow, and each followed file has a separate list."""
        self._capture = capture
        self._names = Names()
        self._format: FileFormat | None = None
        self._ids = np.empty(0, np.int64)  # ID of the name, by the number of the interface

    def texts(self, numbers: Numbers) -> TextVector:
        """Return the names of the interfaces with these numbers."""
        file_format = self._capture.format
        interface_names = file_format.interface_names
        if file_format is not self._format:
            self._format, self._ids = file_format, self._ids[:0]
        if len(interface_names) > len(self._ids):
            new_ids = [self._names.add(name) for name in interface_names[len(self._ids) :]]
            self._ids = np.concatenate([self._ids, np.array(new_ids, np.int64)])
        return TextVector(self._ids[numbers], self._names.texts)


class PacketColumns(BufferColumns):
    """The columns of one decoded block of a link. They are valid until the decoder decodes the next block."""

    def __init__(
        self, link: str, packets: Packets, capture: AnyCapture, specs: Mapping[str, ColumnSpec], interfaces: Interfaces
    ) -> None:
        """Wrap a block; `specs` are the columns of its kind of rows."""
        self._link = link
        self._packets = packets
        self._capture = capture
        self._specs = specs
        self._interfaces = interfaces
        self._cache: dict[str, AnyVector] = {}
        self._versions: dict[str, Numbers] = {}  # the addresses of one header share their versions

    def __getitem__(self, name: str) -> AnyVector:
        """Return a column by its name."""
        if name not in self._cache:
            self._cache[name] = self._make(self._specs[name])
        return self._cache[name]

    def _make(self, spec: ColumnSpec) -> AnyVector:
        parts = PHYSICAL_COLUMNS.get(spec.name, (spec.name,))
        match spec.type:
            case "text":
                if spec.name == "link":
                    return TextVector.constant(self._link)
                return self._interfaces.texts(self._packets.field(spec.name))
            case "address":
                return self._address(parts, spec.nullable)
            case "bytes":
                start, length = (self._packets.field(field_name) for field_name in parts)
                valid = start != NULL
                return BytesVector(self._capture.data, np.where(valid, start, 0), np.where(valid, length, 0), valid)
        data = self._packets.field(parts[0])
        if not spec.nullable:
            return Vector(data)
        if parts[0].endswith("ip_version"):
            return Vector(data, data > 0)
        return Vector(data, data != NULL, NULL)

    def _address(self, parts: Sequence[str], nullable: bool) -> AddressVector:
        if self._packets.has_only_ipv4:
            return AddressVector.of_ipv4(self._packets.field(parts[2]))
        version = self._versions.setdefault(parts[0], self._packets.field(parts[0]))
        high, low = (self._packets.field(field_name).view(np.uint64) for field_name in parts[1:])
        return AddressVector(version, high, low, version != 0 if nullable else None)

    @property
    def memory(self) -> Numbers:
        """The decoder's buffers."""
        return self._packets.matrix

    @property
    def has_only_ipv4(self) -> bool:
        """True if all IP addresses are IPv4."""
        return self._packets.has_only_ipv4

    def integers(self, name: str) -> tuple[Numbers, bool] | None:
        """Return a column of integers or MACs, and whether -1 means NULL. Return None for columns of other types."""
        spec = self._specs[name]
        part = PHYSICAL_COLUMNS.get(name, (name,))[0]
        if spec.type not in ("integer", "time", "mac") or (spec.nullable and part.endswith("ip_version")):
            return None
        return self._packets.field(part), spec.nullable

    def halves(self, name: str) -> tuple[Numbers, Numbers] | None:
        """Return the upper and lower halves of a column of addresses; None for other types of columns."""
        if self._specs[name].type != "address":
            return None
        _, high, low = PHYSICAL_COLUMNS[name]
        return self._packets.field(high), self._packets.field(low)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of all columns of the kind."""
        return iter(self._specs)

    def __len__(self) -> int:
        """Return the number of columns of the kind."""
        return len(self._specs)
