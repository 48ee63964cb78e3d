"""Seeded random Ethernet frames around a packet, made with scapy, and what they put below its IP header."""

from __future__ import annotations

from random import Random
from typing import Any

from scapy.contrib.mpls import MPLS
from scapy.layers.l2 import LLC, SNAP, Dot1AD, Dot1Q, Ether
from scapy.layers.ppp import PPP, PPPoE
from scapy.packet import Packet, Raw

Row = dict[str, Any]
NOTHING_BELOW: Row = dict.fromkeys(("vlan", "mpls", "ethertype", "srcMAC", "destMAC"))
PPP_PROTOCOLS = {0x0800: 0x21, 0x86DD: 0x57}


def mac(random: Random) -> tuple[int, str]:
    """A MAC address as a number and as text."""
    number = random.randrange(2**48)
    return number, number.to_bytes(6).hex(":")


def tagged(random: Random, tags: int) -> tuple[Packet, Row]:
    """Ethernet with VLAN tags; the last header has no type yet."""
    (source, source_text), (destination, destination_text) = mac(random), mac(random)
    frame: Packet = Ether(src=source_text, dst=destination_text)
    below = NOTHING_BELOW | {"srcMAC": source, "destMAC": destination}
    for _ in range(tags):
        tag = random.randrange(4096)
        below["vlan"] = tag if below["vlan"] is None else below["vlan"]
        frame /= random.choice([Dot1Q, Dot1AD])(vlan=tag, prio=random.randrange(8))
    return frame, below


def ethernet_with_tags(random: Random, data: bytes, ethertype: int, tags: int) -> tuple[bytes, Row]:
    """A frame of VLAN tags alone around a packet."""
    frame, below = tagged(random, tags)
    frame.lastlayer().type = ethertype
    return bytes(frame / Raw(data)), below | {"ethertype": ethertype}


def ethernet(random: Random, data: bytes, ethertype: int) -> tuple[bytes, Row]:
    """Ethernet with 0 to 3 VLAN tags, and below them IP itself, SNAP, MPLS or a PPPoE session."""
    frame, below = tagged(random, random.choice([0, 0, 1, 2, 3]))
    match random.randrange(5):
        case 0:
            inside = LLC(dsap=0xAA, ssap=0xAA, ctrl=3) / SNAP(OUI=0, code=ethertype) / Raw(data)
            if len(inside) > 1500:  # no room for a length: it would be a type
                frame.lastlayer().type = ethertype
                return bytes(frame / Raw(data)), below | {"ethertype": ethertype}
            frame.lastlayer().type = len(inside)
            return bytes(frame / inside), below | {"ethertype": ethertype}
        case 1:
            labels = [random.randrange(2**20) for _ in range(random.randrange(1, 4))]
            frame.lastlayer().type = 0x8847
            for place, label in enumerate(labels):
                frame /= MPLS(label=label, s=place == len(labels) - 1, ttl=64)
            return bytes(frame / Raw(data)), below | {"ethertype": 0x8847, "mpls": labels[0]}
        case 2:
            frame.lastlayer().type = 0x8864
            session = PPPoE() / PPP(proto=PPP_PROTOCOLS[ethertype]) / Raw(data)
            return bytes(frame / session), below | {"ethertype": 0x8864}
    frame.lastlayer().type = ethertype
    return bytes(frame / Raw(data)), below | {"ethertype": ethertype}
