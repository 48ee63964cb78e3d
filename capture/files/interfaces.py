"""The interfaces of a pcapng file: a table for kernels, with the contents of the interface description blocks.

An interface has a link type, a snapshot length and a clock. A packet's timestamp is a 64-bit number of units of 10^-n
or 2^-n seconds; `if_tsoffset` adds whole seconds. A row of the table contains all values that convert a timestamp into
nanoseconds. Units below one nanosecond are rounded down; the conversion is otherwise exact.

Times range from 1970 to 2^62 ns (February 2116), for which windows can be computed. A time outside this range is
replaced by the nearest bound and counted, so that one wrong time does not end the reading of a file.
"""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt

from capture.lazy_dataclasses import dataclass
from capture.native import helper
from capture.units import SECOND

INTERFACE_WORDS = 8
LINK, SNAPLEN, MAX_FAST, MULTIPLIER, OFFSET, UNITS, POWER, SECONDS = range(INTERFACE_WORDS)
"""Columns of the table.

* LINK: the link type (a LINKTYPE_ number). SNAPLEN: if_snaplen; 0 for no limit.
* MAX_FAST: the largest timestamp for which the fast conversion ns = timestamp * MULTIPLIER + OFFSET is exact, or -1.
* UNITS: units per second (unsigned). POWER: log2(UNITS), or -1 if UNITS is not a power of 2.
* SECONDS: if_tsoffset.
"""

MAX_TIME = 2**62 - 1
"""The largest time in ns."""

REPLACED_TIME_CAUSES = ("no_timestamp", "out_of_range")
"""Causes for which the time of a packet is replaced: a missing timestamp (by 0), or a time out of range."""

MAX_TIME_SECONDS = MAX_TIME // SECOND
"""MAX_TIME in whole seconds."""

MAX_INTERFACES = 65_536
"""Limit of interfaces per file. libpcap has no limit, but a file full of descriptions would fill the memory. With this
limit the interfaces and their names need at most 48 MB."""

MAX_NAME_LENGTH = 127
"""Maximum number of characters of an interface name that are stored."""

END_OF_OPTIONS, IF_NAME, IF_TSRESOL, IF_TSOFFSET = 0, 2, 9, 14
"""Option codes."""


@helper
def interface_time(interfaces, row, timestamp):  # type: ignore[no-untyped-def]
    """Convert a packet's timestamp of interface `row` to ns. Return the time, and 1 if it was out of range, else 0."""
    offset = row * INTERFACE_WORDS
    if 0 <= timestamp <= interfaces[offset + MAX_FAST]:
        return timestamp * interfaces[offset + MULTIPLIER] + interfaces[offset + OFFSET], 0
    return exact_interface_time(
        np.uint64(timestamp),
        np.uint64(interfaces[offset + UNITS]),
        interfaces[offset + POWER],
        interfaces[offset + SECONDS],
    )


@helper
def exact_interface_time(timestamp, units, power, offset_seconds):  # type: ignore[no-untyped-def]
    """Convert a timestamp above MAX_FAST to ns. Return the same two values as `interface_time`."""
    seconds = timestamp // units
    fraction = timestamp % units
    ns_per_second = np.uint64(SECOND)
    if power > 32:  # fraction * 10^9 may need more than 64 bits
        upper = (fraction >> np.uint64(32)) * ns_per_second
        lower = (fraction & np.uint64(0xFFFFFFFF)) * ns_per_second >> np.uint64(32)
        nanoseconds = (upper + lower) >> np.uint64(power - 32)
    elif power >= 0:
        nanoseconds = fraction * ns_per_second >> np.uint64(power)
    elif units <= ns_per_second:
        nanoseconds = fraction * (ns_per_second // units)
    else:
        nanoseconds = fraction // (units // ns_per_second)
    if offset_seconds < 0:
        seconds_back = np.uint64(-(offset_seconds + 1)) + np.uint64(1)
        if seconds < seconds_back:
            return np.int64(0), 1
        seconds -= seconds_back
    elif offset_seconds > MAX_TIME_SECONDS or seconds > np.uint64(MAX_TIME_SECONDS - offset_seconds):
        return np.int64(MAX_TIME), 1
    else:
        seconds += np.uint64(offset_seconds)
    if seconds > np.uint64(MAX_TIME_SECONDS):
        return np.int64(MAX_TIME), 1
    ts = np.int64(seconds) * SECOND + np.int64(nanoseconds)
    return min(ts, np.int64(MAX_TIME)), np.int64(ts > MAX_TIME)


class BadInterfaceError(ValueError):
    """An invalid interface description block."""


@dataclass(frozen=True, slots=True)
class Interface:
    """The fields of an interface description block.

    `resolution`: if_tsresol: n for units of 10^-n s, 128 + n for units of 2^-n s. `offset`: if_tsoffset, in seconds.
    """

    link_type: int
    snaplen: int = 0
    resolution: int = 6
    offset: int = 0
    name: str | None = None

    def row(self) -> list[int]:
        """Return the interface's row of the table."""
        power = self.resolution & 0x7F if self.resolution & 0x80 else -1
        units = 2**power if power >= 0 else 10**self.resolution
        is_fast = SECOND % units == 0 and 0 <= self.offset <= MAX_TIME_SECONDS
        multiplier = SECOND // units if is_fast else 0
        offset_ns = self.offset * SECOND if is_fast else 0
        max_fast = (MAX_TIME - offset_ns) // multiplier if is_fast else -1
        signed_units = units - 2**64 if units >= 2**63 else units
        return [self.link_type, self.snaplen, max_fast, multiplier, offset_ns, signed_units, power, self.offset]


def parse_interface(body: bytes, big_endian: bool) -> Interface:
    """Parse the body of an interface description block (the block without type and lengths).

    Options are read up to opt_endofopt or the end of the block. Unused options are skipped. Raises BadInterfaceError
    for blocks that libpcap rejects too.
    """
    order = ">" if big_endian else "<"
    if len(body) < 8:
        raise BadInterfaceError("the block is too short")
    link_type, snaplen = struct.unpack_from(order + "HxxI", body)
    resolution = clock_offset = name = None
    offset = 8
    while offset < len(body):
        if offset + 4 > len(body):
            raise BadInterfaceError("an option is truncated")
        code, length = struct.unpack_from(order + "HH", body, offset)
        value = body[offset + 4 : offset + 4 + length]
        offset += 4 + (length + 3) // 4 * 4
        if offset > len(body) or (code == END_OF_OPTIONS and length):
            raise BadInterfaceError("an option is longer than its block, or opt_endofopt has a length")
        if code == END_OF_OPTIONS:
            break
        if code == IF_TSRESOL:
            if length != 1 or resolution is not None or value[0] & 0x7F > (63 if value[0] & 0x80 else 19):
                raise BadInterfaceError(
                    "if_tsresol is repeated, has a wrong length, or is finer than 64 bits can count"
                )
            resolution = value[0]
        elif code == IF_TSOFFSET:
            if length != 8 or clock_offset is not None:
                raise BadInterfaceError("if_tsoffset is repeated or has a wrong length")
            clock_offset = int.from_bytes(value, "big" if big_endian else "little", signed=True)
        elif code == IF_NAME and name is None:
            name = value.rstrip(b"\0").decode("utf-8", "replace")[:MAX_NAME_LENGTH]
    return Interface(link_type, snaplen, 6 if resolution is None else resolution, clock_offset or 0, name)


class InterfaceTable:
    """The interfaces of a file, in file order. The table only grows, up to MAX_INTERFACES. Not thread safe."""

    def __init__(self) -> None:
        """Create an empty table."""
        self.names: list[str] = []
        self.matrix: npt.NDArray[np.int64] = np.zeros((1, INTERFACE_WORDS), np.int64)

    def add(self, interface: Interface) -> None:
        """Append an interface. If it has no name, its number in the file becomes its name."""
        count = len(self.names)
        if count == len(self.matrix):
            self.matrix = np.concatenate([self.matrix, np.zeros_like(self.matrix)])
        self.matrix[count] = interface.row()
        self.names.append(interface.name or str(count))
