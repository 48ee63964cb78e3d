"""Ending a live input on request, without losing what its writer is about to write."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator

from capture.files.blocks import BLOCK_RECORDS, Block
from capture.files.stream import StreamedCapture

GRACE = 0.5
"""Seconds without anything to read after which a live input that shall stop does: its writer may have been stopped by
the same Ctrl-C, and be about to write what it has left."""

AT_LAST = 2.0
"""Seconds after which it stops though there is more to read."""


def blocks_until_stopped(
    stream: StreamedCapture, stopping: Callable[[], bool], block_records: int = BLOCK_RECORDS
) -> Generator[Block | None, None, None]:
    """Yield a stream's blocks, until it ends or, soon after `stopping` says so, with what has been read.

    A finite stream stops at once. Close the iterator to let go of the stream's buffers.
    """
    heard = time.monotonic()
    stopped: float | None = None
    blocks = stream.blocks(block_records)
    try:
        for block in blocks:
            if block is not None:
                heard = time.monotonic()
                yield block
            else:
                yield None
            if stopping():
                if not stream.live:
                    return
                now = time.monotonic()
                stopped = stopped or now
                if not stream.written or now >= min(max(heard, stopped) + GRACE, stopped + AT_LAST):
                    stream.stop()
    finally:
        close = getattr(blocks, "close", None)
        if close is not None:
            close()
