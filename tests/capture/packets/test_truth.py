"""Real captures against the truth that tshark, libpcap and a container scan found in them.

Counts of a whole file detect a format or a link layer that is misread as a whole. Packets and bytes of each minute and
pair detect an address, a length or a time that is wrong in one packet. Files for which a correct reader differs are
listed with the reason. A listed difference that has disappeared fails too.
"""

import csv
import gzip
from collections import Counter, defaultdict
from functools import cache
from ipaddress import ip_address
from itertools import accumulate, pairwise
from pathlib import Path

import pytest

from capture.files.scan import scan
from capture.open import open_capture
from capture.packets.link_layers import LINK_TYPES
from tests.references.packet_rows import decode_file
from tests.references.pcap_bytes import NS

MINUTE = 60 * NS
PPPOE = 0x8864
MACSEC = "IP inside MACsec without encryption is not followed"
SLIP = "tshark does not read SLIP"
VERSION = "announced as IPv6, but of another version: malformed here, no IP at all for tshark"
DIFFERENT: dict[str, str] = {
    "hostile/LINKTYPE_IPV6_invalid.pcap": VERSION,
    "hostile/beep-oobr.pcap": VERSION,
    "hostile/cve2015-0261-crash.pcap": SLIP,
    "hostile/cve2015-0261-ipv6.pcap": SLIP,
    "hostile/hoobr_rt6_print.pcap": VERSION,
    "hostile/icmp-rfc8335-missing-bytes.pcap": MACSEC,
    "hostile/icmp6_nodeinfo_oobr.pcap": SLIP,
    "hostile/ip6_frag_asan.pcap": "a fragment header that is cut is not read",
    "hostile/ipv6-bad-version.pcap": VERSION,
    "hostile/ipv6_frag6_negative_len.pcap": "a payload length of 0 is a jumbogram's, so its fragment header is read",
    "hostile/macsec-short-longer.pcap": MACSEC,
    "hostile/macsec-short-shorter.pcap": MACSEC,
    "hostile/macsec-short-valid.pcap": MACSEC,
}
"""Files where this reader is right to differ."""


@cache
def manifest(captures: Path) -> dict[str, dict[str, str]]:
    with (captures / "manifest.csv").open(newline="") as file:
        return {row["file"]: row for row in csv.DictReader(file)}


@cache
def pairs(captures: Path) -> dict[str, dict[tuple, tuple[int, int, int]]]:
    """(minute, source, destination) to (packets, bytes on the wire, bytes of IP), for each file."""
    truth: dict[str, dict[tuple, tuple[int, int, int]]] = defaultdict(dict)
    with gzip.open(captures / "truth" / "pairs-60s.csv.gz", "rt", newline="") as file:
        for row in csv.DictReader(file):
            key = int(row["window_start_ns"]), ip_address(row["src"]), ip_address(row["dst"])
            truth[row["file"]][key] = int(row["packets"]), int(row["wire_bytes"]), int(row["ip_bytes"])
    return truth


def link_types(row: dict[str, str]) -> set[int]:
    return {int(each.partition("=")[0]) for each in row["link_types"].split(";")}


def summary(path: Path) -> tuple[dict[str, str], dict[tuple, tuple[int, int, int]]]:
    """Return the manifest's and the truth's values of one capture, computed from the decoded rows."""
    rows, skipped, index = decode_file(path, 16)
    upper = Counter((row["ip_version"], row["protocol"]) for row in rows)
    tcp, udp = (upper[4, number] + upper[6, number] for number in (6, 17))
    icmp, icmpv6 = upper[4, 1], upper[6, 58]
    later = sum(row["fragment_offset"] > 0 for row in rows)
    whole: dict[str, int] = {
        "packets": index.records,
        "ipv4_packets": sum(row["ip_version"] == 4 for row in rows),
        "ipv6_packets": sum(row["ip_version"] == 6 for row in rows),
        "ip_without_addresses": skipped["ip_header_cut"] + skipped["ip_header_malformed"],
        "non_ip_packets": skipped["non_ip"],
        "tcp": tcp,
        "udp": udp,
        "icmp": icmp,
        "icmpv6": icmpv6,
        "other": len(rows) - tcp - udp - icmp - icmpv6,
        "later_fragments": later,
        "fragments": sum(row["fragment_offset"] > 0 or row["more_fragments"] for row in rows),
        "pairs": len({(row["srcIP"], row["destIP"]) for row in rows}),
        "windows_60s": len({row["ts"] // MINUTE for row in rows}),
        "five_tuples": len(
            {(row["srcIP"], row["destIP"], row["protocol"], row["srcPort"] or 0, row["destPort"] or 0) for row in rows}
        ),
    }
    # Each record is a block of its own here, so that the times of those that are no packets are seen too.
    records = scan(open_capture(path), 1).blocks
    if records:
        times = [record.min_ts for record in records]
        steps = [after - before for before, after in pairwise(times)]
        late = [highest - ts for highest, ts in zip(accumulate(times, max), times, strict=True)]
        whole |= {
            "first_ts_ns": times[0],
            "last_ts_ns": times[-1],
            "min_ts_ns": index.watermark,
            "max_ts_ns": max(times),
        }
        whole |= {"backward_steps": sum(step < 0 for step in steps), "max_backward_step_ns": -min([0, *steps])}
        whole |= {"late_packets": sum(each > 0 for each in late), "max_lateness_ns": max(late)}
        whole |= {"max_forward_step_ns": max([0, *steps])}
    frames, _, _ = decode_file(path, 16, {"len", "caplen", "vlan", "mpls", "ethertype"}, every_frame=True)
    whole |= {"captured_bytes": sum(row["caplen"] for row in frames), "wire_bytes": sum(row["len"] for row in frames)}
    whole["vlan_packets"] = sum(row["vlan"] is not None for row in frames)
    whole["mpls_packets"] = sum(row["mpls"] is not None for row in frames)
    whole["pppoe_packets"] = sum(row["ethertype"] == PPPOE for row in frames)
    found: dict[tuple, tuple[int, int, int]] = {}
    for row in rows:
        key = row["ts"] // MINUTE * MINUTE, row["srcIP"], row["destIP"]
        packets, wire, ip = found.get(key, (0, 0, 0))
        found[key] = packets + 1, wire + row["len"], ip + row["ip_len"]
    return {name: str(value) for name, value in whole.items()}, found


@pytest.mark.parametrize("folder, least", [("pcap", 190), ("hostile", 419)])
@pytest.mark.slow("every capture of the collection")
def test_every_capture_gives_the_true_counts_and_pairs(folder: str, least: int, captures: Path) -> None:
    wrong = {}
    agree = 0
    for name, truth in manifest(captures).items():
        if not name.startswith(folder) or not link_types(truth) <= set(LINK_TYPES):
            continue
        counts, found = summary(captures / name)
        said = {column: (value, truth[column]) for column, value in counts.items() if truth[column] not in ("", value)}
        if truth["tshark_error"] != "unsupported-link-type" and found != pairs(captures).get(name, {}):
            said["pairs-60s"] = tuple(
                str(sorted(map(str, set(one.items()) - set(other.items())))[:3])
                for one, other in [(found, pairs(captures).get(name, {})), (pairs(captures).get(name, {}), found)]
            )
        if said:
            wrong[name] = said
        agree += not said
    expected = {name for name in DIFFERENT if name.startswith(folder)}
    assert {name: said for name, said in wrong.items() if name not in expected} == {}
    assert expected - set(wrong) == set()
    assert agree >= least
