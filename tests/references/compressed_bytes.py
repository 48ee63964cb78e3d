"""Compressed bytes of our own making, and a slow reading of them: one byte at a time, one member after the other.

The lz4 library, fed with single bytes, keeps a block until the next block header has arrived. So it receives all bytes
at once if that does not fail.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import sys
import zlib
from collections.abc import Callable
from typing import Any

import lz4.frame

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

CHECKED = {zstd.CompressionParameter.checksum_flag: 1}

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda data: gzip.compress(data, mtime=0),
    "zstd": lambda data: zstd.compress(data, options=CHECKED),
    "lz4": lambda data: lz4.frame.compress(data, content_checksum=True, block_size=lz4.frame.BLOCKSIZE_MAX64KB),
    "bzip2": bz2.compress,
    "xz": lzma.compress,
}
"""A whole member, with a check sum of its content."""

MAGIC = {"gzip": b"\x1f\x8b", "zstd": b"(\xb5/\xfd", "lz4": b"\x04\x22M\x18", "bzip2": b"BZh", "xz": b"\xfd7zXZ\0"}

MAKE: dict[str, Callable[[], Any]] = {
    "gzip": lambda: zlib.decompressobj(31),  # and not what the product uses
    "zstd": zstd.ZstdDecompressor,
    "lz4": lz4.frame.LZ4FrameDecompressor,
    "bzip2": bz2.BZ2Decompressor,
    "xz": lzma.LZMADecompressor,
}

ERRORS = (zlib.error, zstd.ZstdError, RuntimeError, OSError, lzma.LZMAError, EOFError)


def skippable(size: int) -> bytes:
    """A zstd or lz4 frame without content."""
    return b"\x53\x2a\x4d\x18" + size.to_bytes(4, "little") + bytes(range(256)) * (size // 256) + bytes(size % 256)


def slowly(codec: str, data: bytes) -> tuple[bytes, str | None]:
    """The content of whole and cut members, and what is wrong at their end if anything."""
    content = b""
    at = 0
    while at < len(data):
        left = data[at:]
        if not left.startswith(MAGIC[codec]):
            return content, "cut_in_compression" if MAGIC[codec].startswith(left) else "bad_compression"
        decompressor = MAKE[codec]()
        if codec == "lz4":
            try:
                content += decompressor.decompress(left)
            except RuntimeError:
                decompressor = MAKE[codec]()
            else:
                if not decompressor.eof:
                    return content, "cut_in_compression"
                at = len(data) - len(decompressor.unused_data or b"")
                continue
        try:
            while not decompressor.eof:
                if at == len(data):
                    return content, "cut_in_compression"
                content += decompressor.decompress(data[at : at + 1])
                at += 1
        except ERRORS:
            return content, "bad_compression"
    return content, None
