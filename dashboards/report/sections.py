"""The sections of a report. Each has a query, and settings for the display of its rows."""

from __future__ import annotations

from collections.abc import Sequence

from capture.lazy_dataclasses import dataclass
from capture.units import SECOND

MAX_WINDOWS = 120
"""Maximum number of windows of a timeline."""

WINDOW_LENGTHS = tuple(
    factor * unit
    for unit, factors in (
        (10**6, (1, 2, 5, 10, 20, 50, 100, 200, 500)),
        (SECOND, (1, 2, 5, 10, 20, 30)),
        (60 * SECOND, (1, 2, 5, 10, 20, 30)),
        (3600 * SECOND, (1, 2, 4, 6, 12)),
        (86400 * SECOND, (1, 2, 7, 14, 28)),
    )
    for factor in factors
)
"""The possible lengths of windows in ns: round durations."""


@dataclass(frozen=True, slots=True)
class Section:
    """A question about a capture.

    * `name`: the anchor of the section in the document. `title`, `note`: texts of the document.
    * `sql`: `@NAME` of a ready query, or SQL in which `{window}` is a window clause.
    * `columns`: the value columns that are drawn. If there are none, the section has only a table.
    * `empty`: the text if there are no rows.
    """

    name: str
    title: str
    note: str
    sql: str
    columns: tuple[str, ...] = ()
    empty: str = ""


TRAFFIC = ("packets", "bytes")

PACKET_SECTIONS = (
    Section(
        "timeline",
        "Timeline",
        "Packets and bytes of each protocol.",
        "SELECT protocol, count(*) AS packets, sum(len) AS bytes FROM packets {window} GROUP BY protocol",
        TRAFFIC,
    ),
    Section(
        "links",
        "Links",
        "Packets and bytes of each link.",
        "SELECT link, count(*) AS packets, sum(len) AS bytes FROM packets {window} GROUP BY link",
        TRAFFIC,
    ),
    Section("talkers", "Talkers", "The sources that send most bytes.", "@top-talkers", TRAFFIC),
    Section(
        "conversations",
        "Conversations",
        "The pairs of hosts that exchange most bytes, with both directions in one row.",
        "@top-conversations",
        ("bytes",),
    ),
    Section("protocols", "Protocols", "Packets and bytes of each IP version and protocol.", "@protocols", TRAFFIC),
    Section("ports", "Services", "The TCP and UDP ports that receive most bytes.", "@ports", ("bytes",)),
    Section(
        "handshakes",
        "Handshakes and latency",
        "The time from SYN to SYN-ACK for each TCP server, in milliseconds.",
        "@handshake-latency",
        ("median_ms", "p95_ms"),
        empty="No TCP handshake is complete.",
    ),
    Section(
        "unanswered",
        "Unanswered connections",
        "The TCP servers that leave most connection requests (SYN) without an answer.",
        "@unanswered",
        ("unanswered",),
        empty="Every connection request has an answer.",
    ),
    Section(
        "resets",
        "Resets",
        "The hosts that reset most TCP connections.",
        "@resets",
        ("resets",),
        empty="No connection was reset.",
    ),
    Section(
        "dns",
        "DNS latency",
        "The time from question to answer for each DNS server, in milliseconds.",
        "@dns-latency",
        ("median_ms",),
        empty="No DNS question has an answer.",
    ),
    *(
        Section(
            name,
            title,
            f"{note} Only names that are in the captured bytes of one packet are found.",
            f"SELECT name, count(*) AS {count} FROM (SELECT ts, {function}(payload) AS name FROM packets "
            f"WHERE {condition}) names WHERE name IS NOT NULL GROUP BY name ORDER BY {count} DESC, name LIMIT 20",
            (count,),
            f"No name was found in packets to port {port}.",
        )
        for name, title, note, count, function, condition, port in (
            (
                "dns-names",
                "Names in DNS",
                "The names that most questions contain.",
                "questions",
                "dns_name",
                "protocol = 17 AND destPort = 53",
                53,
            ),
            (
                "tls-names",
                "Names in TLS",
                "The servers that most connections name (SNI).",
                "connections",
                "tls_server_name",
                "protocol = 6 AND destPort = 443",
                443,
            ),
            (
                "http-hosts",
                "Hosts in HTTP",
                "The hosts that most requests name.",
                "requests",
                "http_host",
                "protocol = 6 AND destPort = 80",
                80,
            ),
        )
    ),
    Section(
        "scans",
        "Port scans",
        "The sources that request many TCP ports of one host.",
        "@vertical-scans",
        empty="No source requested many ports of one host.",
    ),
    Section(
        "sweeps",
        "Address scans",
        "The sources that request one TCP port from many hosts.",
        "@horizontal-scans",
        empty="No source requested one port from many hosts.",
    ),
    Section(
        "floods",
        "Floods of connection requests",
        "The addresses that receive many TCP connection requests (SYN without ACK).",
        "@syn-floods",
        empty="No address received many connection requests.",
    ),
)

FLOW_SECTIONS = (
    Section(
        "timeline",
        "Timeline",
        "Flow records and bytes of each exporter, by the end of the flows.",
        "SELECT exporter, count(*) AS flows, sum(bytes) AS bytes FROM flows {window} GROUP BY exporter",
        ("flows", "bytes"),
    ),
    Section("exporters", "Exporters", "Flows, packets and bytes of each exporter.", "@exporters", ("bytes",)),
    Section("talkers", "Talkers", "The sources with most bytes.", "@flow-talkers", ("bytes",)),
    Section("interfaces", "Interfaces", "Bytes through the interfaces of exporters.", "@flow-interfaces", ("bytes",)),
    Section(
        "durations",
        "Durations",
        "How long the flows of each exporter take.",
        "@flow-durations",
        ("median_ms",),
    ),
    Section(
        "delays",
        "Export delays",
        "The time from the end of a flow to its export. A flow that ends after its export shows a wrong clock.",
        "@export-delays",
        ("max_ms",),
    ),
)


def window_length(first: int, last: int) -> int:
    """Return a window length (ns): at most MAX_WINDOWS + 1 windows cover the times from `first` to `last`.

    >>> window_length(0, 300 * 10**9) // 10**9
    5
    """
    return next((length for length in WINDOW_LENGTHS if (last - first) < length * MAX_WINDOWS), WINDOW_LENGTHS[-1])


def window_clause(length: int) -> str:
    """Return the window clause of tumbling windows."""
    return f"[RANGE {length // 10**6} ms]"


def sections_of(row_kind: str, links: Sequence[str]) -> list[Section]:
    """Return the sections for rows of a kind. With one link there is no section about links."""
    sections = FLOW_SECTIONS if row_kind == "flows" else PACKET_SECTIONS
    return [section for section in sections if section.name != "links" or len(links) > 1]
