"""Compilation of kernels into the cache, in several processes.

numba compiles one kernel at a time in a process, and a kernel may take seconds. So each core gets a worker process.
A worker receives the names of kernels on its standard input and writes one line per kernel to its standard output.
Workers share only the cache folder.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from capture.cores import count_cores
from capture.kernel_cache import has_lasting_cache, locked_cache
from capture.native import Kernel, kernels

KERNEL_PACKAGES = ("capture", "lowlevel", "highlevel")
"""The packages that contain kernels."""

KERNEL_DECLARATION = "\n@kernel("
"""A text that all modules with kernels contain. Other modules are not imported: some need optional packages."""


def declare_kernels() -> None:
    """Import every module with kernels. Then `capture.native.kernels` contains all kernels."""
    for folder in KERNEL_PACKAGES:
        root = Path(importlib.import_module(folder).__path__[0])
        for path in sorted(root.rglob("*.py")):
            if KERNEL_DECLARATION in path.read_text("utf-8"):
                importlib.import_module(".".join([folder, *path.relative_to(root).with_suffix("").parts]))


def compile_into_cache(missing: Sequence[Kernel], progress: Callable[[int], None]) -> None:
    """Compile kernels in one process per core. `progress` receives the number of compiled kernels.

    If another process compiles into the same cache, this function waits for it first. The kernels that this process has
    stored are not compiled again. Returns when all kernels are in the cache, or if all workers have failed. A kernel
    that a worker cannot store is compiled at its first call.
    """
    with locked_cache():
        still_missing = [kernel for kernel in missing if kernel.stored() is None]
        if still_missing:
            _compile_all(still_missing, progress)


def _compile_all(missing: Sequence[Kernel], progress: Callable[[int], None]) -> None:
    count = min(count_cores(), len(missing))
    if count < 2 or not has_lasting_cache():
        for completed, kernel in enumerate(missing):
            progress(completed)
            kernel.compile()
        return
    waiting: queue.SimpleQueue[Kernel] = queue.SimpleQueue()
    for kernel in missing:
        waiting.put(kernel)
    finished: queue.SimpleQueue[bool] = queue.SimpleQueue()
    with contextlib.ExitStack() as stack:  # at its end the pipes are closed and the workers have ended
        workers = [stack.enter_context(_start_worker()) for _ in range(count)]
        threads = [threading.Thread(target=_compile_on_worker, args=(worker, waiting, finished)) for worker in workers]
        for thread in threads:
            thread.start()
        try:
            completed = ended = 0
            while ended < count:  # every thread ends with False
                if finished.get():
                    completed += 1
                    progress(completed)
                else:
                    ended += 1
        finally:
            for worker in workers:
                worker.kill()  # no effect on a worker that has ended
            for thread in threads:
                thread.join()


def _start_worker() -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-m", "capture.kernel_compilation"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


def _compile_on_worker(
    worker: subprocess.Popen[str], waiting: queue.SimpleQueue[Kernel], finished: queue.SimpleQueue[bool]
) -> None:
    """Pass kernels to a worker, one at a time, until the queue is empty or the worker fails."""
    assert worker.stdin is not None
    assert worker.stdout is not None
    try:
        while True:
            kernel = waiting.get_nowait()
            worker.stdin.write(f"{kernel.function.__module__} {kernel.name}\n")
            worker.stdin.flush()
            if worker.stdout.readline() != "stored\n":
                return
            finished.put(True)
    except (queue.Empty, OSError):  # OSError: the worker was killed
        return
    finally:
        finished.put(False)


def main() -> None:
    """Compile the kernels named on standard input, one `MODULE NAME` per line.

    Print `stored` or `not stored` for each.
    """
    for line in sys.stdin:
        module, name = line.split()
        importlib.import_module(module)
        kernel = next(kernel for kernel in kernels if kernel.function.__module__ == module and kernel.name == name)
        kernel.compile()
        print("stored" if kernel.stored() is not None else "not stored", flush=True)


if __name__ == "__main__":
    main()
