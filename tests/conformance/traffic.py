"""A small capture of two links, and its rows: TCP, UDP, ICMP, IPv6, VLANs, and few different values."""

from __future__ import annotations

import struct
from ipaddress import ip_address
from pathlib import Path
from random import Random
from typing import Any

from tests.references.pcap_bytes import NS, Record, pcap_bytes

START = 1_700_000_000 * NS
LINKS = ("office", "Backbone_2")

Row = dict[str, Any]


def generate_links(folder: Path, packets: int = 250, seed: int = 5) -> tuple[list[Path], list[Row]]:
    """Write a capture of random packets for each link. Return the files, and the rows of all packets."""
    random = Random(seed)
    rows = []
    for link in LINKS:
        times = sorted(START + random.randrange(60 * NS) // 1000 * 1000 for _ in range(packets))
        rows += [{"ts": ts, "link": link, **draw_fields(random)} for ts in times]
    return write_links(folder, rows), rows


def write_links(folder: Path, rows: list[Row]) -> list[Path]:
    """Write the capture of each link. Set the field `len` of all rows: the length of the frame."""
    paths = []
    for link in dict.fromkeys(row["link"] for row in rows):
        records: list[Record] = []
        for row in rows:
            if row["link"] == link:
                frame = frame_of(row)
                row["len"] = len(frame)
                records.append((row["ts"], frame))
        paths.append(folder / f"{link}.pcap")
        paths[-1].write_bytes(pcap_bytes(records))
    return paths


def draw_bursts(seed: str) -> list[Row]:
    """Draw packets of all links in three bursts, disordered by up to 2 s."""
    random, rows = Random(seed), []
    for link in LINKS:
        at = [first + random.random() * 9 for first in (0, 31, 68) for _ in range(random.randint(1, 25))]
        at.sort(key=lambda second: second + random.random() * 2)
        rows += [{"ts": START + int(second * 1e6) * 1000, "link": link, **draw_fields(random)} for second in at]
    return rows


def draw_fields(random: Random) -> Row:
    """Draw the fields of a packet. Fields that a packet does not have are None."""
    kind = random.choice(["tcp", "tcp", "tcp", "udp", "udp", "icmp", "six"])
    row: Row = {
        "ip_version": 6 if kind == "six" else 4,
        "protocol": {"tcp": 6, "icmp": 1}.get(kind, 17),
        "srcPort": None if kind == "icmp" else random.choice([53, 80, 443, 1024, 5000]),
        "destPort": None if kind == "icmp" else random.choice([53, 80, 443, 8080]),
        "tcp_flags": random.choice([2, 18, 16, 24, 17, 4]) if kind == "tcp" else None,
        "icmp_type": random.choice([0, 3, 8]) if kind == "icmp" else None,
        "vlan": random.choice([None, None, 7, 300]),
        "ttl": random.choice([1, 32, 63, 64, 128, 255]),
        "payload": random.choice([0, 0, 1, 20, 100, 400]),
    }
    if kind == "six":
        return row | {name: f"2001:db8::{random.randrange(1, 4)}" for name in ("srcIP", "destIP")}
    net = random.choice(["10.0.0", "192.168.1"])
    return row | {"srcIP": f"10.0.0.{random.randrange(1, 6)}", "destIP": f"{net}.{random.randrange(1, 6)}"}


def frame_of(row: Row) -> bytes:
    """Return the Ethernet frame with the fields of a row. The payload consists of zeros."""
    payload = bytes(row["payload"])
    if row["protocol"] == 6:
        body = struct.pack(">HHIIBBHHH", row["srcPort"], row["destPort"], 0, 0, 5 << 4, row["tcp_flags"], 0, 0, 0)
    elif row["protocol"] == 17:
        body = struct.pack(">HHHH", row["srcPort"], row["destPort"], 8 + len(payload), 0)
    else:
        body = struct.pack(">BBHHH", row["icmp_type"], 0, 0, 1, 1)
    body += payload
    ends = b"".join(ip_address(row[name]).packed for name in ("srcIP", "destIP"))
    if row["ip_version"] == 6:
        header = struct.pack(">IHBB", 6 << 28, len(body), row["protocol"], row["ttl"]) + ends
    else:
        header = struct.pack(">BBHHHBBH", 69, 0, 20 + len(body), 0, 0, row["ttl"], row["protocol"], 0) + ends
    tag = b"" if row["vlan"] is None else struct.pack(">HH", 0x8100, row["vlan"])
    return bytes(12) + tag + (b"\x86\xdd" if row["ip_version"] == 6 else b"\x08\x00") + header + body
