"""Columns that lie where those of the batch before did: what is told of one batch's memory holds for the next.

A decoder fills the same buffers with every block. Whoever reads them need ask for their addresses once, which for a
block of a few columns takes as long as hundreds of its rows.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from lowlevel.vectors import AnyVector

Numbers = npt.NDArray[np.int64]


class SettledColumns(Mapping[str, AnyVector]):
    """Columns as expressions see them, some of which can be had as they lie in `memory`."""

    @property
    @abstractmethod
    def memory(self) -> Numbers:
        """The buffers: where they are the same as another batch's, each column begins where the other's does."""

    @property
    @abstractmethod
    def only_ipv4(self) -> bool:
        """Whether every address is of IPv4."""

    @abstractmethod
    def integers(self, name: str) -> tuple[Numbers, bool] | None:
        """Return a column of integers or MACs, and whether -1 is NULL in it; None for any other column."""

    @abstractmethod
    def halves(self, name: str) -> tuple[Numbers, Numbers] | None:
        """Return the higher and the lower half of a column of addresses, of which IPv4 has the lower; else None."""
