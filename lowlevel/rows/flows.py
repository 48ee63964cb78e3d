"""The reader of the kind `flows`: flow records of exports in a capture or in a file of bare exports."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

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
from capture.flows.kernels.values import END, RATE_DEN, RATE_NUM, START
from capture.flows.layouts import CORRECTED, TIMES
from capture.flows.sampling import FixedRates, Sampling
from capture.flows.sessions import Session
from capture.flows.stored_templates import load_for_capture
from capture.flows.templates import Definition
from capture.metrics import FLOW_DATAGRAMS_REFUSED, Samples
from capture.packets.decoder import Decoder
from lowlevel.expressions.columns import AddressVector, AnyVector, Mask, TextVector, Vector

Numbers = npt.NDArray[np.int64]


class FlowColumns(Mapping[str, AnyVector]):
    """The requested columns of flow records of a link. Valid as long as the records are."""

    def __init__(self, link: str, flows: Flows) -> None:
        """Wrap decoded records."""
        self._link = link
        self._flows = flows
        self._made: dict[str, AnyVector] = {}

    def __getitem__(self, name: str) -> AnyVector:
        """Return a column by its name in the catalogue."""
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    def _make(self, name: str) -> AnyVector:
        flows = self._flows
        if name == "link":
            return TextVector.of(self._link)
        if name in TIMES:
            return Vector(flows.row(START if TIMES[name] == "start_ts" else END))
        if name in CORRECTED:
            raw = self[CORRECTED[name]]
            assert isinstance(raw, Vector)
            return Vector(corrected(raw.data, flows.row(RATE_NUM), flows.row(RATE_DEN)), raw.valid)
        if name == "sampling_rate":
            num, den = flows.row(RATE_NUM), flows.row(RATE_DEN)
            return Vector((num + den // 2) // den, num > 0)
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


def corrected(raw: Numbers, num: Numbers, den: Numbers) -> Numbers:
    """Multiply counters by their sampling rates, rounded to the nearest; a numerator of 0 means no known rate.

    >>> corrected(np.array([3, 5, 7]), np.array([100, 0, 5]), np.array([1, 1, 2])).tolist()
    [300, 5, 18]
    """
    if (num <= 1).all() and (den == 1).all():
        return raw
    rate = np.where(num == 0, den, num)
    # Whole multiples of the denominator first: only a result that does not fit into 64 bits overflows.
    return raw // den * rate + (raw % den * rate + den // 2) // den


CARRIER_COLUMNS = ("ts", "srcIP", "srcPort", "destPort", "protocol", "payload")
"""Columns to decode for packets that may contain flow exports."""

ARRIVAL = "arrival_ts"


@dataclass(frozen=True, slots=True)
class FlowRows:
    """Some flow records of one block."""

    count: int
    earliest: int
    columns: FlowColumns
    arrivals: npt.NDArray[np.int64] | None


class FlowReader:
    """Rows of the kind `flows`. Their ts is the end of the flow, so the watermark of a block does not apply.

    The capture time of the datagram is the arrival of its rows. A file of bare export messages has no capture time;
    the exporter's time is used. Datagrams are decoded with the templates of earlier ones: **one reader reads all blocks
    of a capture, in order**.
    """

    exact_low = False

    def __init__(
        self,
        link: str,
        capture: AnyCapture,
        columns: Collection[str],
        capacity: int,
        sampling: FixedRates | None = None,
        recording: OtherFiles | None = None,
    ) -> None:
        """Read `columns` of blocks of up to `capacity` records; use the templates stored next to the capture, if any.

        `sampling`: rates that replace those of exporters. `recording`: the other files of the link, if it has several;
        they may announce templates that this file lacks (`lowlevel.flow_recording`).
        """
        self.link = link
        self.capture = capture
        self.carrier = Decoder(capture, CARRIER_COLUMNS, capacity)
        self.has_arrivals = not isinstance(capture.format, ExportFormat)
        wanted = [*columns, ARRIVAL] if self.has_arrivals else columns
        self.decoder = FlowDecoder(wanted, capacity, dict(sampling) if isinstance(sampling, tuple) else sampling)
        self.jobs = np.zeros((JOB_ROWS, capacity), np.int64)
        self.refused = np.zeros(1, np.int64)
        load_for_capture(capture.path, self.decoder)
        self.recording = recording
        self.waits = False
        if self.recording is not None:
            self.decoder.missing = self._missing

    def read(self, block: Block) -> Iterator[FlowRows]:
        """Decode one block."""
        for flows in self.decoder.decode(self.capture.data, self._datagrams(block)):
            yield self._rows(flows)
        self.waits = self.recording is not None and len(self.decoder.waiting) > 0

    def finish(self) -> Iterator[FlowRows]:
        """Decode records that wait at the end of the file, with templates from later files of the link."""
        self.waits = False
        if self.recording is None or not len(self.decoder.waiting):
            return
        for announced in self.recording.later():
            for session in self._waiting_sessions():
                self._learn_rates(session, announced.sampling.get(session.key), announced.started.get(session.key))
            templates = ((key, template, definition) for (key, template), definition in announced.first.items())
            for flows in self.decoder.read_waiting(templates):
                yield self._rows(flows)
            if not len(self.decoder.waiting):
                return

    def _rows(self, flows: Flows) -> FlowRows:
        arrivals = flows.row(flows.column_rows.rows[ARRIVAL]) if self.has_arrivals else None
        return FlowRows(flows.rows, int(flows.row(END).min()), FlowColumns(self.link, flows), arrivals)

    def _waiting_sessions(self) -> list[Session]:
        numbers = dict.fromkeys(session for session, _ in self.decoder.waiting.templates_missing())
        return [self.decoder.sessions.by_number[number] for number in numbers]

    def _missing(self, session: Session, template: int) -> Definition | None:
        """Return the definition of a template that earlier files of the link announced last."""
        assert self.recording is not None
        self._learn_rates(session, *self.recording.rates(session.key))
        return self.recording.earlier(session.key, template)

    def _learn_rates(self, session: Session, sampling: Sampling | None, started: int | None) -> None:
        """Use sampling rate and start time from other files, for a session without them in this file."""
        if sampling is not None and not session.sampling.default and not session.sampling.keyed:
            session.sampling = Sampling(sampling.default, dict(sampling.keyed))
            self.decoder.sessions.update_sampling(session)
        if started is not None and session.started is None:
            self.decoder.sessions.set_start(session, started)

    def _datagrams(self, block: Block) -> Datagrams:
        if isinstance(self.capture.format, ExportFormat):
            data = self.capture.data
            count = list_messages(
                data, block.start, block.end, len(data), self.jobs[JOB_START], self.jobs[JOB_LENGTH],
                self.jobs[JOB_ARRIVAL],
            )  # fmt: skip
            return Datagrams(self.jobs, count)
        packets = self.carrier.decode(block)
        names = (
            "protocol", "destPort", "payload_offset", "payload_length", "ts", "ip_version", "src_high", "src_low",
            "srcPort",
        )  # fmt: skip
        columns = [packets.field(name) for name in names]
        count = choose_exports(
            self.capture.data, *columns, packets.rows, self.jobs.reshape(-1), self.jobs.shape[1], self.refused
        )
        return Datagrams(self.jobs, count)

    def samples(self) -> Samples:
        """Return the counters of datagrams, sets, templates and sequence numbers."""
        samples = self.decoder.samples(self.link)
        samples.add(FLOW_DATAGRAMS_REFUSED, int(self.refused[0]), self.link, "not_plausible")
        return samples
