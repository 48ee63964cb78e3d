"""Write frames as a pcap or pcapng file, with times in ns. The file appears only when it is complete.

A pcapng file has an interface for each combination of link, interface and link type of its frames. A classic pcap file
can contain only one link type.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

from capture.errors import InputError
from capture.extract.frames import Frame
from capture.files.pcap import MAX_CAPTURED_BYTES
from capture.files.pcapng import ENHANCED_PACKET, INTERFACE_DESCRIPTION, LITTLE_ENDIAN, SECTION
from capture.generate.pcap_file import complete_file, file_header, write_all
from capture.units import SECOND

SUFFIXES = (".pcap", ".pcapng")
"""Suffixes of file names, which select the format."""

END_OF_OPTIONS, IF_NAME, IF_TSRESOL, NANOSECONDS = 0, 2, 9, 9
"""Codes of options in an interface description, and the code of the resolution 10^-9 s."""

UNKNOWN_LENGTH = 2**64 - 1
"""The value in a section header that means: the length of the section is not stated."""

BUFFER_BYTES = 1 << 20
"""Number of bytes that are collected in memory before they are written."""


class PacketFile:
    """A file of frames that is being written."""

    def __init__(self, file: FileIO, path: Path) -> None:
        """Write to `file`, which becomes `path`."""
        self._file = file
        self._path = path
        self._is_pcapng = path.suffix.lower() == ".pcapng"
        self._interfaces: dict[tuple[str, int], int] = {}
        self._buffer = bytearray()
        self.frames = 0
        if self._is_pcapng:
            self._add_block(SECTION, struct.pack("<IHHQ", LITTLE_ENDIAN, 1, 0, UNKNOWN_LENGTH))

    def add(self, link: str, frame: Frame, time: int, length: int) -> None:
        """Append a frame that was captured at `time` (ns) and had `length` bytes on the wire.

        Raises InputError for a second link type in a classic pcap file.
        """
        interface = self._interface(link, frame)
        captured = len(frame.content)
        if self._is_pcapng:
            head = struct.pack("<IIIII", interface, time >> 32, time & 0xFFFFFFFF, captured, length)
            self._add_block(ENHANCED_PACKET, head + frame.content)
        else:
            seconds, fraction = divmod(time, SECOND)
            self._buffer += struct.pack("<IIII", seconds, fraction, captured, length) + frame.content
        self.frames += 1
        if len(self._buffer) > BUFFER_BYTES:
            self.flush()

    def _interface(self, link: str, frame: Frame) -> int:
        """Return the number of a frame's interface. If it is new, write its description first."""
        name = link if frame.interface == "0" else f"{link}/{frame.interface}"
        key = (name, frame.link_type) if self._is_pcapng else ("", frame.link_type)
        if key not in self._interfaces:
            if self._is_pcapng:
                self._add_interface(*key)
            elif self._interfaces:
                ((_, other),) = self._interfaces
                raise InputError(
                    f"{self._path}: got packets with the link types {other} and {frame.link_type}, expected one link "
                    f"type in a .pcap file; use the name {self._path.stem}.pcapng"
                )
            else:
                self._buffer += file_header("ns", "<", MAX_CAPTURED_BYTES, frame.link_type)
            self._interfaces[key] = len(self._interfaces)
        return self._interfaces[key]

    def _add_interface(self, name: str, link_type: int) -> None:
        text = name.encode()[:255]
        options = struct.pack("<HHB3x", IF_TSRESOL, 1, NANOSECONDS)
        options += struct.pack("<HH", IF_NAME, len(text)) + text + bytes(-len(text) % 4)
        options += struct.pack("<HH", END_OF_OPTIONS, 0)
        self._add_block(INTERFACE_DESCRIPTION, struct.pack("<HxxI", link_type, 0) + options)

    def _add_block(self, kind: int, body: bytes) -> None:
        body += bytes(-len(body) % 4)
        length = struct.pack("<I", len(body) + 12)
        self._buffer += struct.pack("<I", kind) + length + body + length

    def finish(self) -> None:
        """Write all bytes. A classic pcap file without frames gets the link type Ethernet."""
        if not self._is_pcapng and not self._interfaces:
            self._buffer += file_header("ns", "<", MAX_CAPTURED_BYTES, 1)
        self.flush()

    def flush(self) -> None:
        """Write the collected bytes."""
        write_all(self._file, memoryview(bytes(self._buffer)))
        self._buffer.clear()


@contextmanager
def packet_file(path: Path) -> Iterator[PacketFile]:
    """Open a file of frames. It appears at `path` when the context ends, unless there was an exception.

    Raises ValueError if `path` exists and is not a regular file.
    """
    with complete_file(path) as file:
        written = PacketFile(file, path)
        yield written
        written.finish()
