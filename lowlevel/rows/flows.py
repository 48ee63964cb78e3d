"""The reader of the kind `flows`: flow records from a capture of export datagrams or from a file of export messages."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np
import numpy.typing as npt

from capture.files.blocks import Block
from capture.files.capture import AnyCapture
from capture.files.messages import ExportFormat, list_messages
from capture.flows.announcements import OtherFiles
from capture.flows.columns import FLOW_COLUMNS
from capture.flows.decoder import Datagrams, FlowDecoder, Flows
from capture.flows.elements import DataType, element_named
from capture.flows.export_datagrams import choose_exports
from capture.flows.kernels.datagrams import JOB_ARRIVAL, JOB_LENGTH, JOB_ROWS, JOB_START
from capture.flows.kernels.values import END_ROW, RATE_DENOMINATOR_ROW, RATE_NUMERATOR_ROW, START_ROW
from capture.flows.layouts import TIME_SOURCES, UNSCALED_COLUMNS
from capture.flows.sampling import FixedRates, Sampling
from capture.flows.sessions import Session, Sessions
from capture.flows.stored_templates import load_for_capture
from capture.flows.templates import Definition
from capture.lazy_dataclasses import dataclass
from capture.metrics import FLOW_DATAGRAMS_REFUSED, Samples
from capture.packets.decoder import Decoder
from lowlevel.expressions.columns import AddressVector, AnyVector, CachedColumns, Mask, TextVector, Vector

Numbers = npt.NDArray[np.int64]


class FlowColumns(CachedColumns):
    """Columns of decoded flow records. They are valid until the decoder decodes the next records."""

    def __init__(self, link: str, flows: Flows) -> None:
        """Wrap decoded records."""
        super().__init__()
        self._link = link
        self._flows = flows

    def _make(self, name: str) -> AnyVector:
        flows = self._flows
        if name == "link":
            return TextVector.constant(self._link)
        if name in TIME_SOURCES:
            return Vector(flows.row(START_ROW if TIME_SOURCES[name] == "start_ts" else END_ROW))
        if name in UNSCALED_COLUMNS:
            raw = self[UNSCALED_COLUMNS[name]]
            assert isinstance(raw, Vector)
            return Vector(
                correct_counters(raw.data, flows.row(RATE_NUMERATOR_ROW), flows.row(RATE_DENOMINATOR_ROW)), raw.valid
            )
        if name == "sampling_rate":
            numerator, denominator = flows.row(RATE_NUMERATOR_ROW), flows.row(RATE_DENOMINATOR_ROW)
            return Vector((numerator + denominator // 2) // denominator, numerator > 0)
        if name == "ip_version":
            source, destination = (flows.row(flows.column_rows.rows[address]) for address in ("srcIP", "destIP"))
            version = np.where(source != 0, source, destination)
            return Vector(version, version != 0)
        row = flows.column_rows.rows[name]
        spec = flows.column_rows.specs[name]
        valid = self._valid(row)
        match spec.type:
            case "address":
                return self._address(row, valid)
            case "text":
                element = element_named(name)
                as_text = element is not None and element.type is DataType.STRING
                names = flows.texts.texts() if as_text else flows.texts.octets()
                numbers = flows.row(row) if valid is None else np.where(valid, flows.row(row), 0)
                return TextVector(names.name_indices[numbers], names.names, valid)
            case "float":
                return Vector(flows.row(row).view(np.float64), valid)
            case "boolean":
                return Vector(flows.row(row) == 1, valid)
        return Vector(flows.row(row), valid)

    def _valid(self, row: int) -> Mask | None:
        valid = self._flows.validity(row)
        return None if valid.all() else valid

    def _address(self, row: int, valid: Mask | None) -> AddressVector:
        version, high, low = (self._flows.row(row + part) for part in range(3))
        if valid is None and (version == 4).all():
            return AddressVector.of_ipv4(low)
        return AddressVector(version, high.view(np.uint64), low.view(np.uint64), valid)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the core columns, without other elements."""
        return iter(FLOW_COLUMNS)

    def __len__(self) -> int:
        """Return the number of core columns."""
        return len(FLOW_COLUMNS)


def correct_counters(counters: Numbers, numerator: Numbers, denominator: Numbers) -> Numbers:
    """Multiply counters by their sampling rates `numerator / denominator`, and round them.

    A `numerator` of 0 means an unknown rate.

    >>> correct_counters(np.array([3, 5, 7]), np.array([100, 0, 5]), np.array([1, 1, 2])).tolist()
    [300, 5, 18]
    """
    if (numerator <= 1).all() and (denominator == 1).all():
        return counters
    rate = np.where(numerator == 0, denominator, numerator)
    # Multiples of the denominator are multiplied separately, so that only a result above 64 bits overflows.
    return counters // denominator * rate + (counters % denominator * rate + denominator // 2) // denominator


CARRIER_COLUMNS = ("ts", "srcIP", "srcPort", "destPort", "protocol", "payload")
"""Columns to decode for packets that may contain flow exports."""

ARRIVAL_COLUMN = "arrival_ts"
"""The column with the capture time of the datagram of a flow record."""


@dataclass(frozen=True, slots=True)
class FlowRows:
    """A batch of flow records. Implements `lowlevel.rows.readers.Rows`."""

    count: int
    earliest: int
    columns: FlowColumns
    arrivals: npt.NDArray[np.int64] | None
    exports: Sessions


class FlowReader:
    """Reader of rows of the kind `flows`. Their ts is the end of the flow, so `has_record_watermarks` is False.

    The arrival of a row is the capture time of its datagram. Rows of a file of export messages have no arrival.
    Datagrams are decoded with the templates of earlier datagrams. So **one reader must read all blocks of a capture,
    in order**.
    """

    has_record_watermarks = False

    def __init__(
        self,
        link: str,
        capture: AnyCapture,
        columns: Collection[str],
        capacity: int,
        sampling: FixedRates | None = None,
        recording: OtherFiles | None = None,
    ) -> None:
        """Prepare to read `columns`. Load the template file in the folder of the capture, if it exists.

        * `capacity`: maximum number of records in a block.
        * `sampling`: sampling rates that override announced rates.
        * `recording`: the other files of the link, which may announce missing templates (`lowlevel.flow_recording`).
        """
        self.link = link
        self.capture = capture
        self.carrier = Decoder(capture, CARRIER_COLUMNS, capacity)
        self.has_arrivals = not isinstance(capture.format, ExportFormat)
        decoded_columns = [*columns, ARRIVAL_COLUMN] if self.has_arrivals else columns
        self.decoder = FlowDecoder(
            decoded_columns, capacity, dict(sampling) if isinstance(sampling, tuple) else sampling
        )
        self.datagram_table = np.zeros((JOB_ROWS, capacity), np.int64)
        self.refused_count = np.zeros(1, np.int64)
        load_for_capture(capture.path, self.decoder)
        self.recording = recording
        self.waits = False
        if self.recording is not None:
            self.decoder.request_definition = self._find_definition

    def read(self, block: Block) -> Iterator[FlowRows]:
        """Decode one block."""
        for flows in self.decoder.decode(self.capture.data, self._datagrams(block)):
            yield self._rows(flows)
        self.waits = self.recording is not None and len(self.decoder.waiting) > 0

    @property
    def sets_waiting(self) -> int:
        """Number of sets that wait for their template."""
        return len(self.decoder.waiting)

    def finish(self) -> Iterator[FlowRows]:
        """Decode the records that still wait for templates, with templates from later files of the link."""
        self.waits = False
        if self.recording is None or not len(self.decoder.waiting):
            return
        for announced in self.recording.later_announcements():
            for session in self._waiting_sessions():
                self._learn_rates(
                    session, announced.sampling.get(session.key), announced.exporter_starts.get(session.key)
                )
            templates = (
                (key, template, definition) for (key, template), definition in announced.first_definitions.items()
            )
            for flows in self.decoder.read_waiting(templates):
                yield self._rows(flows)
            if not len(self.decoder.waiting):
                return

    def _rows(self, flows: Flows) -> FlowRows:
        arrivals = flows.row(flows.column_rows.rows[ARRIVAL_COLUMN]) if self.has_arrivals else None
        columns = FlowColumns(self.link, flows)
        return FlowRows(flows.row_count, int(flows.row(END_ROW).min()), columns, arrivals, self.decoder.sessions)

    def _waiting_sessions(self) -> list[Session]:
        """Return the sender sessions of waiting records."""
        session_numbers = dict.fromkeys(session for session, _ in self.decoder.waiting.templates_missing())
        return [self.decoder.sessions.by_number[session_number] for session_number in session_numbers]

    def _find_definition(self, session: Session, template: int) -> Definition | None:
        """Return the last definition of a template in earlier files of the link; None if there is none."""
        assert self.recording is not None
        self._learn_rates(session, *self.recording.rates(session.key))
        return self.recording.earlier_definition(session.key, template)

    def _learn_rates(self, session: Session, sampling: Sampling | None, started: int | None) -> None:
        """Set sampling rate and start time of a session from other files, if this file has not announced them."""
        if sampling is not None and not session.sampling.default_rate and not session.sampling.rates_by_key:
            session.sampling = Sampling(sampling.default_rate, dict(sampling.rates_by_key))
            self.decoder.sessions.update_sampling(session)
        if started is not None and session.exporter_start is None:
            self.decoder.sessions.set_start(session, started)

    def _datagrams(self, block: Block) -> Datagrams:
        """Return the positions of the export datagrams in a block."""
        if isinstance(self.capture.format, ExportFormat):
            data = self.capture.data
            count = list_messages(
                data, block.start, block.end, len(data), self.datagram_table[JOB_START],
                self.datagram_table[JOB_LENGTH], self.datagram_table[JOB_ARRIVAL],
            )  # fmt: skip
            return Datagrams(self.datagram_table, count)
        packets = self.carrier.decode(block)
        names = (
            "protocol", "destPort", "payload_offset", "payload_length", "ts", "ip_version", "src_high", "src_low",
            "srcPort",
        )  # fmt: skip
        columns = [packets.field(name) for name in names]
        count = choose_exports(
            self.capture.data,
            *columns,
            packets.row_count,
            self.datagram_table.reshape(-1),
            self.datagram_table.shape[1],
            self.refused_count,
        )
        return Datagrams(self.datagram_table, count)

    def samples(self) -> Samples:
        """Return the counters of datagrams, sets, templates and sequence numbers."""
        samples = self.decoder.samples(self.link)
        samples.add(FLOW_DATAGRAMS_REFUSED, int(self.refused_count[0]), self.link, "not_plausible")
        return samples
