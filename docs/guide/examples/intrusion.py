"""A host scans another one, sends it a large packet, and is then called back: `wiretide generate … --from …`."""

from scapy.all import IP, TCP, Ether, Raw

SCANNER, VICTIM, CLIENT = "203.0.113.9", "10.0.0.5", "10.0.0.7"
BEGIN = 1_700_000_000 * 1_000_000_000
MS = 1_000_000


def packets():
    """Yield the time of each packet, in ns, and the packet."""
    for number, port in enumerate((21, 22, 23, 25, 80, 110, 443, 3306)):
        yield BEGIN + number * 1000 * MS, packet(SCANNER, VICTIM, 40000, port, "S")
        yield BEGIN + (number * 1000 + 100) * MS, packet(VICTIM, SCANNER, port, 40000, "SA" if port == 80 else "RA")
    yield BEGIN + 9000 * MS, packet(SCANNER, VICTIM, 40001, 80, "PA", b"A" * 1200)
    yield BEGIN + 9100 * MS, packet(VICTIM, SCANNER, 80, 40001, "A")
    yield BEGIN + 12000 * MS, packet(VICTIM, SCANNER, 50123, 4444, "S")
    for number in range(5):
        yield BEGIN + (number * 3000 + 50) * MS, packet(CLIENT, VICTIM, 41000 + number, 80, "S")
        yield BEGIN + (number * 3000 + 60) * MS, packet(VICTIM, CLIENT, 80, 41000 + number, "SA")


def packet(source, target, source_port, target_port, flags, payload=b""):
    """Return a TCP packet."""
    ends = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / IP(src=source, dst=target)
    return ends / TCP(sport=source_port, dport=target_port, flags=flags) / Raw(payload)
