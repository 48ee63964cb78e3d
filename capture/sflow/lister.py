"""List the samples in sFlow datagrams. `SampleLister` owns the buffers into which the kernel `list_samples` writes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from capture.bytes import u32be
from capture.lazy_dataclasses import dataclass
from capture.metrics import (
    SFLOW_DATAGRAMS,
    SFLOW_DATAGRAMS_SKIPPED,
    SFLOW_SAMPLES,
    SFLOW_SAMPLES_SKIPPED,
    SFLOW_SEQUENCES,
    Samples,
)
from capture.native import helper, kernel
from capture.packets.fields import UDP
from capture.sflow.columns import (
    COUNTER_NAMES,
    DATAGRAM_SKIP_CAUSES,
    SAMPLE_FIELDS,
    SAMPLE_KINDS,
    SAMPLE_SKIP_CAUSES,
    SEQUENCE_EVENTS,
)
from capture.sflow.samples import MAX_SAMPLES, MAX_SEQUENCES, SLOT_WORDS, list_samples, padded_length

# Selection of the packets that carry sFlow, by port or by content.
#
# A UDP packet to port 6343 is always read as sFlow; errors in it are counted by cause. At any other port a UDP payload
# is read as sFlow only if all its parts are valid: version 5, the address of an agent, and samples that end exactly at
# its end. Truncated and fragmented datagrams fail this test, so they are recognised only at port 6343.


@helper
def is_datagram(buf, offset, end):  # type: ignore[no-untyped-def]
    """Return whether `buf[offset:end]` is a complete sFlow datagram of version 5 with at least one sample."""
    if offset + 28 > end or u32be(buf, offset) != 5:
        return False
    kind = u32be(buf, offset + 4)
    if kind not in (1, 2):
        return False
    offset += 12 if kind == 1 else 24
    if offset + 16 > end:
        return False
    samples = u32be(buf, offset + 12)
    offset += 16
    if samples == 0 or samples * 8 > end - offset:
        return False
    while samples > 0:
        if offset + 8 > end:
            return False
        length = u32be(buf, offset + 4)
        if length > end - offset - 8:
            return False
        offset += 8 + padded_length(length)
        samples -= 1
    return offset == end


@kernel("i64(u8*, i64*, i64*, i64*, i64*, i64, i64, i64*)")
def choose_datagrams(buf, protocols, ports, offsets, lengths, packet_count, port, chosen):  # type: ignore[no-untyped-def]
    """Write the indices of the packets that carry sFlow to `chosen`. Return their number.

    `chosen` has room for one index per packet.

    `protocols`, `ports`, `offsets`, `lengths`: the columns protocol, destPort, payload_offset and payload_length; NULL
    is -1.
    """
    count = 0
    for packet in range(packet_count):
        if protocols[packet] != UDP or ports[packet] < 0 or offsets[packet] < 0:
            continue
        offset = offsets[packet]
        if ports[packet] == port or is_datagram(buf, offset, offset + lengths[packet]):
            chosen[count] = packet
            count += 1
    return count


Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Datagrams:
    """Datagrams in a capture's data: offsets, lengths and arrival times (ns), in contiguous arrays of equal length.

    Every datagram must be completely inside the data, because the kernel does not check this.
    """

    offsets: Int64Array
    lengths: Int64Array
    times: Int64Array

    def __len__(self) -> int:
        """Count the datagrams."""
        return len(self.offsets)


@dataclass(frozen=True)
class ListedSamples:
    """A batch of listed samples: the `sample_count` matrix columns that begin at column `first`. A column is a sample.

    A batch is valid until the next batch of `SampleLister.list` is requested, because the matrix is used again.
    """

    matrix: Int64Array
    first: int
    sample_count: int

    def field(self, name: str) -> Int64Array:
        """Return one of SAMPLE_FIELDS. NULL is -1. Agent addresses are bit patterns of unsigned integers."""
        return self.matrix[SAMPLE_FIELDS.index(name), self.first : self.first + self.sample_count]


class SampleLister:
    """Lists the flow samples in the datagrams of one input, and checks their sequence numbers. Not thread safe.

    Memory: len(SAMPLE_FIELDS) x (capacity + MAX_SAMPLES) x 8 bytes, and MAX_SEQUENCES x SLOT_WORDS x 8 bytes (2.5 MB)
    for the sequence numbers of agents and sources.
    """

    def __init__(self, capacity: int) -> None:
        """Create the buffers. `list` yields at most `capacity` samples at a time."""
        self.capacity = capacity
        self.matrix = np.zeros((len(SAMPLE_FIELDS), capacity + MAX_SAMPLES), np.int64)
        self.sequences = np.zeros((MAX_SEQUENCES, SLOT_WORDS), np.int64)
        self.counters = np.zeros(len(COUNTER_NAMES) + 1, np.int64)

    @property
    def counts(self) -> dict[str, int]:
        """The counters so far, by name (COUNTER_NAMES): read and skipped datagrams and samples, and sequence events."""
        return dict(zip(COUNTER_NAMES, self.counters.tolist(), strict=False))

    def metric_samples(self, link: str) -> Samples:
        """Return the counters of datagrams, samples and sequence numbers."""
        counts = self.counts
        samples = Samples()
        samples.add(SFLOW_DATAGRAMS, counts["datagrams"], link)
        for metric, names in (
            (SFLOW_DATAGRAMS_SKIPPED, DATAGRAM_SKIP_CAUSES),
            (SFLOW_SAMPLES, SAMPLE_KINDS),
            (SFLOW_SAMPLES_SKIPPED, SAMPLE_SKIP_CAUSES),
            (SFLOW_SEQUENCES, SEQUENCE_EVENTS),
        ):
            for name in names:
                samples.add(metric, counts[name], link, name)
        return samples

    def list(self, data: npt.NDArray[np.uint8], datagrams: Datagrams) -> Iterator[ListedSamples]:
        """List the samples of the datagrams in `data`, in order. Yield them in batches."""
        first = 0
        while first < len(datagrams):
            rows = list_samples(
                data, datagrams.offsets, datagrams.lengths, datagrams.times, len(datagrams), first,
                self.sequences.reshape(-1), self.matrix.reshape(-1), self.matrix.shape[1], self.counters,
            )  # fmt: skip
            first = int(self.counters[-1])
            for start in range(0, rows, self.capacity):
                yield ListedSamples(self.matrix, start, min(self.capacity, rows - start))
