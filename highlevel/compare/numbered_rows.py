"""Rows with their position in the input, which identifies rows of several leaves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lowlevel.expressions.columns import AnyVector, Columns, Vector
from lowlevel.rows.readers import Rows

ROW = ".row"
"""Column with the position of a row in its recording."""


@dataclass(frozen=True)
class Placed:
    """Rows with their positions in the input."""

    rows: Rows
    columns: Columns

    @property
    def count(self) -> int:
        """Number of rows."""
        return self.rows.count

    @property
    def earliest(self) -> int:
        """Lower bound of all ts, in ns."""
        return self.rows.earliest

    @property
    def arrivals(self) -> npt.NDArray[np.int64] | None:
        """Recorded arrival times of the rows, or None."""
        return self.rows.arrivals


class PlacedColumns(Mapping[str, AnyVector]):
    """The columns of rows, and ROW."""

    def __init__(self, columns: Columns, first: int, count: int) -> None:
        """Number rows from `first` on."""
        self._columns = columns
        self._places = Vector(np.arange(first, first + count))

    def __getitem__(self, name: str) -> AnyVector:
        return self._places if name == ROW else self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter([*self._columns, ROW])

    def __len__(self) -> int:
        return len(self._columns) + 1
