"""The loader of compiled kernels against LLVM's own loader.

The tests detect a section at a wrong address, and a relocation that is left out or wrong. They detect an object that is
loaded although it calls functions that the loader does not know.
"""

import ctypes
from pathlib import Path

import numpy as np
import pytest

from capture import object_code
from capture.native import _load_with_llvm, kernel

needs_loader = pytest.mark.skipif(not object_code.SUPPORTED, reason="objects of this system are loaded by LLVM")
TABLE = (7, 3, 11, 5)


@kernel("i64(i64*, i64*, i64)")
def weigh(values, out, count):
    """Use constants in memory, a branch table and memset."""
    for row in range(count):
        out[row] = 0
    total = 0
    for row in range(count):
        kind = values[row] & 3
        if kind == 0:
            out[row] = values[row] * 0.37
        elif kind == 1:
            out[row] = values[row] ** 2 % 1013
        elif kind == 2:
            out[row] = -values[row]
        else:
            out[row] = values[row] // 7
        total += out[row] * TABLE[kind]
    return total


def call(address: int, values: np.ndarray) -> tuple[int, list[int]]:
    out = np.full(len(values), -1, np.int64)
    prototype = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    return prototype(address)(values.ctypes.data, out.ctypes.data, len(values)), out.tolist()


@pytest.fixture(scope="module")
def compiled() -> tuple[str, bytes]:
    return weigh.stored() or weigh.compile()


@needs_loader
def test_both_loaders_and_plain_python_compute_the_same(compiled: tuple[str, bytes]) -> None:
    symbol, code = compiled
    address = object_code.load(code, symbol)
    assert address is not None
    values = np.random.default_rng(1).integers(-1 << 20, 1 << 20, 1000)
    out = np.zeros(len(values), np.int64)
    plain = weigh.function(values, out, len(values)), out.tolist()
    assert call(address, values) == call(_load_with_llvm(code, symbol), values) == plain


@needs_loader
def test_an_object_can_be_loaded_several_times(compiled: tuple[str, bytes]) -> None:
    symbol, code = compiled
    values = np.arange(100)
    first, second = object_code.load(code, symbol), object_code.load(code, symbol)
    assert first != second
    assert call(first, values) == call(second, values)  # type: ignore[arg-type]


@needs_loader
def test_what_the_loader_does_not_know_is_left_to_llvm(compiled: tuple[str, bytes]) -> None:
    symbol, code = compiled
    assert object_code.load(code, "no_such_symbol") is None
    assert object_code.load(b"\xcf\xfa\xed\xfe" + code[4:], symbol) is None  # Mach-O
    assert object_code.load(code[:18] + b"\xb7" + code[19:], symbol) is None  # aarch64
    for length in (0, 10, 63, 200, len(code) // 2):
        assert object_code.load(code[:length], symbol) is None
    if b"\0memset\0" in code:
        assert object_code.load(code.replace(b"\0memset\0", b"\0system\0"), symbol) is None


@needs_loader
def test_code_is_never_writable_and_executable(compiled: tuple[str, bytes]) -> None:
    symbol, code = compiled
    address = object_code.load(code, symbol)
    assert address is not None
    with Path("/proc/self/maps").open() as lines:
        (rights,) = [
            line.split()[1]
            for line in lines
            if int(line.split("-")[0], 16) <= address < int(line.split()[0].split("-")[1], 16)
        ]
    assert rights == "r-xp"
