"""Open a capture by its path: a file, a folder or glob to follow, a pipe, standard input or a live interface."""

from __future__ import annotations

import glob
import mmap
import os
import resource
from pathlib import Path

import numpy as np

from capture.errors import InputError
from capture.files.byte_source import STANDARD_INPUT, PipeBytes, open_source
from capture.files.capture import AnyCapture, Capture
from capture.files.decompressed import is_compressed
from capture.files.followed import FollowedCapture
from capture.files.formats import HEAD_BYTES, record_format
from capture.files.rotation import Rotation
from capture.files.stream import StreamedCapture
from capture.interface_path import interface_name, is_interface

OTHER_DESCRIPTORS = 64
"""Number of open files that a process needs in addition to its captures."""


def open_capture(path: str | os.PathLike[str], follow: bool = False) -> AnyCapture:
    """Open a capture and check its first bytes.

    A file of records is mapped. Compressed files, pipes and standard input (`-`) are read in order. A live interface is
    named `interface:NAME`. Opening a pipe does not wait for data, so errors in its content are raised later, by
    `blocks`.

    With `follow`, a file is read as it grows and is replaced. The same applies to the files of a folder, and to the
    files that match a glob. `follow` does not change how pipes and interfaces are read.

    Raises InputError if the file is missing, unreadable or not a capture; the message names its format if it is known.
    """
    path = Path(path)
    if is_interface(path):
        from capture.live.interface import InterfaceCapture

        return InterfaceCapture(path)
    try:
        if follow and (rotation := _files_to_follow(path)):
            return FollowedCapture(path, rotation, is_single_file=path.is_file())
        source = open_source(path)
        if isinstance(source, PipeBytes) or str(path) == STANDARD_INPUT:
            return StreamedCapture(path, source)
        head = source.read(HEAD_BYTES)
        if is_compressed(head):
            return StreamedCapture(path, source)
        form = record_format(head, str(path))
        mapped = mmap.mmap(source.descriptor, 0, access=mmap.ACCESS_READ)
        source.close()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    if hasattr(mmap, "MADV_SEQUENTIAL"):
        mapped.madvise(mmap.MADV_SEQUENTIAL)
    return Capture(path, form, np.frombuffer(mapped, np.uint8), mapped)


def _files_to_follow(path: Path) -> Rotation | None:
    """Return the files to follow: one file, all files of a folder, or files that match a glob in the last part."""
    if path.is_dir():
        return Rotation(path, "*")
    if path.is_file():
        return Rotation(path.parent, glob.escape(path.name))
    if not path.exists() and glob.has_magic(path.name) and path.parent.is_dir():
        return Rotation(path.parent, path.name)
    return None


def open_finite(path: str | os.PathLike[str], reader: str) -> AnyCapture:
    """Open a capture that may be read more than once. `reader` names the reader in the InputError for a live input."""
    if is_interface(path):
        raise InputError(
            f"{path}: got a live interface, expected a file: {reader} reads it twice; use the inline engine, or "
            f"record it first: tcpdump -i {interface_name(path)} -w FILE"
        )
    if str(path) == STANDARD_INPUT or Path(path).is_fifo():
        raise InputError(f"{path}: got a live input, expected a file: {reader} reads it twice; use the inline engine")
    return open_capture(path)


def open_mapped(path: str | os.PathLike[str], reader: str) -> Capture:
    """Open a capture for random access. `reader` names the reader in the InputError for an input that is streamed."""
    capture = open_finite(path, reader)
    if isinstance(capture, Capture):
        return capture
    capture.close()
    raise InputError(f"{path}: got a compressed capture, expected an uncompressed one: {reader} needs random access")


def allow_open_files(count: int) -> None:
    """Raise the process's limit of open files, up to the hard limit, so that `count` more captures can be mapped."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        open_files = sum(1 for _ in Path("/dev/fd").iterdir())
    except OSError:  # no descriptor is free to list them
        open_files = soft if hard == resource.RLIM_INFINITY else hard
    limit = open_files + count + OTHER_DESCRIPTORS
    if limit > soft != resource.RLIM_INFINITY:
        limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
