"""The columns of a batch at some of its rows, taken when they are asked for.

Where a predicate lets few rows pass, keys and arguments of those alone are evaluated and packed; everything behind sees
a smaller batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from lowlevel.vectors import AddressVector, AnyVector, Columns, taken

SHARE = 4
"""Rows of a batch for each one that passes, from which on those that pass are taken out. Of more it costs as much to
take out their columns as to pass over the others."""


class ChosenRows(Mapping[str, AnyVector]):
    """Columns at `places`, row numbers in ascending order. Valid as long as the batch is."""

    def __init__(self, columns: Columns, places: npt.NDArray[np.int64]) -> None:
        """Take nothing yet."""
        self._columns = columns
        self._places = places
        self._made: dict[str, AnyVector] = {}
        self._versions: dict[int, npt.NDArray[np.int64]] = {}  # addresses of one header share theirs, as in the batch

    def __getitem__(self, name: str) -> AnyVector:
        """Return a column of the chosen rows."""
        if name not in self._made:
            whole = self._columns[name]
            vector = taken(whole, self._places)
            if isinstance(whole, AddressVector) and isinstance(vector, AddressVector):
                version = self._versions.setdefault(id(whole.version), vector.version)
                vector = replace(vector, version=version)
            self._made[name] = vector
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the batch's columns."""
        return iter(self._columns)

    def __len__(self) -> int:
        """Count the batch's columns."""
        return len(self._columns)
