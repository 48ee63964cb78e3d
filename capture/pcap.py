"""The classic pcap file: its file header, and where its records are.

    file header, 24 bytes   magic, version_major, version_minor, thiszone, sigfigs, snaplen, linktype
    record header, 16 bytes ts_sec, ts_frac, incl_len (bytes that follow), orig_len (bytes on the wire)

The magic number gives byte order and whether ts_frac counts micro- or nanoseconds. Three oddities that libpcap reads
are read here the same way: files before version 2.3 have the two lengths exchanged, version 2.3 has them exchanged in
some files (the smaller one is incl_len), and the "modified" format has 8 more bytes in each record header.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import resource
import stat
import struct
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from capture.errors import InputError
from capture.link_layers import LINK_TYPES, supported_link_types

FILE_HEADER = 24
MAX_CAPTURED = 262_144
"""Largest incl_len believed, as in libpcap; a larger one means that the bytes are no record header."""

MADV_POPULATE_READ = 22
"""Linux's number; Python's mmap does not name it."""

SPARE_DESCRIPTORS = 64
"""Open files that a process has beside its captures."""

MAGICS: dict[bytes, tuple[bool, bool, int]] = {
    bytes.fromhex("d4c3b2a1"): (False, False, 16),
    bytes.fromhex("a1b2c3d4"): (True, False, 16),
    bytes.fromhex("4d3cb2a1"): (False, True, 16),
    bytes.fromhex("a1b23c4d"): (True, True, 16),
    bytes.fromhex("34cdb2a1"): (False, False, 24),
    bytes.fromhex("a1b2cd34"): (True, False, 24),
}
"""First four bytes: (big-endian, nanoseconds, length of a record header)."""

FOREIGN: dict[bytes, str] = {
    bytes.fromhex("0a0d0d0a"): "a pcapng capture",
    bytes.fromhex("1f8b"): "gzip-compressed",
    bytes.fromhex("28b52ffd"): "zstd-compressed",
    bytes.fromhex("fd377a585a00"): "xz-compressed",
    bytes.fromhex("425a68"): "bzip2-compressed",
    bytes.fromhex("04224d18"): "lz4-compressed",
}
"""What other files begin with, to say what a refused file is."""


@dataclass(frozen=True, slots=True)
class PcapHeader:
    """What the file header says. `length_order`: 0 incl_len first, 1 orig_len first, 2 the smaller is incl_len."""

    big_endian: bool
    nanoseconds: bool
    record_header: int
    length_order: int
    snaplen: int
    link_type: int


def parse_header(head: bytes, name: str) -> PcapHeader:
    """Parse the first bytes of a file; raise InputError with what it is instead where it is no classic pcap."""
    if head[:4] not in MAGICS:
        kinds = [kind for magic, kind in FOREIGN.items() if head.startswith(magic)]
        got = f"it is {kinds[0]}" if kinds else "it is empty" if not head else f"it begins with {head[:4].hex(' ')}"
        hint = "; convert it with: editcap -F pcap IN OUT" if "pcapng" in got else "; decompress it" if kinds else ""
        raise InputError(f"{name}: not a classic pcap file: {got}{hint}")
    if len(head) < FILE_HEADER:
        raise InputError(f"{name}: cut inside the pcap file header: got {len(head)} bytes, expected {FILE_HEADER}")
    big_endian, nanoseconds, record_header = MAGICS[head[:4]]
    major, minor, snaplen, link = struct.unpack((">" if big_endian else "<") + "4x2H8x2I", head[:FILE_HEADER])
    if major != 2:
        raise InputError(f"{name}: pcap version {major}.{minor} is not supported, expected 2.x")
    link_type = link & 0xFFFF  # the upper bits carry the length of a frame check sequence
    if link_type not in LINK_TYPES:
        raise InputError(f"{name}: link type {link_type} is not supported; supported are {supported_link_types()}")
    length_order = 1 if minor < 3 else 2 if minor == 3 else 0
    return PcapHeader(big_endian, nanoseconds, record_header, length_order, snaplen, link_type)


@dataclass(frozen=True)
class PcapFile:
    """An opened capture: its header and its bytes as a read-only memory map.

    The pages belong to the system's cache, not to this process's own memory, and are read when touched.
    """

    path: Path
    header: PcapHeader
    data: npt.NDArray[np.uint8]
    mapped: mmap.mmap

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> PcapFile:
        """Open and check; raise InputError where it is missing, unreadable or no classic pcap."""
        path = Path(path)
        try:
            if not stat.S_ISREG(path.stat().st_mode) and not path.is_dir():
                raise InputError(
                    f"{path}: got a pipe or a device, expected a regular file: captures are mapped, not read"
                )
            with path.open("rb") as file:
                header = parse_header(file.read(FILE_HEADER), str(path))
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
        if hasattr(mmap, "MADV_SEQUENTIAL"):
            mapped.madvise(mmap.MADV_SEQUENTIAL)
        return cls(path, header, np.frombuffer(mapped, np.uint8), mapped)

    def expect(self, start: int, length: int) -> None:
        """Map the pages of the bytes that are read next in one go: a fault for each sixteen of them costs more.

        A system that does not know how (Linux before 5.14, macOS) maps them one by one when they are touched.
        """
        start = start // mmap.PAGESIZE * mmap.PAGESIZE
        length = min(length, len(self.mapped) - start)
        if length > 0 and sys.platform == "linux":
            with contextlib.suppress(OSError):
                self.mapped.madvise(MADV_POPULATE_READ, start, length)


def allow_open_files(count: int) -> None:
    """Raise this process's limit of open files, as far as it may, so that `count` captures can be mapped at once."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + SPARE_DESCRIPTORS
    if wanted > soft != resource.RLIM_INFINITY:
        wanted = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
