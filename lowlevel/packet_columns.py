"""Decoded packets as the columns that expressions name, made when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from capture.packets.columns import COLUMNS
from capture.packets.decoder import Packets
from capture.packets.fields import NULL, PHYSICAL
from lowlevel.evaluate import AddressVector, Vector


class PacketColumns(Mapping[str, "Vector | AddressVector"]):
    """The columns of one decoded block of a link. Valid as long as the block's buffers are."""

    def __init__(self, link: str, packets: Packets) -> None:
        """Wrap a block."""
        self._link = link
        self._packets = packets
        self._made: dict[str, Vector | AddressVector] = {}

    def __getitem__(self, name: str) -> Vector | AddressVector:
        """Return a column by its name in the catalogue."""
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    def _make(self, name: str) -> Vector | AddressVector:
        if name == "link":
            return Vector(np.array(self._link))
        if name in PHYSICAL:
            version, high, low = (self._packets.field(each) for each in PHYSICAL[name])
            return AddressVector(version, high.view(np.uint64), low.view(np.uint64))
        data = self._packets.field(name)
        return Vector(data, data != NULL if COLUMNS[name].nullable else None)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the catalogue."""
        return iter(COLUMNS)

    def __len__(self) -> int:
        """Count the catalogue's columns."""
        return len(COLUMNS)
