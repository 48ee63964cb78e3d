"""Read the frames of selected records of a block, with the link type and the name of their interface."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from capture.files.blocks import BLOCK_WORDS, Block, WalkState
from capture.files.capture import AnyCapture
from capture.files.interfaces import LINK
from capture.files.pcap import PcapFormat
from capture.files.pcapng import ENHANCED_PACKET, PACKET, SIMPLE_PACKET, PcapngFormat
from capture.lazy_dataclasses import dataclass

FRAME_OFFSETS = {ENHANCED_PACKET: 28, PACKET: 28, SIMPLE_PACKET: 12}
"""Offset of the frame in each type of packet block of pcapng."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A captured frame. `interface` is the name of its interface in the file; the number, if it has no name."""

    content: bytes
    link_type: int
    interface: str


def frames_of(
    capture: AnyCapture, block: Block, record_numbers: Sequence[int], lengths: npt.NDArray[np.int64]
) -> Iterator[Frame]:
    """Yield the frames of the records of a block with the numbers `record_numbers`, which are in ascending order.

    `lengths`: the number of captured bytes of each record of the block. Raises TypeError if the records of the capture
    are not packets, but for example datagrams with flows.
    """
    file_format, data = capture.format, capture.data
    if not isinstance(file_format, PcapFormat | PcapngFormat):
        raise TypeError(f"{capture.path}: got {type(file_format).__name__}, expected records of pcap or pcapng")
    bounds = np.empty((block.records, BLOCK_WORDS), np.int64)
    state = WalkState(block.start, block.section, len(file_format.interface_names))
    file_format.walk(data, block.end, 1, bounds, state)
    for record in record_numbers:
        start, length = int(bounds[record, 0]), int(lengths[record])
        if isinstance(file_format, PcapFormat):
            begin, interface = start + file_format.record_header, 0
            link_type = file_format.link_type
        else:
            begin, interface = _packet_block(data, start, block.section)
            link_type = int(file_format.table.matrix[interface, LINK])
        yield Frame(data[begin : begin + length].tobytes(), link_type, file_format.interface_names[interface])


def _packet_block(data: npt.NDArray[np.uint8], start: int, section: int) -> tuple[int, int]:
    """Return the offset of the frame in the first packet block from `start` on, and the number of its interface."""
    order = "big" if section & 1 else "little"

    def number(offset: int, width: int = 4) -> int:
        return int.from_bytes(data[offset : offset + width].tobytes(), order)  # type: ignore[arg-type]

    while (kind := number(start)) not in FRAME_OFFSETS:  # blocks of other types may precede the packet
        start += number(start + 4)
    interface = 0 if kind == SIMPLE_PACKET else number(start + 8, 2 if kind == PACKET else 4)
    return start + FRAME_OFFSETS[kind], (section >> 1) + interface
