"""One cheap pass over the record headers of a capture: its blocks, and the true low watermark after each.

`lwm(n) = min{ t.ts : t after position n }` (Li 2008, Eq. 4.1). A finite file can be asked for it: the pass notes the
smallest time of each block, and the minimum over all later blocks is exactly the promise a reader may make after this
one. Nothing in a file is then ever late, however its timestamps jump. The pass reads 16 bytes of each record and is
several times faster than decoding.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from capture.files.block_row import ROW
from capture.files.blocks import BLOCK_RECORDS, DAMAGE, END_OF_FILE, MORE, Block, Index
from capture.files.capture import Capture
from capture.files.record_format import WalkState


def scan(file: Capture, block_records: int = BLOCK_RECORDS) -> Index:
    """Index a capture."""
    state = WalkState(file.format.first_record)
    chunk = np.empty((max(1, 4_194_304 // block_records), ROW), np.int64)
    found: list[npt.NDArray[np.int64]] = []
    while state.status == MORE:
        count = file.format.walk(file.data, len(file.data), block_records, chunk, state)
        found.append(chunk[:count].copy())
    return index_of(np.concatenate(found), DAMAGE.get(state.status))


def index_of(rows: npt.NDArray[np.int64], damage: str | None) -> Index:
    """Make an index of all blocks of a file, rows of ROW in their order, and find the low watermark after each."""
    lows = np.append(np.minimum.accumulate(rows[::-1, 3])[::-1], END_OF_FILE)[1:]  # empty for no block
    blocks = [Block(*row) for row in np.column_stack([rows[:, :5], lows, rows[:, 5]]).tolist()]
    return Index(blocks, damage)
