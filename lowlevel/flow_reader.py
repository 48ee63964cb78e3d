"""The reader of the kind `flows`: the exports in a capture, or in a file of nothing else, and the records in them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from capture.files.blocks import Block
from capture.files.capture import AnyCapture
from capture.files.exports import ExportFormat
from capture.files.messages import list_messages
from capture.flows.announcements import OtherFiles
from capture.flows.decoder import Datagrams, FlowDecoder, Flows
from capture.flows.export_datagrams import choose_exports
from capture.flows.kernels.datagrams import JOB_ARRIVAL, JOB_LENGTH, JOB_ROWS, JOB_START
from capture.flows.kernels.values import END
from capture.flows.sampling import HandRates, Sampling
from capture.flows.sessions import Session
from capture.flows.stored_templates import load_beside
from capture.flows.templates import Definition
from capture.metrics import FLOW_DATAGRAMS_REFUSED, Samples
from capture.packets.decoder import Decoder
from lowlevel.flow_columns import FlowColumns

CARRIER = ("ts", "srcIP", "srcPort", "destPort", "protocol", "payload")
"""What is decoded of the packets that may carry exports."""

ARRIVAL = "arrival_ts"


@dataclass(frozen=True, slots=True)
class FlowRows:
    """Some flow records of one block."""

    count: int
    earliest: int
    columns: FlowColumns
    arrivals: npt.NDArray[np.int64] | None


class FlowReader:
    """Rows of the kind `flows`. Their ts is the flow's end, so that a block's `low` says nothing about them.

    The capture's time of the datagram is their arrival. A file of bare messages has none but the exporter's own.
    What a datagram means hangs on those before it: **one reader reads all blocks of a capture, in order**.
    """

    exact_low = False

    def __init__(
        self,
        link: str,
        capture: AnyCapture,
        columns: Collection[str],
        capacity: int,
        sampling: HandRates | None = None,
        recording: OtherFiles | None = None,
    ) -> None:
        """Read `columns` of blocks of up to `capacity` records, by the templates stored beside the capture, if any.

        `sampling` are rates that stand whatever exporters announce. `recording` are the other files of the
        link, if it has several: they may announce templates that this file lacks (`lowlevel.flow_recording`).
        """
        self.link = link
        self.capture = capture
        self.carrier = Decoder(capture, CARRIER, capacity)
        self.arrive = not isinstance(capture.format, ExportFormat)
        wanted = [*columns, ARRIVAL] if self.arrive else columns
        self.decoder = FlowDecoder(wanted, capacity, dict(sampling) if isinstance(sampling, tuple) else sampling)
        self.jobs = np.zeros((JOB_ROWS, capacity), np.int64)
        self.refused = np.zeros(1, np.int64)
        load_beside(capture.path, self.decoder)
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
        """Read what still waits at the end of the file, by templates that later files of the link announce."""
        self.waits = False
        if self.recording is None or not len(self.decoder.waiting):
            return
        for announced in self.recording.later():
            for session in self._waiting_sessions():
                self._learn_rates(session, announced.sampling.get(session.key), announced.started.get(session.key))
            found = ((key, template, definition) for (key, template), definition in announced.first.items())
            for flows in self.decoder.read_waiting(found):
                yield self._rows(flows)
            if not len(self.decoder.waiting):
                return

    def _rows(self, flows: Flows) -> FlowRows:
        arrivals = flows.row(flows.places.rows[ARRIVAL]) if self.arrive else None
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
        """Take over what other files say of a session that has not said it itself in this one."""
        if sampling is not None and not session.sampling.default and not session.sampling.keyed:
            session.sampling = Sampling(sampling.default, dict(sampling.keyed))
            self.decoder.sessions.sampled(session)
        if started is not None and session.started is None:
            self.decoder.sessions.started(session, started)

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
        """Return what became of datagrams, sets and templates, and what their sequence numbers tell."""
        samples = self.decoder.samples(self.link)
        samples.add(FLOW_DATAGRAMS_REFUSED, int(self.refused[0]), self.link, "not_plausible")
        return samples
