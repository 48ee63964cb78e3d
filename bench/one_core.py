"""Processes on one processor core, for figures "per core".

Linux can bind a process to a core. Other systems cannot: there the figures are from a process with one computing
thread, `core()` returns None, and the benches report this.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def core() -> int | None:
    """Return the last core that this process may use, or None if processes cannot be bound."""
    return max(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None


def bind_to_one_core() -> None:
    """Bind this process, and the processes that it starts later, to one core."""
    chosen = core()
    if chosen is not None:
        os.sched_setaffinity(0, {chosen})


@contextmanager
def children_bound(one: bool) -> Iterator[None]:
    """Bind the processes that the body starts to one core; if `one` is False, do not bind them."""
    if not one or core() is None:
        yield
        return
    before = os.sched_getaffinity(0)
    bind_to_one_core()
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def process_on_one_core() -> ProcessPoolExecutor:
    """Start a new process, bound to one core, that runs submitted calls one after the other."""
    return ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"), initializer=bind_to_one_core)


def on_one_core(function: Callable[Arguments, Result], *arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
    """Call a module's function in a fresh process that is bound to one core; its errors are raised here."""
    with process_on_one_core() as process:
        return process.submit(function, *arguments, **named).result()
