"""What a file is, by its first bytes; its name says nothing."""

from __future__ import annotations

from capture.errors import InputError
from capture.files.decompressed import codec_of
from capture.files.messages import ExportFormat, is_export_file
from capture.files.pcap import MAGICS, PcapFormat, parse_header
from capture.files.pcapng import MAGIC, PcapngFormat, parse_section_header
from capture.files.tpacket import RingFormat

FileFormat = PcapFormat | PcapngFormat | ExportFormat | RingFormat
"""Every RecordFormat there is; the last is that of live interfaces alone."""

HEAD = 32
"""Bytes that are enough to recognise every format; a capture without records may have fewer."""

FOREIGN: dict[bytes, str] = {
    bytes.fromhex("1f9d"): "compressed by compress",
    bytes.fromhex("4c5a4950"): "lzip-compressed",
    bytes.fromhex("894c5a4f"): "lzop-compressed",
    bytes.fromhex("02214c18"): "lz4-compressed in the legacy format",
    bytes.fromhex("504b0304"): "a zip archive",
    bytes.fromhex("377abcaf271c"): "a 7z archive",
}
"""What other files begin with, to say what a refused file is."""

READ = "one of those, plain or in gzip, zstd, lz4, bzip2 or xz, or NetFlow or IPFIX datagrams"
"""What is read, for those who gave something else."""


def record_format(head: bytes, name: str) -> FileFormat:
    """Recognise a capture by its first HEAD bytes; raise InputError with what it is instead where it is none."""
    if head[:4] in MAGICS:
        return parse_header(head, name)
    if head.startswith(MAGIC):
        return parse_section_header(head, name)
    if is_export_file(head):
        return ExportFormat()
    codec = codec_of(head)
    kinds = (
        [f"{codec.name}-compressed"] if codec else [kind for magic, kind in FOREIGN.items() if head.startswith(magic)]
    )
    got = f"it is {kinds[0]}" if kinds else "it is empty" if not head else f"it begins with {head[:4].hex(' ')}"
    hint = "; decompress it" if kinds else f"; expected {READ}" if head else ""
    raise InputError(f"{name}: not a pcap or pcapng capture: {got}{hint}")
