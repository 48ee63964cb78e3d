"""What a file is, by its first bytes; its name says nothing."""

from __future__ import annotations

from capture.errors import InputError
from capture.files.pcap import MAGICS, PcapFormat, parse_header
from capture.files.pcapng import MAGIC, PcapngFormat, parse_section_header

FileFormat = PcapFormat | PcapngFormat
"""Every RecordFormat there is."""

HEAD = 32
"""Bytes that are enough to recognise every format; a capture without records may have fewer."""

FOREIGN: dict[bytes, str] = {
    bytes.fromhex("1f8b"): "gzip-compressed",
    bytes.fromhex("28b52ffd"): "zstd-compressed",
    bytes.fromhex("fd377a585a00"): "xz-compressed",
    bytes.fromhex("425a68"): "bzip2-compressed",
    bytes.fromhex("04224d18"): "lz4-compressed",
}
"""What other files begin with, to say what a refused file is."""


def record_format(head: bytes, name: str) -> FileFormat:
    """Recognise a capture by its first HEAD bytes; raise InputError with what it is instead where it is none."""
    if head[:4] in MAGICS:
        return parse_header(head, name)
    if head.startswith(MAGIC):
        return parse_section_header(head, name)
    kinds = [kind for magic, kind in FOREIGN.items() if head.startswith(magic)]
    got = f"it is {kinds[0]}" if kinds else "it is empty" if not head else f"it begins with {head[:4].hex(' ')}"
    hint = "; decompress it" if kinds else ""
    raise InputError(f"{name}: not a pcap or pcapng capture: {got}{hint}")
