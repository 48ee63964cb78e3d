"""Packets for commands that read live inputs."""

from __future__ import annotations

from tests.references.pcap_bytes import NS, pcap_bytes
from tests.references.small_captures import RAW_IP, udp

START = 1_700_000_040


FRAME = udp("10.0.0.1", "10.0.0.2", 1, 2)


HEADER = pcap_bytes([], RAW_IP)


AGREED = 64
"""Number of packets that must agree before the start time of a link is accepted."""


def packets(*seconds: float) -> bytes:
    """Records, each so long after START."""
    return pcap_bytes([((START * NS) + round(each * NS), FRAME) for each in seconds], RAW_IP)[24:]


BEGINNING = HEADER + packets(*[1] * AGREED)
