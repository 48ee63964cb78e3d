"""Captures of flow exports, written from records."""

from pathlib import Path
from random import Random

from tests.references.netflow_bytes import v5, v5_record
from tests.references.pcap_bytes import NS
from tests.references.small_captures import UDP, ip, write

START = 1_700_000_000


UPTIME = 86_400_000


MS = 1_000_000


def write_exports(path: Path, random: Random, datagrams: int) -> list[dict[str, int]]:
    """A capture of NetFlow v5 over ten minutes, and its flows; they ended up to a minute before they were exported."""
    packets, flows = [], []
    for number in range(datagrams):
        seconds = START + number * 600 // datagrams
        records = []
        for _ in range(random.randrange(1, 6)):
            end = random.randrange(60_000)
            lasted = random.choice([0, 1, random.randrange(300_000)])
            octets, protocol = random.randrange(2**32), random.choice([6, 17])
            last = UPTIME - end
            records.append(v5_record(octets=octets, packets=3, first=last - lasted, last=last, protocol=protocol))
            ts = seconds * NS - end * MS
            flows.append({"start_ts": ts - lasted * MS, "ts": ts, "bytes": octets, "protocol": protocol})
        payload = v5(records, uptime=UPTIME, seconds=seconds, sequence=number)
        segment = bytes([4, 0, 8, 7]) + (len(payload) + 8).to_bytes(2, "big") + bytes(2) + payload  # to port 2055
        packets.append((seconds, ip("192.0.2.1", "192.0.2.2", UDP, segment, 20 + len(segment))))
    write(path, packets)
    return flows
