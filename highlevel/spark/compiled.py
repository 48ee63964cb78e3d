"""Kernels are compiled before Spark starts tasks: no task ever compiles, and none imports the compiler."""

from __future__ import annotations

from capture.native import missing


def compile_kernels(kind: str = "packets") -> None:
    """Compile what the cache of this machine lacks; seconds on the very first run, nothing afterwards.

    `kind` is that of the rows that will be read: the readers of some are loaded, and declare their kernels, here.
    """
    if kind == "flows":
        import lowlevel.rows.flows  # declares its kernels
    if kind == "samples":
        import lowlevel.rows.samples  # noqa: F401
    for each in missing():
        each.compile()
