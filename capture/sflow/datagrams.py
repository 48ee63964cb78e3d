"""Which packets of a capture carry sFlow: those sent to its port, and those that cannot be anything else.

To port 6343 goes whatever the sender takes for sFlow; what it is not is counted by cause. At any other port a UDP
payload is taken for a datagram when it is one through and through: version 5, an agent's address, and samples whose
lengths lead exactly to its end. Of a datagram that was cut or sent in fragments only the first condition can hold.
"""

from __future__ import annotations

from capture.bytes import u32be
from capture.native import helper, kernel
from capture.packets.fields import UDP
from capture.sflow.samples import padded


@helper
def is_datagram(buf, at, end):  # type: ignore[no-untyped-def]
    """Whether `buf[at:end]` is a whole sFlow datagram of version 5 with one sample or more."""
    if at + 28 > end or u32be(buf, at) != 5:
        return False
    kind = u32be(buf, at + 4)
    if kind not in (1, 2):
        return False
    at += 12 if kind == 1 else 24
    if at + 16 > end:
        return False
    samples = u32be(buf, at + 12)
    at += 16
    if samples == 0 or samples * 8 > end - at:
        return False
    while samples > 0:
        if at + 8 > end:
            return False
        length = u32be(buf, at + 4)
        if length > end - at - 8:
            return False
        at += 8 + padded(length)
        samples -= 1
    return at == end


@kernel("i64(u8*, i64*, i64*, i64*, i64*, i64, i64, i64*)")
def choose_datagrams(buf, protocols, ports, offsets, lengths, packets, port, chosen):  # type: ignore[no-untyped-def]
    """Write the numbers of the packets that carry sFlow into `chosen`, room for all; return how many there are.

    Packets are given by their columns protocol, destPort, payload_offset and payload_length, NULL as -1.
    """
    count = 0
    for packet in range(packets):
        if protocols[packet] != UDP or ports[packet] < 0 or offsets[packet] < 0:
            continue
        at = offsets[packet]
        if ports[packet] == port or is_datagram(buf, at, at + lengths[packet]):
            chosen[count] = packet
            count += 1
    return count
