"""Opening packet sockets, and saying what stands in the way: the system, the machine, rights, memory."""

from __future__ import annotations

import ctypes
import errno
import socket
import sys
from pathlib import Path

from capture.errors import InputError
from capture.interface_path import PREFIX, InterfaceSettings


def open_socket(name: str, *, cooked: bool = False) -> socket.socket:
    """Open a packet socket that gets nothing yet; InputError, with what is missing and how to get it, where it cannot.

    A `cooked` one is for packets without their link header.
    """
    if sys.platform != "linux":
        raise InputError(
            f"{name}: live interfaces are read on Linux alone, this is {sys.platform}; elsewhere: "
            f'tcpdump -i {name.removeprefix(PREFIX)} -U -w - | wiretide query - "SELECT …"'
        )
    if sys.byteorder != "little" or ctypes.sizeof(ctypes.c_void_p) != 8:
        raise InputError(f"{name}: live interfaces are read on 64-bit little-endian machines alone")
    try:
        return socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM if cooked else socket.SOCK_RAW, 0)
    except PermissionError as error:
        python = Path(sys.executable).resolve()
        raise InputError(
            f"{name}: this process lacks the capability CAP_NET_RAW, without which the system lets nobody see an "
            f"interface's packets; run it as root (sudo wiretide …), or give the capability to the interpreter, and so "
            f"to everybody who may run it: sudo setcap cap_net_raw+ep {python}"
        ) from error
    except OSError as error:
        raise InputError(f"{name}: no packet socket can be opened: {error.strerror}") from error


def why_no_ring(error: OSError, settings: InterfaceSettings) -> str:
    """Say why no ring could be had."""
    advice = {
        errno.ENOMEM: f"no memory for a ring of {settings.ring:,} bytes; ask for a smaller one: ?ring=16MiB",
        errno.EPERM: "not permitted; expected the capability CAP_NET_RAW",
        errno.ENOPROTOOPT: "the system is too old; expected Linux 4.20 or later",
        errno.ENODEV: "the interface has gone",
    }
    return advice.get(error.errno or 0, error.strerror or str(error))
