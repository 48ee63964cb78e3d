"""Recognition of a file's format by its first bytes. The file name is ignored."""

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
"""Number of first bytes that identify every format. A capture without records may be shorter."""

UNSUPPORTED_MAGICS: dict[bytes, str] = {
    bytes.fromhex("1f9d"): "compressed by compress",
    bytes.fromhex("4c5a4950"): "lzip-compressed",
    bytes.fromhex("894c5a4f"): "lzop-compressed",
    bytes.fromhex("02214c18"): "lz4-compressed in the legacy format",
    bytes.fromhex("504b0304"): "a zip archive",
    bytes.fromhex("377abcaf271c"): "a 7z archive",
}
"""Names of unsupported formats by the first bytes of a file, for messages about rejected files."""

READABLE_FORMATS = (
    "a pcap or pcapng capture, plain or compressed with gzip, zstd, lz4, bzip2 or xz, or NetFlow or IPFIX datagrams"
)
"""The readable formats, for error messages."""


def record_format(head: bytes, name: str) -> FileFormat:
    """Return the format of a capture with these first HEAD_BYTES bytes.

    Raises InputError for all other files; its message names the format of the file if it is known.
    """
    if head[:4] in MAGICS:
        return parse_header(head, name)
    if head.startswith(MAGIC):
        return parse_section_header(head, name)
    if is_export_file(head):
        return ExportFormat()
    codec = codec_of(head)
    foreign_format = (
        f"{codec.name}-compressed"
        if codec
        else next((description for magic, description in UNSUPPORTED_MAGICS.items() if head.startswith(magic)), None)
    )
    if foreign_format:
        observed, hint = f"it is {foreign_format}", "; decompress it"
    elif head:
        observed, hint = f"it begins with {head[:4].hex(' ')}", f"; expected {READABLE_FORMATS}"
    else:
        observed, hint = "it is empty", ""
    raise InputError(f"{name}: not a pcap or pcapng capture: {observed}{hint}")
