"""Compressed captures on the stream engine: they are decompressed once, into the run's folder.

    folder/inputs/<name>-<digest>          the decompressed bytes
    folder/inputs/<name>-<digest>.json     damage of the compressed file; length and CRC-32 of the bytes; written first

Tasks, and a run after a restart, read from the middle of a capture, which a compressed file does not allow. The digest
is a hash of the compressed file, so a file is decompressed again only if its content has changed. At each start the
decompressed bytes are verified, and decompressed again if they are damaged. Files of other digests are not deleted:
decompressed inputs are part of the run's folder, like its state.
"""

from __future__ import annotations

import hashlib
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from capture.errors import InputError
from capture.files.blocks import TRUNCATIONS, Index
from capture.files.byte_source import WAIT_SECONDS, FileBytes, open_source
from capture.files.capture import Capture
from capture.files.decompressed import DecompressedSource
from capture.files.read_ahead import CHUNK_BYTES
from capture.open import open_finite
from capture.private_files import make_private_folder, open_replacement
from highlevel.inline.engine import Input
from highlevel.spark.errors import FolderError
from highlevel.spark.run_folder.checked_files import read_document, write_document

FOLDER = "inputs"
"""Name of the folder of decompressed captures in the folder of a run."""

REPORT_SECONDS = 10.0
"""Seconds between two progress lines about a file that is being decompressed."""

Say = Callable[[str], None]
"""Function that receives lines for the user."""


def replace_compressed_inputs(inputs: Sequence[Input], folder: Path, say: Say) -> list[Input]:
    """Replace compressed captures by decompressed files. Raises InputError or FolderError."""
    replaced = []
    for input_ in inputs:
        if not input_.is_capture:
            replaced.append(input_)
            continue
        capture = open_finite(input_.path, "the stream engine")
        if not isinstance(capture, Capture):
            capture.close()
            input_ = replace(input_, path=decompress_once(input_.path, folder / FOLDER, say))
        replaced.append(input_)
    return replaced


def decompress_once(path: Path, folder: Path, say: Say) -> Path:
    """Decompress a capture into `folder` if necessary. Return the path of the decompressed file."""
    file = open_source(path)
    if not isinstance(file, FileBytes):
        raise InputError(f"{path}: changed while it was opened; expected a file")
    target = folder / f"{path.name}-{_digest(file)}"
    try:
        if target.exists() and _is_intact(target, say):
            say(f"{path}: read from {target}, where it was decompressed before")
        else:
            make_private_folder(folder)
            _decompress(path, file, target, say)
    finally:
        file.close()
    return target


def add_damage(index: Index, path: Path) -> Index:
    """Add the damage of the compressed file to the index of the decompressed file."""
    if path.parent.name != FOLDER:
        return index
    try:
        damage = read_document(_description_path(path))["damage"]
    except FileNotFoundError:
        return index
    # A capture that ends with an invalid record keeps this damage. If its last record is only truncated, the reason is
    # the damage of the compressed file.
    return replace(index, damage=damage) if damage and (index.damage is None or index.damage in TRUNCATIONS) else index


def _description_path(path: Path) -> Path:
    """Return the path of the document about a decompressed capture."""
    return path.with_name(path.name + ".json")


def _is_intact(target: Path, say: Say) -> bool:
    """Return whether a decompressed capture has the length and the checksum that were stored when it was written."""
    try:
        description = read_document(_description_path(target))
        size, crc = 0, 0
        with target.open("rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                size, crc = size + len(chunk), zlib.crc32(chunk, crc)
    except (FileNotFoundError, FolderError):
        return False
    if (size, crc) == (description["bytes"], description["crc"]):
        return True
    say(f"{target}: damaged; it is decompressed again")
    return False


def _digest(file: FileBytes) -> str:
    digest = hashlib.blake2b(str(file.size).encode(), digest_size=8)
    file.rewind()
    while chunk := file.read(CHUNK_BYTES):
        digest.update(chunk)
    file.rewind()
    return digest.hexdigest()


def _read(source: DecompressedSource, buffer: memoryview, path: Path) -> int | None:
    try:
        return source.read_into(buffer, WAIT_SECONDS)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error


def _decompress(path: Path, file: FileBytes, target: Path, say: Say) -> None:
    say(f"{path}: decompressing {file.size / 1e6:,.1f} MB into {target} …")
    source = DecompressedSource(file)
    buffer = memoryview(bytearray(CHUNK_BYTES))
    crc = 0
    last_report = start_time = time.monotonic()
    try:
        with open_replacement(target) as (descriptor, _), open(descriptor, "wb", buffering=0, closefd=False) as output:
            while count := _read(source, buffer, path):
                output.write(buffer[:count])
                crc = zlib.crc32(buffer[:count], crc)
                if time.monotonic() - last_report >= REPORT_SECONDS:
                    last_report = time.monotonic()
                    say(f"{path}: {file.consumed / max(1, file.size):.0%} decompressed")
            size = output.tell()
            write_document(_description_path(target), {"damage": source.damage, "bytes": size, "crc": crc})
    except OSError as error:
        raise FolderError(f"{target} (the decompressed copy of {path}): cannot be written: {error.strerror}") from error
    say(f"{path}: decompressed, {size / 1e6:,.1f} MB in {time.monotonic() - start_time:.0f} s")
