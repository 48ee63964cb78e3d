"""UDP sockets that receive datagrams, with the size of the granted receive buffer and the number of dropped datagrams.

Linux drops datagrams if the receive buffer is full. It counts them per socket, and `SO_MEMINFO` (Linux 4.12) returns
the counter at any time. `SO_RXQ_OVFL` would report the counter only with the next received datagram, so losses at the
end of a burst would remain unknown.
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
"""Values of these constants in Linux (asm-generic/socket.h). Python does not define them."""

IP_PKTINFO, IPV6_RECVPKTINFO = 8, 49
"""Values of these constants in Linux (linux/in.h, linux/in6.h)."""

MEMORY_INFO = struct.Struct("=9I")
"""Result of SO_MEMINFO: nine numbers."""

MEMORY_USED, MEMORY_DROPS = 0, 8
"""Indices of two of these numbers (linux/sock_diag.h): used bytes, and dropped datagrams."""

IS_LINUX = sys.platform == "linux"


class UdpSocket:
    """A bound, non-blocking UDP socket.

    `granted_bytes`: bytes of receive buffer granted by the system. Linux charges more than the payload for a datagram
    (about 800 bytes for a small datagram), and therefore grants twice the requested size. `dropped`: number of
    datagrams that the system had dropped at the last call of `read_memory`; None if the system does not report it.
    """

    def __init__(self, bound: socket.socket, requested: int) -> None:
        """Set the options of a bound socket."""
        bound.setblocking(False)
        self.socket = bound
        self.requested_bytes = requested
        self.granted_bytes = _grow_buffer(bound, requested)
        host, self.port = bound.getsockname()[:2]
        self.address = ip_address(host.partition("%")[0])
        self.name = f"[{self.address}]:{self.port}" if self.address.version == 6 else f"{self.address}:{self.port}"
        self.dropped: int | None = None
        self._last_drops = 0
        self.read_memory()

    @property
    def is_smaller_than_requested(self) -> bool:
        """True if the system granted less than requested."""
        return self.granted_bytes < self.requested_bytes * (2 if IS_LINUX else 1)

    def read_memory(self) -> int | None:
        """Update `dropped`. Return the used bytes of the receive buffer, or None if the system does not report them."""
        if not IS_LINUX:
            return None
        try:
            info = MEMORY_INFO.unpack(self.socket.getsockopt(socket.SOL_SOCKET, SO_MEMINFO, MEMORY_INFO.size))
        except OSError as error:
            if error.errno != errno.ENOPROTOOPT:
                raise
            return None  # Linux before 4.12
        new_drops = (info[MEMORY_DROPS] - self._last_drops) % 2**32  # the system's counter has 32 bits
        self.dropped = (self.dropped or 0) + new_drops
        self._last_drops = info[MEMORY_DROPS]
        return info[MEMORY_USED]

    def close(self) -> None:
        """Close the socket. The datagrams in its buffer are lost."""
        self.socket.close()


def open_sockets(listen: Iterable[tuple[str, int]], receive_buffer: int) -> list[UdpSocket]:
    """Bind all addresses of the hosts in `listen`. Raises InputError, which names the address, if this fails."""
    with contextlib.ExitStack() as undo:
        opened = [
            _open(family, address, receive_buffer, undo)
            for host, port in listen
            for family, address in _resolve(host, port)
        ]
        undo.pop_all()
    return opened


def _resolve(host: str, port: int) -> list[tuple[int, tuple[str, int]]]:
    """Return the address families and addresses of a host, without repetition."""
    try:
        resolved = socket.getaddrinfo(host or None, port, type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise InputError(
            f"cannot listen on {host}: {error.strerror}; expected a name or an address of this machine"
        ) from error
    usable = [(family, address) for family, _, _, _, address in resolved if host or _supports_family(family)]
    return list(dict.fromkeys(usable))  # type: ignore[arg-type]


def _supports_family(family: int) -> bool:
    """Return whether the system supports an address family. Some systems resolve `::` without IPv6."""
    try:
        socket.socket(family, socket.SOCK_DGRAM).close()
    except OSError:
        return False
    return family != socket.AF_INET6 or socket.has_ipv6


def _open(family: int, address: tuple[str, int], receive_buffer: int, undo: contextlib.ExitStack) -> UdpSocket:
    """Bind an address. `undo` closes the socket if a later address fails."""
    try:
        udp = undo.enter_context(contextlib.closing(socket.socket(family, socket.SOCK_DGRAM)))
        if family == socket.AF_INET6:
            # Each address family has its own socket, so that records do not contain IPv4 addresses in IPv6 form.
            udp.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        udp.bind(address)
    except OSError as error:
        advice = {
            errno.EADDRINUSE: "; another program uses this port: stop it, or choose another port",
            errno.EADDRNOTAVAIL: "; expected an address of this machine",
            errno.EACCES: "; ports below 1024 need privileges: choose a higher port",
        }.get(error.errno or 0, "")
        raise InputError(f"cannot listen on {address[0]} port {address[1]}: {error.strerror}{advice}") from error
    if IS_LINUX:
        udp.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        if family == socket.AF_INET6:
            udp.setsockopt(socket.IPPROTO_IPV6, IPV6_RECVPKTINFO, 1)
        else:
            udp.setsockopt(socket.IPPROTO_IP, IP_PKTINFO, 1)
    return UdpSocket(udp, receive_buffer)


def _grow_buffer(udp: socket.socket, requested: int) -> int:
    """Request a receive buffer, larger than the system's limit if this process may do so. Return the granted size."""
    options = [SO_RCVBUFFORCE, socket.SO_RCVBUF] if IS_LINUX else [socket.SO_RCVBUF]
    for option in options:
        size = requested
        while size:
            try:
                udp.setsockopt(socket.SOL_SOCKET, option, size)
            except PermissionError:
                break
            except OSError:  # macOS rejects sizes above its limit; Linux grants the limit
                size //= 2
                continue
            return udp.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    return udp.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
