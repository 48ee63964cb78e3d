"""Generate attacks in stages: sequences of packets between several hosts, which row patterns can find.

The figure shows the stages of each attack; the fractions are parts of its interval. A step is one contact, such as a
probed port, and takes `1 / rate` seconds. All packets are IPv4 TCP, in the order of time, without VLAN tags.

    scan-and-call-back  | probes of ports ........ | large packet | call back |
                        0                         1/2            3/4         7/8
    beacon              | a connection for each step, up to 5 % of a step early or late
    password-guessing   | a short ssh session for each step ......... | a session until the end |
                        0                                            1/2
    exfiltration        | answers of a database, a packet for each step | uploads, as many |
                        0                                            1/2
    pulses              | full load ...... | 2 of 5 packets, and 1 of 5 in every second second |
                        0                 1/4
    silent-server       | requests with answers ..... | requests without an answer |
                        0                            1/2
    lost-contacts       | a connection for four of five steps
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

import numpy as np

from capture.generate.attacks import SCANNER, Attack
from capture.generate.layers import PacketKind
from capture.generate.packets import RECORD_HEADER, Encoder, Traffic
from capture.lazy_dataclasses import dataclass
from capture.units import SECOND

HOST, SERVER, DATABASE = (SCANNER + offset for offset in range(1, 4))
"""Addresses 198.19.0.3 to 198.19.0.5: a host, a server with ssh and HTTP, a database server."""

OUTSIDE = (198 << 24) | (51 << 16) | (100 << 8) | 66
"""Address of a server outside 198.19.0.0/24: 198.51.100.66 (RFC 5737)."""

FIN_ACK, SYN, RST_ACK, PSH_ACK, ACK, SYN_ACK = 0x11, 0x02, 0x14, 0x18, 0x10, 0x12
MILLISECOND = 1_000_000
"""Nanoseconds of a millisecond."""

WHOLE_FRAME = 65535


@dataclass(frozen=True, slots=True)
class Packet:
    """A packet: time in ns since the start of the capture, (address, port) of both ends, flags, length in bytes."""

    time: int
    source: tuple[int, int]
    target: tuple[int, int]
    flags: int
    length: int = 0


Stages = Iterator[Packet]


def staged_frames(attack: Attack, number: int, seed: int, link_type: int, byte_order: str) -> list[tuple[int, bytes]]:
    """Return the packets of attack `number` of a profile in the order of time, as (time since the start, bytes).

    All times are in `[attack.start, attack.end)`.
    """
    chance = Random(f"{seed}/{number}/{attack.kind}")
    packets = sorted(_STAGES[attack.kind](attack, chance), key=lambda packet: packet.time)
    packets = [packet for packet in packets if packet.time < attack.end]
    traffic = Traffic(
        ts=np.zeros(len(packets), np.int64),
        kind=np.full(len(packets), PacketKind.TCP4, np.uint8),
        vlan_tags=np.zeros(len(packets), np.uint8),
        source=np.array([packet.source[0] for packet in packets], np.uint32),
        destination=np.array([packet.target[0] for packet in packets], np.uint32),
        source_port=np.array([packet.source[1] for packet in packets], np.uint16),
        destination_port=np.array([packet.target[1] for packet in packets], np.uint16),
        tcp_flags=np.array([packet.flags for packet in packets], np.uint8),
        length=np.array([packet.length for packet in packets], np.int32),
        noise=np.array([chance.getrandbits(64) for _ in packets], np.uint64),
    )
    records, starts, _ = Encoder(link_type, byte_order, 1, WHOLE_FRAME).encode(traffic)
    frames = np.split(records, starts[1:])
    return [(packet.time, frame[RECORD_HEADER:].tobytes()) for packet, frame in zip(packets, frames, strict=True)]


def _steps(attack: Attack, begin: float, end: float) -> Iterator[tuple[int, int]]:
    """Yield (time, length) of each step in ns. `begin` and `end` are fractions of the attack's interval."""
    length = attack.end - attack.start
    first, last = (attack.start + int(share * length) for share in (begin, end))
    step = int(SECOND / attack.rate)
    for time in range(first, last, max(1, step)):
        yield time, step


def _part(attack: Attack, share: float) -> int:
    return attack.start + int(share * (attack.end - attack.start))


def _handshake(time: int, client: tuple[int, int], server: tuple[int, int]) -> Stages:
    yield Packet(time, client, server, SYN)
    yield Packet(time + MILLISECOND, server, client, SYN_ACK)
    yield Packet(time + 2 * MILLISECOND, client, server, ACK)


def _close(time: int, client: tuple[int, int], server: tuple[int, int]) -> Stages:
    yield Packet(time, client, server, FIN_ACK)
    yield Packet(time + MILLISECOND, server, client, FIN_ACK)


def _scan_and_call_back(attack: Attack, chance: Random) -> Stages:
    for time, _step in _steps(attack, 0, 1 / 2):
        probe = chance.randint(1, 1023)
        yield Packet(time, (SCANNER, 40_000), (HOST, probe), SYN)
        yield Packet(time + MILLISECOND, (HOST, probe), (SCANNER, 40_000), RST_ACK)
    exploit = _part(attack, 3 / 4)
    yield from _handshake(exploit, (SCANNER, 40_001), (HOST, 80))
    yield Packet(exploit + 3 * MILLISECOND, (SCANNER, 40_001), (HOST, 80), PSH_ACK, 1400)
    yield Packet(exploit + 4 * MILLISECOND, (HOST, 80), (SCANNER, 40_001), ACK)
    yield from _handshake(_part(attack, 7 / 8), (HOST, 50_123), (SCANNER, 4444))


def _beacon(attack: Attack, chance: Random) -> Stages:
    for number, (time, step) in enumerate(_steps(attack, 0, 1)):
        begin = max(attack.start, time + int(chance.uniform(-0.05, 0.05) * step) // MILLISECOND * MILLISECOND)
        client, server = (HOST, 50_000 + number % 10_000), (OUTSIDE, 443)
        yield from _handshake(begin, client, server)
        yield Packet(begin + 3 * MILLISECOND, client, server, PSH_ACK, 200)
        yield from _close(begin + 4 * MILLISECOND, client, server)


def _password_guessing(attack: Attack, chance: Random) -> Stages:
    server = (SERVER, 22)
    for number, (time, step) in enumerate(_steps(attack, 0, 1 / 2)):
        client = (SCANNER, 41_000 + number % 10_000)
        yield from _handshake(time, client, server)
        yield Packet(time + step // 8, client, server, PSH_ACK, chance.randint(100, 300))
        yield Packet(time + step // 4, server, client, PSH_ACK, chance.randint(100, 300))
        yield from _close(time + step // 2, client, server)
    client = (SCANNER, 40_999)
    yield from _handshake(_part(attack, 1 / 2), client, server)
    for time, step in _steps(attack, 1 / 2, 1):
        yield Packet(time + 3 * MILLISECOND, client, server, PSH_ACK, chance.randint(100, 300))
        yield Packet(time + step // 2 + 3 * MILLISECOND, server, client, PSH_ACK, chance.randint(100, 1400))


def _exfiltration(attack: Attack, _: Random) -> Stages:
    for begin, (source, target) in enumerate([((DATABASE, 5432), (HOST, 52_000)), ((HOST, 52_001), (OUTSIDE, 443))]):
        for time, step in _steps(attack, begin / 2, (begin + 1) / 2):
            yield Packet(time, source, target, PSH_ACK, 1400)
            yield Packet(time + step // 2, target, source, ACK)


def _pulses(attack: Attack, _: Random) -> Stages:
    half_load = _part(attack, 1 / 4)
    for number, (time, _step) in enumerate(_steps(attack, 0, 1)):
        second = (time - half_load) // SECOND
        of_five = 5 if time < half_load else 2 - second % 2
        if number % 5 < of_five:
            yield Packet(time, (OUTSIDE, 443), (HOST, 53_000), PSH_ACK, 1400)


def _silent_server(attack: Attack, _: Random) -> Stages:
    server = (SERVER, 8080)
    silent = _part(attack, 1 / 2)
    for number, (time, _step) in enumerate(_steps(attack, 0, 1)):
        client = (HOST, 54_000 + number % 10_000)
        yield Packet(time, client, server, SYN)
        if time < silent:
            yield Packet(time + MILLISECOND, server, client, SYN_ACK)
            yield Packet(time + 2 * MILLISECOND, client, server, RST_ACK)


def _lost_contacts(attack: Attack, _: Random) -> Stages:
    for number, (time, _step) in enumerate(_steps(attack, 0, 1)):
        if number % 5 != 4:
            client, server = (HOST, 55_000 + number % 10_000), (SERVER, 514)
            yield from _handshake(time, client, server)
            yield from _close(time + 4 * MILLISECOND, client, server)


_STAGES: dict[str, Callable[[Attack, Random], Stages]] = {
    "scan-and-call-back": _scan_and_call_back,
    "beacon": _beacon,
    "password-guessing": _password_guessing,
    "exfiltration": _exfiltration,
    "pulses": _pulses,
    "silent-server": _silent_server,
    "lost-contacts": _lost_contacts,
}
