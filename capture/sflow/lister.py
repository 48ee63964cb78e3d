"""Datagrams of a block to listed samples: the buffers that the sFlow kernel fills."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from capture.bytes import u32be
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
from capture.sflow.columns import COUNTS, DATAGRAMS_SKIPPED, SAMPLE_FIELDS, SAMPLES, SAMPLES_SKIPPED, SEQUENCES
from capture.sflow.samples import MAX_SAMPLES, SLOT, SLOTS, list_samples, padded

# Which packets of a capture carry sFlow: those sent to its port, and those that cannot be anything else.
#
# To port 6343 goes whatever the sender takes for sFlow; what it is not is counted by cause. At any other port a UDP
# payload is taken for a datagram when it is one through and through: version 5, an agent's address, and samples whose
# lengths lead exactly to its end. Of a datagram that was cut or sent in fragments only the first condition can hold.


@helper
def is_datagram(buf, at, end):  # type: ignore[no-untyped-def]
    """Whether `buf[at:end]` is a whole sFlow datagram of version 5 with one sample or more."""
    if at + 28 > end or u32be(buf, at) != 5:
        return False
    kind = u32be(buf, at + 4)
    if kind not in (1, 2):
        return False
    at += 12 if kind == 1 else 24
    if at + 16 > end:
        return False
    samples = u32be(buf, at + 12)
    at += 16
    if samples == 0 or samples * 8 > end - at:
        return False
    while samples > 0:
        if at + 8 > end:
            return False
        length = u32be(buf, at + 4)
        if length > end - at - 8:
            return False
        at += 8 + padded(length)
        samples -= 1
    return at == end


@kernel("i64(u8*, i64*, i64*, i64*, i64*, i64, i64, i64*)")
def choose_datagrams(buf, protocols, ports, offsets, lengths, packets, port, chosen):  # type: ignore[no-untyped-def]
    """Write the numbers of the packets that carry sFlow into `chosen`, room for all; return how many there are.

    Packets are given by their columns protocol, destPort, payload_offset and payload_length, NULL as -1.
    """
    count = 0
    for packet in range(packets):
        if protocols[packet] != UDP or ports[packet] < 0 or offsets[packet] < 0:
            continue
        at = offsets[packet]
        if ports[packet] == port or is_datagram(buf, at, at + lengths[packet]):
            chosen[count] = packet
            count += 1
    return count


Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Datagrams:
    """Where datagrams lie in a capture's data, and when they arrived (ns). The arrays are contiguous and equally long.

    Every datagram is wholly inside the data: the kernel trusts that.
    """

    offsets: Numbers
    lengths: Numbers
    times: Numbers

    def __len__(self) -> int:
        """Count the datagrams."""
        return len(self.offsets)


@dataclass(frozen=True)
class Listed:
    """Listed samples: `rows` columns of the matrix from column `first`. Valid until the lister goes on."""

    matrix: Numbers
    first: int
    rows: int

    def field(self, name: str) -> Numbers:
        """Return one of SAMPLE_FIELDS; NULL is -1. An agent's address is the bit patterns of unsigned numbers."""
        return self.matrix[SAMPLE_FIELDS.index(name), self.first : self.first + self.rows]


class SampleLister:
    """Lists the flow samples of one input's datagrams, and follows the sequence numbers in them. Not thread safe.

    Memory is fixed: len(SAMPLE_FIELDS) x (capacity + MAX_SAMPLES) x 8 bytes, and SLOTS x SLOT x 8 bytes
    (2.5 MB) for the sequences of agents and sources.
    """

    def __init__(self, capacity: int) -> None:
        """Hand out up to `capacity` samples at once."""
        self.capacity = capacity
        self.matrix = np.zeros((len(SAMPLE_FIELDS), capacity + MAX_SAMPLES), np.int64)
        self.sequences = np.zeros((SLOTS, SLOT), np.int64)
        self.words = np.zeros(len(COUNTS) + 1, np.int64)

    @property
    def counts(self) -> dict[str, int]:
        """What was read, skipped and missing so far, by the names of COUNTS."""
        return dict(zip(COUNTS, self.words.tolist(), strict=False))

    def samples(self, link: str) -> Samples:
        """Return what became of datagrams and samples, and what their sequence numbers tell."""
        counts = self.counts
        samples = Samples()
        samples.add(SFLOW_DATAGRAMS, counts["datagrams"], link)
        for metric, names in (
            (SFLOW_DATAGRAMS_SKIPPED, DATAGRAMS_SKIPPED),
            (SFLOW_SAMPLES, SAMPLES),
            (SFLOW_SAMPLES_SKIPPED, SAMPLES_SKIPPED),
            (SFLOW_SEQUENCES, SEQUENCES),
        ):
            for name in names:
                samples.add(metric, counts[name], link, name)
        return samples

    def list(self, data: npt.NDArray[np.uint8], datagrams: Datagrams) -> Iterator[Listed]:
        """List the samples of datagrams in `data`, in their order."""
        first = 0
        while first < len(datagrams):
            rows = list_samples(
                data, datagrams.offsets, datagrams.lengths, datagrams.times, len(datagrams), first,
                self.sequences.reshape(-1), self.matrix.reshape(-1), self.matrix.shape[1], self.words,
            )  # fmt: skip
            first = int(self.words[-1])
            for place in range(0, rows, self.capacity):
                yield Listed(self.matrix, place, min(self.capacity, rows - place))
