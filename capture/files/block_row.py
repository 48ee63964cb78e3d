"""A block as the kernels describe it that walk over records: ROW words, which `capture.files.blocks.Block` names."""

from __future__ import annotations

from capture.native import helper

ROW = 6
"""Words that describe a block: start, end, records, smallest ts, largest ts, section."""


@helper
def put_block_row(rows, block, start, end, records, first, last, section):  # type: ignore[no-untyped-def]
    """Describe the block of number `block` in `rows`, one of ROW words after the other; return the next number.

    A block without records is none: nothing is written, and `block` is returned.
    """
    if records == 0:
        return block
    at = block * ROW
    rows[at] = start
    rows[at + 1] = end
    rows[at + 2] = records
    rows[at + 3] = first
    rows[at + 4] = last
    rows[at + 5] = section
    return block + 1
