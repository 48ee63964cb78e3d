"""Prefetching of memory, so that the waits for several memory locations overlap.

A kernel with a hash table larger than the caches waits for memory at nearly every row. A branch that depends on the
loaded data prevents the processor from starting the next rows early. If the memory of many rows is prefetched first, it
is in the caches when the rows are processed.
"""

from __future__ import annotations

from typing import Any

from capture.native import intrinsic


def _build(*, writes: bool) -> Any:
    """Build the numba intrinsic: LLVM's `prefetch` of a cache line that will be read, or written, soon."""
    from llvmlite import ir
    from numba import types
    from numba.extending import intrinsic as numba_intrinsic

    byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)

    def prefetch(_: Any, array: Any, index: Any) -> Any:
        def generate(context: Any, builder: Any, __: Any, arguments: Any) -> Any:
            address = builder.bitcast(builder.gep(arguments[0], [arguments[1]]), byte)
            signature = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
            function = builder.module.declare_intrinsic("llvm.prefetch", [byte], signature)
            builder.call(
                function, [address, word(int(writes)), word(3), word(1)]
            )  # for writing or reading, into all cache levels, data cache
            return context.get_dummy_value()

        return types.void(array, index), generate

    return numba_intrinsic(prefetch)


@intrinsic(_build, writes=True)
def prefetch(array: Any, index: int) -> None:
    """Prefetch the cache line of `array[index]` for writing. In plain Python this has no effect."""


@intrinsic(_build, writes=False)
def prefetch_read(array: Any, index: int) -> None:
    """Prefetch the cache line of `array[index]` for reading, also after its end. In plain Python this has no effect."""
