"""Arrays that raise an error if a kernel reads or writes before their beginning or after their end.

Kernels run on them as plain Python. A numpy array would accept a negative index and count from the end.
"""

from __future__ import annotations

from typing import Any

import numpy as np


class Guarded:
    """A one-dimensional array, with every index checked.

    Bytes are Python's numbers, for the compiler widens them before it computes; all others have the array's type.
    """

    def __init__(self, array: np.ndarray) -> None:
        self.array = array if array.ndim == 1 else array.reshape(-1)
        self.size = self.array.size
        self.item = self.array.item if array.dtype == np.uint8 else self.array.__getitem__

    def __getitem__(self, index: Any) -> Any:
        if not 0 <= index < self.size:
            raise IndexError(f"read at {index} of {self.size}")
        return self.item(index)

    def __setitem__(self, index: Any, value: Any) -> None:
        if not 0 <= index < self.size:
            raise IndexError(f"write at {index} of {self.size}")
        self.array[index] = value


class GuardedBytes(dict[int, int]):
    """Bytes to read, with every index checked. A dictionary checks an index in a quarter of the time of a method."""

    def __init__(self, data: bytes | np.ndarray) -> None:
        super().__init__(enumerate(data if isinstance(data, bytes) else data.tobytes()))

    def __missing__(self, index: Any) -> int:
        raise IndexError(f"read at {index} of {len(self)}")
