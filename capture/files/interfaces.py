"""The interfaces of a pcapng file: what its interface description blocks say, as a table that kernels read.

An interface has a link type, a snapshot length, and a clock of its own: a packet's time is a 64-bit count of units of
10^-n or 2^-n seconds, to which `if_tsoffset` adds whole seconds. A row of the table is everything that a kernel needs
to turn that count into nanoseconds, exactly: units finer than a nanosecond round down.

Times are kept from 1970 to 2^62 ns (February 2116), the span in which every window can be computed. A time outside is
moved to the nearest bound, and said to be so: one absurd time must not end the reading of a file.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from capture.native import helper
from capture.units import SECOND

WIDTH = 8
LINK, SNAPLEN, FAST, MULTIPLIER, OFFSET, UNITS, POWER, SECONDS = range(WIDTH)
"""Columns of the table: LINKTYPE_ number; if_snaplen, 0 for none; the largest count for which ns = count * MULTIPLIER +
OFFSET, -1 for none; units in a second (unsigned); the exponent where they are a power of 2, else -1; if_tsoffset."""

LATEST = 2**62 - 1
"""The largest time, ns."""

RETIMED = ("no_timestamp", "out_of_range")
"""Why the ts of a packet is not what its block says: there is none, and it is 0; it was moved to the nearest bound."""

LATEST_SECONDS = LATEST // SECOND

MAX_INTERFACES = 65_536
"""Interfaces of one file: libpcap has no bound, and a file of nothing else would fill the memory. With their names
they take 48 MB at most."""

MAX_NAME = 127
"""Characters of a name that are kept."""

END_OF_OPTIONS, IF_NAME, IF_TSRESOL, IF_TSOFFSET = 0, 2, 9, 14


@helper
def interface_time(interfaces, row, count):  # type: ignore[no-untyped-def]
    """Time in ns of a packet of interface `row` whose 64-bit count of units is `count`, and whether it was moved."""
    at = row * WIDTH
    if 0 <= count <= interfaces[at + FAST]:
        return count * interfaces[at + MULTIPLIER] + interfaces[at + OFFSET], 0
    return any_time(
        np.uint64(count), np.uint64(interfaces[at + UNITS]), interfaces[at + POWER], interfaces[at + SECONDS]
    )


@helper
def any_time(count, units, power, offset):  # type: ignore[no-untyped-def]
    """The same for every count, resolution and offset: `units` a second, a power of 2 where `power` >= 0."""
    seconds = count // units
    rest = count % units
    second = np.uint64(SECOND)
    if power > 32:  # rest * 10^9 may need more than 64 bits
        upper = (rest >> np.uint64(32)) * second
        lower = (rest & np.uint64(0xFFFFFFFF)) * second >> np.uint64(32)
        nanoseconds = (upper + lower) >> np.uint64(power - 32)
    elif power >= 0:
        nanoseconds = rest * second >> np.uint64(power)
    elif units <= second:
        nanoseconds = rest * (second // units)
    else:
        nanoseconds = rest // (units // second)
    if offset < 0:
        back = np.uint64(-(offset + 1)) + np.uint64(1)
        if seconds < back:
            return np.int64(0), 1
        seconds -= back
    elif offset > LATEST_SECONDS or seconds > np.uint64(LATEST_SECONDS - offset):
        return np.int64(LATEST), 1
    else:
        seconds += np.uint64(offset)
    if seconds > np.uint64(LATEST_SECONDS):
        return np.int64(LATEST), 1
    time = np.int64(seconds) * SECOND + np.int64(nanoseconds)
    return min(time, np.int64(LATEST)), np.int64(time > LATEST)


class BadInterfaceError(ValueError):
    """An interface description block that no reader can make sense of."""


@dataclass(frozen=True, slots=True)
class Interface:
    """What an interface description block says.

    `resolution` is if_tsresol: n for units of 10^-n s, with its highest bit set n for 2^-n s. `offset` is in seconds.
    """

    link_type: int
    snaplen: int = 0
    resolution: int = 6
    offset: int = 0
    name: str | None = None

    def row(self) -> list[int]:
        """Its row of the table."""
        power = self.resolution & 0x7F if self.resolution & 0x80 else -1
        units = 2**power if power >= 0 else 10**self.resolution
        whole = SECOND % units == 0 and 0 <= self.offset <= LATEST_SECONDS
        multiplier = SECOND // units if whole else 0
        shift = self.offset * SECOND if whole else 0
        fast = (LATEST - shift) // multiplier if whole else -1
        signed = units - 2**64 if units >= 2**63 else units
        return [self.link_type, self.snaplen, fast, multiplier, shift, signed, power, self.offset]


def parse_interface(body: bytes, big_endian: bool) -> Interface:
    """Parse an interface description block without its header and trailer; BadInterfaceError where libpcap gives up.

    The options are read up to opt_endofopt or the end of the block; those that readers need not know are passed over.
    """
    order = ">" if big_endian else "<"
    if len(body) < 8:
        raise BadInterfaceError("the block is too short")
    link_type, snaplen = struct.unpack_from(order + "HxxI", body)
    resolution = offset = name = None
    at = 8
    while at < len(body):
        if at + 4 > len(body):
            raise BadInterfaceError("an option is cut")
        code, length = struct.unpack_from(order + "HH", body, at)
        value = body[at + 4 : at + 4 + length]
        at += 4 + (length + 3) // 4 * 4
        if at > len(body) or (code == END_OF_OPTIONS and length):
            raise BadInterfaceError("an option is longer than its block, or the last one longer than nothing")
        if code == END_OF_OPTIONS:
            break
        if code == IF_TSRESOL:
            if length != 1 or resolution is not None or value[0] & 0x7F > (63 if value[0] & 0x80 else 19):
                raise BadInterfaceError("if_tsresol is there twice, of another length, or finer than 64 bits can count")
            resolution = value[0]
        elif code == IF_TSOFFSET:
            if length != 8 or offset is not None:
                raise BadInterfaceError("if_tsoffset is there twice or of another length")
            offset = int.from_bytes(value, "big" if big_endian else "little", signed=True)
        elif code == IF_NAME and name is None:
            name = value.rstrip(b"\0").decode("utf-8", "replace")[:MAX_NAME]
    return Interface(link_type, snaplen, 6 if resolution is None else resolution, offset or 0, name)


class InterfaceTable:
    """The interfaces of a file in the order of their blocks. It only grows, up to MAX_INTERFACES. Not thread safe."""

    def __init__(self) -> None:
        """Know none."""
        self.names: list[str] = []
        self.matrix: npt.NDArray[np.int64] = np.zeros((1, WIDTH), np.int64)

    def add(self, interface: Interface) -> None:
        """Append; an interface without a name is named by its number in the file."""
        count = len(self.names)
        if count == len(self.matrix):
            self.matrix = np.concatenate([self.matrix, np.zeros_like(self.matrix)])
        self.matrix[count] = interface.row()
        self.names.append(interface.name or str(count))
