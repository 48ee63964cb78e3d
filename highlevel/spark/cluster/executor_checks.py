"""Checks that run on an executor before the first task. Only modules of the standard library are imported at the top.

Spark sends these functions to the executors as code, not by name, because packages may be missing there. The functions
return problems in a document and raise no errors, because Spark would repeat a failed task.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import os
import pickle
import platform
import socket
import uuid
from collections.abc import Iterable, Iterator
from typing import Any

TOKEN = ".preflight-"
"""Beginning of the names of temporary files of the checks."""

STORE_SECONDS = 5.0
"""No request of the checks is repeated later than this. All checks together have 30 seconds."""


def check_executor(request: dict[str, Any], _: Iterable[int] = ()) -> Iterator[dict[str, Any]]:
    """Yield a document about this executor: host, versions, missing kernels, problems with paths and the run's folder.

    `request` contains the names of `packages`, the `paths` of inputs, the `folder` of the run or None, `token`, the
    name of a file in this folder, the `modules` whose kernels the tasks need, and the pickled `plans`. `store`: for a
    folder in an object store, its URI and the name of an object in it; otherwise None.
    """
    yield {
        "host": socket.gethostname(),
        "python": platform.python_version(),
        "packages": {name: find_version(name) for name in request["packages"]},
        "kernels": count_missing_kernels(request["modules"]),
        "plans": try_plans(request["plans"]),
        "paths": {path: look_at(path) for path in request["paths"]},
        "folder": None if request["folder"] is None else try_folder(request["folder"], request["token"]),
        "store": None if request["store"] is None else try_store(*request["store"]),
    }


def compile_on_host(request: dict[str, Any], _: Iterable[int] = ()) -> Iterator[dict[str, Any]]:
    """Compile the kernels of `modules` that are missing on this host.

    Yield the host, and how many are missing afterwards.

    The first task of a host compiles on all cores. The other tasks wait until it releases the lock of the kernel cache.
    If the cache cannot be written, kernels are still missing afterwards.
    """
    missing = importlib.import_module("capture.native").missing_kernels
    try:
        for module in request["modules"]:
            importlib.import_module(module)
        importlib.import_module("capture.kernel_compilation").compile_into_cache(missing(), lambda _: None)
        left: int | str = len(missing())
    except Exception as error:  # a broken compiler may raise any exception
        left = f"{type(error).__name__}: {error}"
    yield {"host": socket.gethostname(), "kernels": left}


def find_version(package: str) -> str | None:
    """Return the version of an installed package, or None."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def count_missing_kernels(modules: Iterable[str]) -> int | str:
    """Return the number of kernels that a task would compile, or why the modules cannot be imported."""
    try:
        for module in modules:
            importlib.import_module(module)
        return len(importlib.import_module("capture.native").missing_kernels())
    except Exception as error:  # a broken package may raise any exception
        return f"{type(error).__name__}: {error}"


def try_plans(plans: bytes) -> str | None:
    """Return why the pickled plans cannot be loaded here, for example because the module of a function is missing."""
    try:
        pickle.loads(plans)
    except Exception as error:  # the modules of a user may raise any exception
        return f"{type(error).__name__}: {error}"
    return None


def look_at(path: str) -> int | str:
    """Return the size of a readable file, 0 for a readable folder, or the reason why the path cannot be read."""
    try:
        if os.path.isdir(path):  # noqa: PTH112  # pathlib is not needed here
            os.listdir(path)  # noqa: PTH208
            return 0
        with open(path, "rb") as file:  # noqa: PTH123
            file.read(1)
            return os.fstat(file.fileno()).st_size
    except OSError as error:
        return error.strerror or str(error)


def try_folder(folder: str, token: str) -> str | None:
    """Return why the folder of the run cannot be used here: it is another folder, or it cannot be written."""
    if not os.path.exists(os.path.join(folder, token)):  # noqa: PTH110, PTH118
        exists = os.path.isdir(folder)  # noqa: PTH112
        return "it is another folder than on the driver" if exists else "it does not exist there"
    path = os.path.join(folder, f"{token}-{uuid.uuid4()}")  # noqa: PTH118
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except OSError as error:
        return f"it cannot be written: {error.strerror or error}"
    with contextlib.suppress(OSError):
        os.unlink(path)  # noqa: PTH108
    return None


def try_store(uri: str, name: str) -> str | None:
    """Return why tasks cannot use the object store of the run here. `name`: an object that the driver has written."""
    try:
        module = importlib.import_module("highlevel.spark.remote.object_store")
        store = module.ObjectStore(uri, repeat_seconds=STORE_SECONDS)
        store.read(name)
        store.create(f"{name.rpartition('-')[0]}-{uuid.uuid4().hex}", b"")
    except FileNotFoundError:
        return "it is another store than on the driver"
    except Exception as error:  # the modules of a broken installation may raise any exception
        return f"{type(error).__name__}: {error}"
    return None
