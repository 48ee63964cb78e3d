"""UDP sockets to receive on, and what the system does for them: the buffer it granted, the datagrams it dropped.

Linux counts the datagrams that found the receive buffer full per socket, and tells that counter at any time
(`SO_MEMINFO`, Linux 4.12; the column `drops` of /proc/net/udp is the same number). The other way, `SO_RXQ_OVFL`, tells
it only with the next datagram that is received, so that the loss at the end of a burst would stay unknown.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import struct
import sys
from collections.abc import Iterable
from ipaddress import ip_address

from capture.errors import InputError

SO_RCVBUFFORCE, SO_TIMESTAMPNS, SO_MEMINFO = 33, 35, 55
"""Linux's numbers (asm-generic/socket.h); Python does not name them."""

IP_PKTINFO, IPV6_RECVPKTINFO = 8, 49
MEMORY_INFO = struct.Struct("=9I")
MEMORY_USED, MEMORY_DROPS = 0, 8
"""Places in the answer to SO_MEMINFO (linux/sock_diag.h)."""

LINUX = sys.platform == "linux"


class UdpSocket:
    """One bound, non-blocking socket.

    `granted` are the bytes of buffer the system gave, by its own account: Linux books more than the payload for each
    datagram, about 800 bytes for a small one, and for that gives twice what is asked for. `dropped` are the datagrams
    that found the buffer full, as of the last call of `memory`; None where the system does not tell.
    """

    def __init__(self, bound: socket.socket, asked: int) -> None:
        """Set the options; the socket has been bound."""
        bound.setblocking(False)
        self.socket = bound
        self.asked = asked
        self.granted = _grow_buffer(bound, asked)
        host, self.port = bound.getsockname()[:2]
        self.address = ip_address(host.partition("%")[0])
        self.name = f"[{self.address}]:{self.port}" if self.address.version == 6 else f"{self.address}:{self.port}"
        self.dropped: int | None = None
        self._last = 0
        self.memory()

    @property
    def short(self) -> bool:
        """Whether the system gave less than was asked for."""
        return self.granted < self.asked * (2 if LINUX else 1)

    def memory(self) -> int | None:
        """Bytes of the buffer in use; brings `dropped` up to date. None where nobody tells."""
        if not LINUX:
            return None
        try:
            told = MEMORY_INFO.unpack(self.socket.getsockopt(socket.SOL_SOCKET, SO_MEMINFO, MEMORY_INFO.size))
        except OSError as error:
            if error.errno != errno.ENOPROTOOPT:
                raise
            return None  # Linux before 4.12
        self.dropped = (self.dropped or 0) + (told[MEMORY_DROPS] - self._last) % 2**32  # the system's has 32 bits
        self._last = told[MEMORY_DROPS]
        return told[MEMORY_USED]

    def close(self) -> None:
        """Close; what is in the buffer is lost."""
        self.socket.close()


def open_sockets(listen: Iterable[tuple[str, int]], receive_buffer: int) -> list[UdpSocket]:
    """Bind every address that the hosts resolve to; InputError, naming it, where one cannot be had."""
    with contextlib.ExitStack() as undo:
        opened = [
            _open(family, address, receive_buffer, undo)
            for host, port in listen
            for family, address in _resolved(host, port)
        ]
        undo.pop_all()
    return opened


def _resolved(host: str, port: int) -> list[tuple[int, tuple[str, int]]]:
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise InputError(
            f"cannot listen on {host}: {error.strerror}; expected a name or an address of this machine"
        ) from error
    usable = [(family, address) for family, _, _, _, address in found if host or _has(family)]
    return list(dict.fromkeys(usable))  # type: ignore[arg-type]


def _has(family: int) -> bool:
    """Whether the system has addresses of this family at all: some name `::` without any IPv6."""
    try:
        socket.socket(family, socket.SOCK_DGRAM).close()
    except OSError:
        return False
    return family != socket.AF_INET6 or socket.has_ipv6


def _open(family: int, address: tuple[str, int], receive_buffer: int, undo: contextlib.ExitStack) -> UdpSocket:
    try:
        udp = undo.enter_context(contextlib.closing(socket.socket(family, socket.SOCK_DGRAM)))
        if family == socket.AF_INET6:
            # One socket for each family: the addresses of the records are then those of the wire.
            udp.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        udp.bind(address)
    except OSError as error:
        advice = {
            errno.EADDRINUSE: "; another program receives there: stop it, or choose another port",
            errno.EADDRNOTAVAIL: "; expected an address of this machine",
            errno.EACCES: "; ports below 1024 need privileges: choose a higher one",
        }.get(error.errno or 0, "")
        raise InputError(f"cannot listen on {address[0]} port {address[1]}: {error.strerror}{advice}") from error
    if LINUX:
        udp.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        if family == socket.AF_INET6:
            udp.setsockopt(socket.IPPROTO_IPV6, IPV6_RECVPKTINFO, 1)
        else:
            udp.setsockopt(socket.IPPROTO_IP, IP_PKTINFO, 1)
    return UdpSocket(udp, receive_buffer)


def _grow_buffer(udp: socket.socket, asked: int) -> int:
    """Ask for a receive buffer, past the system's limit where we may; return what was granted, as it is read back."""
    options = [SO_RCVBUFFORCE, socket.SO_RCVBUF] if LINUX else [socket.SO_RCVBUF]
    for option in options:
        wanted = asked
        while wanted:
            try:
                udp.setsockopt(socket.SOL_SOCKET, option, wanted)
            except PermissionError:
                break
            except OSError:  # macOS refuses what is above its limit, where Linux gives the limit
                wanted //= 2
                continue
            return udp.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    return udp.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
