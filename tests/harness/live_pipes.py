"""Pipes that are written in the order that a test wants."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from queries.gsql import compile_query
from tests.harness.inline_rows import rows_of
from tests.references.pcap_bytes import NS, pcap_bytes
from tests.references.small_captures import RAW_IP, udp

START = 1_700_000_040 * NS
"""A full minute."""


FRAME = udp("10.0.0.1", "10.0.0.2", 1, 2)


COUNT = compile_query("SELECT count(*) AS n FROM p [RANGE 10 seconds]")


AGREED = 64
"""Number of rows that must agree before the start time of a link is accepted."""


class Pipe:
    """A named pipe, open on both ends: what is written can be read at once."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = path
        self._reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # or opening to write would wait for the engine
        self.end: BinaryIO = path.open("wb", buffering=0)
        self.end.write(pcap_bytes([], RAW_IP))

    def write(self, *seconds: float, frame: bytes = FRAME) -> None:
        """Write packets, each so long after START."""
        self.end.write(pcap_bytes([(START + round(each * NS), frame) for each in seconds], RAW_IP)[24:])

    def close(self) -> None:
        self.end.close()
        os.close(self._reading)


def counts(results: Iterator) -> list[tuple[float, int]]:
    """Seconds after START and packets, of the windows that are left."""
    return [((start - START) / NS, n) for _, batch in results for start, _, n in rows_of(batch)]
