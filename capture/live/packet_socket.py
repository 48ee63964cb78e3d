"""Opening of packet sockets, with error messages for unsupported systems, missing permissions and missing memory."""

from __future__ import annotations

import ctypes
import errno
import socket
import sys
from pathlib import Path

from capture.errors import InputError
from capture.interface_path import INTERFACE_PREFIX, InterfaceSettings


def open_socket(name: str, *, cooked: bool = False) -> socket.socket:
    """Open a packet socket that receives no packets yet. `cooked`: packets will have no link header.

    Raises InputError, which names the missing requirement and the remedy.
    """
    if sys.platform != "linux":
        raise InputError(
            f"{name}: live interfaces are supported on Linux only, this is {sys.platform}; elsewhere: "
            f'tcpdump -i {name.removeprefix(INTERFACE_PREFIX)} -U -w - | wiretide query - "SELECT …"'
        )
    if sys.byteorder != "little" or ctypes.sizeof(ctypes.c_void_p) != 8:
        raise InputError(f"{name}: live interfaces are supported on 64-bit little-endian machines only")
    try:
        return socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM if cooked else socket.SOCK_RAW, 0)
    except PermissionError as error:
        python = Path(sys.executable).resolve()
        raise InputError(
            f"{name}: this process lacks the capability CAP_NET_RAW, which the system requires for reading packets of "
            f"an interface; run it as root (sudo wiretide …), or give the capability to the interpreter, and thus to "
            f"all users who may run it: sudo setcap cap_net_raw+ep {python}"
        ) from error
    except OSError as error:
        raise InputError(f"{name}: no packet socket can be opened: {error.strerror}") from error


def explain_ring_error(error: OSError, settings: InterfaceSettings) -> str:
    """Return the reason why the ring could not be created, with advice."""
    advice = {
        errno.ENOMEM: f"no memory for a ring of {settings.ring:,} bytes; use a smaller one: ?ring=16MiB",
        errno.EPERM: "not permitted; expected the capability CAP_NET_RAW",
        errno.ENOPROTOOPT: "the system is too old; expected Linux 4.20 or later",
        errno.ENODEV: "the interface does not exist any more",
    }
    return advice.get(error.errno or 0, error.strerror or str(error))
