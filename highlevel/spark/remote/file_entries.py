"""Files of a run in an object store: their entries in manifests, and the names of their objects.

An entry contains length and checksum of a file, and either its content or the name of an object with the content. Every
object has a name with a random end, is created once, and is never changed.

    manifests/42-TOKEN-…                written by the driver
    objects/state/0/…-TOKEN-…           written by the driver
    output/QUERY/date=…/part-…-TOKEN-…  written by the driver, also for other programs
    objects/tasks/42/state/0/…          written by the tasks of a micro-batch (`highlevel.spark.remote.task_files`)
"""

from __future__ import annotations

import base64
import hashlib
import re
import uuid
import zlib
from pathlib import Path, PurePosixPath
from typing import Any

from capture.private_files import make_private_folder, replace_file
from highlevel.spark.errors import FolderError
from highlevel.spark.remote.object_store import CHUNK_BYTES, ObjectStore
from highlevel.spark.run_folder.checked_files import REMEDY, checksum

MANIFESTS, OBJECTS, OUTPUT = "manifests/", "objects/", "output/"
"""Prefixes of the names of objects."""

TASKS = f"{OBJECTS}tasks/"
"""Prefix of the names of objects that tasks write. The ID of the micro-batch follows."""

INLINE_BYTES = 16 << 10
"""Largest file whose content is part of the manifest. A request takes longer than the transfer of these bytes."""

OBJECT_NAME = re.compile(r"(?:manifests|objects|output)/.*-([0-9a-f]{32})-[0-9a-f]{32}(?:\.\w+)?", re.DOTALL)
"""Matches the name of an object that `make_name` has made, and its token."""

FileEntry = dict[str, Any]
"""A file in a manifest: its `bytes` and `checksum`, and its `data` (base64) or the name of its `object`."""


def objects_of(files: dict[str, FileEntry]) -> set[str]:
    """Return the names of the objects with the content of files."""
    return {entry["object"] for entry in files.values() if "object" in entry}


def first_token(uri: str) -> str:
    """Return the token for objects that are written before `newest` exists. It differs between folders."""
    return hashlib.blake2b(uri.encode(), digest_size=16).hexdigest()


def task_token(uri: str) -> str:
    """Return the token for objects that tasks write. It differs between folders."""
    return hashlib.blake2b(uri.encode(), digest_size=16, person=b"tasks").hexdigest()


def make_name(prefix: str, token: str) -> str:
    """Return a new name for an object. The name of a result keeps its suffix.

    >>> make_name("output/q/part-00000003.parquet", "token").startswith("output/q/part-00000003-token-")
    True
    """
    suffix = PurePosixPath(prefix).suffix if prefix.startswith(OUTPUT) else ""
    return f"{prefix.removesuffix(suffix)}-{token}-{uuid.uuid4().hex}{suffix}"


def token_of(name: str) -> str:
    """Return the token in the name of an object; an empty text if `make_name` has not made this name.

    >>> token_of(make_name("output/q/part-00000003.parquet", 32 * "a")) == 32 * "a", token_of("output/q/x-1")
    (True, '')
    """
    found = OBJECT_NAME.fullmatch(name)
    return "" if found is None else found[1]


def make_task_name(uri: str, batch_id: int, path: str) -> str:
    """Return a new name for an object that a task of a micro-batch writes.

    >>> is_of_task("s3a://lake/run", make_task_name("s3a://lake/run", 7, "state/0/7.json"))
    True
    """
    return make_name(f"{TASKS}{batch_id}/{path}", task_token(uri))


def is_of_task(uri: str, name: str) -> bool:
    """Return whether a task of the run with the folder `uri` has written an object."""
    return name.startswith(TASKS) and token_of(name) == task_token(uri)


def write_copy(store: ObjectStore, files: dict[str, FileEntry], folder: Path) -> None:
    """Write files of a manifest into a folder. Raises FolderError for missing or damaged objects."""
    store.run_parallel(lambda file: copy_file(store, folder, *file), files.items())


def copy_file(store: ObjectStore, folder: Path, path: str, entry: FileEntry) -> None:
    """Write a file of a manifest into a folder. Raises FolderError as `write_copy`."""
    name = entry.get("object", path)
    if "data" in entry:
        make_private_folder((folder / path).parent)
        replace_file(folder / path, base64.b64decode(entry["data"]))
    else:
        try:
            store.download(name, folder / path)
        except FileNotFoundError:
            raise FolderError(f"{store.uri}/{name}: missing, but the run needs it; {REMEDY}") from None
    if not is_equal(found := sum_file(folder / path), entry):
        raise FolderError(
            f"{store.uri}/{name}: damaged: got {found['bytes']} bytes with checksum {found['checksum']}, expected "
            f"{entry['bytes']} with {entry['checksum']}; {REMEDY}"
        )


def is_equal(first: FileEntry, second: FileEntry) -> bool:
    """Return whether two entries describe the same content."""
    return all(first[key] == second[key] for key in ("bytes", "checksum"))


def make_inline(content: bytes) -> FileEntry:
    """Return the entry of a small file, with its content."""
    return {"bytes": len(content), "checksum": checksum(content), "data": base64.b64encode(content).decode()}


def sum_file(path: Path) -> FileEntry:
    """Return length and checksum of a file, which may be large."""
    size = crc = 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            size, crc = size + len(chunk), zlib.crc32(chunk, crc)
    return {"bytes": size, "checksum": f"{crc:08x}"}
