"""The reader of the kind `samples`: sampled packets from the sFlow datagrams in a capture."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np
import numpy.typing as npt

from capture.files.blocks import Block
from capture.files.capture import AnyCapture
from capture.lazy_dataclasses import dataclass
from capture.metrics import Samples
from capture.packets.decoder import Decoder, Packets
from capture.sflow.columns import NULL, SAMPLE_COLUMNS, SAMPLING_COLUMNS
from capture.sflow.decoder import SampleDecoder
from capture.sflow.lister import Datagrams, ListedSamples, SampleLister, choose_datagrams
from capture.sflow.samples import SFLOW_PORT
from lowlevel.expressions.columns import AddressVector, AnyVector, CachedColumns, Vector
from lowlevel.rows.packet_columns import Interfaces, PacketColumns

Numbers = npt.NDArray[np.int64]

CARRIER_COLUMNS = ("ts", "srcIP", "destPort", "protocol", "payload", "interface")
"""Columns to decode for packets that may contain sFlow datagrams."""


@dataclass(frozen=True, slots=True)
class BlockDatagrams:
    """The sFlow datagrams of a block, with their senders, and the interfaces that captured them."""

    datagrams: Datagrams
    exporter: AddressVector
    interfaces: Numbers


class SampleColumns(CachedColumns):
    """The columns of a batch of samples. They are valid until the reader decodes further samples."""

    def __init__(
        self, packets: PacketColumns, listed: ListedSamples, datagrams: BlockDatagrams, interfaces: Interfaces
    ) -> None:
        """Combine sampled packets, the fields of their samples, and the datagrams of the samples."""
        super().__init__()
        self._packets = packets
        self._listed = listed
        self._datagrams = datagrams
        self._interfaces = interfaces

    def _make(self, name: str) -> AnyVector:
        if name == "interface":
            return self._interfaces.texts(self._datagrams.interfaces[self._listed.field("datagram")])
        if name not in SAMPLING_COLUMNS:
            return self._packets[name]
        if name == "exporter":
            sender, datagram = self._datagrams.exporter, self._listed.field("datagram")
            return AddressVector(sender.version[datagram], sender.high[datagram], sender.low[datagram])
        if name == "agent":
            version, high, low = (self._listed.field(f"agent_{part}") for part in ("version", "high", "low"))
            return AddressVector(version, high.view(np.uint64), low.view(np.uint64), version != 0)
        data = self._listed.field(name)
        return Vector(data, data != NULL if SAMPLING_COLUMNS[name].nullable else None)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of all columns of the kind."""
        return iter(SAMPLE_COLUMNS)

    def __len__(self) -> int:
        """Return the number of columns of the kind."""
        return len(SAMPLE_COLUMNS)


@dataclass(frozen=True, slots=True)
class SampleRows:
    """A batch of samples. Implements `lowlevel.rows.readers.Rows`."""

    count: int
    earliest: int
    columns: SampleColumns
    arrivals: None = None
    exports: None = None


class SampleReader:
    """Reader of rows of the kind `samples`.

    A row has the ts of its record, so a watermark of records is also a watermark of rows.

    The reader compares the sequence numbers of consecutive blocks. So **one reader must read all blocks of a capture,
    in order**.
    """

    has_record_watermarks = True

    def __init__(self, link: str, capture: AnyCapture, columns: Collection[str], capacity: int) -> None:
        """Prepare to read `columns`. `capacity`: maximum number of records in a block."""
        self.link = link
        self.capture = capture
        self.carrier = Decoder(capture, CARRIER_COLUMNS, capacity)
        self.lister = SampleLister(capacity)
        self.decoder = SampleDecoder(capture, columns, capacity)
        self.interfaces = Interfaces(capture)
        self.chosen = np.empty(capacity, np.int64)

    def read(self, block: Block) -> Iterator[SampleRows]:
        """Decode one block."""
        datagrams = self._choose_datagrams(self.carrier.decode(block))
        for listed in self.lister.list(self.capture.data, datagrams.datagrams):
            packets = PacketColumns(
                self.link, self.decoder.decode_listed(listed), self.capture, SAMPLE_COLUMNS, self.interfaces
            )
            yield SampleRows(
                listed.sample_count, block.min_ts, SampleColumns(packets, listed, datagrams, self.interfaces)
            )

    def _choose_datagrams(self, packets: Packets) -> BlockDatagrams:
        """Return the sFlow datagrams among decoded packets."""
        offsets, lengths = packets.field("payload_offset"), packets.field("payload_length")
        count = choose_datagrams(
            self.capture.data, packets.field("protocol"), packets.field("destPort"), offsets, lengths,
            packets.row_count, SFLOW_PORT, self.chosen,
        )  # fmt: skip
        chosen = self.chosen[:count]
        version, high, low = (packets.field(name)[chosen] for name in ("ip_version", "src_high", "src_low"))
        return BlockDatagrams(
            Datagrams(offsets[chosen], lengths[chosen], packets.field("ts")[chosen]),
            AddressVector(version, high.view(np.uint64), low.view(np.uint64)),
            packets.field("interface")[chosen],
        )

    waits = False
    sets_waiting = 0

    def finish(self) -> Iterator[SampleRows]:
        """Yield nothing, because no sample waits."""
        return iter(())

    def samples(self) -> Samples:
        """Return the counters of datagrams, samples and sequence numbers."""
        return self.lister.metric_samples(self.link)
