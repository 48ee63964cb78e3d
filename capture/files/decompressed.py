"""Decompression of a byte source, if its first bytes show that it is compressed.

A compressed file is a sequence of members (gzip), frames (zstd, lz4) or streams (bzip2, xz). The contents of all
members are concatenated. Between members, zeros are allowed (padding of tapes and block devices). zstd and lz4 also
allow skippable frames. All other bytes there are damage.

Memory is fixed, even for malicious files: SLICE bytes of input, STEP bytes of output, and the window of the
decompressor (at most 128 MiB for zstd, XZ_MEMORY for xz).
"""

from __future__ import annotations

import bz2
import lzma
import os
import sys
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from capture.files.byte_source import ByteSource, FileBytes

# The supported compressions: their first bytes and their decompressors.
#
# The libraries were chosen by measurement with a capture of 300 MB on one core. isal reaches 0.7 GB/s (zlib: 0.4), zstd
# 1.1 GB/s, lz4 1.0 GB/s; bzip2 (0.04 GB/s) and xz (0.07 GB/s) are in the standard library. All of them release the GIL,
# report the end of a member, and return all bytes before a truncation. Arrow's streams do neither of the last two.


CUT_IN_COMPRESSION = "cut_in_compression"
"""Damage: the file ends within its compressed data. All bytes that could be decompressed are read."""

BAD_COMPRESSION = "bad_compression"
"""Damage: the bytes are not valid compressed data, or a checksum is wrong. The bytes before are read."""

XZ_MEMORY = 192 << 20
"""Memory limit of xz in bytes: three times the need of `xz -9`. The limit of zstd is 128 MiB."""


class Decompressor(Protocol):
    """Decompress a member (gzip), frame (zstd, lz4) or stream (bzip2, xz). Same interface as `bz2.BZ2Decompressor`."""

    @property
    def eof(self) -> bool:
        """True if the member has ended and all its bytes have been returned."""
        ...

    @property
    def needs_input(self) -> bool:
        """True if no more bytes can be returned without more compressed input."""
        ...

    @property
    def unused_data(self) -> bytes | None:
        """After the end of the member: the bytes that follow it. None or empty if there are none."""
        ...

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """Add compressed bytes; return at most `max_length` decompressed bytes."""
        ...


@dataclass(frozen=True)
class Codec:
    """One compression. `make` returns a decompressor for one member, and the error class that it raises for bad bytes.

    `magic` identifies the compression; the file name only suggests it with `suffix`. `header` returns the length of a
    member's header if the decompressor needs the header in one piece; None if the bytes end within the header.
    """

    name: str
    suffix: str
    magic: bytes
    make: Callable[[], tuple[Decompressor, type[Exception]]]
    header: Callable[[bytes], int | None] = lambda _: 0


def gzip_header(data: bytes) -> int | None:
    """Return the length of a gzip header (RFC 1952 §2.3), or None if `data` ends within it.

    isal fails on a split header if it has a checksum, or at least two of extra field, name and comment.
    """
    if len(data) < 12:
        return None if len(data) < 10 or data[3] & 0b11110 else 10
    flags, offset = data[3], 10
    if flags & 0b100:
        offset += 2 + int.from_bytes(data[10:12], "little")
    for text in (0b1000, 0b10000):
        if flags & text:
            end = data.find(0, offset)
            if end < 0:
                return None
            offset = end + 1
    offset += 2 if flags & 0b10 else 0
    return offset if offset <= len(data) else None


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
"""Suffixes of file names that name a compression and not a format."""

MAGIC_BYTES = max(len(codec.magic) for codec in CODECS)
"""Number of bytes that identifies every compression."""

SKIPPED_HEADER = 8
"""Header bytes of a skippable frame (RFC 8878 §3.1.2): magic number and length of the content."""


def codec_of(head: bytes) -> Codec | None:
    """Recognise a compression by its first MAGIC_BYTES bytes."""
    return next((codec for codec in CODECS if head.startswith(codec.magic)), None)


def is_skippable(head: bytes) -> bool:
    """Return whether `head` begins a skippable frame. zstd and lz4 allow such frames anywhere between their frames."""
    return len(head) >= 4 and head[1:4] == b"\x2a\x4d\x18" and head[0] >> 4 == 5


def is_compressed(head: bytes) -> bool:
    """Return whether a file with these first bytes is compressed."""
    return codec_of(head) is not None or is_skippable(head)


SLICE = 1 << 17
"""Number of compressed bytes per read."""

STEP = 1 << 19
"""Number of bytes decompressed at once. In a pipe, up to this many bytes before damage may be lost; in a file none."""

Pieces = Iterator[bytes | None]
"""Pieces of bytes; None means that no bytes are available now."""


class Decompressed:
    """The bytes of another source, decompressed if they are compressed. A ByteSource.

    `codec`: the compression; None if there is none or nothing has been read. `problem`: the decompressor's message for
    bad bytes. `size` and `consumed` count bytes of the other source, before decompression.
    """

    def __init__(self, source: ByteSource) -> None:
        """Read `source`, which must be at its beginning."""
        self.source = source
        self.close = source.close
        self._room = memoryview(bytearray(SLICE))
        self._restart()

    def _restart(self) -> None:
        self.codec: Codec | None = None
        self.damage: str | None = None
        self.problem = ""
        self._raw = b""  # bytes read from the source and not yet used
        self._wait = 0.0
        self._pieces: Pieces = self._read()
        self._piece = memoryview(b"")

    @property
    def live(self) -> bool:
        """True if more bytes may arrive."""
        return self.source.live

    @property
    def size(self) -> int:
        """Size of the compressed file in bytes."""
        return self.source.size

    @property
    def consumed(self) -> int:
        """Bytes of the compressed file read so far."""
        return self.source.consumed

    def rewind(self) -> None:
        """Go back to the first byte."""
        self.source.rewind()
        self._restart()

    def read_into(self, room: memoryview, wait: float) -> int | None:
        """Read bytes. Implements ByteSource.read_into."""
        piece = self.read_piece(len(room), wait)
        if piece is None:
            return None
        if not piece:
            # Without a codec the first piece was the beginning of the bytes; read the rest directly from the source.
            return 0 if self.codec else self.source.read_into(room, wait)
        room[: len(piece)] = piece
        return len(piece)

    def read_piece(self, most: int, wait: float) -> memoryview | None:
        """Return up to `most` bytes without copying. The source must have a `codec`.

        Returns an empty piece at the end, and None if no bytes arrived within `wait` seconds. Raises OSError.
        """
        self._wait = wait
        while not self._piece:
            piece = next(self._pieces, b"")
            if piece is None:
                return None
            self._piece = memoryview(piece)
            if not piece:
                break
        result, self._piece = self._piece[:most], self._piece[most:]
        return result

    def _read(self) -> Pieces:
        """Yield all decompressed pieces; of an uncompressed source only the first bytes."""
        while self.damage is None and (yield from self._read_at_least(MAGIC_BYTES)):
            if is_skippable(self._raw):
                yield from self._skip()
                continue
            codec = codec_of(self._raw)
            self.codec = self.codec or codec
            if self.codec is None:
                yield self._raw
                return
            if codec is self.codec:
                yield from self._member(codec)
            elif self._raw[0] == 0:
                self._raw = self._raw.lstrip(b"\0")
            else:
                begun = self.codec.magic.startswith(self._raw)
                self.damage = CUT_IN_COMPRESSION if begun else BAD_COMPRESSION
                self.problem = f"no {self.codec.name} data after the first member"

    def _read_at_least(self, wanted: int) -> Generator[None, None, bool]:
        """Read until `wanted` bytes are available or the source ends. Return whether there are any bytes."""
        while len(self._raw) < wanted:
            more = yield from self._slice()
            if not more:
                break
            self._raw += more
        return bool(self._raw)

    def _slice(self) -> Generator[None, None, bytes]:
        """Return the next compressed bytes, empty at the end. Yield None while none are available."""
        while (count := self.source.read_into(self._room, self._wait)) is None:
            yield None
        return bytes(self._room[:count])

    def _skip(self) -> Iterator[None]:
        """Skip a skippable frame."""
        yield from self._read_at_least(SKIPPED_HEADER)
        left = SKIPPED_HEADER + int.from_bytes(self._raw[4:SKIPPED_HEADER], "little")
        while len(self._raw) < left:
            left -= len(self._raw)
            self._raw = yield from self._slice()
            if not self._raw:
                self.damage = CUT_IN_COMPRESSION
                return
        self._raw = self._raw[left:]

    def _member(self, codec: Codec) -> Pieces:
        """Decompress the member that begins with `_raw`."""
        header = codec.header(self._raw)
        while header is None:
            if len(self._raw) > SLICE:
                self.damage, self.problem = BAD_COMPRESSION, f"a {codec.name} header of more than {SLICE} bytes"
                return
            more = yield from self._slice()
            if not more:
                self.damage = CUT_IN_COMPRESSION
                return
            self._raw += more
            header = codec.header(self._raw)
        begin = self.source.consumed - len(self._raw)
        decompressor, failure = codec.make()
        data, self._raw = self._raw, b""
        taken = begin  # offset of the last bytes passed to the decompressor
        given = 0
        while not decompressor.eof:
            if decompressor.needs_input:
                data = data or (yield from self._slice())
                if not data:
                    self.damage = CUT_IN_COMPRESSION
                    return
                taken = self.source.consumed - len(data)
            try:
                piece = decompressor.decompress(data, STEP)
            except failure as error:
                if isinstance(self.source, FileBytes):
                    yield from self._recover(self.source, codec, begin, max(taken, begin + header), given)
                self.damage, self.problem = BAD_COMPRESSION, str(error)
                return
            data = b""
            given += len(piece)
            if piece:
                yield piece
        self._raw = decompressor.unused_data or b""

    def _recover(self, file: FileBytes, codec: Codec, begin: int, taken: int, given: int) -> Iterator[bytes]:
        """Yield the bytes that the failing step of a member had decompressed. The decompressor loses them.

        The member is decompressed again from `begin`, from `taken` on byte by byte: the failing bytes were read at this
        offset, or the header ends there. The first `given` decompressed bytes are not yielded again.
        """
        decompressor, failure = codec.make()
        for data in _bytewise(file, begin, taken):
            fed = False
            while not (fed and decompressor.needs_input):
                try:
                    piece = decompressor.decompress(b"" if fed else data, STEP)
                except failure:
                    return
                fed = True
                if len(piece) > given:
                    yield piece[given:]
                given = max(0, given - len(piece))


def _bytewise(file: FileBytes, begin: int, careful: int) -> Iterator[bytes]:
    """Yield the bytes of a file from `begin` on in slices, and from `careful` on one by one."""
    offset = begin
    while data := os.pread(file.descriptor, min(SLICE, careful - offset) if offset < careful else SLICE, offset):
        offset += len(data)
        if offset <= careful:
            yield data
        else:
            yield from (data[index : index + 1] for index in range(len(data)))
