"""NetFlow v5 of two routers and sFlow of a switch: `wiretide generate exports.pcap --from exports.py`."""

import struct
from ipaddress import ip_address
from random import Random

from scapy.all import IP, TCP, UDP, Ether, Raw

SECOND = 1_000_000_000
START = 1_700_000_000
CLIENTS = [f"10.1.0.{host}" for host in range(1, 21)]
SERVERS = [("192.0.2.10", 64500, 443), ("198.51.100.20", 64501, 443), ("203.0.113.30", 64502, 22)]
ROUTERS = {"10.255.0.1": 1, "10.255.0.2": 100}  # address, and one in how many packets is counted


def packets():
    """Yield each export datagram with its time in nanoseconds, every 10 seconds for 5 minutes."""
    chance = Random(1)
    flows_sent = dict.fromkeys(ROUTERS, 0)
    samples_sent = 0
    for second in range(10, 301, 10):
        for router, rate in ROUTERS.items():
            flows = [flow(chance, second) for _ in range(chance.randint(5, 15))]
            header = (5, len(flows), second * 1000, START + second, 0, flows_sent[router], 0, 0, 1 << 14 | rate)
            flows_sent[router] += len(flows)
            message = struct.pack(">HHIIIIBBH", *header) + b"".join(flows)
            yield (START + second) * SECOND, datagram(router, 2055, message)
        samples = [sample(chance, samples_sent + number) for number in range(8)]
        samples_sent += len(samples)
        header = (5, 1, ip_address("10.255.0.9").packed, 0, second // 10, second * 1000, len(samples))
        message = struct.pack(">II4sIIII", *header) + b"".join(samples)
        yield (START + second) * SECOND + 1000, datagram("10.255.0.9", 6343, message)


def datagram(sender, port, message):
    """Wrap a message in Ethernet, IP and UDP."""
    ends = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / IP(src=sender, dst="10.255.0.100")
    return ends / UDP(sport=50000, dport=port) / Raw(message)


def flow(chance, second):
    """Return a NetFlow v5 record of a flow that ended in the last 10 seconds and lasted up to 2 minutes."""
    end = second * 1000 - chance.randint(0, 9999)
    begin = max(0, end - chance.randint(0, 120_000))
    server, system, port = chance.choice(SERVERS)
    count = chance.randint(1, 500)
    addresses = [ip_address(text).packed for text in (chance.choice(CLIENTS), server, "10.255.0.254")]
    counters = (1, 2, count, count * chance.randint(60, 1400), begin, end)
    ports = (chance.randint(32768, 60998), port, 0, 0x1B, 6, 0)
    return b"".join(addresses) + struct.pack(">HHIIIIHHBBBBHHBBH", *counters, *ports, 65000, system, 24, 24, 0)


def sample(chance, number):
    """Return an sFlow sample of one packet in 512."""
    server, _, port = chance.choice(SERVERS)
    packet = Ether(src="02:00:00:00:00:03", dst="02:00:00:00:00:04") / IP(src=chance.choice(CLIENTS), dst=server)
    header = bytes(packet / TCP(sport=chance.randint(32768, 60998), dport=port, flags="A")) + bytes(2)
    length = chance.choice((64, 590, 1518))
    record = struct.pack(">IIIIII", 1, 16 + len(header), 1, length, 4, len(header) - 2) + header
    body = struct.pack(">IIIIIIII", number, 3, 512, (number + 1) * 512, 0, 3, 4, 1) + record
    return struct.pack(">II", 1, len(body)) + body
