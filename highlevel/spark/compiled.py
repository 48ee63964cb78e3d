"""Kernels are compiled before Spark starts tasks: no task ever compiles, and none imports the compiler."""

from __future__ import annotations

from capture.native import missing


def compile_kernels() -> None:
    """Compile what the cache of this machine lacks; seconds on the very first run, nothing afterwards."""
    for each in missing():
        each.compile()
