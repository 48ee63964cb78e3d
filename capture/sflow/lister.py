"""Datagrams of a block to listed samples: the buffers that the sFlow kernel fills."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from capture.metrics import (
    SFLOW_DATAGRAMS,
    SFLOW_DATAGRAMS_SKIPPED,
    SFLOW_SAMPLES,
    SFLOW_SAMPLES_SKIPPED,
    SFLOW_SEQUENCES,
    Samples,
)
from capture.sflow.fields import COUNTS, DATAGRAMS_SKIPPED, SAMPLE_FIELDS, SAMPLES, SAMPLES_SKIPPED, SEQUENCES
from capture.sflow.samples import MAX_SAMPLES, list_samples
from capture.sflow.sequences import SLOT, SLOTS

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
