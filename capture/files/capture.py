"""A capture file, opened: its bytes as a read-only memory map, and the format of its records."""

from __future__ import annotations

import contextlib
import mmap
import os
import resource
import stat
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from capture.errors import InputError
from capture.files.pcap import FILE_HEADER, MAGICS, PcapFormat, parse_header

MADV_POPULATE_READ = 22
"""Linux's number; Python's mmap does not name it."""

SPARE_DESCRIPTORS = 64
"""Open files that a process has beside its captures."""

FOREIGN: dict[bytes, str] = {
    bytes.fromhex("0a0d0d0a"): "a pcapng capture",
    bytes.fromhex("1f8b"): "gzip-compressed",
    bytes.fromhex("28b52ffd"): "zstd-compressed",
    bytes.fromhex("fd377a585a00"): "xz-compressed",
    bytes.fromhex("425a68"): "bzip2-compressed",
    bytes.fromhex("04224d18"): "lz4-compressed",
}
"""What other files begin with, to say what a refused file is."""


@dataclass(frozen=True)
class Capture:
    """An opened capture. The pages of `data` belong to the system's cache, not to this process's own memory."""

    path: Path
    format: PcapFormat
    data: npt.NDArray[np.uint8]
    mapped: mmap.mmap

    def expect(self, start: int, length: int) -> None:
        """Map the pages of the bytes that are read next in one go: a fault for each sixteen of them costs more.

        A system that does not know how (Linux before 5.14, macOS) maps them one by one when they are touched.
        """
        start = start // mmap.PAGESIZE * mmap.PAGESIZE
        length = min(length, len(self.mapped) - start)
        if length > 0 and sys.platform == "linux":
            with contextlib.suppress(OSError):
                self.mapped.madvise(MADV_POPULATE_READ, start, length)


def open_capture(path: str | os.PathLike[str]) -> Capture:
    """Open and check; raise InputError where it is missing, unreadable or no capture, with what it is instead."""
    path = Path(path)
    try:
        if not stat.S_ISREG(path.stat().st_mode) and not path.is_dir():
            raise InputError(f"{path}: got a pipe or a device, expected a regular file: captures are mapped, not read")
        with path.open("rb") as file:
            form = record_format(file.read(FILE_HEADER), str(path))
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    if hasattr(mmap, "MADV_SEQUENTIAL"):
        mapped.madvise(mmap.MADV_SEQUENTIAL)
    return Capture(path, form, np.frombuffer(mapped, np.uint8), mapped)


def record_format(head: bytes, name: str) -> PcapFormat:
    """Recognise a capture by its first bytes; raise InputError with what it is instead where it is none."""
    if head[:4] in MAGICS:
        return parse_header(head, name)
    kinds = [kind for magic, kind in FOREIGN.items() if head.startswith(magic)]
    got = f"it is {kinds[0]}" if kinds else "it is empty" if not head else f"it begins with {head[:4].hex(' ')}"
    hint = "; convert it with: editcap -F pcap IN OUT" if "pcapng" in got else "; decompress it" if kinds else ""
    raise InputError(f"{name}: not a classic pcap file: {got}{hint}")


def allow_open_files(count: int) -> None:
    """Raise this process's limit of open files, as far as it may, so that `count` captures can be mapped at once."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + SPARE_DESCRIPTORS
    if wanted > soft != resource.RLIM_INFINITY:
        wanted = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
