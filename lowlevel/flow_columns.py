"""Decoded flow records as the columns that expressions name, made when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt

from capture.flows.columns import FLOW_COLUMNS
from capture.flows.decoder import Flows
from capture.flows.elements import DataType, element_named
from capture.flows.kernels.values import END, RATE_DEN, RATE_NUM, START
from capture.flows.places import CORRECTED, TIMES
from lowlevel.vectors import AddressVector, AnyVector, Mask, TextVector, Vector

Numbers = npt.NDArray[np.int64]


class FlowColumns(Mapping[str, AnyVector]):
    """The columns of some flow records of a link, those that were asked for. Valid as long as the records are."""

    def __init__(self, link: str, flows: Flows) -> None:
        """Wrap decoded records."""
        self._link = link
        self._flows = flows
        self._made: dict[str, AnyVector] = {}

    def __getitem__(self, name: str) -> AnyVector:
        """Return a column by its name in the catalogue."""
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    def _make(self, name: str) -> AnyVector:
        flows = self._flows
        if name == "link":
            return TextVector.of(self._link)
        if name in TIMES:
            return Vector(flows.row(START if TIMES[name] == "start_ts" else END))
        if name in CORRECTED:
            raw = self[CORRECTED[name]]
            assert isinstance(raw, Vector)
            return Vector(corrected(raw.data, flows.row(RATE_NUM), flows.row(RATE_DEN)), raw.valid)
        if name == "sampling_rate":
            num, den = flows.row(RATE_NUM), flows.row(RATE_DEN)
            return Vector((num + den // 2) // den, num > 0)
        if name == "ip_version":
            source, destination = (flows.row(flows.places.rows[each]) for each in ("srcIP", "destIP"))
            version = np.where(source != 0, source, destination)
            return Vector(version, version != 0)
        row = flows.places.rows[name]
        spec = flows.places.specs[name]
        valid = self._valid(row)
        match spec.type:
            case "address":
                return self._address(row, valid)
            case "text":
                element = element_named(name)
                as_text = element is not None and element.type is DataType.STRING
                names = flows.texts.texts() if as_text else flows.texts.octets()
                numbers = flows.row(row) if valid is None else np.where(valid, flows.row(row), 0)
                return TextVector(names.places[numbers], names.names, valid)
            case "float":
                return Vector(flows.row(row).view(np.float64), valid)
            case "boolean":
                return Vector(flows.row(row) == 1, valid)
        return Vector(flows.row(row), valid)

    def _valid(self, row: int) -> Mask | None:
        there = self._flows.there(row)
        return None if there.all() else there

    def _address(self, row: int, valid: Mask | None) -> AddressVector:
        version, high, low = (self._flows.row(row + part) for part in range(3))
        if valid is None and (version == 4).all():
            return AddressVector.of_ipv4(low)
        return AddressVector(version, high.view(np.uint64), low.view(np.uint64), valid)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the core columns; elements are there where they were asked for."""
        return iter(FLOW_COLUMNS)

    def __len__(self) -> int:
        """Count the core columns."""
        return len(FLOW_COLUMNS)


def corrected(raw: Numbers, num: Numbers, den: Numbers) -> Numbers:
    """Multiply counters by their rates, rounded to the nearest; a rate of 0 packets of 1 is none.

    >>> corrected(np.array([3, 5, 7]), np.array([100, 0, 5]), np.array([1, 1, 2])).tolist()
    [300, 5, 18]
    """
    if (num <= 1).all() and (den == 1).all():
        return raw
    rate = np.where(num == 0, den, num)
    # Whole multiples of the denominator first: only a result that does not fit 64 bits does overflow.
    return raw // den * rate + (raw % den * rate + den // 2) // den
