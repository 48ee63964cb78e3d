"""Compilation of kernels before Spark starts tasks, so that no task compiles or imports the compiler."""

from __future__ import annotations

from capture.native import missing


def compile_kernels(kind: str = "packets") -> None:
    """Compile the kernels that are not in the cache of this machine. The first run takes seconds.

    `kind` is the kind of rows that tasks will read. The import of its readers declares their kernels.
    """
    if kind == "flows":
        import lowlevel.rows.flows  # declares its kernels
    if kind == "samples":
        import lowlevel.rows.samples  # noqa: F401
    for kernel in missing():
        kernel.compile()
