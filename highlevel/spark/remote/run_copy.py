"""The folder of a run in an object store, and the copy on this machine in which the run works.

    newest                        the name of the newest manifest, and the files of the micro-batch planned after it
    manifests/42-UUID             all files of the run after a micro-batch
    objects/state/0/…-UUID        the content of larger files; small ones are in the manifest
    output/QUERY/date=…/part-*    results, as in a local folder, for other programs
    lock                          `highlevel.spark.remote.run_lock`

The run reads and writes only the copy, in which files can be renamed and locked. An object store cannot rename, so the
files of a micro-batch become visible together, with one object, which is replaced last: `newest`.

    offsets of n are planned ──► newest ──► tasks, results, alerts, sinks ──► objects, results, manifest of n ──► newest

Exactly once. Before a task of micro-batch n runs, its offsets are in the store. So every later process repeats n with
the same offsets, and the argument of `highlevel.spark.stream` is valid. The manifest of n becomes the newest one after
the sinks have stored n, and before Spark commits n. If the process ends before the commit, the next one adds the
commit: all of n is done. Spark plans n + 1 after the commit of n, and only then segments of spools are released, so
they are in the store as results.

One writer. `newest` is replaced on the condition that it is the version that the writer knows, and a process begins
with a version of its own. So a process that was suspended, and continues after another one has taken over, fails at its
next version. Its objects have random names, so it has changed nothing that the other process reads. Results are
replaced on the condition that they are the version that the writer knows.

Results have fixed names, so that other programs can read them. They are written before the manifest: a crash between
them leaves rows of n in the store, as it leaves them in a local folder, and the repeated micro-batch replaces them.
They are deleted after the manifest, which names them, so a start repeats a deletion that a crash has prevented.

If the copy on this machine is the newest one, a start continues with it. Otherwise it is replaced from the manifest.
"""

from __future__ import annotations

import base64
import hashlib
import shutil
import sqlite3
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from capture.lazy_dataclasses import dataclass
from capture.private_files import make_private_folder, replace_file
from highlevel.results.stored_files import newest_files
from highlevel.spark.checked_files import REMEDY, checksum, decode_document, encode_document, read_document
from highlevel.spark.errors import FolderError
from highlevel.spark.locks import LOCK_FILE, Locks
from highlevel.spark.remote.object_store import CHUNK_BYTES, ConflictError, ObjectStore
from highlevel.spark.remote.run_lock import RunLock
from highlevel.spark.state import file_names

COPY, MARKER = "copy", "newest.json"
"""Names of the copy in its home, and of the file in the copy with the manifest that it continues."""

NEWEST = "newest"
"""Name of the object with the name of the newest manifest."""

MANIFESTS, OBJECTS, OUTPUT = "manifests/", "objects/", "output/"
"""Prefixes of the names of objects."""

INLINE_BYTES = 16 << 10
"""Largest file whose content is part of the manifest. A request takes longer than the transfer of these bytes."""

UPLOADS = 8
"""Number of objects that are written at the same time."""

COMMIT = b'v1\n{"nextBatchWatermarkMs":0}'
"""Content of the file with which Spark commits a micro-batch of a query without a watermark of Spark."""

FileEntry = dict[str, Any]
"""A file in a manifest: its `bytes` and `checksum`, and its `data` (base64) or the name of its `object`."""


@dataclass(frozen=True)
class Manifest:
    """The files of a run after micro-batch `batch`, by their paths in the folder. -1: before the first one.

    If a later micro-batch is planned, `files` contains its offsets too. `name`: the object with the files after
    `batch`. `version`: that of the object `newest`. `deleted`: results that must not exist any more.
    """

    name: str
    version: str
    batch: int
    files: dict[str, FileEntry]
    deleted: tuple[str, ...]

    @property
    def objects(self) -> set[str]:
        """The names of the objects with the content of files."""
        return {entry["object"] for entry in self.files.values() if "object" in entry}


def read_manifest(store: ObjectStore) -> Manifest | None:
    """Return the newest manifest; None if there is none. Raises FolderError for a damaged one."""
    while True:
        try:
            content, version = store.read(NEWEST)
        except FileNotFoundError:
            return None
        newest = decode_document(content, f"{store.uri}/{NEWEST}")
        name = newest["manifest"]
        try:
            manifest = decode_document(store.read(name)[0], f"{store.uri}/{name}")
        except FileNotFoundError:
            if store.list(NEWEST)[NEWEST][1] != version:  # a running process has replaced it
                continue
            raise FolderError(f"{store.uri}/{name}: missing, but {NEWEST} names it; {REMEDY}") from None
        files = {**manifest["files"], **newest["files"]}
        return Manifest(name, version, manifest["batch"], files, tuple(manifest["deleted"]))


def list_results(store: ObjectStore, manifest: Manifest) -> dict[str, int]:
    """Return the size of each file of results of a run."""
    return {name: size for name, (size, _) in store.list(OUTPUT).items() if name not in manifest.deleted}


def write_copy(store: ObjectStore, manifest: Manifest, folder: Path, results: Iterable[str]) -> None:
    """Write the files of a manifest, and results, into a folder. Raises FolderError for missing or damaged objects."""
    files = [*manifest.files.items(), *((path, None) for path in results)]
    with ThreadPoolExecutor(UPLOADS) as threads:
        for _ in threads.map(lambda file: copy_file(store, folder, *file), files):
            pass


def copy_file(store: ObjectStore, folder: Path, path: str, entry: FileEntry | None) -> None:
    """Write a file of a manifest, or for None a file of results, into a folder. Raises FolderError as `write_copy`."""
    name = path if entry is None else entry.get("object", path)
    if entry is not None and "data" in entry:
        make_private_folder((folder / path).parent)
        replace_file(folder / path, base64.b64decode(entry["data"]))
    else:
        try:
            store.download(name, folder / path)
        except FileNotFoundError:
            raise FolderError(f"{store.uri}/{name}: missing, but the run needs it; {REMEDY}") from None
    if entry is not None and (found := _sum(folder / path)) != {key: entry[key] for key in found}:
        raise FolderError(
            f"{store.uri}/{name}: damaged: got {found['bytes']} bytes with checksum {found['checksum']}, expected "
            f"{entry['bytes']} with {entry['checksum']}; {REMEDY}"
        )


class RunCopy:
    """The copy of a run's folder on this machine. `folder` is its path. Not thread safe, except `stop`."""

    def __init__(
        self,
        store: ObjectStore,
        home: Path,
        say: Callable[[str], None],
        databases: Sequence[str] = (),
        lock: RunLock | None = None,
    ) -> None:
        """`home`: a folder for the copy. `databases`: names of SQLite files in the run's folder that are stored too."""
        self._store, self._home, self._say, self._databases = store, home, say, databases
        self._run_lock = lock or RunLock(store)
        self._locks = Locks()
        self._manifest: Manifest | None = None
        self._signatures: dict[str, tuple[int, int, int]] = {}
        self._entries: dict[str, FileEntry] = {}
        self._versions: dict[str, str] = {}

    @property
    def uri(self) -> str:
        """The URI of the folder."""
        return self._store.uri

    @property
    def folder(self) -> Path:
        """The path of the copy."""
        return self._home / COPY

    def open(self) -> None:
        """Lock the run, and make the copy equal to the newest manifest, if it is not newer.

        Raises FolderError if another process runs it, if the store refuses a request, or if the manifest is damaged.
        """
        make_private_folder(self._home)
        self._locks.lock_folder(self._home, self.uri)
        try:
            self._run_lock.take(self._home / LOCK_FILE, self._say)
            self._restore()
        except BaseException:
            self.close()
            raise

    def _restore(self) -> None:
        self._manifest = manifest = read_manifest(self._store)
        self._versions = {name: version for name, (_, version) in self._store.list(OUTPUT).items()}
        if manifest is None and (self._versions or self._store.list(OBJECTS)):
            raise FolderError(
                f"{self.uri}: got objects below {OUTPUT} or {OBJECTS} and no manifest, expected the folder of a run, "
                "or a prefix without objects; take another folder, or delete these objects"
            )
        if manifest is None or not self._is_newest(manifest):
            shutil.rmtree(self.folder, ignore_errors=True)
        make_private_folder(self.folder)
        if manifest is None:
            return
        self._delete_others(manifest)
        results = list_results(self._store, manifest)
        if not self._is_newest(manifest):
            size = sum(results.values()) + sum(entry["bytes"] for entry in manifest.files.values())
            self._say(f"{self.uri}: copying {size / 1e6:,.1f} MB to {self.folder} …")
            write_copy(self._store, manifest, self.folder, results)
            self._write_marker(manifest)
        commit = self.folder / "checkpoint" / "commits" / str(manifest.batch)
        if manifest.batch >= 0 and not commit.exists():
            make_private_folder(commit.parent)
            replace_file(commit, COMMIT)
        for path, entry in manifest.files.items():
            if (self.folder / path).exists():
                found = self._sum_file(self.folder / path)
                if found == {key: entry[key] for key in found}:
                    self._signatures[path], self._entries[path] = _signature(self.folder / path), entry
        self._find_unchanged(results)

    def _find_unchanged(self, results: Mapping[str, int]) -> None:
        """Remember the results that are the same in the copy and in the store.

        The last process may have changed newest files after its last manifest. Their ETag is usually the MD5 of the
        content. Otherwise they are stored again.
        """
        output = self.folder / "output"
        newest = {path for folder in output.glob("*/") for path in newest_files(folder)}
        for name, size in results.items():
            file = self.folder / name
            if file.exists() and file.stat().st_size == size:
                is_complete = file.suffix == ".parquet" and file not in newest
                if is_complete or hashlib.md5(file.read_bytes()).hexdigest() == self._versions[name].strip('"'):
                    self._signatures[name] = _signature(file)

    def _is_newest(self, manifest: Manifest) -> bool:
        """Return whether the copy continues a manifest."""
        try:
            return bool(read_document(self.folder / MARKER) == [self.uri, manifest.name, manifest.version])
        except (FileNotFoundError, FolderError):
            return False

    def _write_marker(self, manifest: Manifest) -> None:
        replace_file(self.folder / MARKER, encode_document([self.uri, manifest.name, manifest.version]))

    def _delete_others(self, manifest: Manifest) -> None:
        """Delete the objects that a process could not delete before it ended."""
        named = {*manifest.objects, manifest.name}
        stored = [*self._store.list(OBJECTS), *self._store.list(MANIFESTS)]
        self._delete([*(name for name in stored if name not in named), *manifest.deleted])

    def _delete(self, names: Iterable[str]) -> None:
        chosen = list(names)
        self._store.delete(chosen)
        for name in chosen:
            self._versions.pop(name, None)

    def check(self) -> None:
        """Raise FolderError if another process has taken over the run."""
        self._run_lock.check()

    def publish_plan(self, batch: int) -> None:
        """Store the planned offsets of a micro-batch, and everything else that its tasks read. Call it before them."""
        self.check()
        old = self._manifest
        assert old is not None, "the run begins with a manifest"
        checkpoint = self.folder / "checkpoint"
        files = [checkpoint / "metadata", checkpoint / "offsets" / str(batch), *_files_below(self.folder / "watched")]
        added = self._store_files(files)
        self._replace_newest(replace(old, files={**old.files, **added}), added)

    def publish(self, batch: int) -> None:
        """Store all files of the run after a micro-batch. -1: a new run, before its first micro-batch."""
        self.check()
        files = self._store_files(self._files_after(batch))
        if batch >= 0:
            files[f"checkpoint/commits/{batch}"] = _inline(COMMIT)
        results = list(_files_below(self.folder / "output"))
        with ThreadPoolExecutor(UPLOADS) as threads:
            names = set(threads.map(self._store_result, results))
        deleted = tuple(name for name in self._versions if name not in names)
        name = f"{MANIFESTS}{batch}-{uuid.uuid4().hex}"
        document = {"batch": batch, "files": files, "deleted": deleted}
        self._store.create(name, encode_document(document))
        self._replace_newest(Manifest(name, "", batch, files, deleted), {})
        self._delete(deleted)

    def _files_after(self, batch: int) -> Iterator[Path]:
        """Yield the files that a run needs to continue after a micro-batch, except results."""
        folder = self.folder
        yield from (path for path in (folder / "run.json", folder / "totals" / f"{batch}.json") if path.exists())
        checkpoint = folder / "checkpoint"
        for path in _files_below(checkpoint):
            kind = path.relative_to(checkpoint).parts[0]
            if kind not in ("offsets", "commits") or (
                path.name.isdigit() and int(path.name) >= batch - 1
            ):  # Spark reads two
                yield path
        for manifest in (folder / "state").rglob(f"{batch}.json"):
            yield manifest
            yield from (manifest.parent / name for name in file_names(read_document(manifest)))
        for name in ("watched", "quarantine"):
            yield from _files_below(folder / name)
        yield from (folder / name for name in self._databases if (folder / name).exists())

    def _store_files(self, paths: Iterable[Path]) -> dict[str, FileEntry]:
        """Return the entries of files. Files that have changed, and are too large for a manifest, become objects."""
        with ThreadPoolExecutor(UPLOADS) as threads:
            return dict(threads.map(self._store_file, paths))

    def _store_file(self, path: Path) -> tuple[str, FileEntry]:
        relative = path.relative_to(self.folder).as_posix()
        is_database = path.name in self._databases
        if not is_database and self._signatures.get(relative) == _signature(path):
            return relative, self._entries[relative]
        signature, content = _signature(path), self._read_small(path)
        entry = self._sum_file(path) if content is None else _inline(content)
        known = self._entries.get(relative)
        if known is not None and all(known[key] == entry[key] for key in ("bytes", "checksum")):
            entry = known
        elif content is None or len(content) > INLINE_BYTES:
            name = f"{OBJECTS}{relative}-{uuid.uuid4().hex}"
            self._store.create(name, path if content is None else content)
            entry = {"bytes": entry["bytes"], "checksum": entry["checksum"], "object": name}
        self._signatures[relative], self._entries[relative] = signature, entry
        return relative, entry

    def _store_result(self, path: Path) -> str:
        """Store a file of results if it has changed. Return the name of its object."""
        name, signature = path.relative_to(self.folder).as_posix(), _signature(path)
        version = self._versions.get(name)
        if version is not None and self._signatures.get(name) == signature:
            return name
        try:
            stored = self._store.create(name, path) if version is None else self._store.replace(name, path, version)
        except (ConflictError, FileNotFoundError):
            raise FolderError(f"{self.uri}/{name}: another program has changed this object; {REMEDY}") from None
        self._versions[name], self._signatures[name] = stored, signature
        return name

    def _read_small(self, path: Path) -> bytes | None:
        """Return the content of a small file or a database; None for a large file.

        A database is read as one transaction, because other threads write to it.
        """
        if path.name in self._databases:
            with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(":memory:")) as copy:
                source.backup(copy)
                return bytes(copy.serialize())
        return path.read_bytes() if path.stat().st_size <= INLINE_BYTES else None

    def _sum_file(self, path: Path) -> FileEntry:
        """Return length and checksum of a file or a database."""
        content = self._read_small(path)
        return _sum(path) if content is None else {"bytes": len(content), "checksum": checksum(content)}

    def _replace_newest(self, manifest: Manifest, added: dict[str, FileEntry]) -> None:
        """Replace `newest`. Then delete objects that no restart needs. `added`: files that the manifest lacks."""
        old, content = self._manifest, encode_document({"manifest": manifest.name, "files": added})
        try:
            if old is None:
                version = self._store.create(NEWEST, content)
            else:
                version = self._store.replace(NEWEST, content, old.version)
        except (ConflictError, FileNotFoundError):
            raise FolderError(f"{self.uri}: another run has taken over this folder; stop one of them") from None
        self._manifest = manifest = replace(manifest, version=version)
        self._write_marker(manifest)
        if old is not None:
            self._delete(sorted({*old.objects, old.name} - {*manifest.objects, manifest.name}))
        for path in [path for path in self._entries if path not in manifest.files]:
            del self._entries[path]

    def stop(self) -> None:
        """Let the current request to the store end, without a repetition. Another thread may call this."""
        self._store.stop()

    def close(self) -> None:
        """Release the locks. May be called twice. The copy stays, so that the next start need not read the store."""
        try:
            self._run_lock.release()
        finally:
            self._locks.release()


def _inline(content: bytes) -> FileEntry:
    return {"bytes": len(content), "checksum": checksum(content), "data": base64.b64encode(content).decode()}


def _sum(path: Path) -> FileEntry:
    """Return length and checksum of a file, which may be large."""
    size = crc = 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            size, crc = size + len(chunk), zlib.crc32(chunk, crc)
    return {"bytes": size, "checksum": f"{crc:08x}"}


def _signature(path: Path) -> tuple[int, int, int]:
    """Return numbers that change when a file is replaced or written."""
    status = path.stat()
    return status.st_size, status.st_mtime_ns, status.st_ino


def _files_below(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder, except temporary files and the checksums of Hadoop."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.name.startswith("."):
            yield path
