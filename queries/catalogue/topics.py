"""Topics of queries: the dashboards of Grafana on which they are shown."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Topic(StrEnum):
    """A topic, by its name in a pipeline file."""

    OVERVIEW = "overview"
    TALKERS = "talkers"
    PROTOCOLS = "protocols"
    HANDSHAKES = "handshakes"
    SECURITY = "security"
    FLOWS = "flows"


_NAMES: Mapping[Topic, str] = {
    Topic.OVERVIEW: "packets links bandwidth bursts",
    Topic.TALKERS: "pairs top-talkers top-receivers sources heavy-hitters networks network-traffic peers "
    "top-conversations elephants multicast stations",
    Topic.PROTOCOLS: "protocols ports sizes service-classes dns-latency dns-results fragments vlans ethertypes "
    "icmp-types hop-limits tunnels",
    Topic.HANDSHAKES: "handshake-latency unanswered refused resets retransmissions odd-flags",
    Topic.SECURITY: "horizontal-scans vertical-scans slow-scans syn-floods floods amplification entropy port-entropy "
    "new-hosts beacons brute-force address-conflicts call-backs guessed-passwords pulses exfiltration beaconing "
    "lost-contacts silent-servers indicators likely-guesses",
    Topic.FLOWS: "exporters flow-talkers flow-interfaces autonomous-systems flow-durations export-delays export-gaps "
    "sflow-agents",
}

TOPICS: Mapping[str, Topic] = {name: topic for topic, names in _NAMES.items() for name in names.split()}
"""The topic of each ready query."""
