"""A capture with attacks, a pipeline with rules over it, and the alerts that plain Python computes from its packets."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

from capture.units import SECOND
from dashboards.alerts.messages import utc
from tests.references.alert_states import Alert, Labels, absence_alerts, condition_alerts
from tests.references.small_captures import udp, write

START = 1_700_000_000  # divisible by 10
SLIDE = 10
"""Seconds of a window."""

PIPELINE = """
folder = "state"
[links]
Main = "main.pcap"
[metrics]
port = 0
[queries.sources]
sql = "SELECT srcIP, count(*) AS packets, sum(len) AS bytes FROM Main [RANGE 10 seconds] GROUP BY srcIP"
[queries.ports]
sql = "SELECT destPort, count(*) AS packets FROM Main [RANGE 10 seconds] WHERE destPort < 4 GROUP BY destPort"
[alerts.flood]
query = "sources"
where = "packets > 20"
for = "20s"
keep = "20s"
severity = "critical"
summary = "{srcIP} sent {packets} packets"
exclude = [{ where = "srcIP = '10.0.0.2'", comment = "a backup" }]
[alerts.jump]
query = "sources"
where = "packets > 3 * previous_packets"
[alerts.quiet]
query = "sources"
where = "packets > 20"
labels = []
absent = "30s"
[alerts.gone]
query = "ports"
absent = "50s"
keep = "60s"
[receivers.log]
kind = "file"
path = "alerts.jsonl"
"""

Packet = tuple[float, str, int]
"""Seconds after START, source and destination port."""


def draw_packets(seed: int, seconds: int = 400) -> list[Packet]:
    """Draw packets of a few sources, each with times of flood and of silence, and one gap of all of them."""
    random = Random(seed)
    packets: list[Packet] = []
    for host in range(1, 6):
        second = 0.0
        while second < seconds:
            rate = random.choice([0.0, 0.3, 1.0, 1.5, 4.0])
            end = second + random.choice([8, 25, 60])
            while second < end:
                second += random.expovariate(rate) if rate else end - second
                if rate and second < end and not 150 < second < 210:
                    packets.append((round(second, 3), f"10.0.0.{host}", random.randrange(1, 40)))
    packets.append((float(seconds + 55), "10.0.0.9", 9))  # the newest packet
    return sorted(packets)


def write_pipeline(folder: Path, packets: list[Packet]) -> Path:
    """Write the capture and the pipeline file; return its path."""
    frames = [(START + second, udp(source, "192.0.2.1", 1024, port)) for second, source, port in packets]
    write(folder / "main.pcap", frames)
    path = folder / "pipeline.toml"
    path.write_text(PIPELINE)
    return path


def expected_alerts(packets: list[Packet]) -> set[tuple[str, Labels, str, str | None, str]]:
    """Return rule, labels, begin, end and reason of each alert of the pipeline, from the packets."""
    sources: Counter[tuple[int, str]] = Counter()
    ports: Counter[tuple[int, int]] = Counter()
    for second, source, port in packets:
        end = (START + int(second) // SLIDE * SLIDE + SLIDE) * SECOND
        sources[end, source] += 1
        ports[end, port] += 1
    before = SLIDE * SECOND
    flood: dict[int, set[Labels]] = {end: set() for end, _ in sources}
    jump: dict[int, set[Labels]] = {end: set() for end, _ in sources}
    quiet: dict[int, set[Labels]] = {}
    gone: dict[int, set[Labels]] = {}
    for (end, source), count in sources.items():
        labels = (("srcIP", source),)
        if count > 20 and source != "10.0.0.2":
            flood[end].add(labels)
        if count > 20:
            quiet.setdefault(end, set()).add(())
        if (end - before, source) in sources and count > 3 * sources[end - before, source]:
            jump[end].add(labels)
    for end, port in ports:
        if port < 4:
            gone.setdefault(end, set()).add((("destPort", str(port)),))
    newest = (START + packets[-1][0]) * SECOND
    first = min(flood) - before
    # The last packet closes the window of the sources that contains it. Of the ports it closes only earlier windows.
    ends = range(first, max(flood) + 1, before)
    ends_of_ports = range(first, int(newest) + 1, before)
    alerts: dict[str, list[Alert]] = {
        "flood": condition_alerts(flood, ends, 20 * SECOND, 20 * SECOND),
        "jump": condition_alerts(jump, ends, 0, 0),
        "quiet": absence_alerts(quiet, ends, 30 * SECOND, 86_400 * SECOND, first),
        "gone": absence_alerts(gone, ends_of_ports, 50 * SECOND, 60 * SECOND),
    }
    return {
        (rule, labels, utc(began), None if ended is None else utc(ended), reason)
        for rule, of_rule in alerts.items()
        for labels, began, ended, reason in of_rule
    }
