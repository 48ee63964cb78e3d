"""NetFlow v5 of two downloads, exported each minute while they last: `wiretide generate downloads.pcap --from …`."""

import struct
from ipaddress import ip_address

from scapy.all import IP, UDP, Ether, Raw

SECOND = 1_000_000_000
START = 1_700_000_000
ACK, ACK_FIN = 0x10, 0x11


def packets():
    """Yield a datagram each minute. The first download ends after 150 seconds, the other one continues."""
    for number, (end, first_flags) in enumerate([(60, ACK), (120, ACK), (150, ACK_FIN), (180, None)]):
        records = [record("10.1.0.2", end - 60, end, 900, ACK)] if end != 150 else []
        if first_flags is not None:
            records.append(record("10.1.0.1", end // 60 * 60 - 60 * (end != 150), end, 500, first_flags))
        header = (5, len(records), end * 1000, START + end, 0, 2 * number, 0, 0, 0)
        message = struct.pack(">HHIIIIBBH", *header) + b"".join(records)
        ends = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / IP(src="10.255.0.1", dst="10.255.0.100")
        yield (START + end) * SECOND, ends / UDP(sport=50000, dport=2055) / Raw(message)


def record(client, begin, end, packets, flags):
    """Return the record of a download since the record before."""
    addresses = [ip_address(text).packed for text in ("192.0.2.10", client, "10.255.0.254")]
    counters = (1, 2, packets, packets * 1400, begin * 1000, end * 1000)
    return b"".join(addresses) + struct.pack(
        ">HHIIIIHHBBBBHHBBH", *counters, 443, 40000, 0, flags, 6, 0, 64500, 65000, 24, 24, 0
    )
