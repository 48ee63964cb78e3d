"""Decompression of a byte source whose first bytes show that it is compressed.

A compressed file is a sequence of members (gzip), frames (zstd, lz4) or streams (bzip2, xz). The contents of all
members are concatenated. Zeros are allowed between members (padding of tapes and block devices). zstd and lz4 also
allow skippable frames. Any other bytes between members are damage.

Memory is bounded, even for malicious files: INPUT_BYTES, OUTPUT_BYTES, and the window of the decompressor. The window
has at most 128 MiB for zstd, and MAX_XZ_MEMORY for xz.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator, Iterator
from typing import Any, Protocol

from capture.files.byte_source import ByteSource, FileBytes
from capture.lazy_dataclasses import dataclass

# The libraries were chosen by measurement with a capture of 300 MB on one core. isal reaches 0.7 GB/s (zlib: 0.4), zstd
# 1.1 GB/s, lz4 1.0 GB/s. bzip2 (0.04 GB/s) and xz (0.07 GB/s) are in the standard library. All these libraries release
# the GIL, report the end of a member, and return all bytes before a truncation. Arrow's streams do not report the end
# of a member, and they lose the bytes before a truncation.

CUT_IN_COMPRESSION = "cut_in_compression"
"""Damage: the file ends within its compressed data. The bytes before this end are read."""

BAD_COMPRESSION = "bad_compression"
"""Damage: the bytes are not valid compressed data, or a checksum is wrong. The bytes before the damage are read."""

MAX_XZ_MEMORY = 192 << 20
"""Memory limit of xz in bytes: about three times what a file compressed with `xz -9` requires."""


class Decompressor(Protocol):
    """A decompressor for one member (or frame, or stream). It has the interface of `bz2.BZ2Decompressor`."""

    @property
    def eof(self) -> bool:
        """True if `decompress` has returned all bytes of the member."""
        ...

    @property
    def needs_input(self) -> bool:
        """True if `decompress` can return bytes only after more compressed input."""
        ...

    @property
    def unused_data(self) -> bytes | None:
        """After the end of the member: the input bytes that follow it, or None."""
        ...

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """Add compressed bytes; return at most `max_length` decompressed bytes."""
        ...


@dataclass(frozen=True)
class Codec:
    """A compression format.

    `make_decompressor` returns a decompressor for one member, and the class of its errors for bad bytes.

    `magic`: the first bytes of a member; only they identify the compression. `suffix`: usual suffix of file names.
    `header_length` returns the length of a member's header if the decompressor needs the header in one piece,
    otherwise 0. It returns None if the given bytes end within the header.
    """

    name: str
    suffix: str
    magic: bytes
    make_decompressor: Callable[[], tuple[Decompressor, type[Exception]]]
    header_length: Callable[[bytes], int | None] = lambda _: 0


def gzip_header(data: bytes) -> int | None:
    """Return the length of a gzip header (RFC 1952 §2.3), or None if `data` ends within it.

    isal needs the header in one piece if it has a checksum or at least two optional fields (extra, name, comment).
    """
    if len(data) < 12:
        return None if len(data) < 10 or data[3] & 0b11110 else 10
    flags, offset = data[3], 10
    if flags & 0b100:
        offset += 2 + int.from_bytes(data[10:12], "little")
    for text_flag in (0b1000, 0b10000):
        if flags & text_flag:
            end = data.find(0, offset)
            if end < 0:
                return None
            offset = end + 1
    offset += 2 if flags & 0b10 else 0
    return offset if offset <= len(data) else None


def _gzip() -> tuple[Decompressor, type[Exception]]:
    from isal import igzip_lib

    error: Any = igzip_lib.IsalError  # a class; its type stub declares an instance
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
    import bz2

    return bz2.BZ2Decompressor(), OSError


def _xz() -> tuple[Decompressor, type[Exception]]:
    import lzma

    return lzma.LZMADecompressor(lzma.FORMAT_XZ, MAX_XZ_MEMORY), lzma.LZMAError


CODECS = (
    Codec("gzip", ".gz", bytes.fromhex("1f8b08"), _gzip, gzip_header),
    Codec("zstd", ".zst", bytes.fromhex("28b52ffd"), _zstd),
    Codec("lz4", ".lz4", bytes.fromhex("04224d18"), _lz4),
    Codec("bzip2", ".bz2", bytes.fromhex("425a68"), _bzip2),
    Codec("xz", ".xz", bytes.fromhex("fd377a585a00"), _xz),
)

SUFFIXES = tuple(codec.suffix for codec in CODECS)
"""Suffixes of compressed files. They do not show the format of the content."""

MAGIC_BYTES = max(len(codec.magic) for codec in CODECS)
"""Number of first bytes that identify every compression."""

SKIPPABLE_HEADER_BYTES = 8
"""Bytes of the header of a skippable frame (RFC 8878 §3.1.2): magic number and length of the content."""


def codec_of(head: bytes) -> Codec | None:
    """Return the codec of a file with these first MAGIC_BYTES bytes; None if the file is not compressed."""
    return next((codec for codec in CODECS if head.startswith(codec.magic)), None)


def is_skippable(head: bytes) -> bool:
    """Return whether `head` begins a skippable frame. zstd and lz4 allow such frames anywhere between their frames."""
    return len(head) >= 4 and head[1:4] == b"\x2a\x4d\x18" and head[0] >> 4 == 5


def is_compressed(head: bytes) -> bool:
    """Return whether a file with these first bytes is compressed."""
    return codec_of(head) is not None or is_skippable(head)


INPUT_BYTES = 1 << 17
"""Maximum number of compressed bytes per read."""

OUTPUT_BYTES = 1 << 19
"""Maximum number of bytes decompressed at once. At damage in a pipe, up to OUTPUT_BYTES before the damage may be lost.
At damage in a file none are lost, because the bytes before the damage are decompressed again."""

Pieces = Iterator[bytes | None]
"""Pieces of bytes; None means that no bytes are available now."""


class DecompressedSource:
    """The bytes of another source, decompressed if they are compressed. Implements ByteSource.

    `codec`: the compression; None if the bytes are not compressed or have not been read yet. `problem`: the message of
    the decompressor for bad bytes. `size` and `consumed` are bytes of `source`, before decompression.
    """

    def __init__(self, source: ByteSource) -> None:
        """Read `source`, which must be at its beginning."""
        self.source = source
        self.close = source.close
        self._input = memoryview(bytearray(INPUT_BYTES))
        self._restart()

    def _restart(self) -> None:
        self.codec: Codec | None = None
        self.damage: str | None = None
        self.problem = ""
        self._raw = b""  # bytes read from the source and not yet decompressed
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

    def read_into(self, buffer: memoryview, wait: float) -> int | None:
        """Read bytes. Implements ByteSource.read_into."""
        piece = self.read_piece(len(buffer), wait)
        if piece is None:
            return None
        if not piece:
            # Without a codec, the only piece contains the first bytes. All further bytes are read from the source.
            return 0 if self.codec else self.source.read_into(buffer, wait)
        buffer[: len(piece)] = piece
        return len(piece)

    def read_piece(self, max_bytes: int, wait: float) -> memoryview | None:
        """Return up to `max_bytes` decompressed bytes without copying. The source must have a `codec`.

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
        result, self._piece = self._piece[:max_bytes], self._piece[max_bytes:]
        return result

    def _read(self) -> Pieces:
        """Yield all decompressed pieces. If the source is not compressed, yield only its first bytes."""
        while self.damage is None and (yield from self._read_at_least(MAGIC_BYTES)):
            if is_skippable(self._raw):
                yield from self._skip_frame()
                continue
            codec = codec_of(self._raw)
            self.codec = self.codec or codec
            if self.codec is None:
                yield self._raw
                return
            if codec is self.codec:
                yield from self._decompress_member(codec)
            elif self._raw[0] == 0:
                self._raw = self._raw.lstrip(b"\0")
            else:
                is_truncated = self.codec.magic.startswith(self._raw)
                self.damage = CUT_IN_COMPRESSION if is_truncated else BAD_COMPRESSION
                self.problem = f"no {self.codec.name} data after the first member"

    def _read_at_least(self, min_bytes: int) -> Generator[None, None, bool]:
        """Read until `min_bytes` bytes are available or the source ends. Return whether any bytes are available."""
        while len(self._raw) < min_bytes:
            new_bytes = yield from self._read_slice()
            if not new_bytes:
                break
            self._raw += new_bytes
        return bool(self._raw)

    def _read_slice(self) -> Generator[None, None, bytes]:
        """Return the next compressed bytes, empty at the end. Yield None each time a read times out."""
        while (count := self.source.read_into(self._input, self._wait)) is None:
            yield None
        return bytes(self._input[:count])

    def _skip_frame(self) -> Iterator[None]:
        """Skip a skippable frame."""
        yield from self._read_at_least(SKIPPABLE_HEADER_BYTES)
        remaining = SKIPPABLE_HEADER_BYTES + int.from_bytes(self._raw[4:SKIPPABLE_HEADER_BYTES], "little")
        while len(self._raw) < remaining:
            remaining -= len(self._raw)
            self._raw = yield from self._read_slice()
            if not self._raw:
                self.damage = CUT_IN_COMPRESSION
                return
        self._raw = self._raw[remaining:]

    def _decompress_member(self, codec: Codec) -> Pieces:
        """Decompress the member that begins with `_raw`."""
        header = codec.header_length(self._raw)
        while header is None:
            if len(self._raw) > INPUT_BYTES:
                self.damage, self.problem = BAD_COMPRESSION, f"a {codec.name} header of more than {INPUT_BYTES} bytes"
                return
            new_bytes = yield from self._read_slice()
            if not new_bytes:
                self.damage = CUT_IN_COMPRESSION
                return
            self._raw += new_bytes
            header = codec.header_length(self._raw)
        begin = self.source.consumed - len(self._raw)
        decompressor, error_class = codec.make_decompressor()
        data, self._raw = self._raw, b""
        input_offset = begin  # offset in the file of the last input of the decompressor
        yielded = 0
        while not decompressor.eof:
            if decompressor.needs_input:
                data = data or (yield from self._read_slice())
                if not data:
                    self.damage = CUT_IN_COMPRESSION
                    return
                input_offset = self.source.consumed - len(data)
            try:
                piece = decompressor.decompress(data, OUTPUT_BYTES)
            except error_class as error:
                if isinstance(self.source, FileBytes):
                    yield from self._recover(self.source, codec, begin, max(input_offset, begin + header), yielded)
                self.damage, self.problem = BAD_COMPRESSION, str(error)
                return
            data = b""
            yielded += len(piece)
            if piece:
                yield piece
        self._raw = decompressor.unused_data or b""

    def _recover(self, file: FileBytes, codec: Codec, begin: int, input_offset: int, yielded: int) -> Iterator[bytes]:
        """Yield the bytes before an error that a failed call of `decompress` has not returned.

        The member, which begins at offset `begin`, is decompressed again. From offset `input_offset` on, the
        decompressor gets single bytes. This is the offset at which the failed input begins or the member's header ends.
        The first `yielded` decompressed bytes have been yielded before and are not yielded again.
        """
        decompressor, error_class = codec.make_decompressor()
        for data in _read_in_single_bytes(file, begin, input_offset):
            is_fed = False
            while not (is_fed and decompressor.needs_input):
                try:
                    piece = decompressor.decompress(b"" if is_fed else data, OUTPUT_BYTES)
                except error_class:
                    return
                is_fed = True
                if len(piece) > yielded:
                    yield piece[yielded:]
                yielded = max(0, yielded - len(piece))


def _read_in_single_bytes(file: FileBytes, begin: int, singles_offset: int) -> Iterator[bytes]:
    """Yield the bytes of a file from offset `begin`: in slices up to offset `singles_offset`, then one by one."""
    offset = begin
    while data := os.pread(
        file.descriptor, min(INPUT_BYTES, singles_offset - offset) if offset < singles_offset else INPUT_BYTES, offset
    ):
        offset += len(data)
        if offset <= singles_offset:
            yield data
        else:
            yield from (data[index : index + 1] for index in range(len(data)))
