"""Times of conversations of application protocols and tunnels. `capture.generate.protocols` makes their packets.

A piece of the timeline is divided into one slot per conversation of a kind. A conversation begins at a random time in
its slot. Its packets stay inside the piece, so they are outside lulls. All times depend only on the seed of the
profile, the kind, and the index of the conversation.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from capture.generate.timeline import Piece
from capture.lazy_dataclasses import dataclass
from capture.units import SECOND

CONVERSATION_KINDS = {
    "dns": "a query to a resolver and its answer, over UDP",
    "http": "a GET request and its response in a TCP connection",
    "tls": "a TLS 1.3 handshake with a server name, and encrypted data, in a TCP connection",
    "sip": "a registration and a call, over UDP",
    "gre": "pings in GRE with a key",
    "ipip": "pings in IP in IP",
    "vxlan": "DNS in Ethernet in VXLAN",
    "gtp": "DNS in GTP-U",
}
DEFAULT_RATE = 10.0
"""Default number of conversations per second."""
MAX_CONVERSATIONS = 100_000
"""Maximum number of conversations in a file. scapy builds a few hundred per second of CPU time."""
LINK_TYPES = {1: "Ethernet", 101: "raw IP"}
"""Link types of files with conversations."""

Frame = tuple[int, bytes]
"""Time in ns from the start of the capture, and the bytes of a packet."""


@dataclass(frozen=True, slots=True)
class Conversations:
    """`rate` conversations/s of `kind` (a key of `CONVERSATION_KINDS`) outside lulls, in addition to the other packets.

    Raises `ValueError` for an unknown kind or a rate that is not positive.
    """

    kind: str
    rate: float = DEFAULT_RATE

    def __post_init__(self) -> None:
        """Reject impossible conversations."""
        if self.kind not in CONVERSATION_KINDS:
            raise ValueError(f"traffic: got kind {self.kind!r}, expected one of {', '.join(CONVERSATION_KINDS)}")
        if not 0 < self.rate <= MAX_CONVERSATIONS:
            raise ValueError(
                f"traffic: got {self.rate} conversations/s of {self.kind}, expected more than 0, at most"
                f" {MAX_CONVERSATIONS}"
            )


def conversation_starts(pieces: Sequence[Piece], rate: float, generator: random.Random) -> Iterator[tuple[int, int]]:
    """Yield the begin of each conversation, in order, and the end of its piece (ns from the start of the capture).

    The total number of conversations is rounded, not the number per piece.
    """
    expected, total = 0.0, 0
    for piece in pieces:
        expected += rate * (piece.end - piece.start) / SECOND
        count = round(expected) - total
        total += count
        for index in range(count):
            offset = int((index + generator.random()) * ((piece.end - piece.start) / count))
            yield piece.start + min(offset, piece.end - piece.start - 1), piece.end


def conversation_count(pieces: Sequence[Piece], rate: float) -> int:
    """Return the number of conversations that `conversation_starts` yields."""
    return round(sum(rate * (piece.end - piece.start) / SECOND for piece in pieces))
