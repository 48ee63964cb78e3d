"""Rows made by hand, as a reader hands them to the tables: Python values in, vectors out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Any

import numpy as np

from lowlevel.expressions.columns import AddressVector, AnyVector, Columns, TextVector, Vector
from lowlevel.expressions.types import Type


@dataclass(frozen=True)
class MadeRows:
    """Some rows; `earliest` is their least ts."""

    count: int
    earliest: int
    columns: Columns
    arrivals: None = None
    exports: None = None


def made_rows(rows: Sequence[Mapping[str, Any]], types: Mapping[str, Type], names: list[str]) -> MadeRows:
    """Return columns of the given types.

    None is NULL, an address is an object of `ipaddress`, `names` grows by new texts.
    """
    columns = {name: vector_of([row[name] for row in rows], kind, names) for name, kind in types.items()}
    return MadeRows(len(rows), min(row["ts"] for row in rows), columns)


def vector_of(values: Sequence[Any], kind: Type, names: list[str]) -> AnyVector:
    """One column. The value of a NULL position is arbitrary."""
    valid = np.array([value is not None for value in values])
    mask = None if valid.all() else valid
    if kind is Type.ADDRESS:
        addresses = [IPv4Address(7) if value is None else value for value in values]
        halves = np.array([divmod(int(each), 2**64) for each in addresses], np.uint64).reshape(-1, 2)
        version = np.array([each.version if isinstance(each, IPv4Address | IPv6Address) else 0 for each in values])
        return AddressVector(version.astype(np.int64), halves[:, 0], halves[:, 1], mask)
    if kind is Type.TEXT:
        names += sorted({value for value in values if value is not None} - set(names))
        return TextVector(
            np.array([0 if each is None else names.index(each) for each in values], np.int64), names, mask
        )
    return Vector(np.array([7 if value is None else value for value in values], np.int64), mask)
