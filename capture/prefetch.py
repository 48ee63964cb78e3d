"""Asking the processor for memory before it is needed, so that waits for many places overlap.

A kernel that looks up a table larger than the caches waits for memory at nearly every row, and a branch that depends on
what it finds there hides from the processor which row comes next. Where the places of many rows are asked for first,
the waits are over by the time the rows are worked on.
"""

from __future__ import annotations

from typing import Any

from capture.native import intrinsic


def _build() -> Any:
    """Make numba's form of it: LLVM's `prefetch` of a cache line that will be written and is wanted soon."""
    from llvmlite import ir
    from numba import types
    from numba.extending import intrinsic as numba_intrinsic

    byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)

    def prefetch(_: Any, array: Any, index: Any) -> Any:
        def generate(context: Any, builder: Any, __: Any, arguments: Any) -> Any:
            place = builder.bitcast(builder.gep(arguments[0], [arguments[1]]), byte)
            wanted = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
            function = builder.module.declare_intrinsic("llvm.prefetch", [byte], wanted)
            builder.call(function, [place, word(1), word(3), word(1)])  # to write, to keep in all caches, data
            return context.get_dummy_value()

        return types.void(array, index), generate

    return numba_intrinsic(prefetch)


@intrinsic(_build)
def prefetch(array: Any, index: int) -> None:
    """Ask for the cache line of `array[index]`; changes nothing. Plain Python has nothing to ask."""
