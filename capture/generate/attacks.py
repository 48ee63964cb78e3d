"""Kinds of attacks, and the packets of attacks with a constant rate.

`capture.generate.timeline` determines their times.

All attacks are IPv4. The victim is 198.19.0.1, which sends no packets. The scanner is 198.19.0.2. Background traffic
does not use 198.19.0.0/24. `capture.generate.staged_attacks` makes the packets of attacks in stages.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from capture.generate.layers import PacketKind
from capture.generate.packets import Traffic
from capture.lazy_dataclasses import dataclass
from capture.units import SECOND

VICTIM = (198 << 24) | (19 << 16) | 1
SCANNER = VICTIM + 1
FIRST_RESOLVER = (198 << 24) | (19 << 16) | (1 << 8)
"""Addresses of the victim, of the scanner, and of the first of the open resolvers."""

SPOOFED_SOURCES = range(11 << 24, 127 << 24)
"""Spoofed sources: 11.0.0.0 to 126.255.255.255. No client, server or loopback address is in this range."""
SYN = 0x02
ATTACK_KINDS = {
    "syn-flood": "spoofed sources open connections to port 443 of one victim",
    "port-scan": "one source tries random TCP ports of one victim",
    "dns-amplification": "256 open resolvers send large answers to one victim that never asked",
}
STAGED_KINDS = {
    "scan-and-call-back": "one source scans TCP ports of a host, sends it a large packet, and is called back",
    "beacon": "a host opens a connection to one server at nearly equal intervals",
    "password-guessing": "one source opens short ssh sessions, and then a long one",
    "exfiltration": "a host reads from a database, then sends as much to an outside server",
    "pulses": "one source sends full load, less load, and then pulses of two seconds",
    "silent-server": "a host opens connections to a server that stops answering",
    "lost-contacts": "a host opens a connection to one server at equal intervals, and each fifth one is lost",
}
MIN_STEPS, MAX_STEPS = 8, 100_000
"""Smallest and largest number of steps of a staged attack: interval times rate."""


@dataclass(frozen=True, slots=True)
class Attack:
    """An attack of `kind` in `[start, end)`, in addition to other traffic.

    `rate` is in packets/s for a key of `ATTACK_KINDS`, and in steps/s for a key of `STAGED_KINDS`. Times are ns from
    the start of the capture. Raises `ValueError` for an unknown kind, an empty interval or a rate out of range.
    """

    kind: str
    start: int
    end: int
    rate: float

    def __post_init__(self) -> None:
        """Reject an attack without packets."""
        if self.kind not in (*ATTACK_KINDS, *STAGED_KINDS):
            known = ", ".join((*ATTACK_KINDS, *STAGED_KINDS))
            raise ValueError(f"attack: got kind {self.kind!r}, expected one of {known}")
        if not 0 <= self.start < self.end:
            raise ValueError(
                f"attack: got [{self.start}, {self.end}), expected 0 <= start < end, in ns from the start of the "
                "capture"
            )
        if not 0 < self.rate <= 1_000_000_000:
            raise ValueError(
                f"attack: got {self.rate} packets/s, expected more than 0 (otherwise it would send nothing), and "
                "at most 1000000000"
            )
        steps = (self.end - self.start) / SECOND * self.rate
        if self.is_staged and not MIN_STEPS <= steps <= MAX_STEPS:
            raise ValueError(
                f"attack: got {steps:g} steps of {self.kind}, expected {MIN_STEPS} to {MAX_STEPS}: the steps are "
                "seconds times rate"
            )

    @property
    def is_staged(self) -> bool:
        """True if the attack consists of stages."""
        return self.kind in STAGED_KINDS


def overwrite_with_attack(traffic: Traffic, attack: Attack, rows: NDArray[np.int64], draws: NDArray[np.uint64]) -> None:
    """Overwrite `rows` of `traffic` with packets of `attack`. `draws`: a random 64-bit integer for each traffic row."""
    low_half = draws[rows] & np.uint64(0xFFFFFFFF)
    high_half = draws[rows] >> np.uint64(32)
    traffic.destination[rows] = VICTIM
    if attack.kind == "dns-amplification":
        traffic.kind[rows] = PacketKind.UDP4
        traffic.source[rows] = np.uint64(FIRST_RESOLVER) + (low_half & np.uint64(0xFF))
        traffic.source_port[rows] = 53
        traffic.destination_port[rows] = np.uint64(1024) + high_half % np.uint64(64512)
        traffic.length[rows] = 1200 + (low_half >> np.uint64(8)) % np.uint64(315)
        return
    traffic.kind[rows] = PacketKind.TCP4
    traffic.tcp_flags[rows] = SYN
    traffic.length[rows] = 0
    traffic.source_port[rows] = np.uint64(1024) + (high_half >> np.uint64(16)) % np.uint64(64512)
    if attack.kind == "syn-flood":
        traffic.source[rows] = np.uint64(SPOOFED_SOURCES.start) + low_half % np.uint64(len(SPOOFED_SOURCES))
        traffic.destination_port[rows] = 443
    else:
        traffic.source[rows] = SCANNER
        traffic.destination_port[rows] = np.uint64(1) + high_half % np.uint64(65535)
