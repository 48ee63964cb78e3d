"""Paths of live interfaces: `interface:NAME`, optionally followed by `?` and options."""

from __future__ import annotations

import os

from capture.errors import SettingError
from capture.lazy_dataclasses import dataclass
from capture.units import MEBIBYTE, parse_size

INTERFACE_PREFIX = "interface:"
"""Prefix of the path of a live interface. A file whose name begins with it must be given with its folder."""

BLOCK_BYTES = MEBIBYTE
"""Bytes of a ring block. A frame is never larger, even if TCP segments are merged, so the ring truncates no frame."""

DEFAULT_RING_BYTES = 64 * MEBIBYTE
"""Ring size in bytes without the option `ring`."""

MIN_RING_BYTES, MAX_RING_BYTES = 4 * MEBIBYTE, 2048 * MEBIBYTE
"""Limits of the ring size in bytes. With the minimum, the kernel can fill some blocks while another block is read. The
maximum exists because the ring is one memory mapping."""

MAX_SNAPSHOT = 262_144
"""Maximum captured bytes of a frame, as in libpcap. Frames are never longer in practice."""

MIN_SNAPSHOT = 64
"""Minimum snapshot length in bytes. A shorter snapshot would not contain the headers of a TCP segment over IPv6."""

MAX_NAME_BYTES = 15
"""Maximum bytes of an interface name (IFNAMSIZ without its NUL)."""

EXPECTED_FORM = "expected interface:NAME, with options such as ?promiscuous&ring=128MiB&snaplen=128"


@dataclass(frozen=True, slots=True)
class InterfaceSettings:
    """An interface and its capture settings. Raises SettingError for invalid values.

    `ring`: size of the kernel's ring in bytes, the memory in which packets wait; rounded down to whole blocks.
    `snaplen`: maximum captured bytes of a frame. `promiscuous`: also capture frames addressed to other hosts.
    """

    name: str
    promiscuous: bool = False
    ring: int = DEFAULT_RING_BYTES
    snaplen: int = MAX_SNAPSHOT

    def __post_init__(self) -> None:
        """Reject impossible interface names and sizes."""
        length = len(os.fsencode(self.name))
        if not 1 <= length <= MAX_NAME_BYTES or "/" in self.name or any(character.isspace() for character in self.name):
            raise SettingError(
                f"{INTERFACE_PREFIX}{self.name}: not the name of an interface "
                f"(1 to {MAX_NAME_BYTES} bytes, no / or space); {EXPECTED_FORM}"
            )
        if not MIN_RING_BYTES <= self.ring <= MAX_RING_BYTES:
            raise SettingError(
                f"{INTERFACE_PREFIX}{self.name}: a ring of {self.ring:,} bytes: expected "
                f"{MIN_RING_BYTES // MEBIBYTE} MiB to {MAX_RING_BYTES // MEBIBYTE // 1024} GiB"
            )
        if not MIN_SNAPSHOT <= self.snaplen <= MAX_SNAPSHOT:
            raise SettingError(
                f"{INTERFACE_PREFIX}{self.name}: a snapshot length of {self.snaplen:,} bytes: expected "
                f"{MIN_SNAPSHOT} to {MAX_SNAPSHOT:,}"
            )

    @property
    def blocks(self) -> int:
        """Number of blocks of the ring."""
        return self.ring // BLOCK_BYTES


def is_interface(path: str | os.PathLike[str]) -> bool:
    """Return whether a path means a live interface."""
    return os.fspath(path).startswith(INTERFACE_PREFIX)


def interface_name(path: str | os.PathLike[str]) -> str:
    """Return the interface name in a path, without options.

    >>> interface_name("interface:eth0?promiscuous")
    'eth0'
    """
    return os.fspath(path).removeprefix(INTERFACE_PREFIX).partition("?")[0]


def parse_interface(path: str | os.PathLike[str]) -> InterfaceSettings:
    """Parse `interface:NAME?option&option=value`. Raises SettingError for invalid options.

    >>> parse_interface("interface:eth0?promiscuous&ring=128MiB&snaplen=96")
    InterfaceSettings(name='eth0', promiscuous=True, ring=134217728, snaplen=96)
    """
    text = os.fspath(path)
    promiscuous, ring, snaplen = False, DEFAULT_RING_BYTES, MAX_SNAPSHOT
    for option in filter(None, text.partition("?")[2].split("&")):
        key, equals, value = option.partition("=")
        if option == "promiscuous":
            promiscuous = True
        elif key == "ring" and equals:
            ring = parse_size(value)
        elif key == "snaplen" and value.isascii() and value.isdecimal():
            snaplen = int(value[:9])
        else:
            raise SettingError(f"{text}: got the option {option}; {EXPECTED_FORM}")
    return InterfaceSettings(interface_name(text), promiscuous, ring, snaplen)
