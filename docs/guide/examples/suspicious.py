"""Ten minutes of suspicious traffic: `wiretide generate suspicious.pcap --from suspicious.py`."""

from scapy.all import ICMP, IP, TCP, UDP, Ether, Raw

MS = 1_000_000
START = 1_700_000_000_000_000_000


def ethernet(station=1):
    """Return the header of a frame from a station."""
    return Ether(src=f"02:00:00:00:00:{station:02x}", dst="02:00:00:00:00:ff")


def request(ms, client, server, port, source_port, answer):
    """Yield a SYN, and its answer after 5 ms: SA accepts, RA refuses; nothing if `answer` is empty."""
    yield ms, ethernet() / IP(src=client, dst=server) / TCP(sport=source_port, dport=port, flags="S", seq=9)
    if answer:
        reply = TCP(sport=port, dport=source_port, flags=answer, ack=10)
        yield ms + 5, ethernet(2) / IP(src=server, dst=client) / reply


def traffic():
    """Yield packets with their time in milliseconds since the start."""
    for number in range(10):  # a beacon
        yield from request(number * 60_000, "10.2.0.5", "203.0.113.50", 443, 50_000 + number, "SA")
    for number in range(40):  # a horizontal scan
        answer = "RA" if number % 2 else ""
        yield from request(120_000 + number * 50, "10.2.0.6", f"198.51.100.{number + 1}", 445, 51_000, answer)
    for number in range(30):  # a slow scan of ports
        yield from request(number * 20_000, "10.2.0.7", "10.2.0.20", 1000 + number, 52_000, "RA")
    for number in range(25):  # passwords are tried
        yield from request(200_000 + number * 2000, "10.2.0.8", "10.2.0.20", 22, 53_000 + number, "SA")
    for number, flags in enumerate(("", "FPU", "SF", "SF")):
        odd = IP(src="10.2.0.9", dst="10.2.0.20") / TCP(sport=54_000, dport=80 + number, flags=flags)
        yield 250_000 + number, ethernet() / odd
    for number in range(200):  # answers of time servers that the victim did not ask
        answer = IP(src=f"192.0.2.{number % 20 + 1}", dst="10.2.0.30") / UDP(sport=123, dport=5000) / Raw(bytes(440))
        yield 300_000 + number * 4, ethernet() / answer
    yield 299_000, ethernet() / IP(src="10.2.0.30", dst="192.0.2.1") / UDP(sport=5000, dport=123) / Raw(bytes(48))
    for number in range(5):  # packets in two fragments
        first = IP(src="10.2.0.11", dst="10.2.0.30", id=number, flags="MF", proto=17) / Raw(bytes(1480))
        second = IP(src="10.2.0.11", dst="10.2.0.30", id=number, frag=185, proto=17) / Raw(bytes(520))
        yield 400_000 + number * 100, ethernet() / first
        yield 400_001 + number * 100, ethernet() / second
    for number in range(12):  # mDNS
        announcement = IP(src=f"10.2.0.{12 + number % 2}", dst="224.0.0.251", ttl=255) / UDP(sport=5353, dport=5353)
        yield number * 45_000 + 7, ethernet(3 + number % 2) / announcement / Raw(bytes(60))
    for number in range(6):  # one address, two stations; one host, two paths
        yield 500_000 + number * 1000, ethernet(5 + number % 2) / IP(src="10.2.0.14", dst="10.2.0.20") / ICMP()
        path = IP(src="10.2.0.15", dst="10.2.0.20", ttl=64 - 7 * (number % 2))
        yield 510_000 + number * 1000, ethernet() / path / ICMP()


def packets():
    """Yield packets in the order of their times."""
    yield from ((START + ms * MS, packet) for ms, packet in sorted(traffic(), key=lambda pair: pair[0]))
