"""Checks that two results are equal and that the values of a column are valid."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from capture.packets.columns import ColumnSpec
from capture.packets.decoder import Packets
from capture.packets.fields import INNER_PREFIX, PHYSICAL_COLUMNS, ROWS

Frame = tuple[int, int]
"""Offsets of the first byte of a frame in the data and of the first byte after it."""


def same(what: str, native: object, plain: object) -> None:
    """Machine code and plain Python agree; arrays are compared by their values."""
    equal = np.array_equal(native, plain) if isinstance(native, np.ndarray) else native == plain
    assert equal, f"{what}: machine code gives {native!r}, plain Python {plain!r}"


class Sound:
    """Checks packets: values fit their columns, payloads their frames, and without a tunnel both layers are one.

    A value outside its column's bits would spill into its neighbours where keys are packed.
    """

    def __init__(self, specs: Mapping[str, ColumnSpec]) -> None:
        """Check packets that were decoded with all columns of `specs`, of both layers."""
        self.names = list(ROWS)
        self.lowest = np.full((len(ROWS), 1), -(2**63), np.int64)
        self.highest = np.full((len(ROWS), 1), 2**63 - 1, np.int64)
        for name, spec in specs.items():
            row = ROWS.get(PHYSICAL_COLUMNS.get(name, (name,))[0])
            if row is not None and spec.type in ("integer", "mac") and spec.bits < 64:
                self.lowest[row] = -1 if spec.nullable else 0
                self.highest[row] = (1 << spec.bits) - 1
        self.layers = [(ROWS[name], ROWS[INNER_PREFIX + name]) for name in ROWS if INNER_PREFIX + name in ROWS]

    def __call__(self, packets: Packets, frames: list[Frame] | None = None) -> None:
        """`frames`: the frames of the rows, if they are known."""
        matrix = packets.matrix[:, : packets.row_count]
        outside = np.argwhere((matrix < self.lowest) | (matrix > self.highest)).tolist()
        assert not outside, [(self.names[row], int(matrix[row, packet])) for row, packet in outside]
        outer, inner = map(list, zip(*self.layers, strict=True))
        differs = (matrix[outer] != matrix[inner]) & (matrix[ROWS["tunnels"]] == 0)
        assert not differs.any(), [self.names[outer[place]] for place in np.argwhere(differs)[:, 0]]
        for layer in ("", INNER_PREFIX) if frames is not None else ():
            starts, lengths = (packets.field(each).tolist() for each in PHYSICAL_COLUMNS[f"{layer}payload"])
            for start, length, (frame, end) in zip(starts, lengths, frames or (), strict=True):
                inside = start == length == -1 or (length >= 0 and frame <= start and start + length <= end)
                assert inside, f"{layer}payload is {length} bytes from {start}, its frame {frame}..{end}"
