"""Settings of a collector, validated on construction, and parsers for the values of its options."""

from __future__ import annotations

import re
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path

from capture.errors import SettingError
from capture.lazy_dataclasses import dataclass
from capture.units import MEBIBYTE, SECOND

DURATION_UNITS = {"s": SECOND, "m": 60 * SECOND, "h": 3600 * SECOND, "d": 86400 * SECOND}
"""Nanoseconds of the units of durations."""

MIN_FILE_BYTES = MEBIBYTE
"""Minimum of `Settings.rotate_size`."""

MAX_EXPORTERS = 4096
"""Maximum of `Settings.exporters`. Each exporter adds several time series to Prometheus."""

MAX_PREFIXES = 1024
"""Maximum length of `Settings.allow`. A datagram of an unknown sender is compared with every prefix."""


@dataclass(frozen=True)
class Settings:
    """Addresses to listen on, folder to record into, and limits.

    * `listen`: pairs of host and port. The host is a name, an address, or "" for all addresses of this machine.
    * `rotate_size`: maximum bytes of a file.
    * `rotate_every`: length of a file's time interval in ns. Intervals begin at its multiples since the epoch (five
      minutes: at :00, :05, :10 …). 0 disables rotation by time.
    * `keep`: maximum bytes of all files together. With None, no file is deleted.
    * `allow`: prefixes of accepted senders. An empty tuple accepts all senders.
    * `receive_buffer`: requested size of each socket's receive buffer in bytes.
    * `exporters`: number of senders with separate counters; all others are counted together.
    """

    listen: tuple[tuple[str, int], ...]
    folder: Path
    rotate_size: int = 256 * MEBIBYTE
    rotate_every: int = 300 * SECOND
    keep: int | None = None
    allow: tuple[IPv4Network | IPv6Network, ...] = ()
    receive_buffer: int = 32 * MEBIBYTE
    exporters: int = 256

    def __post_init__(self) -> None:
        """Reject invalid combinations."""
        if not self.listen:
            raise SettingError("got no address to listen on, expected at least one HOST:PORT")
        if self.rotate_size < MIN_FILE_BYTES:
            raise SettingError(f"files of {self.rotate_size:,} bytes: expected at least {MIN_FILE_BYTES:,}")
        if 0 < self.rotate_every < SECOND:
            raise SettingError("files of less than a second: expected at least 1s, or 0 to rotate only by size")
        if self.keep is not None and self.keep < 2 * self.rotate_size:
            raise SettingError(
                f"a limit of {self.keep:,} bytes with files of up to {self.rotate_size:,} bytes would delete data just "
                "recorded: expected room for at least two files; make the files smaller or keep more"
            )
        if not 1 <= self.exporters <= MAX_EXPORTERS:
            raise SettingError(f"{self.exporters} exporters: expected 1 to {MAX_EXPORTERS:,}")
        if len(self.allow) > MAX_PREFIXES:
            raise SettingError(f"{len(self.allow):,} prefixes of allowed senders: expected at most {MAX_PREFIXES:,}")
        if not 1 <= self.receive_buffer < 2**30:
            raise SettingError(f"a receive buffer of {self.receive_buffer:,} bytes: expected 1 byte to 1 GiB")


def parse_address(text: str) -> tuple[str, int]:
    """Parse `HOST:PORT`. IPv6 addresses need brackets; `*:PORT`, `:PORT` and `PORT` mean all addresses.

    >>> parse_address("[2001:db8::1]:2055"), parse_address("collector.example:4739"), parse_address("*:9995")
    (('2001:db8::1', 2055), ('collector.example', 4739), ('', 9995))
    """
    matched = re.fullmatch(r"(?:(?:\[([^]]*)\]|([^:\[\]]*)):)?(\d{1,5})", text.strip(), re.ASCII)
    if not matched or int(matched[3]) > 65535:
        raise SettingError(
            f"{text}: got no address to listen on, expected HOST:PORT such as 0.0.0.0:2055, [::]:2055 or *:2055, "
            "with a port of 0 (any free one) to 65535"
        )
    host = matched[1] or matched[2] or ""
    return ("" if host == "*" else host, int(matched[3]))


def parse_interval(text: str) -> int:
    """Parse a duration with unit s, m, h or d into nanoseconds. 0 is allowed.

    >>> parse_interval("5m"), parse_interval("90s"), parse_interval("0")
    (300000000000, 90000000000, 0)
    """
    matched = re.fullmatch(r"(\d{1,9})\s*([smhd]?)", text.strip(), re.ASCII)
    if not matched or (not matched[2] and int(matched[1])):
        raise SettingError(f"{text}: got no duration, expected for example 90s, 5m, 1h or 1d, or 0 for none")
    return int(matched[1]) * DURATION_UNITS[matched[2] or "s"]


def parse_prefix(text: str) -> IPv4Network | IPv6Network:
    """Parse a CIDR prefix, or an address as a prefix of one address.

    >>> parse_prefix("10.0.0.0/8"), parse_prefix("2001:db8::1")
    (IPv4Network('10.0.0.0/8'), IPv6Network('2001:db8::1/128'))
    """
    try:
        return ip_network(text.strip())
    except ValueError as error:
        raise SettingError(
            f"{text}: got no prefix of addresses ({error}), expected for example 192.0.2.0/24, 2001:db8::/32 or "
            "192.0.2.7"
        ) from error
