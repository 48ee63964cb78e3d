"""Decode export datagrams into columns.

A kernel decodes most sets; this module handles the sets that the kernel returns.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np
import numpy.typing as npt

from capture import metrics
from capture.files.blocks import BLOCK_RECORDS
from capture.flows.kernels import datagrams as kernel
from capture.flows.kernels import sessions as session_row
from capture.flows.kernels.texts import TextTable
from capture.flows.kernels.values import FlowRows
from capture.flows.layouts import ColumnRows, Layouts
from capture.flows.sampling import Address
from capture.flows.session_counters import MALFORMED_CAUSES, REFUSAL_CAUSES, SessionCounters
from capture.flows.sessions import Session, SessionKey, Sessions, address_of
from capture.flows.template_table import TemplateTable
from capture.flows.templates import IPFIX, MAX_FIELDS, Announcement, DecoderLimits, Definition
from capture.flows.texts import Texts
from capture.flows.waiting_sets import SYSTEM_INIT_TIME, WaitingSet, WaitingSets, option_values, split_records
from capture.lazy_dataclasses import dataclass
from capture.metrics import Samples
from capture.native import pointer

Int64Array = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Datagrams:
    """The first `count` datagrams in a buffer, and their senders.

    `jobs` is a contiguous matrix of JOB_ROWS rows. A column describes a datagram. There may be unused columns at the
    end. Every datagram must be completely inside the buffer, because the kernel does not check this.
    """

    jobs: Int64Array
    count: int

    @classmethod
    def of(cls, *rows: Iterable[int]) -> Datagrams:
        """Make the matrix from its rows, in the order of JOB_START, JOB_LENGTH, ..."""
        jobs = np.array([list(row) for row in rows], np.int64)
        return cls(jobs, jobs.shape[1])


@dataclass(frozen=True)
class Flows:
    """Decoded flow records: the first `row_count` columns of `matrix`.

    They are valid until the next item of the iterator is requested.

    `valid`: 1 for each value that is not NULL. `column_rows`: matrix rows of the columns. `texts`: the strings. The
    value of a text column is the number of a string.
    """

    matrix: Int64Array
    valid: Bytes
    row_count: int
    column_rows: ColumnRows
    texts: Texts

    def row(self, row: int) -> Int64Array:
        """Return one row of the matrix."""
        return self.matrix[row, : self.row_count]

    def validity(self, row: int) -> npt.NDArray[np.bool_]:
        """Return a mask of the values of a row that are not NULL."""
        return self.valid[row, : self.row_count].view(np.bool_)


class FlowDecoder:
    """Decodes the datagrams of one input: NetFlow v5, v7, v9 and IPFIX. Not thread safe.

    Memory: the limits of `bounds`, 9 bytes per matrix row and record of `capacity`, and 10 MB if a text column is
    requested.
    """

    def __init__(
        self,
        columns: Iterable[str],
        capacity: int = BLOCK_RECORDS,
        sampling: int | Mapping[Address, int] | None = None,
        bounds: DecoderLimits | None = None,
    ) -> None:
        """Decode `columns` (column names of the stream `flows`), up to `capacity` records at once.

        `sampling`: a fixed rate for all exporters, or rates by address. Fixed rates override announced rates. Raises
        KeyError for an unknown column.
        """
        self.bounds = bounds or DecoderLimits()
        self.capacity = capacity
        self.column_rows = ColumnRows(columns)
        self.templates = TemplateTable(self.bounds, Layouts(self.column_rows))
        self.sessions = Sessions(self.bounds, sampling)
        self.waiting = WaitingSets(self.bounds)
        self.request_definition: Callable[[Session, int], Definition | None] | None = None
        """Returns the definition of an unannounced template, or None. Called once for each such template with data."""
        self._requested: set[tuple[SessionKey, int]] = set()
        self.texts = Texts(self.column_rows.has_texts)
        self.matrix: Int64Array = np.zeros((self.column_rows.height, capacity), np.int64)
        self.valid: Bytes = np.zeros((self.column_rows.height, capacity), np.uint8)
        self.counts = np.zeros(len(kernel.COUNTER_NAMES), np.int64)
        self.removed_sessions = 0
        self.sampling_refused = 0  # rates that removed sessions rejected
        self.session_counters = SessionCounters()
        self._field_positions = np.zeros(2 * MAX_FIELDS, np.int64)
        self._arrived_templates: OrderedDict[tuple[int, int], None] = OrderedDict()
        self._rows = 0

    def decode(self, data: Bytes, datagrams: Datagrams) -> Iterator[Flows]:
        """Decode datagrams in order. Yield their records in batches of up to `capacity` rows."""
        yield from self._run(data, datagrams, is_retry=False)
        if self._rows:
            yield self._take_rows()

    def read_waiting(self, announced: Iterable[tuple[SessionKey, int, Definition]]) -> Iterator[Flows]:
        """Decode waiting sets with definitions that a later file announces, in order."""
        for key, template, definition in announced:
            session = self.sessions.by_key.get(key)
            if session is not None and self.waiting.has(session.number, template):
                self.templates.announce(session, Announcement(template, definition))
                self._arrived_templates[session.number, template] = None
        yield from self._read_waiting()
        if self._rows:
            yield self._take_rows()

    def _take_rows(self) -> Flows:
        rows, self._rows = self._rows, 0
        return Flows(self.matrix, self.valid, rows, self.column_rows, self.texts)

    def _run(self, data: Bytes, datagrams: Datagrams, is_retry: bool) -> Iterator[Flows]:
        state = np.zeros(kernel.STATE_WORDS, np.int64)
        state[kernel.STATE_OFFSET] = state[kernel.STATE_SET] = -1
        while True:
            status = self._decode(data, datagrams, is_retry, state)
            if status == kernel.DONE:
                return
            if status == kernel.ROWS_FULL:
                yield self._take_rows()
            elif status == kernel.TEXTS_FULL:
                if self._rows:
                    yield self._take_rows()
                self.texts = Texts()
            elif status == kernel.NEW_SESSION:
                self._open_sender_session(data, datagrams, int(state[kernel.STATE_DATAGRAM]))
            elif status == kernel.TEMPLATE_SET:
                self._read_template_set(data, state)
                state[kernel.STATE_SET] = -1
            elif status == kernel.PAUSED:
                yield from self._read_waiting()
            else:
                self._handle_unknown_set(data, datagrams, state)
                state[kernel.STATE_SET] = -1

    def _decode(self, data: Bytes, datagrams: Datagrams, is_retry: bool, state: Int64Array) -> int:
        state[kernel.STATE_ROW] = self._rows
        state[kernel.STATE_CLOCK] = self.sessions.clock
        jobs, layouts = datagrams.jobs, self.templates.layouts
        status = kernel.decode_datagrams(
            data,
            kernel.DatagramTable(jobs.reshape(-1), jobs.shape[1], datagrams.count),
            is_retry,
            state,
            kernel.SessionTable(self.sessions.rows.reshape(-1), self.sessions.slots, len(self.sessions.slots) - 1),
            kernel.Layouts(
                self.templates.slots,
                self.templates.mask,
                layouts.words.flat,
                layouts.steps.flat,
                layouts.fields.flat,
            ),
            self.sessions.keys,
            self._field_positions,
            self.column_rows.header_rows,
            self.column_rows.has_texts,
            TextTable(self.texts.slots, self.texts.ends, self.texts.arena, self.texts.used),
            FlowRows(
                pointer(self.matrix.reshape(-1), "i64"),
                pointer(self.valid.reshape(-1), "u8"),
                self.capacity,
                self.counts,
            ),
        )
        self._rows = int(state[kernel.STATE_ROW])
        self.sessions.clock = int(state[kernel.STATE_CLOCK])
        return status

    def _open_sender_session(self, data: Bytes, datagrams: Datagrams, job: int) -> None:
        """Open a session for the sender of a datagram. The kernel has checked that the header is complete."""
        start, _, _, address_version, high, low, port = datagrams.jobs[:, job].tolist()
        header = data[start : start + 24].tobytes()
        version = int.from_bytes(header[:2], "big")
        domain_bytes = {5: slice(20, 22), 7: slice(0, 0), 9: slice(16, 20), IPFIX: slice(12, 16)}[version]
        key = SessionKey(
            version, address_of(address_version, high, low), port, int.from_bytes(header[domain_bytes], "big")
        )
        self.open_session(key)

    def open_session(self, key: SessionKey) -> Session:
        """Return the session of a key; open it if it is new. If there are too many, remove the longest idle session."""
        if self.sessions.is_full and key not in self.sessions.by_key:
            self.forget(self.sessions.longest_idle())
        session = self.sessions.open(key)
        self.session_counters.add_label(session)
        return session

    def forget(self, session: Session) -> None:
        """Remove a session with its templates and waiting sets."""
        self.removed_sessions += 1
        self.session_counters.keep_counters(session, self.sessions.rows[session.number])
        self.sampling_refused += session.sampling.refused_keys
        self.templates.forget(session)
        self.waiting.remove_session(session.number)
        self.sessions.close(session)

    def samples(self, link: str) -> Samples:
        """Return the metrics so far."""
        samples = Samples()
        self.session_counters.add_to(samples, link, self.sessions)
        counted = dict(zip(kernel.COUNTER_NAMES, self.counts.tolist(), strict=True))
        for metric, amounts in (
            (metrics.FLOW_DATAGRAMS_REFUSED, {cause: counted[cause] for cause in REFUSAL_CAUSES}),
            (metrics.FLOW_MALFORMED, {cause: counted[cause] for cause in MALFORMED_CAUSES}),
            (metrics.FLOW_TEMPLATES, self.templates.changes),
            (metrics.FLOW_TEMPLATES_REFUSED, self.templates.refused),
            (metrics.FLOW_SETS_DROPPED, self.waiting.dropped),
        ):
            for cause, amount in amounts.items():
                samples.add(metric, amount, link, cause)
        samples.add(metrics.FLOW_SETS_KEPT, self.waiting.kept, link)
        samples.set(metrics.FLOW_SETS_WAITING, len(self.waiting), link)
        samples.set(metrics.FLOW_SESSIONS, len(self.sessions), link)
        samples.add(metrics.FLOW_SESSIONS_FORGOTTEN, self.removed_sessions, link)
        refused = self.sampling_refused + sum(session.sampling.refused_keys for session in self.sessions)
        samples.add(metrics.FLOW_SAMPLING_REFUSED, refused, link)
        return samples

    def _returned_set(self, data: Bytes, state: Int64Array) -> tuple[int, bytes, Session]:
        """Return ID and body of the set at which the kernel stopped, and its session."""
        offset, end = int(state[kernel.STATE_SET]), int(state[kernel.STATE_OFFSET])
        head = data[offset:end].tobytes()
        return int.from_bytes(head[:2], "big"), head[4:], self.sessions.by_number[int(state[kernel.STATE_SESSION])]

    def _read_template_set(self, data: Bytes, state: Int64Array) -> None:
        """Read a template set. Waiting sets are decoded after this datagram, which may contain options for them."""
        set_id, body, session = self._returned_set(data, state)
        for template in self.templates.announce_set(session, set_id, body):
            if self.waiting.has(session.number, template):
                self._arrived_templates[session.number, template] = None
                state[kernel.STATE_PAUSE] = 1

    def _handle_unknown_set(self, data: Bytes, datagrams: Datagrams, state: Int64Array) -> None:
        """Handle a set with a template unknown to the kernel: compile the template, read options, or store the set."""
        set_id, body, session = self._returned_set(data, state)
        definition = session.templates.get(set_id) or self._request_definition(session, set_id)
        if definition is None:
            job = int(state[kernel.STATE_DATAGRAM])
            start, arrival = int(datagrams.jobs[kernel.JOB_START, job]), int(datagrams.jobs[kernel.JOB_ARRIVAL, job])
            header = data[start : start + (16 if session.key.version == IPFIX else 20)].tobytes()
            self.waiting.add(session.number, set_id, header, body, arrival)
            state[kernel.STATE_UNCOUNTED] = 1
        elif definition.is_options:
            state[kernel.STATE_RECORDS] += self._read_options(session, definition, body)
        else:
            self.templates.compile(session, set_id)
            state[kernel.STATE_OFFSET] = state[kernel.STATE_SET]

    def _request_definition(self, session: Session, template: int) -> Definition | None:
        """Request the definition of an unannounced template once. If the definition is known, add it to the session."""
        if self.request_definition is None or (session.key, template) in self._requested:
            return None
        if len(self._requested) >= self.bounds.templates:
            self._requested.clear()
        self._requested.add((session.key, template))
        definition = self.request_definition(session, template)
        if definition is not None:
            self.templates.announce(session, Announcement(template, definition))
        return definition

    def _read_options(self, session: Session, definition: Definition, body: bytes) -> int:
        """Read the sampling rates and the exporter's start from option records. Return the number of records."""
        count = 0
        changed = False
        for record in split_records(definition, body):
            count += 1
            values = option_values(definition, record)
            changed |= session.sampling.read_options(values, self.sessions.room_for_keys)
            if len(values.get(SYSTEM_INIT_TIME, b"")) == 8:
                self.sessions.set_start(session, min(int.from_bytes(values[SYSTEM_INIT_TIME], "big"), (1 << 63) - 1))
        if changed:
            self.sessions.update_sampling(session)
        self.sessions.rows[session.number, session_row.OPTION_RECORDS] += count
        return count

    def _read_waiting(self) -> Iterator[Flows]:
        """Decode the sets that waited for newly announced templates, if these templates still exist."""
        while self._arrived_templates:
            (session_number, template), _ = self._arrived_templates.popitem(last=False)
            session = self.sessions.by_number[session_number]
            if template in session.templates:
                for waiting_set in self.waiting.take(session_number, template):
                    yield from self._decode_waiting_set(session, waiting_set)

    def _decode_waiting_set(self, session: Session, waiting_set: WaitingSet) -> Iterator[Flows]:
        """Decode a waiting set as a datagram with only this set and its original header."""
        head = waiting_set.template.to_bytes(2, "big") + (len(waiting_set.body) + 4).to_bytes(2, "big")
        message = bytearray(waiting_set.header + head + waiting_set.body)
        if session.key.version == IPFIX:
            message[2:4] = len(message).to_bytes(2, "big")
        key = session.key.identity_words
        row = (0, len(message), waiting_set.arrival, key[1], key[2], key[3], key[4])
        datagrams = Datagrams.of(*((word,) for word in row))
        yield from self._run(np.frombuffer(message, np.uint8), datagrams, is_retry=True)
