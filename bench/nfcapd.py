"""nfcapd, the collector of nfdump, with the same bursts: the number of datagrams in its file."""

from __future__ import annotations

import re
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.datagram_sender import RECORDS

BUFFER_BYTES = 32 << 20
POLL_SECONDS = 0.05
POLLS = 600


def count_received(program: str, data: Path, send: Callable[[int], None]) -> int:
    """Run nfcapd on a free loopback port, and `send` datagrams to it. Return the number of recorded datagrams."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="nfcapd-", dir=data) as folder, tempfile.TemporaryFile("w+") as log:
        command = [program, "-b", "127.0.0.1", "-p", str(port), "-w", folder, "-t", "3600", "-B", str(BUFFER_BYTES)]
        with subprocess.Popen(command, stdout=log, stderr=log) as process:
            try:
                _wait_until(process, lambda: queued_bytes(port) is not None)
                send(port)
                _wait_until(process, lambda: not queued_bytes(port))
            finally:
                process.terminate()
        log.seek(0)
        found = re.search(r"^Ident: .* Flows: (\d+),", log.read(), re.MULTILINE)
    if not found:
        raise RuntimeError("nfcapd ended without a number of flows")
    return int(found[1]) // RECORDS


def queued_bytes(port: int) -> int | None:
    """Return the bytes in the buffers of the UDP sockets of a port, or None without such sockets."""
    found = None
    for table in ("udp", "udp6"):
        path = Path("/proc/net", table)
        for line in path.read_text().splitlines()[1:] if path.exists() else ():
            fields = line.split()
            if int(fields[1].rpartition(":")[2], 16) == port:
                found = (found or 0) + int(fields[4].rpartition(":")[2], 16)
    return found


def _wait_until(process: subprocess.Popen[bytes], done: Callable[[], bool]) -> None:
    for _ in range(POLLS):
        if done():
            return
        if process.poll() is not None:
            raise RuntimeError(f"nfcapd ended with status {process.returncode}")
        time.sleep(POLL_SECONDS)
    raise RuntimeError("nfcapd makes no progress")
