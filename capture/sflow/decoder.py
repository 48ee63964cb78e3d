"""Decode the sFlow samples that `list_samples` has found. Each sample becomes one row with the columns of a packet.

A sample without a packet header has an IP record instead, the result of the agent's own decoder. Its row contains the
values of this record. If the inner layer is requested, it has the same values. `ts` and `len` are set, `caplen` and
`tunnels` are 0, and all other columns are NULL.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from capture.bytes import u32be, u64be
from capture.files.capture import AnyCapture
from capture.native import helper, kernel
from capture.packets.columns import FRAME_COLUMNS
from capture.packets.decode import decode_frame, write_nulls
from capture.packets.decoder import Decoder, Packets
from capture.packets.fields import (
    CAPLEN,
    DEST_HIGH,
    DEST_LOW,
    DEST_PORT,
    FIRST_INNER_ROW,
    IP_LEN,
    LEN,
    NULL,
    OTHER_ROWS_INDEX,
    PROTOCOL,
    SRC_HIGH,
    SRC_LOW,
    SRC_PORT,
    TCP,
    TCP_FLAGS,
    TOS,
    TS,
    TUNNELS,
    UDP,
    VERSION,
)
from capture.sflow.columns import CAPTURED_LENGTH, HEADER, LINK_TYPE, SAMPLED_IPV4, SAMPLED_IPV6, TIME, WIRE_LENGTH
from capture.sflow.lister import ListedSamples


@helper
def fitting_or_null(value, bits):  # type: ignore[no-untyped-def]
    """Return `value`, or NULL if `value` needs more bits than the header field that it describes."""
    return value if value >> bits == 0 else np.int64(NULL)


@helper
def decode_ip_record(buf, offset, version, time, inner_mask, out, capacity, row, counts):  # type: ignore[no-untyped-def]
    """Write all columns of the row of the sampled_ipv4 or sampled_ipv6 record at `offset`."""
    write_nulls(inner_mask, out, capacity, row)
    counts[OTHER_ROWS_INDEX] += 1
    length = u32be(buf, offset)
    protocol = fitting_or_null(u32be(buf, offset + 4), 8)
    after = offset + (16 if version == 4 else 40)
    for first in (0, FIRST_INNER_ROW):
        if first and not inner_mask:
            break
        out[(first + VERSION) * capacity + row] = version
        if version == 4:
            out[(first + SRC_HIGH) * capacity + row] = 0
            out[(first + SRC_LOW) * capacity + row] = u32be(buf, offset + 8)
            out[(first + DEST_HIGH) * capacity + row] = 0
            out[(first + DEST_LOW) * capacity + row] = u32be(buf, offset + 12)
        else:
            out[(first + SRC_HIGH) * capacity + row] = np.int64(u64be(buf, offset + 8))
            out[(first + SRC_LOW) * capacity + row] = np.int64(u64be(buf, offset + 16))
            out[(first + DEST_HIGH) * capacity + row] = np.int64(u64be(buf, offset + 24))
            out[(first + DEST_LOW) * capacity + row] = np.int64(u64be(buf, offset + 32))
        out[(first + IP_LEN) * capacity + row] = length
        out[(first + PROTOCOL) * capacity + row] = protocol
        if protocol in (TCP, UDP):
            out[(first + SRC_PORT) * capacity + row] = fitting_or_null(u32be(buf, after), 16)
            out[(first + DEST_PORT) * capacity + row] = fitting_or_null(u32be(buf, after + 4), 16)
        if protocol == TCP:
            out[(first + TCP_FLAGS) * capacity + row] = fitting_or_null(u32be(buf, after + 8), 8)
        out[(first + TOS) * capacity + row] = fitting_or_null(u32be(buf, after + 12), 8)
    out[TS * capacity + row] = time
    out[LEN * capacity + row] = length
    out[CAPLEN * capacity + row] = 0
    out[TUNNELS * capacity + row] = 0


@kernel("i64(u8*, i64*, i64, i64, i64, i64, i64, i64*, i64, i64*)")
def decode_listed(buf, sample_matrix, stride, first, sample_count, mask, inner_mask, out, capacity, counts):  # type: ignore[no-untyped-def]
    """Decode the samples `[first, first + sample_count)` of `sample_matrix` into one row each. Return `sample_count`.

    * `sample_matrix`: len(SAMPLE_FIELDS) x stride, written by `list_samples` for `buf`.
    * `mask`: bit mask of the columns to write. `inner_mask`: the same for the inner layer, 0 if not requested.
    * `out`: matrix of the columns, with `capacity` rows. `counts`: counters of the kernel, see
      `capture.packets.fields`.

    The column `interface` is not written: the caller takes it from the datagram.
    """
    for row in range(sample_count):
        sample = first + row
        offset = sample_matrix[HEADER * stride + sample]
        time = sample_matrix[TIME * stride + sample]
        link = sample_matrix[LINK_TYPE * stride + sample]
        if link in (SAMPLED_IPV4, SAMPLED_IPV6):
            decode_ip_record(buf, offset, -link, time, inner_mask, out, capacity, row, counts)
        else:
            end = offset + sample_matrix[CAPTURED_LENGTH * stride + sample]
            wire = sample_matrix[WIRE_LENGTH * stride + sample]
            decode_frame(buf, offset, end, wire, time, link, 0, mask, inner_mask, 1, out, capacity, row, counts)
    return sample_count


class SampleDecoder(Decoder):
    """Decodes the listed samples of one capture into buffers of fixed size. Not thread safe."""

    def __init__(self, file: AnyCapture, columns: Iterable[str], capacity: int) -> None:
        """Prepare to decode up to `capacity` samples per call: those of `columns` that the stream `frames` has.

        `interface` is not decoded, because the caller takes it from the datagram.
        """
        super().__init__(file, (FRAME_COLUMNS.keys() & set(columns)) - {"interface"}, capacity, every_frame=True)

    def decode_listed(self, listed: ListedSamples) -> Packets:
        """Decode samples that were listed from the capture's current data. Each sample becomes one row, in order."""
        return self._packets(
            lambda: decode_listed(
                self.file.data, listed.matrix.reshape(-1), listed.matrix.shape[1], listed.first, listed.sample_count,
                self.mask, self.inner_mask, self.out, self.matrix.shape[1], self.counts,
            )
        )  # fmt: skip
