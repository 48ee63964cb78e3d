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
from capture.files.formats import HEAD, record_format
from capture.files.rotation import Rotation
from capture.files.stream import StreamedCapture
from capture.interface_path import interface_name, is_interface

SPARE_DESCRIPTORS = 64
"""Open files that a process has in addition to its captures."""


def open_capture(path: str | os.PathLike[str], follow: bool = False) -> AnyCapture:
    """Open and check; raise InputError where it is missing, unreadable or no capture, with what it is instead.

    A file of records is mapped. Compressed files, pipes and standard input (`-`) are streamed. Opening a pipe does not
    wait: what is wrong with its bytes is raised by `blocks`. To `follow` is to read a file as it grows and is replaced,
    or the files of a folder, or those whose names match a glob, as they come and grow; a pipe is read as always, and so
    is a live interface (`interface:NAME`).
    """
    path = Path(path)
    if is_interface(path):
        from capture.live.interface import InterfaceCapture

        return InterfaceCapture(path)
    try:
        if follow and (rotation := _rotation(path)):
            return FollowedCapture(path, rotation, single=path.is_file())
        source = open_source(path)
        if isinstance(source, PipeBytes) or str(path) == STANDARD_INPUT:
            return StreamedCapture(path, source)
        head = source.read(HEAD)
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


def _rotation(path: Path) -> Rotation | None:
    """What there is to follow at a path: the files of a folder, of a glob in its last part, or the one file."""
    if path.is_dir():
        return Rotation(path, "*")
    if path.is_file():
        return Rotation(path.parent, glob.escape(path.name))
    if not path.exists() and glob.has_magic(path.name) and path.parent.is_dir():
        return Rotation(path.parent, path.name)
    return None


def open_finite(path: str | os.PathLike[str], reader: str) -> AnyCapture:
    """Open a capture for a `reader` that may read it more than once; raise InputError where it is live."""
    if is_interface(path):
        raise InputError(
            f"{path}: got a live interface, expected a file: {reader} reads one twice; use the inline engine, or "
            f"record it first: tcpdump -i {interface_name(path)} -w FILE"
        )
    if str(path) == STANDARD_INPUT or Path(path).is_fifo():
        raise InputError(f"{path}: got a live input, expected a file: {reader} reads one twice; use the inline engine")
    return open_capture(path)


def open_mapped(path: str | os.PathLike[str], reader: str) -> Capture:
    """Open a capture for a `reader` that goes back and forth in it; raise InputError where it is one that streams."""
    capture = open_finite(path, reader)
    if isinstance(capture, Capture):
        return capture
    capture.close()
    raise InputError(f"{path}: got a compressed capture, expected one that is not: {reader} goes back and forth in it")


def allow_open_files(count: int) -> None:
    """Raise this process's limit of open files, as far as it may, so that `count` more captures can be mapped."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        held = sum(1 for _ in Path("/dev/fd").iterdir())
    except OSError:  # not even that can be opened any more
        held = soft if hard == resource.RLIM_INFINITY else hard
    wanted = held + count + SPARE_DESCRIPTORS
    if wanted > soft != resource.RLIM_INFINITY:
        wanted = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
