"""Columns that lie apart: catches a length that is a power of two again, and a column that has no room for its rows."""

from __future__ import annotations

import pytest

from capture.column_matrix import CACHE_LINE, LINE_WORDS, PADDING_LINES, column_matrix


@pytest.mark.parametrize("capacity", [1, 7, 8, 9, 63, 64, 4096, 16384, 16391])
def test_every_column_has_room_and_the_same_row_of_them_lies_in_different_sets_of_a_cache(capacity: int) -> None:
    matrix = column_matrix(60, capacity)
    assert matrix.flags.c_contiguous
    assert not matrix.any()
    assert capacity + PADDING_LINES * LINE_WORDS <= matrix.shape[1] < capacity + (PADDING_LINES + 2) * LINE_WORDS
    assert matrix.strides[0] % CACHE_LINE == 0
    sets = {column * matrix.strides[0] // CACHE_LINE % 64 for column in range(60)}
    assert len(sets) == 60
