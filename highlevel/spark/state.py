"""State of the operators as files, one version per micro-batch.

    state/<part>/<batch id>.json          manifest: for each query its tables by their files, and its packs
    state/<part>/<query>-<table>-<batch id>.arrow
    state/<part>/<query>-pack<n>-<batch id>.arrow

Version n depends on version n - 1 only. Files are written under temporary names and renamed, the manifest last, so a
reader sees the complete version or none. A repeated micro-batch n reads version n - 1 and writes the same
version n. A table that did not change is not written again: the new manifest names the old file. Small tables are
combined (`highlevel.spark.state`) and written with every version, because comparing them would cost more. A small pack
is part of the manifest, so that an idle operator costs one small file. The last KEEP versions are kept.

Every byte is verified when a version is read: a manifest has a checksum, and contains the length and the checksum of
each file (`highlevel.spark.checked_files`). Damaged state is a FolderError, never a wrong result.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from capture.private_files import make_private_folder, replace_file, replacing
from highlevel.spark.checked_files import REMEDY, checksum, read_bytes, read_document, verify, write_document
from highlevel.spark.errors import FolderError
from highlevel.spark.packing import pack, unpack

# Packs: small tables of one query with the same columns are combined to one table.
#
# A long window that slides by seconds has thousands of panes of a few rows. As separate messages each would need a
# schema that is longer than its rows, and some calls per column. A pack needs these once.


@dataclass
class Pack:
    """Concatenated tables of one schema, with the names and the row counts of the tables."""

    schema: pa.Schema
    names: list[str] = field(default_factory=list)
    tables: list[pa.Table] = field(default_factory=list)

    @property
    def rows(self) -> list[int]:
        """Number of rows of each table."""
        return [table.num_rows for table in self.tables]

    @property
    def table(self) -> pa.Table:
        """All rows as one table in one piece."""
        return self.tables[0] if len(self.tables) == 1 else pa.concat_tables(self.tables).combine_chunks()


def pack_tables(tables: Mapping[str, pa.Table]) -> list[Pack]:
    """Put tables of the same schema, its metadata included, into one pack each."""
    packs: list[Pack] = []
    for name, table in tables.items():
        pack = next((each for each in packs if each.schema.equals(table.schema, check_metadata=True)), None)
        if pack is None:
            pack = Pack(table.schema)
            packs.append(pack)
        pack.names.append(name)
        pack.tables.append(table)
    return packs


def split_pack(table: pa.Table, names: list[str], rows: list[int]) -> Iterator[tuple[str, pa.Table]]:
    """Yield the tables of a pack by their names. They share its memory."""
    for name, end, count in zip(names, accumulate(rows), rows, strict=True):
        yield name, table.slice(end - count, count)


KEEP = 3
"""Number of kept versions: Spark may repeat the last micro-batch, and one more helps in an inspection."""

SMALL = 4096
"""Maximum bytes of a table that is packed, and of a pack in the manifest."""

Tables = Mapping[str, pa.Table]

File = dict[str, Any]
"""A file in a manifest: its name, its length in bytes and its checksum."""


class PartState:
    """The state of one operator partition of a run."""

    def __init__(self, folder: Path, part: int) -> None:
        """The state of partition `part` is below `folder`."""
        self.folder = folder / str(part)
        self.loaded: dict[tuple[int, str], tuple[File, tuple[int, ...]]] = {}

    def load(self, batch_id: int, queries: int) -> list[dict[str, pa.Table]]:
        """Return the tables of each query after micro-batch `batch_id`, none before the first.

        Raises FolderError if the version is missing or damaged.
        """
        if batch_id < 0:
            return [{} for _ in range(queries)]
        path = self._manifest(batch_id)
        try:
            manifest = read_document(path)
        except FileNotFoundError:
            raise FolderError(
                f"{path}: missing: the checkpoint continues after micro-batch {batch_id}, but its state is gone; "
                "restore it from a copy, or start again with another folder"
            ) from None
        if len(manifest) != queries:
            raise FolderError(f"{path}: the state of {len(manifest)} queries, expected {queries}; {REMEDY}")
        try:
            return [self._read(query, stored) for query, stored in enumerate(manifest)]
        except FileNotFoundError as error:
            raise FolderError(f"{error.filename}: missing, but {path} names it; {REMEDY}") from None

    def _read(self, query: int, stored: dict[str, Any]) -> dict[str, pa.Table]:
        found: dict[str, pa.Table] = {}
        for name, file in stored["files"].items():
            found[name] = pa.ipc.open_file(self._map(file)).read_all()
            self.loaded[query, name] = file, addresses(found[name])
        for each in stored["packs"]:
            if "data" in each:
                packed = base64.b64decode(each["data"])
            else:
                packed = read_bytes(self.folder / each["file"]["name"])
                verify(self.folder / each["file"]["name"], packed, each["file"]["bytes"], each["file"]["checksum"])
            found.update(split_pack(unpack(packed), each["names"], each["rows"]))
        return found

    def _map(self, file: File) -> pa.Buffer:
        """Map a file of a table and verify it."""
        path = self.folder / file["name"]
        if path.stat().st_size == 0:  # an empty file cannot be mapped
            verify(path, b"", file["bytes"], file["checksum"])
        with pa.memory_map(str(path)) as source:
            content = source.read_buffer()
        verify(path, content, file["bytes"], file["checksum"])
        return content

    def save(self, batch_id: int, snapshots: Sequence[Tables]) -> None:
        """Write version `batch_id`, then remove the files that no kept version needs."""
        make_private_folder(self.folder)
        manifest = [self._write(batch_id, query, tables) for query, tables in enumerate(snapshots)]
        write_document(self._manifest(batch_id), manifest)
        self._remove_old(batch_id)

    def _write(self, batch_id: int, query: int, tables: Tables) -> dict[str, Any]:
        files, small = {}, {}
        for name, table in tables.items():
            file, before = self.loaded.get((query, name), ({}, ()))
            if file and addresses(table) == before:
                files[name] = file
            elif table.nbytes <= SMALL:
                small[name] = table
            else:
                files[name] = self._write_table(f"{query}-{quote(name, safe='')}-{batch_id}.arrow", table)
        packs = []
        for number, each in enumerate(pack_tables(small)):
            packed = pack(each.table)
            stored: dict[str, Any] = {"names": each.names, "rows": each.rows}
            if len(packed) <= SMALL:
                stored["data"] = base64.b64encode(packed).decode()
            else:
                packed_file = f"{query}-pack{number}-{batch_id}.arrow"
                replace_file(self.folder / packed_file, packed)
                stored["file"] = {"name": packed_file, "bytes": len(packed), "checksum": checksum(packed)}
            packs.append(stored)
        return {"files": files, "packs": packs}

    def _write_table(self, file: str, table: pa.Table) -> File:
        with replacing(self.folder / file) as (_, part):
            with pa.ipc.new_file(str(part), table.schema) as writer:
                writer.write_table(table)
            with pa.memory_map(str(part)) as source:
                content = source.read_buffer()
        return {"name": file, "bytes": content.size, "checksum": checksum(content)}

    def _remove_old(self, batch_id: int) -> None:
        """Remove versions that are too old, and files that no kept version names.

        A damaged version cannot be restored, so its files are removed too.
        """
        kept: set[str] = set()
        for path in self.folder.glob("*.json"):
            if int(path.stem) <= batch_id - KEEP:
                path.unlink(missing_ok=True)
                continue
            try:
                kept |= _files(read_document(path))
            except (FileNotFoundError, FolderError):
                continue
        for path in self.folder.glob("[!.]*.arrow"):
            if path.name not in kept:
                path.unlink(missing_ok=True)

    def _manifest(self, batch_id: int) -> Path:
        return self.folder / f"{batch_id}.json"


def _files(manifest: Sequence[dict[str, Any]]) -> set[str]:
    packs = {each["file"]["name"] for query in manifest for each in query["packs"] if "file" in each}
    return packs | {file["name"] for query in manifest for file in query["files"].values()}


def addresses(table: pa.Table) -> tuple[int, ...]:
    """Return the memory addresses and lengths of a table's values, which identify an unchanged table."""
    found = [table.num_rows]
    for column in table.columns:
        for chunk in column.chunks:
            found += [chunk.offset, *(0 if buffer is None else buffer.address for buffer in chunk.buffers())]
    return tuple(found)
