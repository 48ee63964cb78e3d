"""The state of a sampling algorithm (a family of functions).

Its functions share one state for each supergroup and window.

    WHERE          admit     which rows become members of groups
    CLEANING WHEN  is_due    after which rows the groups are cleaned
    CLEANING BY    clean     which groups remain
    HAVING         finish    which groups are in the result
    SELECT         value     a number from the state, such as the threshold

Johnson, Muthukrishnan and Rozenbaum (SIGMOD 2005) call them stateful functions (STATE, SFUN). Between two cleanings
`admit` and `is_due` are pure, so the operator calls them for many rows at once. `advance` then counts the rows that it
has processed.

Random numbers are hashes of the seed, the supergroup, the window, and a counter in the state. So they depend
on the order of the rows, and not on batches, restarts or engines.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from hashlib import blake2b
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from capture.lazy_dataclasses import dataclass
from lowlevel.expressions.columns import Mask, Vector
from lowlevel.expressions.hashing import hash_values

Numbers = npt.NDArray[Any]


@dataclass
class SampleState(ABC):
    """The state of a supergroup. The fields of a subclass are integers and floats; a snapshot stores them.

    `size` is the requested number of groups. `seed` determines the random numbers of this supergroup and window. `rows`
    is the number of rows that `advance` has counted.
    """

    size: int
    seed: int
    rows: int = 0

    @classmethod
    @abstractmethod
    def start_window(cls, size: int, seed: int, previous: Self | None) -> Self:
        """Return the state at the start of a window.

        `previous`: the state of the last window before `finish` was called; None for the first window.
        """

    @abstractmethod
    def admit(self, weights: Numbers | None, count: int) -> tuple[Mask, Numbers]:
        """Return a mask of the admitted rows among the next `count` rows, and the ticket of each row, an integer.

        The ticket of a group is the smallest ticket of its rows. `weights` is None if the family has no weights.
        """

    @abstractmethod
    def is_due(self, group_counts: Numbers) -> Mask:
        """Return a mask of the numbers of groups that require a cleaning."""

    @abstractmethod
    def clean(self, weights_or_tickets: Numbers) -> Mask:
        """Return a mask of the groups that remain. The argument is in the order of the groups' first rows."""

    @abstractmethod
    def finish(self, weights_or_tickets: Numbers) -> Mask:
        """Return a mask of the groups in the result at the end of the window. `weights_or_tickets`: see `clean`."""

    @property
    def value(self) -> float:
        """The value that SELECT can read; 0 if the family has no such function."""
        return 0.0

    def advance(self, rows: int) -> None:
        """Count rows that were passed to `admit`."""
        self.rows += rows


def seed_of(*parts: object) -> int:
    """Return a seed of 63 bits that is a hash of `parts`: the query's seed, a supergroup and a window."""
    return int.from_bytes(blake2b(repr(parts).encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big") >> 1


def random_hashes(seed: int, purpose: int, first: int, count: int) -> Vector:
    """Return 63-bit hashes of the `count` integers from `first` on. Hashes of different purposes are independent."""
    words = [Vector(np.array([word], np.int64)) for word in (seed, purpose)]
    return hash_values([*words, Vector(np.arange(first, first + count, dtype=np.int64))])
