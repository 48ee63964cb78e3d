"""The operator partition of a group: a hash of the group's columns that is the same in every process.

All partials of a group are sent to one partition, so partitions are independent. The hash depends only on the values,
not on their position or batch, and is the same in every task, in every run and on every machine. Otherwise a restart
would look for state in the wrong partition. A query without groups uses partition 0.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lowlevel.expressions.arrow import from_arrow

WORD_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
MIX_MULTIPLIER = np.uint64(0xFF51AFD7ED558CCD)
HALF_WORD_BITS = np.uint64(32)
NULL_WORD = np.uint64(0x5851F42D4C957F2D)
"""The word that stands for NULL."""

Words = npt.NDArray[np.uint64]


def compute_parts(batch: pa.RecordBatch, columns: Sequence[str], part_count: int) -> npt.NDArray[np.int64]:
    """Return the partition, 0 to part_count - 1, of each row of `batch`, from its values in `columns`."""
    hashes = np.zeros(batch.num_rows, np.uint64)
    if not columns or part_count == 1:
        return hashes.astype(np.int64)
    for name in columns:
        for word in _hash_words(batch.column(name)):
            hashes = (hashes * WORD_MULTIPLIER ^ word) * MIX_MULTIPLIER
            hashes ^= hashes >> HALF_WORD_BITS
    return (hashes % np.uint64(part_count)).astype(np.int64)


def _hash_words(column: pa.Array) -> list[Words]:
    """Return one or two words for each value of a key column. Equal values have equal words."""
    if pa.types.is_binary(column.type):
        addresses = from_arrow(column)
        words = [addresses.low, addresses.high ^ addresses.version.astype(np.uint64)]
    elif pa.types.is_string(column.type):
        encoded = column.dictionary_encode()
        digests = [
            hashlib.blake2b((text or "").encode(), digest_size=8).digest() for text in encoded.dictionary.to_pylist()
        ]
        hashes = np.array([int.from_bytes(digest, "little") for digest in digests] or [0], np.uint64)
        words = [hashes[encoded.indices.fill_null(0).to_numpy(zero_copy_only=False)]]
    else:
        zero = pa.scalar(False if pa.types.is_boolean(column.type) else 0, column.type)
        data = column.fill_null(zero).to_numpy(zero_copy_only=False)
        if data.dtype == np.float64:
            data = np.where(np.isnan(data), np.nan, data + 0.0).view(np.int64)  # all NaN are equal, and -0.0 equals 0.0
        words = [data.astype(np.int64).view(np.uint64)]
    if column.null_count:
        is_null = np.asarray(column.is_null())
        words = [np.where(is_null, NULL_WORD, word) for word in words]
    return words
