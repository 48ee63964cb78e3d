"""Compile kernels before Spark starts tasks, so that no task compiles them or imports the compiler."""

from __future__ import annotations

from capture.native import missing_kernels


def compile_kernels(kind: str = "packets") -> None:
    """Compile the kernels that are not in the kernel cache of this machine. The first time this takes seconds.

    `kind` is the kind of rows that tasks will read. Importing the modules of its readers declares their kernels.
    """
    if kind == "flows":
        import lowlevel.rows.flows  # declares its kernels
    if kind == "samples":
        import lowlevel.rows.samples  # noqa: F401
    for kernel in missing_kernels():
        kernel.compile()
