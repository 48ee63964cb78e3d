"""Files that tasks read and write as objects, if the folder of a run is in an object store and Spark on a cluster.

    driver                                  task of a partition in micro-batch n
    files of the state after n - 1     ──►  reads its state, writes the state after n as new objects
    manifest of n, results of n        ◄──  entries of these files; entries of packed results, if they are many

Every attempt of a task writes objects with other names, and sends their entries with its counters. So the driver
receives the entries of one successful attempt, and its manifest of n names only these objects. After a micro-batch the
driver deletes all objects of tasks that the manifest does not name: packed results, which it has added to its files,
and those of attempts that failed. Attempts that end later leave objects until the end of the next micro-batch.

An executor keeps the files of its partitions in the scratch folder of Spark, which Spark deletes. So a partition that
stays on an executor does not read its large tables again.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pyarrow as pa

from capture.lazy_dataclasses import dataclass
from capture.private_files import make_private_folder
from highlevel.spark.errors import FolderError
from highlevel.spark.remote.file_entries import (
    INLINE_BYTES,
    FileEntry,
    copy_file,
    is_equal,
    make_inline,
    make_task_name,
    sum_file,
    task_token,
)
from highlevel.spark.remote.object_store import ObjectStore
from highlevel.spark.run_folder.checked_files import REMEDY, checksum, read_document, verify
from highlevel.spark.run_folder.state import file_names
from highlevel.spark.session.scratch import ScratchFolder
from highlevel.spark.tasks.packing import pack, unpack

SCRATCH = "SPARK_LOCAL_DIRS"
"""Environment variable of Python workers: folders that Spark deletes at the end of their executor."""

ATTEMPT_PREFIX = "wiretide-attempt-"
"""The beginning of the name of a folder with the state of a partition, for one attempt of a task."""


@dataclass(frozen=True)
class TaskFiles:
    """The objects of one micro-batch, for its tasks and its driver. Picklable.

    `files`: the state after the previous micro-batch, by paths in the folder of the run. In the methods `level` is the
    path of the state of one level in this folder, and `part` a partition.
    """

    store: ObjectStore
    batch_id: int
    files: Mapping[str, FileEntry]

    @contextmanager
    def open_state(self, level: str, part: int) -> Iterator[Path]:
        """Yield a folder for the state of a level, with the state of a partition after the previous micro-batch.

        The folder is deleted at the end of the block. If the process is killed before, a later call deletes it. Raises
        FolderError for missing or damaged objects.
        """
        cache = _Cache(self.store.uri, level, part)
        scratch = ScratchFolder.create(ATTEMPT_PREFIX, _find_scratch())
        try:
            folder, prefix = scratch.path, f"{level}/{part}/"
            make_private_folder(folder / prefix)
            files = [(path, entry) for path, entry in self.files.items() if path.startswith(prefix)]
            self.store.run_parallel(partial(self._read_file, cache, folder), files)
            yield folder / level
        finally:
            scratch.remove()

    def store_state(self, folder: Path, level: str, part: int) -> dict[str, FileEntry]:
        """Store the state of a partition after the micro-batch. Return the entries of its files.

        `folder`: the one that `open_state` has yielded.
        """
        cache = _Cache(self.store.uri, level, part)
        manifest = folder / str(part) / f"{self.batch_id}.json"
        names = [manifest.name, *sorted(file_names(read_document(manifest)))]
        files = [(f"{level}/{part}/{name}", manifest.parent / name) for name in names]
        entries = dict(self.store.run_parallel(partial(self._store_file, cache), files))
        cache.remove_others(entries.values())
        return entries

    def store_rows(self, part: int, rows: pa.Table) -> FileEntry:
        """Store rows of a partition for the driver. Return the entry of the object."""
        content = pack(rows)
        name = make_task_name(self.store.uri, self.batch_id, f"results/{part}")
        self.store.create(name, content)
        return {"bytes": len(content), "checksum": checksum(content), "object": name}

    def read_rows(self, entry: FileEntry) -> pa.Table:
        """Return the rows that `store_rows` has stored. Raises FolderError if they are missing or damaged."""
        path = f"{self.store.uri}/{entry['object']}"
        try:
            content, _ = self.store.read(entry["object"])
        except FileNotFoundError:
            raise FolderError(f"{path}: missing, but a task has written it; {REMEDY}") from None
        verify(path, content, entry["bytes"], entry["checksum"])
        return unpack(content)

    def _read_file(self, cache: _Cache, folder: Path, file: tuple[str, FileEntry]) -> None:
        path, entry = file
        if not cache.link_to(folder / path, entry):
            copy_file(self.store, folder, path, entry)
            cache.add(folder / path, entry)

    def _store_file(self, cache: _Cache, file: tuple[str, Path]) -> tuple[str, FileEntry]:
        path, source = file
        if path in self.files:  # the previous version has it too
            return path, self.files[path]
        if source.stat().st_size <= INLINE_BYTES:
            return path, make_inline(source.read_bytes())
        entry = {**sum_file(source), "object": make_task_name(self.store.uri, self.batch_id, path)}
        self.store.create(entry["object"], source)
        cache.add(source, entry)
        return path, entry


class _Cache:
    """Files of a partition that this executor has read or written, by the names of their objects.

    They are never changed, so the cache and the folders of attempts share them. Outside of Spark the cache is empty.
    """

    def __init__(self, uri: str, level: str, part: int) -> None:
        scratch = _find_scratch()
        self._folder = None if scratch is None else scratch / f"wiretide-state-{task_token(uri)}" / level / str(part)

    def link_to(self, file: Path, entry: FileEntry) -> bool:
        """Add a name to the file of an entry. Return False if the cache does not have it, or if it is damaged."""
        if self._folder is None or "object" not in entry:
            return False
        cached = self._folder / _random_end(entry)
        try:
            os.link(cached, file)
        except OSError:  # missing, or the file system has no links
            return False
        if is_equal(sum_file(file), entry):
            return True
        file.unlink()
        cached.unlink(missing_ok=True)
        return False

    def add(self, file: Path, entry: FileEntry) -> None:
        if self._folder is not None and "object" in entry:
            make_private_folder(self._folder)
            with suppress(OSError):  # another attempt of the task was faster, or the file system has no links
                os.link(file, self._folder / _random_end(entry))

    def remove_others(self, entries: Iterable[FileEntry]) -> None:
        """Remove all files except those of some entries."""
        kept = {_random_end(entry) for entry in entries if "object" in entry}
        for path in () if self._folder is None else self._folder.glob("*"):
            if path.name not in kept:
                path.unlink(missing_ok=True)


def _random_end(entry: FileEntry) -> str:
    return str(entry["object"].rpartition("-")[2])


def _find_scratch() -> Path | None:
    """Return the scratch folder of this executor; None outside of Spark."""
    folders = os.environ.get(SCRATCH, "")
    return Path(folders.partition(",")[0]) if folders else None
