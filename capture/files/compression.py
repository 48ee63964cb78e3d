"""The compressions that are read: how each is recognised by its first bytes, and what decompresses it.

Chosen by measurement, on a capture of 300 MB on one core: isal 0.7 GB/s where zlib has 0.4, zstd 1.1 GB/s, lz4
1.0 GB/s; bzip2 0.04 and xz 0.07 GB/s are those of the standard library. All of them release the GIL, say where a
member ends, and give what they have before a cut. Arrow's streams do neither of the last two.
"""

from __future__ import annotations

import bz2
import lzma
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

CUT_IN_COMPRESSION = "cut_in_compression"
"""Damage: the file ends before its compressed data does. All that could be decompressed is read."""

BAD_COMPRESSION = "bad_compression"
"""Damage: what stands there is no compressed data, or its check sum is wrong. What came before it is read."""

XZ_MEMORY = 192 << 20
"""Bytes that decompressing xz may take: three times what `xz -9` makes necessary. zstd's own bound is 128 MiB."""


class Decompressor(Protocol):
    """What decompresses one member (gzip), frame (zstd, lz4) or stream (bzip2, xz), as `bz2.BZ2Decompressor` does."""

    @property
    def eof(self) -> bool:
        """Whether the member has ended, and all of it has been given out."""
        ...

    @property
    def needs_input(self) -> bool:
        """Whether nothing more can be given out without more compressed bytes."""
        ...

    @property
    def unused_data(self) -> bytes | None:
        """After the end: the bytes behind the member; None or empty for none."""
        ...

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """Take compressed bytes; return at most `max_length` bytes."""
        ...


@dataclass(frozen=True)
class Codec:
    """One compression. `make` returns a decompressor for one member, and the error that it raises for bad bytes.

    A file whose name ends in `suffix` is said to be compressed so; what it is, its `magic` says. `header` returns the
    length of a member's header that the decompressor needs in one piece, None if the bytes end before the header does.
    """

    name: str
    suffix: str
    magic: bytes
    make: Callable[[], tuple[Decompressor, type[Exception]]]
    header: Callable[[bytes], int | None] = lambda _: 0


def gzip_header(data: bytes) -> int | None:
    """Return the length of a gzip header (RFC 1952 §2.3), None if `data` ends before it does.

    isal loses its place in a header that comes in pieces and has a check sum, or two of extra field, name and comment.
    """
    if len(data) < 12:
        return None if len(data) < 10 or data[3] & 0b11110 else 10
    flags, at = data[3], 10
    if flags & 0b100:
        at += 2 + int.from_bytes(data[10:12], "little")
    for text in (0b1000, 0b10000):
        if flags & text:
            end = data.find(0, at)
            if end < 0:
                return None
            at = end + 1
    at += 2 if flags & 0b10 else 0
    return at if at <= len(data) else None


def _gzip() -> tuple[Decompressor, type[Exception]]:
    from isal import igzip_lib

    error: Any = igzip_lib.IsalError  # a class, which its stub calls an instance
    return igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP), error


def _zstd() -> tuple[Decompressor, type[Exception]]:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd

    return zstd.ZstdDecompressor(), zstd.ZstdError


def _lz4() -> tuple[Decompressor, type[Exception]]:
    import lz4.frame

    return lz4.frame.LZ4FrameDecompressor(), RuntimeError


def _bzip2() -> tuple[Decompressor, type[Exception]]:
    return bz2.BZ2Decompressor(), OSError


def _xz() -> tuple[Decompressor, type[Exception]]:
    return lzma.LZMADecompressor(lzma.FORMAT_XZ, XZ_MEMORY), lzma.LZMAError


CODECS = (
    Codec("gzip", ".gz", bytes.fromhex("1f8b08"), _gzip, gzip_header),
    Codec("zstd", ".zst", bytes.fromhex("28b52ffd"), _zstd),
    Codec("lz4", ".lz4", bytes.fromhex("04224d18"), _lz4),
    Codec("bzip2", ".bz2", bytes.fromhex("425a68"), _bzip2),
    Codec("xz", ".xz", bytes.fromhex("fd377a585a00"), _xz),
)

SUFFIXES = tuple(codec.suffix for codec in CODECS)
"""Ends of names that say how a file is compressed, and nothing about what is in it."""

MAGIC = max(len(codec.magic) for codec in CODECS)
"""Bytes that tell all of them apart."""

SKIPPED_HEADER = 8
"""Bytes of a skippable frame (RFC 8878 §3.1.2) before its content: its magic number and the content's length."""


def codec_of(head: bytes) -> Codec | None:
    """Recognise a compression by its first MAGIC bytes."""
    return next((codec for codec in CODECS if head.startswith(codec.magic)), None)


def is_skippable(head: bytes) -> bool:
    """Whether a frame begins here that says nothing: zstd and lz4 both have them, anywhere between their frames."""
    return len(head) >= 4 and head[1:4] == b"\x2a\x4d\x18" and head[0] >> 4 == 5


def is_compressed(head: bytes) -> bool:
    """Whether a file that begins so is compressed."""
    return codec_of(head) is not None or is_skippable(head)
