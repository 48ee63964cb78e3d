"""Datagrams through the recording kernel, without sockets."""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path

import numpy as np

from capture.collector.chunks import SLOT_STRIDE, Batch, Chunk
from capture.collector.recorder import Recorder
from capture.collector.recvmmsg import halves
from capture.collector.settings import Settings
from capture.collector.sockets import UdpSocket
from tests.harness.collected import Datagram

NS = 10**9


START = 1_700_000_000 * NS


def settings(**more: object) -> Settings:
    return Settings((("127.0.0.1", 0),), Path("unused"), **more)  # type: ignore[arg-type]


def fill(batch: Batch, found: list[Datagram]) -> None:
    """Lay datagrams into a batch as a receiver would."""
    for place, each in enumerate(found):
        source, destination = ip_address(each.source), ip_address(each.destination)
        row = [len(each.payload), each.time, source.version, *halves(source), each.source_port, *halves(destination)]
        batch.rows[place] = row
        batch.slots[place * SLOT_STRIDE : place * SLOT_STRIDE + len(each.payload)] = np.frombuffer(
            each.payload, np.uint8
        )


def run(recorder: Recorder, udp: UdpSocket, count: int) -> list[tuple[int | None, bytes]]:
    """Record the whole batch: the chunks that come of it, with the time of the file that begins with each."""
    chunks: list[tuple[int | None, bytes]] = []
    chunk, first = Chunk(), 0
    while first < count:
        first = recorder.record(udp, first, count, chunk)
        if first < count:
            file_time = recorder.begin_file(first) if recorder.file_due else None
            chunks.append((chunk.file_time, bytes(chunk.data[: chunk.used_bytes])))
            chunk = Chunk(file_time=file_time)
    chunks.append((chunk.file_time, bytes(chunk.data[: chunk.used_bytes])))
    return [each for each in chunks if each[1]]
