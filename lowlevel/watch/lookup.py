"""Watchlists over columns: which values are in a list, and which label an address has."""

from __future__ import annotations

import numpy as np

from lowlevel.vectors import AddressVector, AnyVector, Mask, TextVector, Vector
from lowlevel.watch.contents import Contents
from lowlevel.watch.flatten import NONE, Numbers
from lowlevel.watch.watched_file import WatchedFile


def in_watchlist(vector: AnyVector, file: WatchedFile) -> Vector:
    """Return which addresses or integers are in a list; NULL of NULL."""
    contents = file.version.contents
    if isinstance(vector, AddressVector):
        return Vector(_found(vector, contents) != NONE, vector.valid)
    assert isinstance(vector, Vector)
    return Vector(contents.holds(vector.data), vector.valid)


def longest_prefix(vector: AnyVector, file: WatchedFile) -> TextVector:
    """Return the label of the longest prefix that each address is in; NULL where there is none, and of NULL."""
    assert isinstance(vector, AddressVector)
    version = file.version
    found = _found(vector, version.contents)
    valid: Mask = np.asarray(found != NONE)
    ids = found if version.ids is None else np.append(version.ids, NONE)[found]
    return TextVector(ids, version.names, valid if vector.valid is None else valid & vector.valid)


def _found(vector: AddressVector, contents: Contents) -> Numbers:
    assert contents.ranges is not None, "a list of addresses"
    high = np.broadcast_to(vector.high, vector.low.shape)
    found = contents.ranges.find(vector.version, high.reshape(-1), vector.low.reshape(-1))
    return found.reshape(vector.low.shape)
