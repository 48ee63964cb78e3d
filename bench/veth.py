"""A pair of virtual Ethernet interfaces for senders and captures, each in a separate network namespace.

They have no addresses, and IPv6 is off because it sends packets without a request. So no other traffic uses them. They
need the rights of root (CAP_NET_ADMIN, CAP_SYS_ADMIN, CAP_NET_RAW) and the command `ip` of iproute2.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

NAMESPACES = Path("/run/netns")
CLONE_NEWNET = 0x40000000
TX_DROPPED = 11
"""Column of /proc/net/dev."""

_numbers = itertools.count()


@dataclass(frozen=True)
class Pair:
    """Two ends: namespace and interface of the sender, namespace and interface of the receiver."""

    sending: str
    sender: str
    receiving: str
    receiver: str

    def set(self, *words: str) -> None:
        """Run `ip link set` on the receiving interface."""
        ip("-n", self.receiving, "link", "set", self.receiver, *words)

    def dropped_before(self) -> int:
        """Packets that were dropped between both interfaces, so no capture can see them."""
        with in_namespace(self.sending):
            lines = Path("/proc/thread-self/net/dev").read_text().splitlines()  # the file of the thread's namespace
        found = {name.strip(): numbers.split() for name, _, numbers in (line.partition(":") for line in lines)}
        return int(found[self.sender][TX_DROPPED])


def ip(*words: str) -> str:
    """Run `ip`. Raises RuntimeError with its message if it fails."""
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


@cache
def veth_obstacle() -> str | None:
    """Return the reason why no pair can be made on this machine, or None."""
    if sys.platform != "linux":
        return "live interfaces are read only on Linux"
    if shutil.which("ip") is None:
        return "the command ip (iproute2) is not installed"
    if os.geteuid() != 0:
        return "network namespaces require root"
    try:
        with veth_pair():
            return None
    except (RuntimeError, OSError) as error:
        return f"no veth pair in namespaces can be made: {error}"


@contextmanager
def veth_pair() -> Iterator[Pair]:
    """Make a pair with both ends up. The pair and its namespaces are removed at the end."""
    name = f"wt{os.getpid()}-{next(_numbers)}"
    pair = Pair(f"{name}s", f"{name}s", f"{name}r", f"{name}r")
    made: list[str] = []
    try:
        for namespace in (pair.sending, pair.receiving):
            ip("netns", "add", namespace)
            made.append(namespace)
            with in_namespace(namespace):
                for which in ("all", "default"):
                    setting = Path(f"/proc/sys/net/ipv6/conf/{which}/disable_ipv6")
                    if setting.exists():
                        setting.write_text("1")
        ip(
            "link", "add", pair.sender, "netns", pair.sending, "type", "veth",
            "peer", "name", pair.receiver, "netns", pair.receiving,
        )  # fmt: skip
        ip("-n", pair.sending, "link", "set", pair.sender, "arp", "off", "up")
        ip("-n", pair.receiving, "link", "set", pair.receiver, "arp", "off", "up")
        yield pair
    finally:
        for namespace in made:
            ip("netns", "del", namespace)


@contextmanager
def in_namespace(namespace: str) -> Iterator[None]:
    """Move this thread into a network namespace during the body. Sockets that it opens stay in the namespace."""
    setns = ctypes.CDLL(None, use_errno=True).setns
    here = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    there = os.open(NAMESPACES / namespace, os.O_RDONLY)

    def enter(descriptor: int) -> None:
        if setns(descriptor, CLONE_NEWNET):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), namespace)

    try:
        enter(there)
        try:
            yield
        finally:
            enter(here)
    finally:
        os.close(here)
        os.close(there)
