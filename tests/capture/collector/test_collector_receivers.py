"""Both receivers on real sockets: they report the data, sender and length of each datagram as sent.

* The same tests for `recvmmsg` and for the plain loop detect a wrong offset in the system's structures. Such an offset
  changes the sender, the time or the length.
* Control messages of random bytes catch a walk that trusts their lengths.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from ipaddress import ip_address
from random import Random

import numpy as np
import pytest

from capture.collector.chunks import BATCH_DATAGRAMS, ROW_WORDS, SLOT_STRIDE, Batch, Receiver
from capture.collector.recvmmsg import (
    CONTROL_BYTES,
    MESSAGE_BYTES,
    NAME_BYTES,
    LoopReceiver,
    RecvmmsgReceiver,
    halves,
    recvmmsg_is_supported,
    unpack_messages,
)
from capture.collector.sockets import UdpSocket, open_sockets
from capture.errors import InputError
from tests.harness.collected import sender
from tests.harness.datagram_senders import has_ipv6

LINUX = pytest.mark.skipif(not recvmmsg_is_supported(), reason="this system has no recvmmsg")
BOTH = [pytest.param(RecvmmsgReceiver, marks=LINUX), LoopReceiver]
Make = Callable[[Batch], Receiver]


IPV6 = pytest.param("::1", marks=pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6"))


@pytest.fixture
def opened() -> Iterator[Callable[[str], UdpSocket]]:
    """Opens one socket on any free port of a host; all are closed in the end."""
    made: list[UdpSocket] = []

    def open_one(host: str) -> UdpSocket:
        made.extend(open_sockets([(host, 0)], 1 << 20))
        return made[-1]

    yield open_one
    for udp in made:
        udp.close()


def row(batch: Batch, place: int) -> dict[str, int]:
    names = ("length", "time", "version", "high", "low", "port", "dest_high", "dest_low")
    return dict(zip(names, batch.rows[place].tolist(), strict=True))


def payload(batch: Batch, place: int) -> bytes:
    return bytes(batch.slots[place * SLOT_STRIDE :][: batch.rows[place, 0]])


@pytest.mark.parametrize("make", BOTH)
@pytest.mark.parametrize("host", ["127.0.0.1", IPV6])
def test_a_batch_holds_payload_sender_local_address_and_time(
    make: Make, host: str, opened: Callable[[str], UdpSocket]
) -> None:
    udp, batch = opened(host), Batch()
    receiver = make(batch)
    sent = [b"", b"x", bytes(range(256)) * 5, b"y" * 65_507, b"last"]
    before = time.time_ns()
    with sender(host) as exporter:
        for each in sent:
            exporter.sendto(each, (host, udp.port))
        port = exporter.getsockname()[1]
    assert receiver.receive(udp) == len(sent)
    after = time.time_ns()
    times = [row(batch, place)["time"] for place in range(len(sent))]
    assert [before, *times, after] == sorted([before, *times, after])
    high, low = halves(ip_address(host))
    for place, each in enumerate(sent):
        assert payload(batch, place) == each
        assert row(batch, place) == {
            "length": len(each), "time": times[place], "version": ip_address(host).version,
            "high": high, "low": low, "port": port, "dest_high": high, "dest_low": low,
        }  # fmt: skip
    assert receiver.receive(udp) == 0


@pytest.mark.parametrize("make", BOTH)
def test_a_batch_is_used_again_and_what_it_does_not_hold_stays_in_the_socket(
    make: Make, opened: Callable[[str], UdpSocket]
) -> None:
    udp, batch = opened("127.0.0.1"), Batch()
    receiver = make(batch)
    counts, found = [], []
    with sender() as exporter:
        for number in range(2 * BATCH_DATAGRAMS + 10):
            exporter.sendto(b"%d" % number * (1 + number % 3), ("127.0.0.1", udp.port))
    while count := receiver.receive(udp):
        counts.append(count)
        found += [payload(batch, place) for place in range(count)]
    assert counts == [BATCH_DATAGRAMS, BATCH_DATAGRAMS, 10]
    assert found == [b"%d" % number * (1 + number % 3) for number in range(2 * BATCH_DATAGRAMS + 10)]


@LINUX
def test_a_socket_on_all_addresses_tells_which_of_them_a_datagram_was_sent_to(
    opened: Callable[[str], UdpSocket],
) -> None:
    udp, batch = opened("0.0.0.0"), Batch()
    with sender() as exporter:
        for last in (1, 2, 77):
            exporter.sendto(b"", (f"127.0.0.{last}", udp.port))
    assert RecvmmsgReceiver(batch).receive(udp) == 3
    assert [row(batch, place)["dest_low"] for place in range(3)] == [0x7F000001, 0x7F000002, 0x7F00004D]


@LINUX
def test_the_time_is_that_of_arrival_and_not_of_reading(opened: Callable[[str], UdpSocket]) -> None:
    udp, batch = opened("127.0.0.1"), Batch()
    receiver = RecvmmsgReceiver(batch)
    deadline = time.monotonic() + 60
    with sender() as exporter:

        def is_time_of_arrival() -> bool:
            exporter.sendto(b"", ("127.0.0.1", udp.port))
            arrived = time.time_ns()
            while time.time_ns() < arrived + 1_000_000:
                pass
            assert receiver.receive(udp) == 1
            return bool(row(batch, 0)["time"] <= arrived)

        while not is_time_of_arrival():  # the system starts to record times some time after the option is set
            assert time.monotonic() < deadline
        assert all(is_time_of_arrival() for _ in range(20))


@LINUX
@pytest.mark.parametrize("size", [0, 10, 100, 1464])
def test_what_the_buffer_had_no_room_for_is_counted_exactly(size: int, opened: Callable[[str], UdpSocket]) -> None:
    udp, batch = opened("127.0.0.1"), Batch()
    udp.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 20_000)
    receiver, received = RecvmmsgReceiver(batch), 0
    with sender() as exporter:
        for number in range(1, 4):
            for _ in range(1000):
                exporter.sendto(bytes(size), ("127.0.0.1", udp.port))
            while count := receiver.receive(udp):
                received += count
            used = udp.read_memory()
            assert used is not None
            assert udp.dropped is not None
            assert udp.dropped > 0
            assert received + udp.dropped == 1000 * number


@LINUX
@pytest.mark.parametrize("seed", range(20))
def test_control_messages_of_any_bytes_end_within_their_bounds(seed: int) -> None:
    random = Random(seed)
    count = 4
    messages = np.zeros(count * MESSAGE_BYTES, np.uint8)
    names = np.frombuffer(random.randbytes(count * NAME_BYTES), np.uint8).copy()
    controls = np.frombuffer(random.randbytes(count * CONTROL_BYTES), np.uint8).copy()
    for place in range(count):
        claimed = random.choice([0, 15, 16, CONTROL_BYTES, CONTROL_BYTES + 1, 2**40, 2**63])
        messages[place * MESSAGE_BYTES + 40 :][:8] = np.frombuffer(claimed.to_bytes(8, "little"), np.uint8)
        # Lengths that are believed: short ones, ones that reach over the end, ones that overflow.
        length = random.choice([0, 8, 16, 24, 127, CONTROL_BYTES, CONTROL_BYTES + 8, 2**62, 2**64 - 8])
        controls[place * CONTROL_BYTES :][:8] = np.frombuffer(length.to_bytes(8, "little"), np.uint8)
    rows = np.zeros((2, count * ROW_WORDS), np.int64)
    with np.errstate(over="ignore"):
        unpack_messages.function(messages.copy(), count, names, controls, 5, rows[0])
    unpack_messages(messages, count, names, controls, 5, rows[1])
    assert rows[0].tolist() == rows[1].tolist()
    assert messages[8] == NAME_BYTES
    assert messages[40] == CONTROL_BYTES


def test_every_address_of_a_host_is_listened_on() -> None:
    sockets = open_sockets([("", 0)], 4096)
    try:
        assert {str(udp.address) for udp in sockets} <= {"0.0.0.0", "::"}
        assert "0.0.0.0" in {str(udp.address) for udp in sockets}
    finally:
        for udp in sockets:
            udp.close()


def test_a_port_in_use_is_said_and_leaves_no_socket_open() -> None:
    with sender() as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=rf"127\.0\.0\.1 port {port}: .*another program uses this port"):
            open_sockets([("127.0.0.1", 0), ("127.0.0.1", port)], 4096)
    # The same address can be had twice, so the first socket of the failed try is closed (or ResourceWarning is raised).
    for udp in open_sockets([("127.0.0.1", port)], 4096):
        udp.close()


@pytest.mark.parametrize(
    ("host", "message"),
    [("192.0.2.1", "expected an address of this machine"), ("no.such.invalid", "cannot listen on no.such.invalid")],
)
def test_an_address_that_is_not_ours_is_said(host: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        open_sockets([(host, 0)], 4096)


def test_the_buffer_that_was_granted_is_read_back(opened: Callable[[str], UdpSocket]) -> None:
    udp = opened("127.0.0.1")
    assert udp.granted_bytes == udp.socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    assert udp.is_smaller_than_requested == (
        udp.granted_bytes < udp.requested_bytes * (2 if recvmmsg_is_supported() else 1)
    )
