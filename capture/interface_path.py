"""How a live interface is named where a capture's path is taken: `interface:NAME`, and options behind a `?`."""

from __future__ import annotations

import os
from dataclasses import dataclass

from capture.collector.settings import SettingError, size
from capture.units import MEBIBYTE

PREFIX = "interface:"
"""What the path of a live interface begins with; a file that is called so is given with its folder."""

BLOCK_BYTES = MEBIBYTE
"""Bytes of a block of the ring: no frame is larger, merged segments included, so that the ring cuts none."""

RING_BYTES = 64 * MEBIBYTE
LEAST_RING, MOST_RING = 4 * MEBIBYTE, 2048 * MEBIBYTE
"""Bounds of a ring: a few blocks, so that the kernel can go on while one is read; and what one mapping can hold."""

SNAPSHOT = 262_144
"""Bytes of a frame that are captured at most, as in libpcap; no frame is longer in practice."""

LEAST_SNAPSHOT = 64
"""Below it not even the headers of a TCP segment over IPv6 are there."""

LONGEST_NAME = 15
"""Bytes of an interface's name (IFNAMSIZ without its NUL)."""

EXPECTED = "expected interface:NAME, and behind it for example ?promiscuous&ring=128MiB&snaplen=128"


@dataclass(frozen=True, slots=True)
class InterfaceSettings:
    """An interface and how it is captured; SettingError where that contradicts itself.

    `ring` are the bytes of the kernel's ring, which is all the memory that packets wait in; whole blocks, so it is
    rounded down. `snaplen` are the bytes of each frame that are captured at most. `promiscuous` asks for frames that
    are addressed to others too.
    """

    name: str
    promiscuous: bool = False
    ring: int = RING_BYTES
    snaplen: int = SNAPSHOT

    def __post_init__(self) -> None:
        """Refuse names that no interface can have, and sizes that no ring can."""
        length = len(os.fsencode(self.name))
        if not 1 <= length <= LONGEST_NAME or "/" in self.name or any(each.isspace() for each in self.name):
            raise SettingError(
                f"{PREFIX}{self.name}: got no name of an interface (1 to {LONGEST_NAME} bytes, no / or space); "
                f"{EXPECTED}"
            )
        if not LEAST_RING <= self.ring <= MOST_RING:
            raise SettingError(
                f"{PREFIX}{self.name}: a ring of {self.ring:,} bytes: expected {LEAST_RING // MEBIBYTE} MiB to "
                f"{MOST_RING // MEBIBYTE // 1024} GiB"
            )
        if not LEAST_SNAPSHOT <= self.snaplen <= SNAPSHOT:
            raise SettingError(
                f"{PREFIX}{self.name}: a snapshot length of {self.snaplen:,} bytes: expected {LEAST_SNAPSHOT} to "
                f"{SNAPSHOT:,}"
            )

    @property
    def blocks(self) -> int:
        """Blocks of the ring."""
        return self.ring // BLOCK_BYTES


def is_interface(path: str | os.PathLike[str]) -> bool:
    """Whether a path means a live interface."""
    return os.fspath(path).startswith(PREFIX)


def interface_name(path: str | os.PathLike[str]) -> str:
    """Return the interface that a path means, without its options.

    >>> interface_name("interface:eth0?promiscuous")
    'eth0'
    """
    return os.fspath(path).removeprefix(PREFIX).partition("?")[0]


def parse_interface(path: str | os.PathLike[str]) -> InterfaceSettings:
    """Read `interface:NAME?option&option=value`; SettingError for what is none.

    >>> parse_interface("interface:eth0?promiscuous&ring=128MiB&snaplen=96")
    InterfaceSettings(name='eth0', promiscuous=True, ring=134217728, snaplen=96)
    """
    text = os.fspath(path)
    promiscuous, ring, snaplen = False, RING_BYTES, SNAPSHOT
    for option in filter(None, text.partition("?")[2].split("&")):
        key, equals, value = option.partition("=")
        if option == "promiscuous":
            promiscuous = True
        elif key == "ring" and equals:
            ring = size(value)
        elif key == "snaplen" and value.isascii() and value.isdecimal():
            snaplen = int(value[:9])
        else:
            raise SettingError(f"{text}: got the option {option}; {EXPECTED}")
    return InterfaceSettings(interface_name(text), promiscuous, ring, snaplen)
