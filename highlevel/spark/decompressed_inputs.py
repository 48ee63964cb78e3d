"""Compressed captures on the stream engine: decompressed once, into the run's folder.

    folder/inputs/<name>-<digest>          the bytes
    folder/inputs/<name>-<digest>.json     how the compressed file ended if badly; written first

Tasks go back and forth in a capture, and so does a run that is started again. The digest is that of the compressed
file's length and both ends, so a file is decompressed again only where it is another one. Nothing is deleted here: what
was decompressed for a run is part of its folder, as its state is.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from capture.errors import InputError
from capture.files.blocks import CUTS, Index
from capture.files.byte_source import WAIT, FileBytes, open_source
from capture.files.capture import Capture, open_finite
from capture.files.decompressed import Decompressed
from capture.files.read_ahead import CHUNK
from capture.private_files import make_private_folder, open_private
from highlevel.inline import Input
from highlevel.spark.errors import FolderError
from highlevel.spark.state import replace as write_whole

EDGE = 65_536
"""Bytes at both ends of a file that, with its length, tell it from another one."""

TELL_EVERY = 10.0
"""Seconds between two lines about a file that is being decompressed."""

Say = Callable[[str], None]
"""Takes lines for the user."""


def mapped_inputs(inputs: Sequence[Input], folder: Path, say: Say) -> list[Input]:
    """Put decompressed files into the places of compressed captures. Raises InputError for an input, FolderError."""
    placed = []
    for each in inputs:
        if each.spool:
            placed.append(each)
            continue
        capture = open_finite(each.path, "the stream engine")
        if not isinstance(capture, Capture):
            capture.close()
            each = replace(each, path=decompressed(each.path, folder / "inputs", say))
        placed.append(each)
    return placed


def decompressed(path: Path, folder: Path, say: Say) -> Path:
    """Decompress a capture into `folder`, where it is not there yet; return the file."""
    file = open_source(path)
    if not isinstance(file, FileBytes):
        raise InputError(f"{path}: changed while it was opened; expected a file")
    target = folder / f"{path.name}-{_digest(file)}"
    try:
        if target.exists():
            say(f"{path}: read from {target}, where it was decompressed before")
        else:
            make_private_folder(folder)
            _decompress(path, file, target, say)
    finally:
        file.close()
    return target


def with_damage(index: Index, path: Path) -> Index:
    """Add to the index of a file that was decompressed here what was wrong with the compressed one."""
    told = path.with_name(path.name + ".json")
    if not told.exists():
        return index
    damage = json.loads(told.read_bytes())["damage"]
    # A record that cannot be is what ends a capture; where one is only cut, so were the compressed data.
    return replace(index, damage=damage) if damage and (index.damage is None or index.damage in CUTS) else index


def _digest(file: FileBytes) -> str:
    digest = hashlib.blake2b(str(file.size).encode(), digest_size=8)
    for offset in (0, max(0, file.size - EDGE)):
        file.seek(offset)
        digest.update(file.read(EDGE))
    file.rewind()
    return digest.hexdigest()


def _read(source: Decompressed, room: memoryview, path: Path) -> int | None:
    try:
        return source.read_into(room, WAIT)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error


def _decompress(path: Path, file: FileBytes, target: Path, say: Say) -> None:
    say(f"{path}: decompressing {file.size / 1e6:,.1f} MB into {target} …")
    source = Decompressed(file)
    room = memoryview(bytearray(CHUNK))
    part = target.with_name(f".{target.name}.part")
    told = begin = time.monotonic()
    try:
        with os.fdopen(open_private(part, os.O_WRONLY | os.O_TRUNC), "wb", buffering=0) as out:
            while count := _read(source, room, path):
                out.write(room[:count])
                if time.monotonic() - told >= TELL_EVERY:
                    told = time.monotonic()
                    say(f"{path}: {file.consumed / max(1, file.size):.0%} decompressed")
            size = out.tell()
        write_whole(target.with_name(target.name + ".json"), json.dumps({"damage": source.damage}).encode())
        part.replace(target)
    except OSError as error:
        raise FolderError(f"{target}: cannot be written: {error.strerror}; it is {path}, decompressed") from error
    finally:
        part.unlink(missing_ok=True)
    say(f"{path}: decompressed, {size / 1e6:,.1f} MB in {time.monotonic() - begin:.0f} s")
