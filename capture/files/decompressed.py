"""Bytes that may be compressed, as the bytes they stand for.

A compressed file is a row of members (gzip), frames (zstd, lz4) or streams (bzip2, xz), each whole in itself: their
contents are one after the other. Between them there may be zeros (tapes and block devices pad with them) and, for zstd
and lz4, frames that are to be skipped. Anything else there is damage.

Memory is fixed whatever the file claims to hold: SLICE bytes of input, STEP of output, and the decompressor's own
window (128 MiB for zstd at most, XZ_MEMORY for xz).
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator

from capture.files.byte_source import ByteSource, FileBytes
from capture.files.compression import (
    BAD_COMPRESSION,
    CUT_IN_COMPRESSION,
    MAGIC,
    SKIPPED_HEADER,
    Codec,
    codec_of,
    is_skippable,
)

SLICE = 1 << 17
"""Compressed bytes that are read at a time."""

STEP = 1 << 19
"""Bytes that are decompressed at a time. Of a pipe so many may be missing before a bad spot, of a file none."""

Pieces = Iterator[bytes | None]
"""Bytes as they come; None says that there is nothing to read now."""


class Decompressed:
    """Another source's bytes, decompressed if they begin as compressed ones do. A ByteSource.

    `codec` is what they are compressed with, None where they are not or nothing was read; `problem` is what the
    decompressor says of bad bytes. `size` and `consumed` count the bytes of the other source.
    """

    def __init__(self, source: ByteSource) -> None:
        """Read `source` from where it stands, its beginning."""
        self.source = source
        self.close = source.close
        self._room = memoryview(bytearray(SLICE))
        self._restart()

    def _restart(self) -> None:
        self.codec: Codec | None = None
        self.damage: str | None = None
        self.problem = ""
        self._raw = b""  # read of the source and not used
        self._wait = 0.0
        self._pieces: Pieces = self._read()
        self._piece = memoryview(b"")

    @property
    def live(self) -> bool:
        """Whether more may come."""
        return self.source.live

    @property
    def size(self) -> int:
        """Bytes of the compressed file."""
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
        """Read, as any ByteSource."""
        piece = self.read_piece(len(room), wait)
        if piece is None:
            return None
        if not piece:
            # Without a codec the first piece was the beginning of bytes that need no decompressing.
            return 0 if self.codec else self.source.read_into(room, wait)
        room[: len(piece)] = piece
        return len(piece)

    def read_piece(self, most: int, wait: float) -> memoryview | None:
        """Return up to `most` bytes where they are, of a source that has a `codec`.

        An empty piece is the end; None says that nothing came within `wait` seconds. Raises OSError.
        """
        self._wait = wait
        while not self._piece:
            piece = next(self._pieces, b"")
            if piece is None:
                return None
            self._piece = memoryview(piece)
            if not piece:
                break
        found, self._piece = self._piece[:most], self._piece[most:]
        return found

    def _read(self) -> Pieces:
        """Yield everything; of bytes that are not compressed the first few."""
        while self.damage is None and (yield from self._have(MAGIC)):
            if is_skippable(self._raw):
                yield from self._skip()
                continue
            found = codec_of(self._raw)
            self.codec = self.codec or found
            if self.codec is None:
                yield self._raw
                return
            if found is self.codec:
                yield from self._member(found)
            elif self._raw[0] == 0:
                self._raw = self._raw.lstrip(b"\0")
            else:
                begun = self.codec.magic.startswith(self._raw)
                self.damage = CUT_IN_COMPRESSION if begun else BAD_COMPRESSION
                self.problem = f"no {self.codec.name} data behind the first"

    def _have(self, wanted: int) -> Generator[None, None, bool]:
        """Read until there are `wanted` bytes, or the end; return whether there are any."""
        while len(self._raw) < wanted:
            more = yield from self._slice()
            if not more:
                break
            self._raw += more
        return bool(self._raw)

    def _slice(self) -> Generator[None, None, bytes]:
        """Return the next compressed bytes, none at the end; yield None while there are none to read."""
        while (count := self.source.read_into(self._room, self._wait)) is None:
            yield None
        return bytes(self._room[:count])

    def _skip(self) -> Iterator[None]:
        """Pass over a skippable frame."""
        yield from self._have(SKIPPED_HEADER)
        left = SKIPPED_HEADER + int.from_bytes(self._raw[4:SKIPPED_HEADER], "little")
        while len(self._raw) < left:
            left -= len(self._raw)
            self._raw = yield from self._slice()
            if not self._raw:
                self.damage = CUT_IN_COMPRESSION
                return
        self._raw = self._raw[left:]

    def _member(self, codec: Codec) -> Pieces:
        """Decompress the member that begins with what has been read."""
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
        taken = begin  # offset of the bytes that the decompressor was given last
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
                    yield from self._again(self.source, codec, begin, max(taken, begin + header), given)
                self.damage, self.problem = BAD_COMPRESSION, str(error)
                return
            data = b""
            given += len(piece)
            if piece:
                yield piece
        self._raw = decompressor.unused_data or b""

    def _again(self, file: FileBytes, codec: Codec, begin: int, taken: int, given: int) -> Iterator[bytes]:
        """Yield what the failing step of a member had decompressed before it failed, which the decompressor lost.

        The member is decompressed again from `begin`, and byte by byte from `taken` on: the bytes in which it failed
        were read there, or its header ends there. The first `given` bytes of its content are not yielded again.
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
    """Yield the bytes of a file from `begin` on in slices, and from `careful` on each by itself."""
    at = begin
    while data := os.pread(file.descriptor, min(SLICE, careful - at) if at < careful else SLICE, at):
        at += len(data)
        if at <= careful:
            yield data
        else:
            yield from (data[place : place + 1] for place in range(len(data)))
