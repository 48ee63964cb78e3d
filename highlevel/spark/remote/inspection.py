"""Inspect the folder of a run in an object store: copy what is needed to a temporary folder, and read it there.

Results may be larger than the temporary folder, so at most one file of them is copied at a time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

from highlevel.spark.errors import FolderError
from highlevel.spark.remote.file_entries import copy_file, write_copy
from highlevel.spark.remote.object_store import ObjectStore
from highlevel.spark.remote.run_copy import Manifest, is_current, list_unknown, read_manifest
from highlevel.spark.remote.run_lock import check_unused
from highlevel.spark.run_folder.inspection import RunSummary, summarise, verify, verify_results

SHOWN = ("checkpoint", "output", "state", "totals")
"""Subfolders whose sizes are shown. Copies of decompressed captures are not in the store."""

UNKNOWN_OBJECTS = "unknown objects"
"""Name of objects that are not in the manifest: those of a crash, the current micro-batch, and other programs."""


def summarise_stored(uri: str) -> RunSummary:
    """Return progress and sizes of a folder, which may be in use. Raises FolderError if it is damaged."""
    store = ObjectStore(uri)
    manifest = _read(store)
    needed = {
        path: entry for path, entry in manifest.files.items() if _top(path) in ("run.json", "checkpoint", "totals")
    }
    with tempfile.TemporaryDirectory(prefix="wiretide-checkpoint-") as folder:
        write_copy(store, needed, Path(folder))
        summary = summarise(Path(folder))
    sizes = {path: entry["bytes"] for path, entry in manifest.files.items()}
    results = {path: entry["bytes"] for path, entry in manifest.results.items()}
    summary.files = {name: _sum([size for path, size in sizes.items() if _top(path) == name]) for name in SHOWN}
    summary.files[UNKNOWN_OBJECTS] = _sum([*list_unknown(store, manifest).values()])
    queries = sorted({PurePosixPath(path).parts[1] for path in results})
    summary.results = {
        unquote(query): _sum([size for path, size in results.items() if PurePosixPath(path).parts[1] == query])
        for query in queries
    }
    return summary


def verify_stored(uri: str) -> Iterator[tuple[str, str | None]]:
    """Read every object that a restart or a reader of results needs. Yield each name with its problem or None.

    Raises FolderError if a run uses the folder, also if it starts in the meantime.
    """
    store = ObjectStore(uri)
    check_unused(store)
    manifest = _read(store)
    with tempfile.TemporaryDirectory(prefix="wiretide-checkpoint-") as name:
        folder, missing, results = Path(name), set(), manifest.results
        for path in results:
            problem = _copy(store, folder, path, manifest)
            if problem is None and path.endswith(".parquet"):
                problem = verify_results(folder / path)
            yield path, None if problem is None else problem.replace(str(folder), uri)
            (folder / path).unlink(missing_ok=True)
        for path in [path for path in manifest.files if path not in results]:
            if (problem := _copy(store, folder, path, manifest)) is not None:
                missing.add(path)
                yield path, problem
        for file, problem in verify(folder):
            if (path := file.relative_to(folder).as_posix()) not in missing:
                yield path, None if problem is None else problem.replace(str(folder), uri)


def _copy(store: ObjectStore, folder: Path, path: str, manifest: Manifest) -> str | None:
    """Copy a file of a manifest into a folder. Return the problem of its object, or None."""
    try:
        copy_file(store, folder, path, manifest.files[path])
    except FolderError as error:
        if not is_current(store, manifest.version):
            raise FolderError(f"{store.uri} is in use by a run, whose objects change; stop it") from None
        return str(error)
    return None


def _read(store: ObjectStore) -> Manifest:
    manifest = read_manifest(store)
    if manifest is None:
        raise FolderError(f"{store.uri}: got no manifest, expected the folder of a run, such as s3a://BUCKET/run")
    return manifest


def _top(path: str) -> str:
    return PurePosixPath(path).parts[0]


def _sum(sizes: list[int]) -> tuple[int, int]:
    """Return the number of files, and their bytes."""
    return len(sizes), sum(sizes)
