"""The folder of a run in an object store, and the copy on this machine in which the run works.

    newest                              the name of the newest manifest, the files of the micro-batch planned after it,
                                        and a token
    manifests/42-TOKEN-…                all files of the run after a micro-batch, with sizes and checksums
    objects/state/0/…-TOKEN-…           the content of larger files; small ones are in the manifest
    output/QUERY/date=…/part-…-TOKEN-…  results, also for other programs
    lock                                `highlevel.spark.remote.run_lock`

The run reads and writes only the copy, in which files can be renamed and locked. An object store cannot rename, so the
files of a micro-batch become valid together, with one object, which is replaced last: `newest`. Every other object has
a name with a random end, is created once, and is never changed.

    offsets of n are planned ──► newest ──► tasks, results, alerts, sinks ──► objects, results, manifest of n ──► newest

Exactly once. Before a task of micro-batch n runs, its offsets are in the store. So every later process repeats n with
the same offsets, and the argument of `highlevel.spark.stream` is valid. The manifest of n becomes the newest one after
the sinks have stored n, and before Spark commits n. If the process ends before the commit, the next one adds the
commit: all of n is done. Spark plans n + 1 after the commit of n, and only then segments of spools are released, so
they are in the store as results.

One writer. `newest` is replaced on the condition that it is the version that the writer knows. So a process that was
suspended, and continues after another one has taken over, fails at its next version.

Deletion. Objects are deleted only after this process has replaced `newest`, and only these:

* objects that the replaced manifest named, or listed as deleted, and that the new one does not name;
* objects with the token of a replaced version. A writer puts the token of the version that it will replace into the
  names of its objects. Only one writer can replace this version. So if its manifest does not name such an object, no
  manifest ever will: it is from a process that has crashed or was suspended. Tokens of ended processes stay in the
  manifests, because a suspended process may write later.

All other objects are unknown, and are never changed.

Each manifest names all results, but a micro-batch visits only those in folders that have changed
(`highlevel.spark.remote.changed_files`), because a run may have results of years.

The start compares each file of the copy with the newest manifest. Wrong and missing files are read from the store.
Other files of the run are removed: they belong to a micro-batch that the store does not have, which is repeated.
"""

from __future__ import annotations

import shutil
import sqlite3
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path, PurePosixPath

from capture.lazy_dataclasses import dataclass
from capture.private_files import make_private_folder, replace_file
from highlevel.spark.errors import FolderError
from highlevel.spark.remote.changed_files import Listing, find_changed_files
from highlevel.spark.remote.file_entries import (
    INLINE_BYTES,
    MANIFESTS,
    OBJECTS,
    OUTPUT,
    TASKS,
    FileEntry,
    copy_file,
    first_token,
    is_equal,
    is_of_task,
    make_inline,
    make_name,
    objects_of,
    sum_file,
    token_of,
    write_copy,
)
from highlevel.spark.remote.object_store import ConflictError, ObjectStore
from highlevel.spark.remote.run_lock import NAME as LOCK
from highlevel.spark.remote.run_lock import RunLock
from highlevel.spark.remote.task_files import TaskFiles
from highlevel.spark.run_folder.checked_files import REMEDY, checksum, decode_document, encode_document, read_document
from highlevel.spark.run_folder.locks import LOCK_FILE, Locks
from highlevel.spark.run_folder.result_files import is_expired
from highlevel.spark.run_folder.state import file_names

COPY, MARKER = "copy", "newest.json"
"""Names of the copy in its home, and of the file in the copy with the manifest that it continues."""

NEWEST = "newest"
"""Name of the object with the name of the newest manifest."""

FORMAT = 2
"""Format of the objects of a run. The manifests of format 1 do not name all objects."""

MAX_ENDED = 100
"""Largest number of tokens of ended processes in a manifest."""

STATE = "state/"
"""Prefix of the paths of the state."""

STORED = ("checkpoint", "state", "totals", "output", "watched", "quarantine")
"""Subfolders of the copy that the store contains."""

COMMIT = b'v1\n{"nextBatchWatermarkMs":0}'
"""Content of the file with which Spark commits a micro-batch of a query without a watermark of Spark."""


@dataclass(frozen=True)
class Manifest:
    """The files of a run after micro-batch `batch`, by their paths in the folder. -1: before the first one.

    If a later micro-batch is planned, `files` contains its offsets too. `name`: the object with the files after
    `batch`. `version`: that of the object `newest`. `token`: part of the names of objects that are written until
    `newest` is replaced. `deleted`: objects that earlier manifests named and that may still exist. `ended`: the last
    tokens of processes that have ended.
    """

    name: str
    version: str
    batch: int
    files: dict[str, FileEntry]
    token: str
    deleted: tuple[str, ...]
    ended: tuple[str, ...]

    @property
    def objects(self) -> set[str]:
        """The names of the objects of this manifest: itself, and the content of files."""
        return {self.name} | objects_of(self.files)

    @property
    def results(self) -> dict[str, FileEntry]:
        """The files of results."""
        return {path: entry for path, entry in self.files.items() if path.startswith(OUTPUT)}

    def is_abandoned(self, name: str) -> bool:
        """Return whether no later manifest can name an object, if the next version of `newest` does not name it."""
        return token_of(name) in (self.token, *self.ended) and name not in self.objects


def read_manifest(store: ObjectStore) -> Manifest | None:
    """Return the newest manifest; None if there is none. Raises FolderError for a damaged one."""
    while True:
        try:
            content, version = store.read(NEWEST)
        except FileNotFoundError:
            return None
        newest = decode_document(content, f"{store.uri}/{NEWEST}")
        found_format = newest.get("format", 1)
        if found_format != FORMAT:
            raise FolderError(
                f"{store.uri} contains the state of another version of Wiretide: got the format {found_format} of the "
                f"object {NEWEST}, expected {FORMAT}; take another folder, or continue with that version"
            )
        name = newest["manifest"]
        try:
            document = decode_document(store.read(name)[0], f"{store.uri}/{name}")
        except FileNotFoundError:
            if not is_current(store, version):  # a running process has replaced it
                continue
            raise FolderError(f"{store.uri}/{name}: missing, but {NEWEST} names it; {REMEDY}") from None
        files = {**document["files"], **newest["files"]}
        replaced = objects_of(document["files"]) - objects_of(files)
        deleted = (*document["deleted"], *sorted(replaced))
        return Manifest(name, version, document["batch"], files, newest["token"], deleted, tuple(document["ended"]))


def is_current(store: ObjectStore, version: str) -> bool:
    """Return whether `version` is still the version of `newest`."""
    return store.list(NEWEST).get(NEWEST, (0, ""))[1] == version


def list_unknown(store: ObjectStore, manifest: Manifest) -> dict[str, int]:
    """Return the size of each object below the prefix that the manifest does not name."""
    known = {NEWEST, LOCK, *manifest.objects}
    return {name: size for name, (size, _) in store.list("").items() if name not in known}


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
        """The entries of files, and the signatures that these files had then, by path."""
        self._created: set[str] = set()
        """Objects that this process has created, or no longer needs, since the last manifest."""
        self._abandoned: set[str] = set()
        """Objects of ended processes that no manifest can name."""
        self._listings: dict[str, Listing] = {}
        self._is_started = False
        """True after the first manifest of this process."""

    @property
    def store(self) -> ObjectStore:
        """The objects of the folder."""
        return self._store

    @property
    def uri(self) -> str:
        """The URI of the folder."""
        return self._store.uri

    @property
    def folder(self) -> Path:
        """The path of the copy."""
        return self._home / COPY

    def open(self) -> None:
        """Lock the run, and make the copy equal to the newest manifest. Nothing in the store is deleted.

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
        stored = self._store.list("")
        if manifest is None and any(name.startswith((OUTPUT, OBJECTS)) for name in stored):
            raise FolderError(
                f"{self.uri}: got objects below {OUTPUT} or {OBJECTS} and no manifest, expected the folder of a run, "
                "or a prefix without objects; take another folder, or delete these objects"
            )
        if manifest is None or not self._is_newest(manifest):
            with suppress(FileNotFoundError):
                shutil.rmtree(self.folder)
        make_private_folder(self.folder)
        if manifest is None:
            return
        self._abandoned = {name for name in stored if manifest.is_abandoned(name)}
        self._abandoned |= self._find_task_objects(stored) - manifest.objects
        self._remove_others(manifest)
        wrong = {path: entry for path, entry in manifest.files.items() if not self._is_intact(path, entry)}
        if wrong:
            size = sum(entry["bytes"] for entry in wrong.values())
            self._say(f"{self.uri}: copying {size / 1e6:,.1f} MB to {self.folder} …")
            for path in wrong.keys() & set(self._databases):
                for suffix in ("-wal", "-shm", "-journal"):
                    (self.folder / f"{path}{suffix}").unlink(missing_ok=True)
            try:
                write_copy(self._store, wrong, self.folder)
            except FolderError:
                if not is_current(self._store, manifest.version):
                    raise self._make_taken_error() from None
                raise
        self._write_marker(manifest)
        self.add_commit()
        for path, entry in manifest.files.items():
            if "data" in entry or stored.get(entry["object"], (-1, ""))[0] == entry["bytes"]:
                self._signatures[path], self._entries[path] = _signature(self.folder / path), entry
            # A missing object is written again.

    def add_commit(self) -> None:
        """Add Spark's commit of the last stored micro-batch to the copy. Call it before each start of the query.

        The process or the query has ended between the manifest and the commit. The micro-batch is not repeated: the
        store no longer has the state before it.
        """
        if self._manifest is None or self._manifest.batch < 0:
            return
        commit = self.folder / "checkpoint" / "commits" / str(self._manifest.batch)
        if not commit.exists():
            make_private_folder(commit.parent)
            replace_file(commit, COMMIT)

    def _remove_others(self, manifest: Manifest) -> None:
        """Remove files that the manifest lacks, and checksums of Hadoop, which may be those of other contents."""
        for name in STORED:
            for path in (self.folder / name).rglob("*"):
                relative = path.relative_to(self.folder).as_posix()
                if relative not in manifest.files and not path.is_dir():
                    path.unlink()
        for name in ("run.json", *self._databases):
            if name not in manifest.files:
                (self.folder / name).unlink(missing_ok=True)

    def _is_intact(self, path: str, entry: FileEntry) -> bool:
        """Return whether a file of the copy has the content of the manifest."""
        try:
            return is_equal(self._sum_file(self.folder / path), entry)
        except (OSError, sqlite3.DatabaseError):
            return False

    def _is_newest(self, manifest: Manifest) -> bool:
        """Return whether the copy continues a manifest."""
        try:
            return bool(read_document(self.folder / MARKER) == [self.uri, manifest.name, manifest.version])
        except (FileNotFoundError, FolderError):
            return False

    def _write_marker(self, manifest: Manifest) -> None:
        replace_file(self.folder / MARKER, encode_document([self.uri, manifest.name, manifest.version]))

    def check(self) -> None:
        """Raise FolderError if another process has taken over the run."""
        self._run_lock.check()

    def publish_plan(self, batch: int) -> None:
        """Store the planned offsets of a micro-batch, and everything else that its tasks read.

        Call it before the first of these tasks begins.
        """
        self.check()
        old = self._manifest
        assert old is not None, "the run begins with a manifest"
        checkpoint = self.folder / "checkpoint"
        files = [checkpoint / "metadata", checkpoint / "offsets" / str(batch), *_files_below(self.folder / "watched")]
        added = self._store_files(files)
        self._replace_newest(replace(old, files={**old.files, **added}), added)

    def make_task_files(self, batch: int) -> TaskFiles:
        """Return what the tasks of a micro-batch need if they do not see the copy. Call it after `publish_plan`."""
        assert self._manifest is not None, "the run begins with a manifest"
        state = {path: entry for path, entry in self._manifest.files.items() if path.startswith(STATE)}
        return TaskFiles(self._store, batch, state)

    def publish(self, batch: int, state_folders: Iterable[str], task_state: dict[str, FileEntry] | None = None) -> None:
        """Store all files of the run after micro-batch `batch`; -1 for a new run, before its first micro-batch.

        `state_folders`: the folders of the state that the next micro-batch needs. `task_state`: the files of the state
        that tasks have stored; None if the state is in the copy. Raises FolderError if files of the run are missing.
        """
        self._run_lock.renew()  # so a process that was suspended writes no results
        old = self._manifest
        results, listings = find_changed_files(self.folder, OUTPUT.strip("/"), self._listings)
        files = self._store_files([*self._files_after(batch), *results])
        if task_state is not None:
            files |= task_state
        if batch >= 0:
            files[f"checkpoint/commits/{batch}"] = make_inline(COMMIT)
        if old is not None:
            unchanged = {name for name, listing in listings.items() if listing is self._listings.get(name)}
            files |= {path: entry for path, entry in old.results.items() if path.rpartition("/")[0] in unchanged}
            files |= self._find_lost_files(old, files)
            self._check_complete(old, files, batch, state_folders)
        objects = objects_of(files)
        candidates = self._abandoned | self._created
        if task_state is not None:
            # Also of earlier micro-batches, whose attempts may have ended late. No task of a later one has begun.
            candidates |= self._find_task_objects(self._store.list(TASKS))
        ended: tuple[str, ...] = (self._token,)
        if old is not None:
            candidates |= {*old.objects, *old.deleted}
            ended = old.ended if self._is_started else (*old.ended, old.token)[-MAX_ENDED:]
        deleted = tuple(sorted(candidates - objects))
        name = make_name(f"{MANIFESTS}{batch}", self._token)
        document = {"batch": batch, "files": files, "deleted": deleted, "ended": ended}
        self._store.create(name, encode_document(document))
        self._created.add(name)
        self._replace_newest(Manifest(name, "", batch, files, "", deleted, ended), {})
        self._store.delete(deleted)
        self._created, self._abandoned, self._is_started, self._listings = set(), set(), True, listings
        assert self._manifest is not None, "it was replaced"
        self._manifest = replace(self._manifest, deleted=())

    def _find_task_objects(self, names: Iterable[str]) -> set[str]:
        return {name for name in names if is_of_task(self.uri, name)}

    @property
    def _token(self) -> str:
        return first_token(self.uri) if self._manifest is None else self._manifest.token

    def _find_lost_files(self, old: Manifest, files: dict[str, FileEntry]) -> dict[str, FileEntry]:
        """Return results and damaged segments that the copy has lost, after they were read from the store again.

        The run itself renames the results of a query, and deletes results that are too old.
        """
        lost: dict[str, FileEntry] = {}
        added = [(entry["bytes"], entry["checksum"]) for path, entry in files.items() if path not in old.files]
        missing = [path for path in old.files if path.startswith((OUTPUT, "quarantine/")) and path not in files]
        for path in sorted(missing, key=lambda path: path.endswith(".parquet")):  # `is_expired` needs the other files
            entry, file = old.files[path], self.folder / path
            if (entry["bytes"], entry["checksum"]) in added:
                continue
            copy_file(self._store, self.folder, path, entry)
            if file.suffix == ".parquet" and is_expired(self.folder.joinpath(*PurePosixPath(path).parts[:2]), file):
                file.unlink()
                if not any(file.parent.iterdir()):
                    file.parent.rmdir()
                continue
            self._say(f"warning: {file} was deleted by another program; it was read from {self.uri} again")
            self._signatures[path], self._entries[path] = _signature(file), entry
            lost[path] = entry
        return lost

    def _check_complete(self, old: Manifest, files: Collection[str], batch: int, state_folders: Iterable[str]) -> None:
        """Raise FolderError if a later process could not continue with these files.

        Levels and partitions of the old manifest may not exist any more: queries and partitions may have changed.
        """
        needed = {"run.json", "checkpoint/metadata", *self._databases} & old.files.keys()
        if batch >= 0:
            needed |= {f"checkpoint/offsets/{batch}", f"totals/{batch}.json"}
            needed |= {f"{folder}/{batch}.json" for folder in state_folders}
        missing = sorted(path for path in needed if path not in files)
        if missing:
            raise self._make_incomplete_error(self.folder / missing[0])

    def _make_incomplete_error(self, path: Path) -> FolderError:
        return FolderError(
            f"{path}: missing; {self.uri} still has the last complete micro-batch: start the run again, and let no "
            f"other program delete files below {self._home}"
        )

    def _files_after(self, batch: int) -> Iterator[Path]:
        """Yield the files that a run needs to continue after a micro-batch, except results."""
        folder = self.folder
        yield from (path for path in (folder / "run.json", folder / "totals" / f"{batch}.json") if path.exists())
        checkpoint = folder / "checkpoint"
        for path in _files_below(checkpoint):
            kind = path.relative_to(checkpoint).parts[0]
            # Spark reads the offsets and commits of two micro-batches.
            if kind not in ("offsets", "commits") or (path.name.isdigit() and int(path.name) >= batch - 1):
                yield path
        for manifest in (folder / "state").rglob(f"{batch}.json"):
            yield manifest
            yield from (manifest.parent / name for name in file_names(read_document(manifest)))
        for name in ("watched", "quarantine"):
            yield from _files_below(folder / name)
        yield from (folder / name for name in self._databases if (folder / name).exists())

    def _store_files(self, paths: Iterable[Path]) -> dict[str, FileEntry]:
        """Return the entries of files. The content of a changed file becomes a new object if the entry lacks it."""
        return dict(self._store.run_parallel(self._store_file, paths))

    def _store_file(self, path: Path) -> tuple[str, FileEntry]:
        relative = path.relative_to(self.folder).as_posix()
        is_database = path.name in self._databases
        known = self._entries.get(relative)
        try:
            signature = _signature(path)
            if not is_database and known is not None and self._signatures.get(relative) == signature:
                return relative, known
            content = self._read_small(path)
            entry = sum_file(path) if content is None else make_inline(content)
        except FileNotFoundError:
            raise self._make_incomplete_error(path) from None
        is_result = relative.startswith(OUTPUT)
        if known is not None and is_equal(entry, known):
            entry = known
        elif content is None or len(content) > INLINE_BYTES or is_result:
            name = make_name(relative if is_result else f"{OBJECTS}{relative}", self._token)
            self._store.create(name, path if content is None else content)
            self._created.add(name)
            entry = {"bytes": entry["bytes"], "checksum": entry["checksum"], "object": name}
        self._signatures[relative], self._entries[relative] = signature, entry
        return relative, entry

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
        return sum_file(path) if content is None else {"bytes": len(content), "checksum": checksum(content)}

    def _replace_newest(self, manifest: Manifest, added: dict[str, FileEntry]) -> None:
        """Replace `newest`. `added`: files that the manifest lacks."""
        old, token = self._manifest, uuid.uuid4().hex
        content = encode_document({"format": FORMAT, "manifest": manifest.name, "files": added, "token": token})
        try:
            if old is None:
                version = self._store.create(NEWEST, content)
            else:
                version = self._store.replace(NEWEST, content, old.version)
        except (ConflictError, FileNotFoundError):
            raise self._make_taken_error() from None
        if old is not None:
            self._created |= old.objects - manifest.objects  # files of an earlier plan
        self._manifest = manifest = replace(manifest, version=version, token=token)
        self._write_marker(manifest)
        self._entries = {path: entry for path, entry in self._entries.items() if manifest.files.get(path) == entry}
        self._signatures = {path: self._signatures[path] for path in self._entries}

    def _make_taken_error(self) -> FolderError:
        return FolderError(f"{self.uri}: another run has taken over this folder; stop one of them")

    def stop(self) -> None:
        """Repeat no request to the store, and do not wait long for its answers. Another thread may call this."""
        self._store.stop()

    def close(self) -> None:
        """Stop, and release the locks. May be called twice. The copy stays, so the next start reads little."""
        self.stop()
        try:
            self._run_lock.release()
        finally:
            self._locks.release()


def _signature(path: Path) -> tuple[int, int, int]:
    """Return numbers that change when a file is replaced or written."""
    status = path.stat()
    return status.st_size, status.st_mtime_ns, status.st_ino


def _files_below(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder, except temporary files and the checksums of Hadoop."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.name.startswith("."):
            yield path
