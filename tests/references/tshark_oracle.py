"""tshark's decoding of a capture: the chain of IP layers of each frame, as rows of the product's columns.

tshark prints each frame as nested protocols with their fields as bytes (PDML). The rows contain the protocols from the
frame to its innermost IP layer. They end at the first protocol that is not a link layer, tunnel or transport. So IP
headers quoted in an ICMP error or inside an application are not tunnels.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

Row = dict[str, Any]

LINKS = {
    "eth", "ethertype", "vlan", "ieee8021ad", "mpls", "ppp", "pppoes", "llc", "sll", "null", "raw", "fr", "chdlc",
    "wlan_radio", "wlan", "wlan_aggregate", "radiotap", "prism", "wlancap", "ppi", "arcnet", "clip", "atm", "lane",
    "nflog", "ipnet", "ipoib", "juniper", "pktap", "pcap_pktdata", "user_dlt", "cfp", "loop", "enc", "pflog", "frame",
    "geninfo", "pppmux", "syncppp", "fake-field-wrapper", "data-text-lines", "brcm_tag", "osinl",
}  # fmt: skip
TUNNELS = {"gre", "erspan", "vxlan", "vxlan_gpe", "geneve", "gtp", "teredo", "l2tp", "ah"}
TAGS = ("vlan.id", "ieee8021ad.id", "ieee8021ad.svid")
COMMAND = (
    "tshark", "-n", "-o", "ip.defragment:FALSE", "-o", "ipv6.defragment:FALSE", "-o", "wlan.defragment:FALSE",
    "-d", "udp.port==8472,vxlan", "-T", "pdml", "-r",
)  # fmt: skip
NOT_XML = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")  # what tshark prints of names it has read
IPV4 = {
    "protocol": "ip.proto", "ip_len": "ip.len", "ttl": "ip.ttl", "tos": "ip.dsfield", "ip_id": "ip.id",
    "more_fragments": "ip.flags.mf",
}  # fmt: skip
EXTENSIONS = {f"ipv6.{header}.nxt" for header in ("hopopts", "routing", "fraghdr", "dstopts")}
AUTHENTICATION = 51
TCP = {
    "srcPort": "tcp.srcport", "destPort": "tcp.dstport", "tcp_seq": "tcp.seq_raw", "tcp_ack": "tcp.ack_raw",
    "tcp_window": "tcp.window_size_value",
}  # fmt: skip


def require_tshark() -> None:
    """Skip the test, visibly, where tshark is missing."""
    if shutil.which("tshark") is None:
        pytest.skip("tshark is not installed (Debian: apt-get install tshark)")


@dataclass
class Frame:
    """One frame as tshark decodes it: its IP layers from the outside in, and the protocols by name."""

    layers: list[Row] = field(default_factory=list)
    below: Row = field(default_factory=dict)
    """Values of the headers after the last layer. A frame without IP has only these."""
    protocols: list[str] = field(default_factory=list)
    troubled: bool = False
    """Whether tshark calls the frame malformed or cut."""


def frames(path: Path, *more: str) -> Iterator[Frame]:
    """Dissect a capture, frame by frame; `more` are further arguments."""
    command = [*COMMAND, str(path), *more]
    text = {"encoding": "utf-8", "errors": "replace"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, **text) as tshark:
        assert tshark.stdout is not None
        lines: list[str] = []
        for line in tshark.stdout:
            lines.append(NOT_XML.sub("?", line))
            if line.startswith("<packet>"):
                lines = lines[-1:]
            elif line.startswith("</packet>"):
                yield dissected(ET.fromstring("".join(lines)))


def dissected(packet: ET.Element) -> Frame:
    found = Frame()
    ended = False
    behind_ip = False
    for proto in on_the_way(packet):
        name = proto.get("name", "")
        if name.startswith("ipv6."):  # an extension header, part of the layer
            continue
        found.protocols.append(name)
        found.troubled |= name.startswith("_ws.")
        if ended or name in TUNNELS or name.startswith("_ws."):
            behind_ip = False
            continue
        if name in ("ip", "ipv6"):
            layer = found.below | (ipv4(proto) if name == "ip" else ipv6(proto))
            found.below = {}
            if layer.get("srcIP") is None or layer.get("destIP") is None:
                ended = True
            else:
                found.layers.append(layer)
        elif name in ("tcp", "udp", "icmp", "icmpv6"):
            if behind_ip and found.layers[-1]["protocol"] != AUTHENTICATION:  # of IPv6 it is not shown apart
                found.layers[-1] |= transport(name, proto)
            ended = name != "udp"
        elif name in LINKS:
            note_link(found.below, name, proto)
        else:
            ended = True
        behind_ip = name in ("ip", "ipv6") and not ended
    return found


def on_the_way(packet: ET.Element) -> Iterator[ET.Element]:
    """Return the protocols of a frame in order. The protocols of an 802.11 aggregate are nested in it."""
    for proto in packet.iterfind("proto"):
        yield proto
        if proto.get("name") == "wlan_aggregate":
            yield from proto.iter("proto")


def hexadecimal(proto: ET.Element, name: str) -> int | None:
    """A field as a number out of its bytes, those of a bit field already cut out."""
    element = proto.find(f".//field[@name='{name}']")
    value = None if element is None else element.get("value")
    return int(value, 16) if value else None


def shown(proto: ET.Element, name: str) -> int | None:
    element = proto.find(f".//field[@name='{name}']")
    return None if element is None or not element.get("show") else int(element.get("show", ""), 0)


def address(proto: ET.Element, name: str, kind: type) -> Any:
    element = proto.find(f".//field[@name='{name}']")
    return None if element is None else kind(element.get("show"))


def note_link(below: Row, name: str, proto: ET.Element) -> None:
    """Keep the outermost tag, label and addresses, and the type behind the tags."""
    if name in ("vlan", "ieee8021ad"):
        found = [hexadecimal(proto, tag) for tag in TAGS]
        below.setdefault("vlan", next((tag for tag in found if tag is not None), None))
    elif name == "mpls":
        below.setdefault("mpls", shown(proto, "mpls.label"))
    elif name == "eth":
        below.setdefault("srcMAC", hexadecimal(proto, "eth.src"))
        below.setdefault("destMAC", hexadecimal(proto, "eth.dst"))
    elif name == "wlan_aggregate":
        for column in ("srcMAC", "destMAC"):  # tshark keeps those of the frame around it
            below.pop(column, None)
    elif name == "wlan":
        below.setdefault("srcMAC", hexadecimal(proto, "wlan.sa"))
        below.setdefault("destMAC", hexadecimal(proto, "wlan.da"))
    elif name == "sll":
        below.setdefault("srcMAC", hexadecimal(proto, "sll.src.eth"))


def ipv4(proto: ET.Element) -> Row:
    row: Row = {"ip_version": 4}
    row["srcIP"], row["destIP"] = (address(proto, name, IPv4Address) for name in ("ip.src", "ip.dst"))
    row |= {name: shown(proto, source) for name, source in IPV4.items()}
    row["fragment_offset"] = (shown(proto, "ip.frag_offset") or 0) * 8
    return row


def ipv6(proto: ET.Element) -> Row:
    row: Row = {"ip_version": 6}
    row["srcIP"], row["destIP"] = (address(proto, name, IPv6Address) for name in ("ipv6.src", "ipv6.dst"))
    row |= {"ttl": shown(proto, "ipv6.hlim"), "tos": shown(proto, "ipv6.tclass")}
    length = shown(proto, "ipv6.plen")
    row["ip_len"] = None if length is None else length + 40
    row["protocol"] = shown(proto, "ipv6.nxt")
    for element in proto.iter("field"):
        if element.get("name") in EXTENSIONS:
            row["protocol"] = int(element.get("show", "0"), 0)
    fragment = {"ip_id": "ident", "fragment_offset": "offset", "more_fragments": "more"}
    for column, name in fragment.items():  # of several fragment headers the last
        values = [element.get("show", "0") for element in proto.iterfind(f".//field[@name='ipv6.fraghdr.{name}']")]
        row[column] = int(values[-1], 0) if values else None if column == "ip_id" else 0
    row["fragment_offset"] *= 8
    return row


def transport(name: str, proto: ET.Element) -> Row:
    if name == "tcp":
        flags = shown(proto, "tcp.flags")
        found = {column: shown(proto, source) for column, source in TCP.items()}
        return found | {"tcp_flags": None if flags is None else flags & 255}
    if name == "udp":
        return {"srcPort": shown(proto, "udp.srcport"), "destPort": shown(proto, "udp.dstport")}
    return {"icmp_type": shown(proto, f"{name}.type"), "icmp_code": shown(proto, f"{name}.code")}
