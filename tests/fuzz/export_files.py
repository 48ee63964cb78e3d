"""Target `export-files`: files of bare export datagrams, one message behind the other."""

from __future__ import annotations

import numpy as np

from capture.errors import InputError
from capture.files.blocks import Index
from capture.files.messages import ExportFormat, list_messages
from capture.files.scan import scan
from capture.flows.decoder import Datagrams
from tests.fuzz import flow_exports
from tests.fuzz.agreement import same
from tests.fuzz.chunks import chunks
from tests.fuzz.flow_exports import SHARES, check_datagrams
from tests.fuzz.plain import both
from tests.fuzz.record_files import BLOCK, open_bytes

Messages = tuple[list[int], list[int], list[int]]
"""Offsets, lengths and times."""


def read(data: bytes) -> tuple[Index, list[Messages]]:
    """The index of a file, and the messages of each block."""
    file = open_bytes(data)
    index = scan(file, BLOCK)
    messages = []
    for block in index.blocks:
        columns = [np.zeros(BLOCK, np.int64) for _ in range(3)]
        count = list_messages(file.data, block.start, block.end, len(data), *columns)
        assert count == block.records
        messages.append(tuple(column[:count].tolist() for column in columns))
    return index, messages


def check(data: bytes) -> None:
    """Find the messages of a file, which tile its blocks, and decode them."""
    try:
        file = open_bytes(data)
    except InputError:
        return
    if not isinstance(file.format, ExportFormat):
        return
    (index, messages), plain = both(lambda plain: read(data))
    same("messages", (index, messages), plain)
    runs = []
    for block, (offsets, lengths, times) in zip(index.blocks, messages, strict=True):
        at = block.start
        for offset, length, time in zip(offsets, lengths, times, strict=True):
            assert offset == at, "a message begins where the one before it ended"
            assert length > 0
            assert block.min_ts <= time <= block.max_ts
            at += length
        assert at == block.end
        none = [0] * len(offsets)
        runs.append((file.data, Datagrams.of(offsets, lengths, times, none, none, none, none)))
    check_datagrams(runs, len(data) % len(SHARES))


def seeds() -> dict[str, bytes]:
    """Those of the datagrams, without their lengths."""
    return {name: b"".join(chunks(data)) for name, data in flow_exports.seeds().items()}
