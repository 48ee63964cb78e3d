"""Captures of flow exports, written from records."""

import struct
from pathlib import Path
from random import Random

from tests.references.netflow_bytes import a_set, ipfix, template, v5, v5_record
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


FIELDS = ((8, 4), (12, 4), (4, 1), (7, 2), (11, 2), (6, 1), (1, 8), (2, 8), (152, 8), (153, 8), (136, 1))
"""The template of records of long flows: addresses, protocol, ports, flags, counters, times, and the end reason."""

IDLE_TIMEOUT, LONG_TIMEOUT, END_OF_FLOW = 1, 2, 3


def write_long_flows(path: Path, random: Random, flows: int, late: float = 30) -> list[dict[str, int]]:
    """A capture of IPFIX and NetFlow v5 with flows that are exported each minute, and the records.

    Datagrams have one record and arrive up to `late` seconds late. The records of v5 have flags, and no end reason.
    """
    exports, rows = [], []
    for _ in range(flows):
        version, protocol, port = random.choice([5, 10]), random.choice([6, 17]), random.randrange(1, 4)
        start = random.randrange(600_000)
        for _ in range(random.randrange(1, 5)):
            length, is_last = random.choice([60_000, random.randrange(60_000)]), random.random() < 0.3
            octets, packets = random.randrange(1, 5000), random.randrange(1, 9)
            flags = random.choice([0x11, 0x14]) if protocol == 6 and is_last else 0x10 * (protocol == 6)
            reason = random.choice([IDLE_TIMEOUT, END_OF_FLOW]) if is_last else LONG_TIMEOUT
            ended = is_last if version == 10 or protocol == 6 else False
            row = {"version": version, "start_ts": start, "ts": start + length, "protocol": protocol, "port": port}
            rows.append({**row, "bytes": octets, "packets": packets, "flags": flags, "ended": ended})
            exports.append((start + length + random.random() * late * 1000, rows[-1], reason))
            start += length + random.choice([0, 0, 500, 40_000])
            if is_last and random.random() < 0.7:
                break
    packets = []
    for sequence, (arrival, row, reason) in enumerate(sorted(exports, key=lambda each: each[0])):
        times = [START * 1000 + row[name] for name in ("start_ts", "ts")]
        if row["version"] == 5:
            first, last = (UPTIME + row[name] for name in ("start_ts", "ts"))
            ports, counters = (row["port"], 80), {"packets": row["packets"], "octets": row["bytes"]}
            record = v5_record(
                first=first, last=last, ports=ports, protocol=row["protocol"], flags=row["flags"], **counters
            )
            payload = v5([record], uptime=UPTIME, seconds=START, sequence=sequence)
        else:
            head = struct.pack(">4s4sBHHB", bytes(4), bytes(4), row["protocol"], row["port"], 80, row["flags"])
            body = head + struct.pack(">QQQQB", row["bytes"], row["packets"], *times, reason)
            sets = [a_set(2, template(256, FIELDS)), a_set(256, body)]
            payload = ipfix(sets, seconds=START + int(arrival // 1000), sequence=sequence)
        segment = bytes([4, 0, 8, 7]) + (len(payload) + 8).to_bytes(2, "big") + bytes(2) + payload  # to port 2055
        packets.append((START + arrival / 1000, ip("192.0.2.1", "192.0.2.2", UDP, segment, 20 + len(segment))))
    write(path, packets)
    return rows
