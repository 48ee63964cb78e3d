"""A kernel's plain Python in place of its machine code, on the same memory, with numpy's bound checks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from capture.native import SCALAR_TYPES, Kernel, flatten


def plain(kernel: Kernel, *arrays: np.ndarray) -> Callable[..., int]:
    """Return a replacement for `kernel` that runs as plain Python and maps addresses back to their arrays.

    Each address must belong to one of `arrays`. The signature defines the type as which the array is read.
    """
    by_address = {array.__array_interface__["data"][0]: array for array in arrays}

    def run(*arguments: Any) -> int:
        values = [
            by_address[value].reshape(-1).view(SCALAR_TYPES[kind[:-1]][2])
            if kind.endswith("*") and isinstance(value, int)
            else value
            for kind, value in zip(kernel.arguments, flatten(arguments), strict=True)
        ]
        with np.errstate(over="ignore"):  # hashes are meant to wrap
            return kernel.function(*kernel.group(values))

    run.at = run  # type: ignore[attr-defined]
    return run
