"""Both IP layers of every packet against tshark: real tunnels, generated frames of every link type, harmed frames.

* Real captures catch a tunnel or a link layer that is read otherwise than the rest of the world does.
* Generated frames catch a field that the product and its twin misread in the same way.
* Harmed frames catch trust in a header, a version or a length that tshark refuses, and the other way round.

`REASONS` lists the frames for which a correct reader differs from tshark. A difference without a reason fails. The
seeds are in the names of the tests.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.references.packet_rows import BOTH_LAYERS, decode_file
from tests.references.pcap_bytes import pcap_bytes
from tests.references.random_frames import random_frame
from tests.references.tshark_oracle import TUNNELS, Frame, frames, require_tshark

Row = dict[str, Any]
READ_BY_TSHARK = (
    1, 9, 12, 14, 50, 51, 100, 101, 104, 105, 107, 113, 119, 123, 127, 129, 163, 178, 180, 181, 204, 226, 228, 229, 242,
    276,
)  # fmt: skip
"""Link types that tshark 4.0 reads, and whose generated frames are all such as it expects them."""

TRAILERS = ("vssmonitoring", "f5ethtrailer")
"""The names under which tshark decodes the padding of a frame."""

REAL_TUNNELS = {
    "4in4tunnel.pcap": 5, "4in6tunnel.pcap": 4, "6in4tunnel.pcap": 127, "6in6tunnel.pcap": 2, "vxlan.pcap": 127,
    "teredo.pcap": 24, "ipv6_in_gtp.pcap": 2, "syslog.pcap": 6, "ajp.pcap": 0, "BGP_Cisco_hdlc_slarp.pcap": 0,
    "gre.pcapng": 1, "reasm_segv_anon.pcapng": 82, "ja3_lots_of_cipher_suites_2_anon.pcap": 27,
    "gtp_false_positive.pcapng": 0, "ah.pcapng": 0, "gso-ipv4-geneve-ipv6.pcap": 1, "gso-ipv6-geneve-ipv4.pcap": 1,
    "gso-ipv4-vxlan-ipv6.pcap": 1, "gso-ipv6-vxlan-ipv4.pcap": 1, "nflog.pcap": 0, "e1000g.pcap": 0, "ipoib.pcap": 0,
    "LINKTYPE_PKTAP.pcap": 0, "bgp-aigp.pcap": 0, "ieee802.11_htc.pcap": 0, "OSPFv3_NBMA_adjacencies.pcap": 0,
    "arcnet-rfc1201-arp-icmp-http.pcap": 0, "arcnet-rfc1051-arp-icmp-http.pcap": 0, "mpls-traceroute.pcap": 0,
}  # fmt: skip
"""Real captures, and how many of their packets are tunnels."""


def deeper(row: Row, frame: Frame) -> bool:
    """Whether more IP layers were found here than by tshark."""
    return row["tunnels"] is not None and row["tunnels"] + 1 > len(frame.layers)


def stops_before_a_tunnel(row: Row, frame: Frame, chain: str, different: Row) -> bool:
    """tshark stops at these headers:

    LLC after an 802.1ad tag or a length of 0, Ethernet in VXLAN-GPE without a next protocol. It stops at L2TPv3 without
    a configured payload, PPP in GTP with a protocol of one byte, and IP directly in ERSPAN III.
    """
    ended = re.search(
        r"(vxlan|l2tp|gtp|erspan)(:ipv?6?)?(:fake-field-wrapper)?$|ieee8021ad(:[^:]+)?$|eth:fake[^:]*$", chain
    )
    return deeper(row, frame) and ended is not None


def takes_the_other_port(row: Row, frame: Frame, chain: str, different: Row) -> bool:
    """tshark asks the lower of two ports first: a tunnel from a port of another protocol is that protocol to it."""
    found = re.search(r":udp:([^:]+)(:fake-field-wrapper)?$", chain)
    return deeper(row, frame) and found is not None and found[1] not in TUNNELS


def believes_a_length_between(row: Row, frame: Frame, chain: str, different: Row) -> bool:
    """The lengths of PPPoE, UDP, L2TP and 802.3 bound nothing here: only IP's own length does."""
    return (deeper(row, frame) and (frame.troubled or chain.endswith("udp"))) or different.keys() == {"inner.ip_len"}


def gives_up_on_options(row: Row, frame: Frame, chain: str, different: Row) -> bool:
    """tshark reads the options of IPv6's extension headers, and stops at invalid options."""
    names = {"protocol", "fragment_offset", "more_fragments", "ip_id"}
    return frame.troubled and chain.endswith("ipv6") and {name.removeprefix("inner.") for name in different} <= names


def follows_what_makes_no_sense(row: Row, frame: Frame, chain: str, different: Row) -> bool:
    """tshark follows GRE of any version, VXLAN without the flag of its VNI, IPv6 where IPv4 is announced, and IPv6's
    extension headers in IPv4.
    """
    shallower = row["tunnels"] is not None and row["tunnels"] + 1 < len(frame.layers)
    upper = all(name.removeprefix("inner.").startswith(("src", "dest", "tcp", "icmp")) for name in different)
    return (shallower and bool({"gre", "vxlan", "ipv6"} & set(frame.protocols))) or (upper and row["protocol"] == 0)


REASONS = (
    stops_before_a_tunnel, takes_the_other_port, believes_a_length_between, gives_up_on_options,
    follows_what_makes_no_sense,
)  # fmt: skip


def differences(row: Row, frame: Frame) -> Row:
    """Columns that differ: (here, tshark).

    If tshark omits parts of a header that it marks as malformed, this is no difference.
    """
    wrong: Row = {}
    here = None if row["tunnels"] is None else row["tunnels"] + 1
    if here != (len(frame.layers) or None):
        wrong["layers"] = here, len(frame.layers)
    for prefix, layer in [("", frame.layers[:1]), ("inner.", frame.layers[-1:])]:
        for name, value in layer[0].items() if layer else ():
            missing = value is None and (name.startswith("tcp") or frame.troubled)
            if row[prefix + name] != value and not missing:
                wrong[prefix + name] = row[prefix + name], value
    return wrong


def compare(path: Path) -> tuple[int, Counter[str], list[Any]]:
    """How many frames agree, how many differ by reason, and the differences without one."""
    rows, _, _ = decode_file(path, 64, BOTH_LAYERS, every_frame=True)
    agree, explained, wrong = 0, Counter[str](), []
    for number, (row, frame) in enumerate(zip(rows, frames(path), strict=True)):
        different = differences(row, frame)
        chain = ":".join(name for name in frame.protocols[2:] if not name.startswith("_ws.") and name not in TRAILERS)
        reason = next((each.__name__ for each in REASONS if different and each(row, frame, chain, different)), None)
        if reason:
            explained[reason] += 1
        elif different:
            wrong.append((number + 1, chain, different))
        else:
            agree += 1
    return agree, explained, wrong


@pytest.mark.parametrize("name", REAL_TUNNELS)
def test_both_layers_of_real_captures_are_those_of_tshark(name: str, captures: Path) -> None:
    require_tshark()
    [path] = [captures / folder / name for folder in ("pcap", "hostile") if (captures / folder / name).exists()]
    agree, explained, wrong = compare(path)
    assert wrong == []
    assert explained == {}
    rows, _, index = decode_file(path, 64, {"tunnels"}, every_frame=True)
    assert agree == index.records
    assert sum(bool(row["tunnels"]) for row in rows) == REAL_TUNNELS[name]


@pytest.mark.parametrize("link_type", READ_BY_TSHARK)
def test_generated_frames_are_read_as_tshark_reads_them(link_type: int, tmp_path: Path) -> None:
    require_tshark()
    random = Random(link_type)
    made = [random_frame(random, link_type)[0] for _ in range(60)]
    (tmp_path / "made.pcap").write_bytes(pcap_bytes([(n * 10**6, frame) for n, frame in enumerate(made)], link_type))
    agree, explained, wrong = compare(tmp_path / "made.pcap")
    assert wrong == []
    assert agree >= 40, explained


def harmed(random: Random, frame: bytes) -> bytes:
    """Change one to three bytes in the headers: a bit, a random value, or a value with a special meaning."""
    data = bytearray(frame)
    for _ in range(random.choice([1, 1, 2, 3])):
        place = random.randrange(min(len(data), random.choice([40, 80, 200])))
        telling = [0, 1, 4, 6, 17, 41, 43, 44, 47, 50, 58, 59, 60, 0x45, 0x60, 0xFF]
        data[place] = random.choice([data[place] ^ 1 << random.randrange(8), random.randrange(256), *telling[:2]])
        if random.random() < 0.3:
            data[place] = random.choice(telling)
    return bytes(data)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("link_type", [1, 101, 113])
def test_harmed_frames_are_read_as_tshark_reads_them(link_type: int, seed: int, tmp_path: Path) -> None:
    require_tshark()
    random = Random(f"{link_type} {seed}")
    made = [harmed(random, random_frame(random, link_type)[0]) for _ in range(250)]
    (tmp_path / "harmed.pcap").write_bytes(pcap_bytes([(n * 10**6, frame) for n, frame in enumerate(made)], link_type))
    agree, explained, wrong = compare(tmp_path / "harmed.pcap")
    assert [(number, chain, what, made[number - 1].hex()) for number, chain, what in wrong] == []
    assert agree >= 180, explained
