"""Both lives of a kernel: its machine code, and its plain Python on arrays that refuse every index outside them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

import numpy as np

import capture.native
from capture.native import SCALAR_TYPES, Kernel, flatten, pointer
from tests.harness.guarded import Guarded, GuardedBytes

Result = TypeVar("Result")


_last: list[Any] = [None, None]
"""The bytes that a kernel read last, and their guard: most inputs go through several kernels."""


def guarded(array: Any, kind: str) -> Guarded | GuardedBytes:
    """Return a guard in the place of a pointer; the types are those that `capture.native.pointer` expects."""
    if isinstance(array, int):
        raise TypeError("got an address, expected the array behind it: its bounds are not known")
    flags = array.flags
    if array.dtype != SCALAR_TYPES[kind][2] or not flags.c_contiguous:
        raise TypeError(f"a kernel needs a contiguous array of {kind}, got {array.dtype} {array.strides}")
    if flags.writeable or kind != "u8":
        return Guarded(array)
    if _last[0] is not array:
        _last[:] = array, GuardedBytes(array)
    return _last[1]


@cache
def _kinds(kernel: Kernel) -> list[str]:
    """Return the type of each argument that is a pointer, and an empty text for a number."""
    return [kind[:-1] if kind.endswith("*") else "" for kind in kernel.arguments]


def run_plain(kernel: Kernel, *arguments: Any) -> int:
    """Call a kernel's plain Python. The caller sets `np.errstate(over="ignore")` if numbers may wrap."""
    return int(
        kernel.function(
            *kernel.group(
                [
                    guarded(value, kind) if kind else value
                    for kind, value in zip(_kinds(kernel), flatten(arguments), strict=True)
                ]
            )
        )
    )


def _array_itself(array: Any, kind: str) -> Any:
    """In place of `capture.native.pointer`: an address has no bounds."""
    return array


@cache
def _takers(loaded: int) -> list[Any]:
    """Modules that take addresses, as long as so many are loaded."""
    modules = [module for module in list(sys.modules.values()) if vars(module).get("pointer") is pointer]
    return [module for module in modules if module not in (capture.native, sys.modules[__name__])]


@contextmanager
def plain_kernels() -> Iterator[None]:
    """Run every kernel as plain Python inside this context.

    Kernels that take addresses of arrays receive the arrays.
    """
    call, at = Kernel.__call__, Kernel.at
    takers = _takers(len(sys.modules))
    Kernel.__call__ = Kernel.at = run_plain
    for module in takers:
        module.pointer = _array_itself
    try:
        with np.errstate(over="ignore"):  # numbers of the machine wrap; to set it for each kernel takes longer
            yield
    finally:
        Kernel.__call__, Kernel.at = call, at
        for module in takers:
            module.pointer = pointer


def both(run: Callable[[bool], Result]) -> tuple[Result, Result]:
    """Return the results of `run` with machine code and with plain Python. Its argument is True for plain Python."""
    native = run(False)
    with plain_kernels():
        return native, run(True)
