"""A download over a path that loses packets: `wiretide generate lossy.pcap --from lossy.py`."""

from random import Random

from scapy.all import ARP, IP, TCP, Ether, Raw

MS = 1_000_000
START = 1_700_000_000_000_000_000


def packets():
    """Yield a TCP transfer, with one segment in twenty sent again after 200 ms, and an ARP request per second."""
    chance = Random(1)
    ends = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / IP(src="192.0.2.80", dst="10.1.0.7")
    sent = []
    for number in range(600):
        segment = ends / TCP(sport=80, dport=40000, flags="A", seq=1 + number * 200, ack=1) / Raw(bytes(200))
        sent.append((START + number * 20 * MS, segment))
        if chance.random() < 0.05:
            sent.append((START + (number * 20 + 200) * MS, segment))
    for second in range(12):
        request = Ether(src="02:00:00:00:00:02", dst="ff:ff:ff:ff:ff:ff") / ARP(psrc="10.1.0.7", pdst="10.1.0.1")
        sent.append((START + second * 1000 * MS + MS, request))
    yield from sorted(sent, key=lambda packet: packet[0])
