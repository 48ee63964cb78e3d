"""Live interfaces: a veth pair in network namespaces, the loopback interface and a tun device of this machine.

Every packet that is sent must be counted, or dropped by the kernel and counted as that. The tests detect packets that
are lost between two blocks of the ring, at its wrap or when it is stopped. They detect packets that are read twice, an
end that never arrives, and memory and sockets that are not freed. Needs root; is skipped, with the reason, elsewhere.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import wiretide
from bench.frame_sender import udp_frame
from bench.veth import Pair, in_namespace, ip, veth_obstacle, veth_pair
from capture.errors import InputError
from capture.live import ring as ring_module
from capture.live.hardware import HARDWARE, Hardware
from capture.live.interface import INTERFACE_GONE, InterfaceCapture
from capture.metrics import INTERFACE_DOWN, INTERFACE_DROPPED, INTERFACE_RECEIVED, INTERFACE_TRUNCATED
from capture.open import open_capture
from tests.references.ring_bytes import completed_frames

pytestmark = [
    pytest.mark.skipif(veth_obstacle() is not None, reason=str(veth_obstacle())),
    pytest.mark.slow("real network interfaces"),
]

SMALL_RING = "?ring=4MiB"


@pytest.fixture
def pair() -> Iterator[Pair]:
    with veth_pair() as made:
        yield made


@contextmanager
def capturing(pair: Pair, options: str = SMALL_RING) -> Iterator[InterfaceCapture]:
    with in_namespace(pair.receiving):
        capture = open_capture(f"interface:{pair.receiver}{options}")
    assert isinstance(capture, InterfaceCapture)
    try:
        yield capture
    finally:
        capture.close()


@contextmanager
def sending(pair: Pair) -> Iterator[Callable[[bytes], int]]:
    with in_namespace(pair.sending):
        opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        opened.bind((pair.sender, 0))
    with opened:
        yield opened.send


def read_frames(capture: InterfaceCapture, block_records: int = 100) -> Iterator[tuple[int, bytes, int] | None]:
    """Yield frames as they arrive, and None for each empty poll."""
    for block in capture.blocks(block_records):
        if block is None:
            yield None
            continue
        frames = completed_frames(capture.data[block.start : block.end], 0, block.end - block.start)
        assert len(frames) == block.records <= block_records
        assert (block.min_ts, block.max_ts) == (min(ts for ts, _, _ in frames), max(ts for ts, _, _ in frames))
        yield from frames


def total(capture: InterfaceCapture, metric: object) -> int:
    return int(capture.samples("l").total(metric))  # type: ignore[arg-type]


def test_every_packet_is_read_as_it_was_sent(pair: Pair) -> None:
    sent = [udp_frame(n, 60 + n * 7 % 1400, b"\x81\x00\x20\x07" if n % 3 == 0 else b"") for n in range(6000)]
    begin = time.time_ns()
    found: list[bytes] = []
    with capturing(pair) as capture, sending(pair) as send:
        reading = read_frames(capture)
        for some in range(0, len(sent), 500):
            for frame in sent[some : some + 500]:
                send(frame)
            while len(found) < some + 500:
                got = next(reading)
                if got is not None:
                    ts, frame, wire = got
                    assert begin - 10**9 < ts <= time.time_ns()
                    assert wire == len(frame)
                    found.append(frame)
        capture.stop()
        assert [each for each in reading if each is not None] == []
        assert capture.damage is None
        assert total(capture, INTERFACE_RECEIVED) == 6000
    assert found == sent


def test_packets_that_leave_are_seen_as_those_that_come_are(pair: Pair) -> None:
    with capturing(pair) as capture, sending(pair) as send:
        with in_namespace(pair.receiving), socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as leaving:
            leaving.bind((pair.receiver, 0))
            leaving.send(udp_frame(1, 100))
        send(udp_frame(2, 100))
        capture.stop()
        assert [frame for _, frame, _ in filter(None, read_frames(capture))] == [udp_frame(1, 100), udp_frame(2, 100)]


def test_what_the_ring_has_no_room_for_is_counted_as_dropped(pair: Pair) -> None:
    with capturing(pair) as capture, sending(pair) as send:
        for n in range(5000):
            send(udp_frame(n, 1400))
        capture.stop()
        found = sum(each is not None for each in read_frames(capture))
        dropped = total(capture, INTERFACE_DROPPED)
        assert dropped > 500
        assert found > 1000
        assert found + dropped == total(capture, INTERFACE_RECEIVED) == 5000


def test_an_idle_interface_yields_none_until_it_is_stopped_from_another_thread(pair: Pair) -> None:
    with capturing(pair) as capture:
        blocks = capture.blocks()
        assert [next(blocks), next(blocks)] == [None, None]
        assert capture.is_idle
        threading.Timer(0.05, capture.stop).start()
        assert set(blocks) <= {None}
        assert capture.damage is None


def test_an_interface_that_goes_down_is_waited_for(pair: Pair) -> None:
    with capturing(pair) as capture, sending(pair) as send:
        reading = read_frames(capture)
        send(udp_frame(1, 100))
        assert next(each for each in reading if each) is not None
        pair.set("down")
        assert next(reading) is None
        assert next(reading) is None
        pair.set("up")
        while True:  # the other end has no carrier for a moment
            try:
                send(udp_frame(2, 100))
            except OSError:
                time.sleep(0.01)
                continue
            if next(reading) is not None:
                break
        assert total(capture, INTERFACE_DOWN) == 1


def test_an_interface_that_is_deleted_ends_with_what_was_read_and_says_so(pair: Pair) -> None:
    with capturing(pair) as capture, sending(pair) as send:
        for n in range(300):
            send(udp_frame(n, 100))
        ip("-n", pair.receiving, "link", "del", pair.receiver)
        assert sum(each is not None for each in read_frames(capture)) == 300
        assert capture.damage == INTERFACE_GONE


def test_frames_longer_than_the_snapshot_length_are_cut_and_counted(pair: Pair) -> None:
    with capturing(pair, "?ring=4MiB&snaplen=64") as capture, sending(pair) as send:
        send(udp_frame(1, 1000))
        send(udp_frame(2, 60))
        capture.stop()
        frames = [each for each in read_frames(capture) if each]
        assert [(len(frame), wire) for _, frame, wire in frames] == [(64, 1000), (60, 60)]
        assert total(capture, INTERFACE_TRUNCATED) == 1


def test_frames_without_their_link_header_get_that_of_cooked_captures(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(HARDWARE, 1, Hardware("cooked", 113))
    with capturing(pair) as capture, sending(pair) as send:
        send(udp_frame(7, 100))
        capture.stop()
        ((_, frame, wire),) = [each for each in read_frames(capture) if each]
    other = struct.pack(">HHH", 3, 1, 6)  # to a MAC address that is not the interface's
    assert frame == other + b"\x02\0\0\0\0\1\0\0" + b"\x08\0" + udp_frame(7, 100)[14:]
    assert wire == 102


def test_promiscuous_mode_is_as_long_as_the_capture_and_only_where_asked_for(pair: Pair) -> None:
    def promiscuity() -> str:
        return ip("-n", pair.receiving, "-d", "link", "show", pair.receiver).partition("promiscuity ")[2][0]

    with capturing(pair):
        assert promiscuity() == "0"
    with capturing(pair, "?promiscuous&ring=4MiB"):
        assert promiscuity() == "1"
    assert promiscuity() == "0"


def test_nothing_is_left_of_a_capture_that_was_closed(pair: Pair) -> None:
    def sockets() -> int:
        with in_namespace(pair.receiving):
            return len(Path("/proc/thread-self/net/packet").read_text().splitlines()) - 1

    with capturing(pair) as capture:
        assert sockets() == 1
        blocks = capture.blocks()
        assert next(blocks) is None
        blocks.close()
    assert sockets() == 0
    with in_namespace(pair.receiving):
        forgotten = open_capture(f"interface:{pair.receiver}{SMALL_RING}")
    assert sockets() == 1
    del forgotten
    assert sockets() == 0


def test_loopback_shows_every_packet_once() -> None:
    with veth_pair() as pair:
        ip("-n", pair.receiving, "link", "set", "lo", "up")
        with in_namespace(pair.receiving):
            capture = open_capture(f"interface:lo{SMALL_RING}")
            sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        assert isinstance(capture, InterfaceCapture)
        with sender:
            for n in range(50):
                sender.sendto(b"x" * n, ("127.0.0.1", 9))
        capture.stop()
        frames = [frame for _, frame, _ in filter(None, read_frames(capture))]
        capture.close()
    # the other frames are ICMP errors, because no process listens
    assert [len(frame) - 42 for frame in frames if frame[23] == 17] == list(range(50))


@pytest.mark.skipif(not os.access("/dev/net/tun", os.W_OK), reason="there is no /dev/net/tun")
def test_a_tun_device_has_bare_packets() -> None:
    with veth_pair() as pair, in_namespace(pair.receiving), Path("/dev/net/tun").open("r+b", buffering=0) as tun:
        fcntl.ioctl(tun, 0x400454CA, struct.pack("16sH22x", b"wttun", 0x1001))  # TUNSETIFF: tun, no information
        ip("-n", pair.receiving, "link", "set", "wttun", "up")
        capture = open_capture(f"interface:wttun{SMALL_RING}")
        assert isinstance(capture, InterfaceCapture)
        packet = udp_frame(5, 90)[14:]
        tun.write(packet)
        capture.stop()
        assert [frame for _, frame, _ in filter(None, read_frames(capture))] == [packet]
        assert capture.format.link_type == 101  # type: ignore[union-attr]
        capture.close()


def test_an_interface_that_is_not_there_is_named_with_those_that_are(pair: Pair) -> None:
    with in_namespace(pair.receiving), pytest.raises(InputError, match=rf"this machine has: lo, {pair.receiver}"):
        open_capture("interface:nosuch0")


def test_who_may_not_is_told_what_is_missing() -> None:
    code = """
import os
from capture.open import open_capture
import capture.live.interface
from capture.errors import InputError
os.setuid(65534)
try:
    open_capture("interface:lo")
except InputError as error:
    print(error)
"""
    root = Path(wiretide.__file__).parent
    said = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True).stdout
    assert "interface:lo: this process lacks the capability CAP_NET_RAW" in said
    assert "sudo setcap cap_net_raw+ep /" in said


def test_a_ring_that_the_system_has_no_memory_for_is_told(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(12, os.strerror(12))

    monkeypatch.setattr(ring_module.mmap, "mmap", refuse)
    with (
        in_namespace(pair.receiving),
        pytest.raises(InputError, match="no memory for a ring of 67,108,864 bytes; use a smaller one"),
    ):
        open_capture(f"interface:{pair.receiver}")
