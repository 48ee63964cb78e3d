"""The answers of ready queries over real captures, compared with plain Python over rows that dpkt decodes.

Each query has an independent reference: a function of a list of dicts. It can catch a query whose text does not compute
what its sentence promises, also per window. A capture is chosen so that the answer has rows.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest

from queries.catalogue.catalogue import CATALOGUE, query_text
from tests.harness import in_ns
from tests.references.capture_oracle import read_pcap

NS = 10**9
Row = dict[str, Any]
Answer = list[tuple[Any, ...]]


@dataclass(frozen=True)
class Case:
    """A capture, parameters, and the reference: it returns the rows of the answer.

    `windows`: the reference is also right for the packets of each minute separately. `kind`: rows of the input.
    """

    capture: str
    reference: Callable[[list[Row]], Answer]
    params: dict[str, Any] = field(default_factory=dict)
    windows: bool = True
    least: int = 1


@cache
def rows_of(path: Path) -> list[Row]:
    """Decode all frames of a capture with the reference decoder."""
    rows = [row for row in read_pcap(path).rows(every_frame=True) if not isinstance(row, str)]
    return [row | {"link": path.stem} for row in rows]


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
    return lambda rows: [(*key, len(group), size(group)) for key, group in by(packets(rows), *names).items()]


def top(answer: Answer, n: int, column: int) -> Answer:
    """The `n` rows with the largest values in a column; rows with equal values in the order of the other columns."""
    return sorted(answer, key=lambda row: (-row[column], *map(sort_key, row)))[:n]


def sort_key(value: Any) -> Any:
    if value is None:
        return (2, 0)
    return (value.version, int(value)) if hasattr(value, "version") else (0, value)


def top_of(n: int, column: int, *names: str | Callable[[Row], Any]) -> Callable[[list[Row]], Answer]:
    return lambda rows: top(totals(*names)(rows), n, column)


def quantile(values: Iterable[int], share: float) -> float:
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


def heavy(rows: list[Row]) -> Answer:
    own = packets(rows)
    return [(*key, len(group)) for key, group in by(own, "srcIP").items() if len(group) >= 0.1 * len(own)]


def sizes(rows: list[Row]) -> Answer:
    classes = by(packets(rows), lambda row: row["len"] // 250)
    return sorted((key[0] * 250, len(group)) for key, group in classes.items())


def ports(rows: list[Row]) -> Answer:
    return top_of(4, 3, "protocol", "destPort")([row for row in rows if row["destPort"] is not None])


def conversations(rows: list[Row]) -> Answer:
    answer = []
    for key, group in by(packets(rows), lambda row: min(ends(row)), lambda row: max(ends(row))).items():
        sent = [row for row in group if row["srcIP"] == key[0][1]]
        answer.append((key[0][1], key[1][1], len(group), size(group), size(sent) if sent else None))
    return top(answer, 6, 3)


def ends(row: Row) -> list[tuple[int, Any]]:
    """Source and destination in a form that can be compared."""
    return [(row["ip_version"], row["srcIP"]), (row["ip_version"], row["destIP"])]


FLOW = ("srcIP", "srcPort", "destIP", "destPort", "protocol")


def elephants(rows: list[Row]) -> Answer:
    answer = []
    for key, group in by(packets(rows), *FLOW).items():
        times = [row["ts"] for row in group]
        if size(group) >= 20000:
            answer.append((*key, len(group), size(group), (max(times) - min(times)) // 10**6))
    return top(answer, 5, 6)


def handshakes(rows: list[Row]) -> Iterable[tuple[Row, Row]]:
    """Pairs of a SYN and a SYN-ACK of its connection, which is up to 3 s later."""
    answers = by((row for row in packets(rows) if flags(row) == 18), *FLOW[:4])
    for syn in packets(rows):
        if flags(syn) == 2:
            for answer in answers.get((syn["destIP"], syn["destPort"], syn["srcIP"], syn["srcPort"]), ()):
                if 0 <= answer["ts"] - syn["ts"] <= 3 * NS:
                    yield syn, answer


def flags(row: Row) -> int | None:
    return None if row["tcp_flags"] is None else row["tcp_flags"] & 63


def handshake_latency(rows: list[Row]) -> Answer:
    servers = defaultdict(list)
    for syn, answer in handshakes(rows):
        servers[syn["destIP"]].append((answer["ts"] - syn["ts"]) // 1000)
    found = [
        (server, len(us), min(us), quantile(us, 0.5), quantile(us, 0.95), max(us)) for server, us in servers.items()
    ]
    return top(found, 10, 3)


def bandwidth(rows: list[Row]) -> Answer:
    groups = by(packets(rows), lambda row: row["ts"] // (60 * NS), "link")
    return [(at * 60 * NS, (at + 1) * 60 * NS, link, size(group) * 8 // 60) for (at, link), group in groups.items()]


def bursts(rows: list[Row]) -> Answer:
    width = 100 * 10**6
    groups = by(packets(rows), lambda row: row["ts"] // width * width)
    return top([(at, len(group), size(group), size(group) * 80) for (at,), group in groups.items()], 5, 2)


def sources(rows: list[Row]) -> Answer:
    counts: dict[tuple[Any, ...], int] = defaultdict(int)
    for row in packets(rows):
        for start in range(row["ts"] // NS - 29, row["ts"] // NS + 1):
            if start % 10 == 0:
                counts[(start * NS, (start + 30) * NS, row["srcIP"])] += 1
    return [(*key, count) for key, count in counts.items()]


def syn_floods(rows: list[Row]) -> Answer:
    asked = by((row for row in packets(rows) if (row["tcp_flags"] or 0) & 18 == 2), "destIP")
    return [(*key, len(group)) for key, group in asked.items() if len(group) >= 20]


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
    "sizes": Case("gnutella.pcap", sizes, {"step": 250}),
    "bandwidth": Case("wechat.pcap", bandwidth),
    "bursts": Case("gnutella.pcap", bursts, {"n": 5}),
    "service-classes": Case("netflix.pcap", totals(lambda row: row["tos"] // 4), least=2),
    "top-conversations": Case("wechat.pcap", conversations, {"n": 6}),
    "elephants": Case("netflix.pcap", elephants, {"bytes": 20000, "n": 5}),
    "handshake-latency": Case("netflix.pcap", handshake_latency, windows=False),
    "syn-floods": Case("synscan.pcap", syn_floods, {"syns": 20}),
}
"""The case of each ready query."""


def answer(name: str, path: Path, params: dict[str, Any]) -> Answer:
    """The rows of a ready query, with addresses as objects."""
    table = in_ns.query(query_text(f"@{name}", params), path)
    return [tuple(address(value) for value in row.values()) for row in table.to_pylist()]


def address(value: Any) -> Any:
    try:
        return ip_address(value) if isinstance(value, str) else value
    except ValueError:
        return value


def equal(actual: Answer, expected: Answer, name: str) -> None:
    """Compare answers, in order if the query sorts its rows. Floats may differ in the last bits."""
    if "ORDER BY" not in CATALOGUE[name].text:
        actual, expected = (sorted(rows, key=lambda row: [*map(sort_key, row)]) for rows in (actual, expected))
    assert [tuple(map(rounded, row)) for row in actual] == [tuple(map(rounded, row)) for row in expected]


def rounded(value: Any) -> Any:
    return round(value, 6) if isinstance(value, float) else value


def test_every_ready_query_has_a_case() -> None:
    assert CASES.keys() == CATALOGUE.keys()


@pytest.mark.parametrize("name", CASES)
def test_a_ready_query_answers_as_plain_python_does(name: str, captures: Path) -> None:
    case = CASES[name]
    path = captures / "pcap" / case.capture
    expected = case.reference(rows_of(path))
    assert len(expected) >= case.least
    equal(answer(name, path, case.params), expected, name)


WINDOWED = [name for name, case in CASES.items() if case.windows and "$window" in CATALOGUE[name].text]


@pytest.mark.parametrize("name", [name for name in WINDOWED if "[RANGE $window]" not in CATALOGUE[name].text])
def test_a_ready_query_answers_for_each_window(name: str, captures: Path) -> None:
    case = CASES[name]
    path = captures / "pcap" / case.capture
    expected = []
    for (minute,), rows in sorted(by(rows_of(path), lambda row: row["ts"] // (60 * NS)).items()):
        bounds = (minute * 60 * NS, (minute + 1) * 60 * NS)
        expected += [(*bounds, *row) for row in case.reference(rows)]
    equal(answer(name, path, case.params | {"window": "1 minute"}), expected, name)
