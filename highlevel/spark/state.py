"""The operators' state as files of our own, one version per micro-batch.

    state/<part>/<batch id>.json          manifest: each table of each query, in place or by the name of its file
    state/<part>/<query>-<table>-<batch id>.arrow

Version n is made from version n - 1 alone, written under temporary names and renamed, the manifest last: whoever reads
version n sees all of it or none. Doing micro-batch n again reads version n - 1 again and writes the same version n.
A table that did not change is not written again: the new manifest names the old file. Small tables stand in the
manifest itself, so that a quiet operator costs one small file. The last KEEP versions stay.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa

from highlevel.spark.errors import FolderError
from highlevel.spark.packing import pack, unpack

KEEP = 3
"""Versions kept: Spark may repeat the last micro-batch, and one more is for looking at."""

IN_PLACE = 4096
"""Tables up to as many bytes stand in the manifest."""

Tables = Mapping[str, pa.Table]


class PartState:
    """The state of one operator partition of a run."""

    def __init__(self, folder: Path, part: int) -> None:
        """Keep it below `folder`."""
        self.folder = folder / str(part)
        self.loaded: dict[tuple[int, str], tuple[str, tuple[int, ...]]] = {}

    def load(self, batch_id: int, queries: int) -> list[dict[str, pa.Table]]:
        """Return the tables of each query after micro-batch `batch_id`; before the first there are none.

        Raises FolderError where the version is missing.
        """
        if batch_id < 0:
            return [{} for _ in range(queries)]
        path = self._manifest(batch_id)
        try:
            manifest = json.loads(path.read_bytes())
        except FileNotFoundError:
            raise FolderError(
                f"{path}: missing: the checkpoint goes on after micro-batch {batch_id}, but its state is gone; "
                "put it back, or start again with another folder"
            ) from None
        return [
            {name: self._read(query, name, place) for name, place in tables.items()}
            for query, tables in enumerate(manifest)
        ]

    def _read(self, query: int, name: str, place: dict[str, str]) -> pa.Table:
        if "data" in place:
            return unpack(base64.b64decode(place["data"]))
        with pa.memory_map(str(self.folder / place["file"])) as source:
            table = pa.ipc.open_file(source).read_all()
        self.loaded[query, name] = place["file"], addresses(table)
        return table

    def save(self, batch_id: int, snapshots: Sequence[Tables]) -> None:
        """Write version `batch_id`, then remove what no kept version names."""
        self.folder.mkdir(parents=True, exist_ok=True)
        manifest = [
            {name: self._write(batch_id, query, name, table) for name, table in tables.items()}
            for query, tables in enumerate(snapshots)
        ]
        replace(self._manifest(batch_id), json.dumps(manifest).encode())
        self._remove_old(batch_id)

    def _write(self, batch_id: int, query: int, name: str, table: pa.Table) -> dict[str, str]:
        file, before = self.loaded.get((query, name), ("", ()))
        if file and addresses(table) == before:
            return {"file": file}
        if table.nbytes <= IN_PLACE:
            return {"data": base64.b64encode(pack(table)).decode()}
        file = f"{query}-{quote(name, safe='')}-{batch_id}.arrow"
        part = self.folder / f".{file}.{os.getpid()}"
        with pa.ipc.new_file(str(part), table.schema) as writer:
            writer.write_table(table)
        part.replace(self.folder / file)
        return {"file": file}

    def _remove_old(self, batch_id: int) -> None:
        """Remove versions that are too old, and tables of theirs that no younger version names."""
        numbers = {int(path.stem) for path in self.folder.glob("*.json")}
        old = {number for number in numbers if number <= batch_id - KEEP}
        named = {file for number in numbers - old for file in self._files(number)}
        for number in sorted(old):
            for file in self._files(number) - named:
                (self.folder / file).unlink(missing_ok=True)
            self._manifest(number).unlink(missing_ok=True)

    def _files(self, batch_id: int) -> set[str]:
        manifest = json.loads(self._manifest(batch_id).read_bytes())
        return {place["file"] for tables in manifest for place in tables.values() if "file" in place}

    def _manifest(self, batch_id: int) -> Path:
        return self.folder / f"{batch_id}.json"


def addresses(table: pa.Table) -> tuple[int, ...]:
    """Where a table's values lie in memory and how many: the same for what was loaded and handed back untouched."""
    found = [table.num_rows]
    for column in table.columns:
        for chunk in column.chunks:
            found += [chunk.offset, *(0 if buffer is None else buffer.address for buffer in chunk.buffers())]
    return tuple(found)


def replace(path: Path, content: bytes) -> None:
    """Write a file so that readers see the old content or the new, never a part of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_bytes(content)
    part.replace(path)
