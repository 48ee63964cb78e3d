"""References of ready queries: their answers in plain Python, over rows that dpkt decodes.

Each query has a function from a list of dicts to the rows of the answer, a real capture, and parameters. The captures
are chosen so that the answers have rows.
"""

import math
import struct
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from ipaddress import ip_network
from pathlib import Path
from typing import Any

from capture.generate import Attack, Profile, generate
from capture.generate.attacks import STAGED_KINDS
from tests.references.capture_oracle import no_packet, packet, parse_pcap
from tests.references.flow_oracle import Collector
from tests.references.flow_values import core
from tests.references.indicators import INDICATORS
from tests.references.pcap_bytes import pcap_bytes
from tests.references.pcapng_oracle import parse_pcapng
from tests.references.sflow_oracle import Twin
from tests.references.small_captures import RAW_IP, ip

NS = 10**9
Row = dict[str, Any]
Answer = list[tuple[Any, ...]]


@dataclass(frozen=True)
class Case:
    """A capture, parameters, and the reference: it returns the rows of the answer.

    `capture`: the name of a real capture, EXPORTS, or ATTACKS. `least`: the smallest number of rows of a meaningful
    answer. `in_window`: the rows whose time decides about the window; partners of a join may be in the next window.
    """

    capture: str
    reference: Callable[[list[Row]], Answer]
    params: dict[str, Any] = field(default_factory=dict)
    in_window: Callable[[Row], bool] = lambda row: True
    least: int = 1


EXPORTS = "exports"
"""A capture of real datagrams of six flow exporters, each sent twice."""

ATTACKS = "attacks"
"""A generated capture with an attack of each kind that consists of stages."""

DATAGRAMS = (
    "netflow5_test_juniper_mx80",
    "netflow5_test_microtik",
    "netflow9_cisco_asr1001x_tpl259",
    "netflow9_test_cisco_1941K9",
    "ipfix_test_ixia_tpldata271",
    "netflow9_test_softflowd_tpl_data",
)


def write_exports(path: Path, captures: Path) -> Path:
    """Write the capture EXPORTS with the datagrams of the folder of real captures."""
    records = []
    for number, name in enumerate(DATAGRAMS, 1):
        payload = (captures / "netflow" / "datagrams" / f"{name}.dat").read_bytes()
        at = Collector().feed(payload)[0].header["export"] + NS
        segment = struct.pack(">HHHH", 40000, 2055, 8 + len(payload), 0) + payload
        frame = ip(f"192.0.2.{number}", "192.0.2.99", 17, segment, 20 + len(segment))
        records += [(at, frame), (at + 200 * NS, frame)]
    path.write_bytes(pcap_bytes(sorted(records), RAW_IP))
    return path


def write_attacks(path: Path) -> Path:
    """Write the capture ATTACKS: each kind in a minute of its own."""
    minute = 60 * NS
    rates = {kind: 20.0 if kind in ("exfiltration", "pulses") else 0.5 for kind in STAGED_KINDS}
    attacks = [Attack(kind, at * minute, (at + 1) * minute, rates[kind]) for at, kind in enumerate(STAGED_KINDS)]
    generate(Profile(duration=len(attacks) * minute, rate=2.0, groups=4, attacks=tuple(attacks)), path)
    return path


@cache
def rows_of(path: Path, kind: str) -> list[Row]:
    """Decode all rows of a capture with the reference decoders; `kind` is `packets`, `frames`, `flows` or `samples`."""
    data = path.read_bytes()
    if data[:4] == b"\x0a\x0d\x0d\x0a":
        records = [(record.link_type, record.ts, record.wire, record.frame) for record in parse_pcapng(data).records]
    else:
        capture = parse_pcap(data)
        records = [(capture.link_type, *record) for record in capture.records]
    rows: list[Row] = []
    for link_type, ts, wire, frame in records:
        found = packet(link_type, frame, wire - len(frame))
        values = no_packet(link_type, frame) if isinstance(found, str) else found
        rows.append({"ts": ts, "len": wire, "link": path.stem} | values)
    if kind == "frames":
        return rows
    rows = packets(rows)
    if kind == "flows":
        return list(flows(rows))
    if kind == "samples":
        twin = Twin()
        return [
            row | {"ts": sent["ts"], "len": row["wire"]}
            for sent in rows if sent["destPort"] == 6343 for row in twin.read(sent["payload"])
        ]  # fmt: skip
    return rows


def flows(rows: Iterable[Row]) -> Iterable[Row]:
    collector = Collector()
    for row in rows:
        for record in collector.feed(row["payload"], (str(row["srcIP"]), row["srcPort"]), row["ts"]):
            yield {name: core(record, name) for name in FLOW_COLUMNS}


FLOW_COLUMNS = (
    *("ts", "start_ts", "end_ts", "arrival_ts", "exporter", "version", "srcIP", "packets", "bytes", "sampling_rate"),
    *("input", "output", "destAS"),
)


def packets(rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if row["ip_version"] is not None]


def by(rows: Iterable[Row], *names: str | Callable[[Row], Any]) -> dict[tuple[Any, ...], list[Row]]:
    """Group rows by columns or functions."""
    groups = defaultdict(list)
    for row in rows:
        groups[tuple(name(row) if callable(name) else row[name] for name in names)].append(row)
    return groups


def size(rows: Iterable[Row]) -> int:
    return sum(row["len"] for row in rows)


def totals(*names: str | Callable[[Row], Any]) -> Callable[[list[Row]], Answer]:
    """Packets and bytes of groups of packets."""
    return lambda rows: [(*key, len(group), size(group)) for key, group in by(rows, *names).items()]


def top(answer: Answer, n: int, column: int) -> Answer:
    """The `n` rows with the largest values in a column; rows with equal values in the order of the other columns."""
    return sorted(answer, key=lambda row: (row[column] is None, -(row[column] or 0), *map(sort_key, row)))[:n]


def sort_key(value: Any) -> Any:
    """The order of values of one type: NULL is last."""
    if value is None:
        return (9, 0)
    return (value.version, int(value)) if hasattr(value, "version") else (0, value)


def top_of(n: int, column: int, *names: str | Callable[[Row], Any]) -> Callable[[list[Row]], Answer]:
    return lambda rows: top(totals(*names)(rows), n, column)


def quantile(values: Iterable[float], share: float) -> float:
    """The quantile with linear interpolation."""
    ordered = sorted(values)
    at = (len(ordered) - 1) * share
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def networks(rows: list[Row]) -> Answer:
    def network(row: Row) -> Any:
        length = 16 if row["ip_version"] == 4 else 32
        return ip_network((row["srcIP"], length), strict=False).network_address

    return top(totals(network)(rows), 5, 2)


HOME = ip_network("192.168.1.0/24")


def network_traffic(rows: list[Row]) -> Answer:
    names = {(True, False): "sent", (False, True): "received", (True, True): "inside"}
    inside = [(row, (row["srcIP"] in HOME, row["destIP"] in HOME)) for row in rows]
    return totals(lambda row: row["direction"])([row | {"direction": names[ends]} for row, ends in inside if any(ends)])


def peers(rows: list[Row]) -> Answer:
    own = [row for row in rows if row["srcIP"] in HOME or row["destIP"] in HOME]
    return top_of(6, 2, lambda row: row["destIP"] if row["srcIP"] in HOME else row["srcIP"])(own)


def heavy(rows: list[Row]) -> Answer:
    own = rows
    return [(*key, len(group)) for key, group in by(own, "srcIP").items() if len(group) >= 0.1 * len(own)]


def sizes(rows: list[Row]) -> Answer:
    classes = by(rows, lambda row: row["len"] // 250)
    return sorted((key[0] * 250, len(group)) for key, group in classes.items())


def ports(rows: list[Row]) -> Answer:
    return top_of(4, 3, "protocol", "destPort")([row for row in rows if row["destPort"] is not None])


def conversations(rows: list[Row]) -> Answer:
    answer = []
    for key, group in by(rows, lambda row: min(ends(row)), lambda row: max(ends(row))).items():
        sent = [row for row in group if row["srcIP"] == key[0][1]]
        answer.append((key[0][1], key[1][1], len(group), size(group), size(sent) if sent else None))
    return top(answer, 6, 3)


def ends(row: Row) -> list[tuple[int, Any]]:
    """Source and destination in a form that can be compared."""
    return [(row["ip_version"], row["srcIP"]), (row["ip_version"], row["destIP"])]


FLOW = ("srcIP", "srcPort", "destIP", "destPort", "protocol")


def elephants(rows: list[Row]) -> Answer:
    answer = []
    for key, group in by(rows, *FLOW).items():
        times = [row["ts"] for row in group]
        if size(group) >= 20000:
            answer.append((*key, len(group), size(group), (max(times) - min(times)) // 10**6))
    return top(answer, 5, 6)


def handshakes(rows: list[Row]) -> Iterable[tuple[Row, Row]]:
    """Pairs of a SYN and a SYN-ACK of its connection, which is up to 3 s later."""
    answers = by((row for row in rows if flags(row) == 18), *FLOW[:4])
    for syn in rows:
        if flags(syn) == 2:
            for answer in answers.get((syn["destIP"], syn["destPort"], syn["srcIP"], syn["srcPort"]), ()):
                if 0 <= answer["ts"] - syn["ts"] <= 3 * NS:
                    yield syn, answer


def flags(row: Row) -> int | None:
    return None if row["tcp_flags"] is None else row["tcp_flags"] & 63


def handshake_latency(rows: list[Row]) -> Answer:
    servers = defaultdict(list)
    for syn, answer in handshakes(rows):
        servers[syn["destIP"]].append((answer["ts"] - syn["ts"]) / 10**6)
    found = [
        (server, len(ms), min(ms), quantile(ms, 0.5), quantile(ms, 0.95), max(ms)) for server, ms in servers.items()
    ]
    return top(found, 10, 3)


def bandwidth(rows: list[Row]) -> Answer:
    groups = by(rows, lambda row: row["ts"] // (60 * NS), "link")
    return [(at * 60 * NS, (at + 1) * 60 * NS, link, size(group) * 8 // 60) for (at, link), group in groups.items()]


def bursts(rows: list[Row]) -> Answer:
    width = 100 * 10**6
    groups = by(rows, lambda row: row["ts"] // width * width)
    return top([(at, len(group), size(group), size(group) * 80) for (at,), group in groups.items()], 5, 2)


def sources(rows: list[Row]) -> Answer:
    counts: dict[tuple[Any, ...], int] = defaultdict(int)
    for row in rows:
        for start in range(row["ts"] // NS - 29, row["ts"] // NS + 1):
            if start % 10 == 0:
                counts[(start * NS, (start + 30) * NS, row["srcIP"])] += 1
    return [(*key, count) for key, count in counts.items()]


def syn_floods(rows: list[Row]) -> Answer:
    asked = by((row for row in rows if (row["tcp_flags"] or 0) & 18 == 2), "destIP")
    return [(*key, len(group)) for key, group in asked.items() if len(group) >= 20]


def answered(rows: list[Row], seconds: int, accepted: Callable[[Row], bool]) -> Iterable[tuple[Row, list[Row]]]:
    """Each SYN, with the packets of the other direction that follow it within some seconds."""
    others = by((row for row in rows if row["protocol"] == 6 and accepted(row)), *FLOW[:4])
    for syn in rows:
        if flags(syn) == 2:
            back = others.get((syn["destIP"], syn["destPort"], syn["srcIP"], syn["srcPort"]), [])
            yield syn, [row for row in back if 0 <= row["ts"] - syn["ts"] <= seconds * NS]


def unanswered(rows: list[Row]) -> Answer:
    asked = [syn for syn, answers in answered(rows, 3, lambda row: True) if not answers]
    return top([(*key, len(group)) for key, group in by(asked, "destIP", "destPort").items()], 10, 2)


def refused(rows: list[Row]) -> Answer:
    asked = [syn for syn, answers in answered(rows, 3, lambda row: flags(row) == 20) if answers]
    return top([(*key, len(group)) for key, group in by(asked, "destIP", "destPort").items()], 10, 2)


def resets(rows: list[Row]) -> Answer:
    groups = by((row for row in rows if (row["tcp_flags"] or 0) & 4), "srcIP")
    return top([(*key, len(group), distinct(group, "destIP")) for key, group in groups.items()], 10, 1)


def distinct(rows: Iterable[Row], name: str) -> int:
    return len({row[name] for row in rows} - {None})


def retransmissions(rows: list[Row]) -> Answer:
    segments = by((row for row in rows if row["protocol"] == 6 and row["payload"]), *FLOW[:4], "tcp_seq")
    counts: dict[tuple[Any, Any], list[int]] = defaultdict(list)
    for key, group in segments.items():
        counts[key[0], key[2]].append(len(group))
    answer = [(*pair, sum(seen) - len(seen), sum(seen)) for pair, seen in counts.items()]
    return top([row for row in answer if row[2]], 10, 2)


def dns_latency(rows: list[Row]) -> Answer:
    def key(row: Row, *names: str) -> tuple[Any, ...]:
        return (row["payload"][:2], *(row[name] for name in names))

    times = defaultdict(list)
    replies = [row for row in rows if row["protocol"] == 17 and row["srcPort"] == 53 and len(row["payload"]) >= 2]
    for question in (row for row in rows if row["protocol"] == 17 and row["destPort"] == 53):
        for reply in replies:
            passed = reply["ts"] - question["ts"]
            same = key(question, "srcIP", "destIP", "srcPort") == key(reply, "destIP", "srcIP", "destPort")
            if same and 0 <= passed <= 2 * NS:
                times[question["destIP"]].append(passed / 10**6)
    return top([(server, len(ms), quantile(ms, 0.5), max(ms)) for server, ms in times.items()], 10, 2)


def dns_results(rows: list[Row]) -> Answer:
    replies = [row for row in rows if row["protocol"] == 17 and row["srcPort"] == 53 and len(row["payload"]) > 2]
    groups = by((row for row in replies if row["payload"][2] & 128), "srcIP", lambda row: row["payload"][3] & 15)
    return top([(*key, len(group)) for key, group in groups.items()], 10, 2)


def is_syn(row: Row) -> bool:
    return flags(row) == 2


def is_question(row: Row) -> bool:
    return row["destPort"] == 53


def syns(rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if is_syn(row)]


def scans(least: int, counted: str, *names: str) -> Callable[[list[Row]], Answer]:
    def reference(rows: list[Row]) -> Answer:
        groups = by(syns(rows), *names).items()
        answer = [(*key, distinct(group, counted), len(group)) for key, group in groups]
        return top([row for row in answer if row[2] >= least], 10, 2)

    return reference


def slow_scans(rows: list[Row]) -> Answer:
    minutes: dict[Any, Counter[int]] = defaultdict(Counter)
    for key, group in by(syns(rows), "srcIP", "destIP", "destPort").items():
        minutes[key[0]][min(row["ts"] for row in group) // (60 * NS)] += 1
    answer = [(source, found.total(), len(found), max(found.values())) for source, found in minutes.items()]
    return top([row for row in answer if row[1] >= 8 and row[3] <= 6], 10, 1)


def odd_flags(rows: list[Row]) -> Answer:
    names = {0: "none", 41: "FIN PSH URG", 3: "SYN FIN", 6: "SYN RST"}

    def name(row: Row) -> str | None:
        own = flags(row)
        kinds = [] if own is None else [bits for bits in names if (own & bits == bits if bits else own == 0)]
        return names[kinds[0]] if kinds else None

    groups = by((row for row in rows if name(row)), "srcIP", "destIP", name)
    return top([(*key, len(group)) for key, group in groups.items()], 10, 3)


def floods(rows: list[Row]) -> Answer:
    answer = []
    for (second, *key), group in by(rows, lambda row: row["ts"] // NS, "destIP", "protocol").items():
        if len(group) >= 50:
            bounds = (second * NS, (second + 1) * NS)
            answer.append((*bounds, *key, len(group), size(group), distinct(group, "srcIP")))
    return answer


SERVICES = {17, 19, 53, 111, 123, 137, 161, 389, 1900, 11211}


def amplification(rows: list[Row]) -> Answer:
    received, sent = defaultdict(list), defaultdict(list)
    for row in rows:
        if row["protocol"] == 17 and row["srcPort"] in SERVICES:
            received[row["destIP"], row["srcPort"]].append(row)
        if row["protocol"] == 17 and row["destPort"] in SERVICES:
            sent[row["srcIP"], row["destPort"]].append(row)
    answer = []
    for key in received | sent:
        servers = {row["srcIP"] for row in received[key]} | {row["destIP"] for row in sent[key]}
        answer.append((*key, size(received[key]), size(sent[key]), len(servers)))
    return top([row for row in answer if row[2] >= 300 and row[2] >= 1.5 * row[3]], 10, 2)


def bits(rows: Iterable[Row], name: str) -> float | None:
    counts = Counter(row[name] for row in rows if row[name] is not None)
    shares = [count / counts.total() for count in counts.values()]
    return -sum(share * math.log2(share) for share in shares) + 0.0 if counts else None


def entropy(rows: list[Row]) -> Answer:
    return [(len(rows), *(bits(rows, name) for name in ("srcIP", "destIP", "srcPort", "destPort")))]


def port_entropy(rows: list[Row]) -> Answer:
    groups = by(syns(rows), "destIP").items()
    return top([(*key, len(group), bits(group, "srcPort"), bits(group, "destPort")) for key, group in groups], 10, 1)


def new_hosts(rows: list[Row]) -> Answer:
    answer = []
    for number, row in enumerate(rows):
        earlier = (other for other in rows[:number] if other["srcIP"] == row["srcIP"])
        if not any(other["ts"] >= row["ts"] - 60 * NS for other in earlier):
            answer.append(tuple(row[name] for name in ("ts", "srcIP", "destIP", "protocol", "destPort")))
    return answer


def beacons(rows: list[Row]) -> Answer:
    gaps: Counter[tuple[Any, ...]] = Counter()
    for first in syns(rows):
        for second in syns(rows):
            same = all(first[name] == second[name] for name in ("srcIP", "destIP", "destPort"))
            passed = second["ts"] - first["ts"]
            if same and first["srcPort"] != second["srcPort"] and NS <= passed <= 600 * NS:
                gap = (passed // 10**6 + 1000) // 2000 * 2
                gaps[first["srcIP"], first["destIP"], first["destPort"], gap] += 1
    return top([(*key, times) for key, times in gaps.items() if times >= 3], 10, 4)


def brute_force(rows: list[Row]) -> Answer:
    groups = by((row for row in syns(rows) if row["destPort"] == 443), "srcIP", "destIP")
    return top([(*key, len(group)) for key, group in groups.items() if len(group) >= 2], 10, 2)


def fragments(rows: list[Row]) -> Answer:
    groups = by((row for row in rows if row["more_fragments"] or row["fragment_offset"]), "srcIP")
    answer = []
    for key, group in groups.items():
        first = [row for row in group if row["fragment_offset"] == 0]
        answer.append((*key, len(group), sum(row["ip_len"] for row in group), len(first)))
    return top(answer, 10, 1)


def multicast(rows: list[Row]) -> Answer:
    groups = by((row for row in rows if row["destIP"].is_multicast), "destIP")
    return top([(*key, len(group), size(group), distinct(group, "srcIP")) for key, group in groups.items()], 10, 1)


def ethertypes(rows: list[Row]) -> Answer:
    groups = by((row for row in rows if row["ip_version"] is None), "ethertype")
    return [(*key, len(group), size(group), distinct(group, "srcMAC")) for key, group in groups.items()]


def mac(number: int) -> str:
    return number.to_bytes(6, "big").hex(":")


def stations(rows: list[Row]) -> Answer:
    groups = by((row for row in rows if row["srcMAC"] is not None), "srcMAC")
    answer = top([(*key, len(group), size(group)) for key, group in groups.items()], 10, 2)
    return [(mac(row[0]), *row[1:]) for row in answer]


def different(counted: str, *more: Callable[[list[Row]], int]) -> Callable[[list[Row]], Answer]:
    """Sources with several values of a column; further columns precede their number."""

    def reference(rows: list[Row]) -> Answer:
        groups = [(key, group) for key, group in by(rows, "srcIP").items() if distinct(group, counted) >= 2]
        found = [(*key, *(each(group) for each in more), distinct(group, counted), len(group)) for key, group in groups]
        return top(found, 10, 1 + len(more))

    return reference


def lowest_ttl(rows: list[Row]) -> int:
    return min(row["ttl"] for row in rows)


def highest_ttl(rows: list[Row]) -> int:
    return max(row["ttl"] for row in rows)


def vlans(rows: list[Row]) -> Answer:
    return [(*key, len(group), size(group)) for key, group in by(rows, "vlan").items()]


def icmp_types(rows: list[Row]) -> Answer:
    groups = by((row for row in rows if row["icmp_type"] is not None), "protocol", "icmp_type", "icmp_code")
    return [(*key, len(group), distinct(group, "srcIP")) for key, group in groups.items()]


def tunnels(rows: list[Row]) -> Answer:
    groups = by((row for row in rows if row["tunnels"]), "protocol", "destPort")
    answer = []
    for key, group in groups.items():
        inside = (distinct(group, "tunnel_id"), distinct(group, "inner.srcIP"))
        answer.append((*key, len(group), size(group), *inside))
    return top(answer, 10, 2)


def total(rows: Iterable[Row], name: str) -> int | None:
    values = [row[name] for row in rows if row[name] is not None]
    return sum(values) if values else None


def largest(rows: Iterable[Row], name: str) -> int | None:
    return max((row[name] for row in rows if row[name] is not None), default=None)


def flow_totals(*names: str, with_packets: bool = True) -> Callable[[list[Row]], Answer]:
    def reference(rows: list[Row]) -> Answer:
        answer = []
        for key, group in by(rows, *names).items():
            counted = (total(group, "packets"),) if with_packets else ()
            answer.append((*key, len(group), *counted, total(group, "bytes")))
        return top(answer, 10, len(answer[0]) - 1)

    return reference


def exporters(rows: list[Row]) -> Answer:
    answer = []
    for key, group in by(rows, "exporter", "version").items():
        sums = (total(group, "packets"), total(group, "bytes"), largest(group, "sampling_rate"))
        answer.append((*key, len(group), *sums))
    return answer


def flow_durations(rows: list[Row]) -> Answer:
    answer = []
    for key, group in by(rows, "exporter").items():
        lengths = [(row["end_ts"] - row["start_ts"]) // 10**6 for row in group]
        answer.append((*key, len(group), quantile(lengths, 0.5), max(lengths)))
    return answer


def export_delays(rows: list[Row]) -> Answer:
    answer = []
    for key, group in by(rows, "exporter").items():
        delays = [(row["arrival_ts"] - row["end_ts"]) // 10**6 for row in group]
        future = sum(row["end_ts"] > row["arrival_ts"] for row in group)
        answer.append((*key, len(group), min(delays), max(delays), future))
    return answer


def export_gaps(rows: list[Row]) -> Answer:
    answer = []
    for key, group in by(rows, "exporter").items():
        slots = {row["arrival_ts"] // (60 * NS) for row in group}
        answer.append((*key, len(slots), max(slots) - min(slots) + 1 - len(slots), len(group)))
    return answer


def sflow_agents(rows: list[Row]) -> Answer:
    answer = []
    for key, group in by(rows, "agent").items():
        octets = sum(row["len"] * row["sampling_rate"] for row in group)
        answer.append((*key, len(group), total(group, "sampling_rate"), octets, largest(group, "sample_drops")))
    return answer


def partitions(rows: Iterable[Row], *names: str | Callable[[Row], Any]) -> Iterable[tuple[tuple[Any, ...], list[Row]]]:
    """Groups of rows, each in the order of time."""
    return ((key, sorted(group, key=lambda row: row["ts"])) for key, group in by(rows, *names).items())


def found_in(rows: list[Row], end_of_match: Callable[[list[Row]], int]) -> Iterable[list[Row]]:
    """Matches: `end_of_match` returns how many of the first rows match. The next one begins after the last row."""
    first = 0
    while first < len(rows):
        count = end_of_match(rows[first:])
        if count and rows[first + count - 1]["ts"] - rows[first]["ts"] < 3600 * NS:
            yield rows[first : first + count]
        first += max(1, count)


def bounds(match: list[Row]) -> tuple[int, int]:
    return match[0]["ts"], match[-1]["ts"]


def call_backs(rows: list[Row]) -> Answer:
    def probes(match: list[Row]) -> int:
        attacker, count = match[0]["srcIP"], 0
        for row in match:
            if row["srcIP"] != attacker or not is_syn(row):
                break
            count += 1
        return count

    def large(match: list[Row]) -> int | None:
        return next(
            (at for at, row in enumerate(match) if row["len"] >= 1000 and row["srcIP"] == match[0]["srcIP"]), None
        )

    def end(group: list[Row]) -> int:
        exploit = large(group)
        if not group[0]["begins"] or probes(group) < 5 or exploit is None:
            return 0
        after = range(exploit + 1, len(group))
        return next((at + 1 for at in after if is_syn(group[at]) and group[at]["srcIP"] == group[0]["destIP"]), 0)

    def begins(row: Row, before: Row) -> bool:
        is_next_minute = before["ts"] // (60 * NS) != row["ts"] // (60 * NS)
        return not is_syn(before) or before["srcIP"] != row["srcIP"] or is_next_minute

    answer = []
    own = [row for row in rows if row["protocol"] == 6 and row["srcIP"] != row["destIP"]]
    own = [row for row in own if is_syn(row) or row["len"] >= 1000]
    for _, group in partitions(own, lambda row: tuple(sorted(ends(row)))):
        marked = [row | {"begins": at == 0 or begins(row, group[at - 1])} for at, row in enumerate(group)]
        for match in found_in(marked, end):
            exploit = match[large(match) or 0]
            hosts = (match[0]["srcIP"], match[0]["destIP"])
            answer.append((*hosts, probes(match), exploit["len"], match[-1]["destPort"], *bounds(match)))
    return answer


def sessions_to(port: int, gap: int, rows: list[Row]) -> list[Row]:
    """Return the sessions with a TCP port by their ends and durations. `gap` is in ns."""
    sessions = []
    own = [row for row in rows if row["protocol"] == 6 and row["destPort"] == port]
    for key, group in partitions(own, "srcIP", "destIP", "srcPort"):
        begin = 0
        for at, row in enumerate(group):
            if at + 1 == len(group) or group[at + 1]["ts"] - row["ts"] >= gap:
                seconds = (row["ts"] - group[begin]["ts"]) / NS
                sessions.append({"ts": row["ts"] + gap, "ends": key[:2], "seconds": seconds})
                begin = at + 1
    return sessions


def guessed_passwords(rows: list[Row]) -> Answer:
    def end(group: list[Row]) -> int:
        short = next((at for at, row in enumerate(group) if row["seconds"] >= 2), len(group))
        return short + 1 if short >= 2 and short < len(group) and group[short]["seconds"] >= 4 else 0

    return [
        (*key[0], len(match) - 1, match[-1]["seconds"], *bounds(match))
        for key, group in partitions(sessions_to(80, 3 * NS, rows), "ends")
        for match in found_in(group, end)
    ]


def pulses(rows: list[Row]) -> Answer:
    loads = [
        {"ts": (second + 1) * NS, "link": link, "load": size(group)}
        for (second, link), group in by(rows, lambda row: row["ts"] // NS, "link").items()
    ]

    def end(group: list[Row]) -> int:
        if len(group) < 2 or group[0]["load"] < 500 or group[1]["load"] > 0.8 * group[0]["load"]:
            return 0
        after, at = group[1]["load"], 2
        while at + 1 < len(group) and group[at]["load"] <= 0.8 * after < group[at + 1]["load"] < 1.2 * after:
            at += 2
        return at if at >= 6 else 0

    return [
        (*key, match[1]["load"] / match[0]["load"], len(match) // 2 - 1, *bounds(match))
        for key, group in partitions(loads, "link")
        for match in found_in(group, end)
    ]


def exfiltration(rows: list[Row]) -> Answer:
    inside = ip_network("172.16.0.0/12")
    seconds: dict[tuple[Any, int], list[int]] = defaultdict(lambda: [0, 0])
    for row in rows:
        at = (row["ts"] // NS + 1) * NS
        if row["srcPort"] == 443 and row["destIP"] in inside:
            seconds[row["destIP"], at][0] += row["len"]
        elif row["srcIP"] in inside and row["destIP"] not in inside:
            seconds[row["srcIP"] if row["srcPort"] != 443 else row["destIP"], at][row["srcPort"] != 443] += row["len"]
    sums = [{"ts": at, "host": host, "received": both[0], "sent": both[1]} for (host, at), both in seconds.items()]

    def end(group: list[Row]) -> int:
        received = sent = 0
        for at, row in enumerate(group):
            received, sent = received + row["received"], sent + row["sent"]
            if at and row["sent"] > 0 and received >= 1000 and sent >= 0.5 * received:
                return at + 1 if group[0]["received"] else 0
        return 0

    return [
        (*key, total(match, "received"), total(match, "sent"), *bounds(match))
        for key, group in partitions(sums, "host")
        for match in found_in(group, end)
    ]


def beaconing(rows: list[Row]) -> Answer:
    def end(group: list[Row]) -> int:
        if len(group) < 2 or group[1]["ts"] - group[0]["ts"] < 0.5 * NS:
            return 0
        count = 2
        while count < len(group):
            passed = group[count - 1]["ts"] - group[0]["ts"]
            gap = group[count]["ts"] - group[count - 1]["ts"]
            if abs(gap * (count - 1) - passed) > 0.2 * passed:
                break
            count += 1
        return count if count >= 5 else 0

    return [
        (*key, len(match), (match[-1]["ts"] - match[0]["ts"]) / NS / (len(match) - 1), match[0]["ts"])
        for key, group in partitions(syns(rows), "srcIP", "destIP", "destPort")
        for match in found_in(group, end)
    ]


def lost_contacts(rows: list[Row]) -> Answer:
    answer = []
    for key, group in partitions(syns(rows), "srcIP", "destIP", "destPort"):
        times, first = [row["ts"] for row in group], 0
        while first < len(times):
            end = first + 1
            if end < len(times) and times[end] - times[first] >= 0.5 * NS:
                end += 1
                while end < len(times) and is_near(times, first, end, 1):
                    end += 1
                if end - first >= 4 and end < len(times) and is_near(times, first, end, 2):
                    silence = times[end] - times[end - 1]
                    mean = (times[end - 1] - times[first]) / NS / (end - 1 - first)
                    answer.append((*key, end - first, mean, times[end - 1] + silence // 2))
                    first = end
                    continue
            first += 1
    return answer


def is_near(times: list[int], first: int, at: int, intervals: int) -> bool:
    """Return whether the time before a contact is that of some mean intervals of the contacts since the first."""
    passed = times[at - 1] - times[first]
    return abs((times[at] - times[at - 1]) * (at - 1 - first) - intervals * passed) <= 0.5 * passed


def silent_servers(rows: list[Row]) -> Answer:
    def end(group: list[Row]) -> int:
        requests = next((at for at, row in enumerate(group) if at and not is_syn(row)), len(group))
        late = (at for at in range(3, requests) if group[at]["ts"] - group[1]["ts"] >= NS)
        return 0 if is_syn(group[0]) else next(late, -1) + 1

    own = [row for row in rows if flags(row) in (2, 18)]
    server = partitions(
        own,
        lambda row: row["destIP"] if is_syn(row) else row["srcIP"],
        lambda row: row["destPort"] if is_syn(row) else row["srcPort"],
    )
    return [(*key, len(match) - 1, *bounds(match)) for key, group in server for match in found_in(group, end)]


def indicators(rows: list[Row]) -> Answer:
    answer = []
    for row in syns(rows):
        if (server := str(row["destIP"])) in INDICATORS:
            name, *times = INDICATORS[server]
            begin, end = (int(datetime.fromisoformat(time).timestamp()) * NS for time in times)
            if begin <= row["ts"] < end:
                answer.append((row["srcIP"], row["destIP"], row["destPort"], name, row["ts"], 1))
    return answer


def likely_guesses(rows: list[Row]) -> Answer:
    best: dict[tuple[Any, ...], tuple[int, float]] = defaultdict(lambda: (0, 0.0))
    for key, group in partitions(sessions_to(80, 3 * NS, rows), "ends"):
        failed = [1 / (1 + math.exp(row["seconds"] - 3)) for row in group]
        for first, row in enumerate(group):
            probability = 1.0
            for last in range(first, len(group)):
                found, inside = last - first, probability * (1 - failed[last])
                if group[last]["ts"] - row["ts"] >= 3600 * NS or probability < 0.5:
                    break
                if found >= 2 and inside >= 0.5:
                    guesses, likely = best[*key[0], group[last]["ts"]]
                    best[*key[0], group[last]["ts"]] = max(found, guesses), max(inside, likely)
                probability *= failed[last]
    return [(client, server, *found, end) for (client, server, end), found in best.items()]


CASES = {
    "packets": Case("wechat.pcap", totals()),
    "links": Case("wechat.pcap", totals("link")),
    "pairs": Case("wechat.pcap", totals("srcIP", "destIP")),
    "top-talkers": Case("wechat.pcap", top_of(7, 2, "srcIP"), {"n": 7}),
    "top-receivers": Case("wechat.pcap", top_of(10, 2, "destIP")),
    "sources": Case("netflix.pcap", sources, {"range": "30s", "slide": "10s"}),
    "heavy-hitters": Case("wechat.pcap", heavy, {"share": 0.1}),
    "protocols": Case("gnutella.pcap", totals("ip_version", "protocol")),
    "ports": Case("gnutella.pcap", ports, {"n": 4}),
    "networks": Case("gnutella.pcap", networks, {"n": 5, "ipv4": 16, "ipv6": 32}),
    "network-traffic": Case("wechat.pcap", network_traffic, {"network": "192.168.1.0/24"}, least=2),
    "peers": Case("wechat.pcap", peers, {"network": "192.168.1.0/24", "n": 6}, least=6),
    "sizes": Case("gnutella.pcap", sizes, {"step": 250}),
    "bandwidth": Case("wechat.pcap", bandwidth),
    "bursts": Case("gnutella.pcap", bursts, {"n": 5}),
    "service-classes": Case("netflix.pcap", totals(lambda row: row["tos"] // 4), least=2),
    "top-conversations": Case("wechat.pcap", conversations, {"n": 6}),
    "elephants": Case("netflix.pcap", elephants, {"bytes": 20000, "n": 5}),
    "handshake-latency": Case("netflix.pcap", handshake_latency, in_window=is_syn),
    "unanswered": Case("gnutella.pcap", unanswered, in_window=is_syn, least=5),
    "refused": Case("gnutella.pcap", refused, in_window=is_syn, least=5),
    "resets": Case("gnutella.pcap", resets, least=10),
    "retransmissions": Case("1kxun.pcap", retransmissions, least=10),
    "dns-latency": Case("dns_fragmented.pcap", dns_latency, in_window=is_question, least=4),
    "dns-results": Case("dns_fragmented.pcap", dns_results, least=4),
    "horizontal-scans": Case("wechat.pcap", scans(3, "destIP", "srcIP", "destPort"), {"hosts": 3}),
    "vertical-scans": Case("synscan.pcap", scans(20, "destPort", "srcIP", "destIP")),
    "slow-scans": Case("sites.pcapng", slow_scans, {"targets": 8, "limit": 6}),
    "odd-flags": Case("tcp_scan.pcapng", odd_flags, least=2),
    "syn-floods": Case("synscan.pcap", syn_floods, {"syns": 20}),
    "floods": Case("gnutella.pcap", floods, {"packets": 50}),
    "amplification": Case("dns_fragmented.pcap", amplification, {"bytes": 300, "ratio": 1.5}, least=5),
    "entropy": Case("wechat.pcap", entropy),
    "port-entropy": Case("gnutella.pcap", port_entropy, least=10),
    "new-hosts": Case("gnutella.pcap", new_hosts, {"silence": "1m"}, least=100),
    "beacons": Case("wechat.pcap", beacons, {"times": 3, "accuracy": 2, "shortest": 1}, least=3),
    "brute-force": Case("wechat.pcap", brute_force, {"port": 443, "connections": 2}, least=3),
    "fragments": Case("fuzz-2006-06-26-2594.pcap", fragments, least=5),
    "multicast": Case("gnutella.pcap", multicast, least=5),
    "vlans": Case("syslog.pcap", vlans, least=3),
    "ethertypes": Case("fuzz-2006-06-26-2594.pcap", ethertypes, least=3),
    "stations": Case("gnutella.pcap", stations, least=2),
    "address-conflicts": Case("fuzz-2006-06-26-2594.pcap", different("srcMAC"), least=5),
    "icmp-types": Case("gnutella.pcap", icmp_types, least=4),
    "hop-limits": Case("1kxun.pcap", different("ttl", lowest_ttl, highest_ttl), least=10),
    "tunnels": Case("teredo.pcap", tunnels, least=3),
    "exporters": Case(EXPORTS, exporters, least=6),
    "flow-talkers": Case(EXPORTS, flow_totals("srcIP"), least=10),
    "flow-interfaces": Case(EXPORTS, flow_totals("exporter", "input", "output", with_packets=False), least=6),
    "autonomous-systems": Case(EXPORTS, flow_totals("destAS"), least=3),
    "flow-durations": Case(EXPORTS, flow_durations, least=6),
    "export-delays": Case(EXPORTS, export_delays, least=6),
    "export-gaps": Case(EXPORTS, export_gaps, least=6),
    "sflow-agents": Case("sflow.pcap", sflow_agents),
    "call-backs": Case(ATTACKS, call_backs),
    "guessed-passwords": Case(
        "1kxun.pcap", guessed_passwords, {"port": 80, "guesses": 2, "short": 2, "long": 4, "gap": "3s"}
    ),
    "pulses": Case("fuzz-2006-06-26-2594.pcap", pulses, {"pulses": 2, "drop": 0.8, "bytes": 500}),
    "exfiltration": Case(
        "alexa-app.pcapng",
        exfiltration,
        {"port": 443, "network": "172.16.0.0/12", "bytes": 1000, "share": 0.5},
        least=10,
    ),
    "beaconing": Case("syslog.pcap", beaconing, {"shortest": 0.5, "contacts": 3}),
    "lost-contacts": Case("syslog.pcap", lost_contacts, {"shortest": 0.5, "jitter": 0.5}),
    "silent-servers": Case("alexa-app.pcapng", silent_servers, {"requests": 3, "silence": 1}),
    "indicators": Case("wechat.pcap", indicators, least=10),
    "likely-guesses": Case(
        "1kxun.pcap", likely_guesses, {"port": 80, "guesses": 2, "middle": 3, "scale": 1, "gap": "3s"}
    ),
}
"""The case of each ready query."""
