"""Recognition of a file's format by its first bytes; the file name is ignored."""

from __future__ import annotations

from capture.errors import InputError
from capture.files.decompressed import codec_of
from capture.files.messages import ExportFormat, is_export_file
from capture.files.pcap import MAGICS, PcapFormat, parse_header
from capture.files.pcapng import MAGIC, PcapngFormat, parse_section_header
from capture.files.ring_frames import RingFormat

FileFormat = PcapFormat | PcapngFormat | ExportFormat | RingFormat
"""All record formats. RingFormat is used for live interfaces only."""

HEAD_BYTES = 32
"""Number of bytes that identifies every format. A capture without records may have fewer."""

FOREIGN_MAGICS: dict[bytes, str] = {
    bytes.fromhex("1f9d"): "compressed by compress",
    bytes.fromhex("4c5a4950"): "lzip-compressed",
    bytes.fromhex("894c5a4f"): "lzop-compressed",
    bytes.fromhex("02214c18"): "lz4-compressed in the legacy format",
    bytes.fromhex("504b0304"): "a zip archive",
    bytes.fromhex("377abcaf271c"): "a 7z archive",
}
"""First bytes of other formats, to name the format of a rejected file."""

READABLE_FORMATS = "one of those, plain or in gzip, zstd, lz4, bzip2 or xz, or NetFlow or IPFIX datagrams"
"""The readable formats, for error messages; follows "a pcap or pcapng capture"."""


def record_format(head: bytes, name: str) -> FileFormat:
    """Recognise a capture by its first HEAD_BYTES bytes. Raises InputError, which names a recognised other format."""
    if head[:4] in MAGICS:
        return parse_header(head, name)
    if head.startswith(MAGIC):
        return parse_section_header(head, name)
    if is_export_file(head):
        return ExportFormat()
    codec = codec_of(head)
    kinds = (
        [f"{codec.name}-compressed"]
        if codec
        else [kind for magic, kind in FOREIGN_MAGICS.items() if head.startswith(magic)]
    )
    got = f"it is {kinds[0]}" if kinds else "it is empty" if not head else f"it begins with {head[:4].hex(' ')}"
    hint = "; decompress it" if kinds else f"; expected {READABLE_FORMATS}" if head else ""
    raise InputError(f"{name}: not a pcap or pcapng capture: {got}{hint}")
