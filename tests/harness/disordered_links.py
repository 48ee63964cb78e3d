"""Captures of links whose packets arrive late by a random time."""

from pathlib import Path
from random import Random

from highlevel.inline.engine import Input
from tests.references.pcap_bytes import NS, pcap_bytes
from tests.references.small_captures import RAW_IP, udp

START = 1_700_000_000 * NS
FRAMES = [udp(f"10.0.0.{host}", "10.0.0.9", 1, 2) for host in range(1, 6)]


def write_disordered(path: Path, random: Random, packets: int, late: float, seconds: float = 60) -> Path:
    """Write a capture of `seconds` whose packets arrive up to `late` seconds late, and one with a wrong clock."""
    arrivals = sorted((ts + random.random() * late, ts) for ts in (random.random() * seconds for _ in range(packets)))
    records = [(START + round(ts * NS), random.choice(FRAMES)) for _, ts in arrivals]
    records.insert(random.randrange(len(records)), (START + 365 * 86_400 * NS, FRAMES[0]))
    path.write_bytes(pcap_bytes(records, RAW_IP))
    return path


def disordered_links(folder: Path, random: Random, links: int, packets: int, late: float) -> list[Input]:
    """Write a capture for each link."""
    names = [f"link{number}" for number in range(links)]
    return [Input(name, write_disordered(folder / f"{name}.pcap", random, packets, late)) for name in names]
