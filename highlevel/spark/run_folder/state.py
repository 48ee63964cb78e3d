"""The state of the operators, stored as files: one version for each micro-batch.

    state/<part>/<batch id>.json          manifest: for each key the files of its tables and packs
    state/<part>/<key>-<table>-<batch id>.arrow
    state/<part>/<key>-pack<n>-<batch id>.arrow

A key is a text that names one fragment of a query (a part of its plan in which rows are not repartitioned): the ID of
the query, a dot, and the number of the fragment.

Files are written under temporary names and then renamed, the manifest last, so a reader sees a complete version or
none. Version n depends only on version n - 1, so if micro-batch n is repeated, it writes the same version n. The last
KEPT_VERSIONS versions are kept.

**Changes.** A table consists of chunks. Chunks that did not change are not written again: the new manifest names their
old files, and one new file contains the other chunks. So if some rows of a table change, only these rows are written,
provided that the operator returns the old rows as the same chunks (`highlevel.groups.merge_buffer`). The operator
decides when chunks are merged.

Small tables, and small new chunks of large tables, are combined (`Pack`) and written with every version, because
comparing them would take longer. A small pack is part of the manifest, so that an idle operator writes only one small
file.

Every byte is verified when a version is read: a manifest has a checksum, and contains the length and the checksum of
each file (`spark.run_folder.checked_files`). So damaged state raises FolderError and never causes a wrong result.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import field
from itertools import accumulate
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from capture.lazy_dataclasses import dataclass
from capture.private_files import make_private_folder, open_replacement, replace_file
from highlevel.spark.errors import FolderError
from highlevel.spark.inputs.assignment import InputAssignment
from highlevel.spark.run_folder.checked_files import REMEDY, checksum, read_bytes, read_document, verify, write_document
from highlevel.spark.tasks.packing import pack, unpack

# Packs: small tables of one query with the same columns are combined to one table. A long window that slides by seconds
# has thousands of panes with a few rows each. If each table were stored separately, its schema would be longer than its
# rows, and reading it would take several calls of Arrow per column. A pack has one schema for all its tables.


@dataclass
class Pack:
    """Concatenated tables of one schema, with the names and the row counts of the tables."""

    schema: pa.Schema
    names: list[str] = field(default_factory=list)
    tables: list[pa.Table] = field(default_factory=list)

    @property
    def row_counts(self) -> list[int]:
        """The number of rows of each table."""
        return [table.num_rows for table in self.tables]

    @property
    def table(self) -> pa.Table:
        """All rows as one table, in one chunk."""
        return self.tables[0] if len(self.tables) == 1 else pa.concat_tables(self.tables).combine_chunks()


def pack_tables(tables: Mapping[str, pa.Table]) -> list[Pack]:
    """Return one pack for each schema, with all tables of this schema.

    Schemas with different metadata are different.
    """
    packs: list[Pack] = []
    for name, table in tables.items():
        pack = next(
            (
                existing_pack
                for existing_pack in packs
                if existing_pack.schema.equals(table.schema, check_metadata=True)
            ),
            None,
        )
        if pack is None:
            pack = Pack(table.schema)
            packs.append(pack)
        pack.names.append(name)
        pack.tables.append(table)
    return packs


def split_pack(table: pa.Table, names: list[str], row_counts: list[int]) -> Iterator[tuple[str, pa.Table]]:
    """Yield the tables of a pack by their names. They share its memory."""
    for name, end, row_count in zip(names, accumulate(row_counts), row_counts, strict=True):
        yield name, table.slice(end - row_count, row_count)


KEPT_VERSIONS = 3
"""Number of versions that are kept: Spark may repeat the last micro-batch, which needs two. One more is for
inspections.
"""

MAX_PACKED_BYTES = 4096
"""Maximum bytes of a table that is packed, and of a pack that is stored in the manifest."""

Tables = Mapping[str, pa.Table]

FileEntry = dict[str, Any]
"""An entry for a file in a manifest: its name, its length in bytes and its checksum."""


class PartitionState:
    """The state of one operator partition of a run."""

    def __init__(self, folder: Path, partition: int) -> None:
        """`folder` is the folder of the state of all partitions."""
        self.folder = folder / str(partition)
        self.loaded_files: dict[tuple[str, str], list[tuple[FileEntry, tuple[int, ...]]]] = {}
        """For each loaded table: its files, each with the memory addresses of its values."""

    def load(self, batch_id: int, is_new_by_key: Mapping[str, bool]) -> dict[str, dict[str, pa.Table]]:
        """Return the tables of each key after micro-batch `batch_id`. Before the first micro-batch there are none.

        The value of a key in `is_new_by_key` is True if its query begins after `batch_id`, so that it has no tables
        yet. Tables of keys that are not in `is_new_by_key` are ignored, because their queries were removed. Raises
        FolderError if the version is missing or damaged.
        """
        stored_keys = [key for key, is_new in is_new_by_key.items() if not is_new]
        if batch_id < 0 or not stored_keys:
            return {key: {} for key in is_new_by_key}
        path = self._manifest_path(batch_id)
        try:
            manifest = read_document(path)
        except FileNotFoundError:
            raise FolderError(
                f"{path}: missing: the checkpoint continues after micro-batch {batch_id}, but its state is gone; "
                "restore it from a copy, or start again with another folder"
            ) from None
        if missing := [key for key in stored_keys if key not in manifest]:
            raise FolderError(
                f"{path}: got the state of {', '.join(manifest) or 'no query'}, expected that of {missing[0]} too; "
                f"{REMEDY}"
            )
        try:
            return {key: {} if is_new else self._read_key(key, manifest[key]) for key, is_new in is_new_by_key.items()}
        except FileNotFoundError as error:
            raise FolderError(f"{error.filename}: missing, but {path} names it; {REMEDY}") from None

    def _read_key(self, key: str, entry: dict[str, Any]) -> dict[str, pa.Table]:
        tables: dict[str, pa.Table] = {}
        for name, file_entries in entry["files"].items():
            # In format 7 a table has one file.
            entries = [file_entries] if isinstance(file_entries, dict) else file_entries
            parts = [pa.ipc.open_file(self._map_file(file_entry)).read_all() for file_entry in entries]
            self.loaded_files[key, name] = list(zip(entries, map(value_addresses, parts), strict=True))
            tables[name] = pa.concat_tables(parts)
        for pack_entry in entry["packs"]:
            if "data" in pack_entry:
                packed_bytes = base64.b64decode(pack_entry["data"])
            else:
                packed_bytes = read_bytes(self.folder / pack_entry["file"]["name"])
                verify(
                    self.folder / pack_entry["file"]["name"],
                    packed_bytes,
                    pack_entry["file"]["bytes"],
                    pack_entry["file"]["checksum"],
                )
            for name, table in split_pack(unpack(packed_bytes), pack_entry["names"], pack_entry["rows"]):
                tables[name] = pa.concat_tables([tables[name], table]) if name in tables else table
        return tables

    def _map_file(self, file_entry: FileEntry) -> pa.Buffer:
        """Map a file of a table into memory, and verify it."""
        path = self.folder / file_entry["name"]
        if path.stat().st_size == 0:  # an empty file cannot be mapped
            verify(path, b"", file_entry["bytes"], file_entry["checksum"])
        with pa.memory_map(str(path)) as source:
            content = source.read_buffer()
        verify(path, content, file_entry["bytes"], file_entry["checksum"])
        return content

    def save(self, batch_id: int, snapshots: Mapping[str, Tables]) -> None:
        """Write version `batch_id`. Then remove the files that none of the kept versions needs."""
        make_private_folder(self.folder)
        manifest = {key: self._write_key(batch_id, key, tables) for key, tables in snapshots.items()}
        write_document(self._manifest_path(batch_id), manifest)
        self._remove_old(batch_id)

    def _write_key(self, batch_id: int, key: str, tables: Tables) -> dict[str, Any]:
        file_entries, small_tables = {}, {}
        for name, table in tables.items():
            kept_entries, rest = self._divide_table(key, name, table)
            if rest is not None and rest.nbytes <= MAX_PACKED_BYTES:
                small_tables[name] = rest
            elif rest is not None:
                kept_entries.append(self._write_table(f"{key}-{quote(name, safe='')}-{batch_id}.arrow", rest))
            if kept_entries:
                file_entries[name] = kept_entries
        pack_entries = []
        for number, small_pack in enumerate(pack_tables(small_tables)):
            packed_bytes = pack(small_pack.table)
            pack_entry: dict[str, Any] = {"names": small_pack.names, "rows": small_pack.row_counts}
            if len(packed_bytes) <= MAX_PACKED_BYTES:
                pack_entry["data"] = base64.b64encode(packed_bytes).decode()
            else:
                pack_name = f"{key}-pack{number}-{batch_id}.arrow"
                replace_file(self.folder / pack_name, packed_bytes)
                pack_entry["file"] = {"name": pack_name, "bytes": len(packed_bytes), "checksum": checksum(packed_bytes)}
            pack_entries.append(pack_entry)
        return {"files": file_entries, "packs": pack_entries}

    def _divide_table(self, key: str, name: str, table: pa.Table) -> tuple[list[FileEntry], pa.Table | None]:
        """Return the loaded files that contain the unchanged beginning of a table, and the rows after it, or None."""
        batches = table.to_batches()
        kept_entries = []
        start = 0
        for file_entry, addresses in self.loaded_files.get((key, name), ()):
            end, row_count = start, addresses[0]
            while end < len(batches) and row_count > 0:
                row_count -= batches[end].num_rows
                end += 1
            if end == start or value_addresses(pa.Table.from_batches(batches[start:end])) != addresses:
                break
            kept_entries.append(file_entry)
            start = end
        if kept_entries and start == len(batches):
            return kept_entries, None
        return kept_entries, pa.Table.from_batches(batches[start:]) if kept_entries else table

    def _write_table(self, file_name: str, table: pa.Table) -> FileEntry:
        with open_replacement(self.folder / file_name) as (_, temporary):
            with pa.ipc.new_file(str(temporary), table.schema) as writer:
                writer.write_table(table)
            with pa.memory_map(str(temporary)) as source:
                content = source.read_buffer()
        return {"name": file_name, "bytes": content.size, "checksum": checksum(content)}

    def _remove_old(self, batch_id: int) -> None:
        """Remove versions that are too old, and files that no kept version names.

        Files of damaged versions are removed too, because these versions cannot be restored. Files of later versions
        are not removed: Spark may have given up this task, and another task may already write the next version.
        """
        kept_names: set[str] = set()
        for path in self.folder.glob("*.json"):
            if int(path.stem) <= batch_id - KEPT_VERSIONS:
                path.unlink(missing_ok=True)
                continue
            try:
                kept_names |= file_names(read_document(path))
            except (FileNotFoundError, FolderError):
                continue
        for path in self.folder.glob("[!.]*.arrow"):
            if path.name not in kept_names and int(path.stem.rpartition("-")[2]) <= batch_id:
                path.unlink(missing_ok=True)

    def _manifest_path(self, batch_id: int) -> Path:
        return self.folder / f"{batch_id}.json"


def level_path(state: str, level: int) -> str:
    """Return the path of the state of a level. `state`: the path of the state of all levels."""
    return state if level == 0 else f"{state}/level {level}"


def list_state_folders(assignment: InputAssignment, batch_id: int) -> list[str]:
    """Return the folders of the state after a micro-batch, one for each level and partition, in the folder of the run.

    A query that begins later has no state yet.
    """
    levels = {
        level
        for fragments, first in zip(assignment.fragments, assignment.first_batches, strict=True)
        if first <= batch_id
        for level in fragments.levels
    }
    return [f"{level_path('state', level)}/{part}" for level in sorted(levels) for part in range(assignment.partitions)]


def file_names(manifest: Mapping[str, dict[str, Any]]) -> set[str]:
    """Return the names of the files that a manifest names."""
    entries = manifest.values()
    pack_files = {
        pack_entry["file"]["name"] for entry in entries for pack_entry in entry["packs"] if "file" in pack_entry
    }
    return pack_files | {
        file["name"]
        for entry in entries
        for files in entry["files"].values()
        for file in ([files] if isinstance(files, dict) else files)
    }


def value_addresses(table: pa.Table) -> tuple[int, ...]:
    """Return the memory addresses and lengths of a table's values. If they are equal, the table has not changed."""
    addresses = [table.num_rows]
    for column in table.columns:
        for chunk in column.chunks:
            addresses += [chunk.offset, *(0 if buffer is None else buffer.address for buffer in chunk.buffers())]
    return tuple(addresses)
