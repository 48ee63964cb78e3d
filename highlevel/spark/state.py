"""The operators' state as files of our own, one version per micro-batch.

    state/<part>/<batch id>.json          manifest: for each query its tables by their files, and its packs
    state/<part>/<query>-<table>-<batch id>.arrow
    state/<part>/<query>-pack<n>-<batch id>.arrow

Version n is made from version n - 1 alone, written under temporary names and renamed, the manifest last: whoever reads
version n sees all of it or none. Doing micro-batch n again reads version n - 1 again and writes the same version n.
A table that did not change is not written again: the new manifest names the old file. Small tables are put together
(`highlevel.spark.packs`) and written with every version, changed or not: to look at each would cost more. A small pack
stands in the manifest itself, so that a quiet operator costs one small file. The last KEEP versions stay.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from capture.private_files import make_private_folder, replace_file, replacing
from highlevel.spark.errors import FolderError
from highlevel.spark.packing import pack, unpack
from highlevel.spark.packs import apart, together

KEEP = 3
"""Versions kept: Spark may repeat the last micro-batch, and one more is for looking at."""

SMALL = 4096
"""Tables up to as many bytes are put together, and such a pack stands in the manifest up to as many."""

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
        return [self._read(query, stored) for query, stored in enumerate(manifest)]

    def _read(self, query: int, stored: dict[str, Any]) -> dict[str, pa.Table]:
        found: dict[str, pa.Table] = {}
        for name, file in stored["files"].items():
            with pa.memory_map(str(self.folder / file)) as source:
                found[name] = pa.ipc.open_file(source).read_all()
            self.loaded[query, name] = file, addresses(found[name])
        for each in stored["packs"]:
            packed = base64.b64decode(each["data"]) if "data" in each else (self.folder / each["file"]).read_bytes()
            found.update(apart(unpack(packed), each["names"], each["rows"]))
        return found

    def save(self, batch_id: int, snapshots: Sequence[Tables]) -> None:
        """Write version `batch_id`, then remove what no kept version names."""
        make_private_folder(self.folder)
        manifest = [self._write(batch_id, query, tables) for query, tables in enumerate(snapshots)]
        replace(self._manifest(batch_id), json.dumps(manifest).encode())
        self._remove_old(batch_id)

    def _write(self, batch_id: int, query: int, tables: Tables) -> dict[str, Any]:
        files, small = {}, {}
        for name, table in tables.items():
            file, before = self.loaded.get((query, name), ("", ()))
            if file and addresses(table) == before:
                files[name] = file
            elif table.nbytes <= SMALL:
                small[name] = table
            else:
                files[name] = f"{query}-{quote(name, safe='')}-{batch_id}.arrow"
                self._write_table(files[name], table)
        packs = []
        for number, each in enumerate(together(small)):
            packed = pack(each.table)
            stored: dict[str, Any] = {"names": each.names, "rows": each.rows}
            if len(packed) <= SMALL:
                stored["data"] = base64.b64encode(packed).decode()
            else:
                stored["file"] = f"{query}-pack{number}-{batch_id}.arrow"
                replace(self.folder / stored["file"], packed)
            packs.append(stored)
        return {"files": files, "packs": packs}

    def _write_table(self, file: str, table: pa.Table) -> None:
        with replacing(self.folder / file) as (_, part), pa.ipc.new_file(str(part), table.schema) as writer:
            writer.write_table(table)

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
        packs = {each["file"] for query in manifest for each in query["packs"] if "file" in each}
        return packs | {file for query in manifest for file in query["files"].values()}

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
    make_private_folder(path.parent)
    replace_file(path, content)
