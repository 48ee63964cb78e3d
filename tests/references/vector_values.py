"""Vectors of the low level as lists of Python values, NULL as None, so that rows can be compared with `==`."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address
from typing import Any

import numpy as np

from lowlevel.expressions.columns import AddressVector, AnyVector, BytesVector, TextVector


def values(vector: AnyVector, count: int) -> list[Any]:
    """The `count` values of a vector."""

    def spread(array: np.ndarray) -> list[Any]:
        return np.broadcast_to(array, count).tolist()

    match vector:
        case AddressVector(version, high, low):
            ends = zip(spread(version), spread(high), spread(low), strict=True)
            found: list[Any] = [
                IPv4Address(below) if kind == 4 else IPv6Address(above << 64 | below) if kind else None
                for kind, above, below in ends
            ]
        case TextVector(ids, names):
            found = [names[place] for place in spread(ids)]
        case BytesVector(data, start, length):
            places = zip(spread(start), spread(length), strict=True)
            found = [data[at : at + size].tobytes() for at, size in places]
        case _:
            found = spread(vector.data)
    valid = [True] * count if vector.valid is None else spread(vector.valid)
    return [value if here else None for value, here in zip(found, valid, strict=True)]
