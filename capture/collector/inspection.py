"""Inspect recorded datagrams: decode them only to update counters.

The flow decoder counts the records and the losses of each exporter, missing templates, and malformed datagrams. The
inspection uses the decoders of queries, so it counts what a later query would count. The recording does not depend on
the inspection.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from capture.bytes import u16be, u32be, u32le, u64be
from capture.collector.chunks import CHUNK_BYTES
from capture.collector.records import IPV4_HEADER, IPV6_HEADER, RECORD_HEADER, UDP_HEADER
from capture.descriptors import is_shortage
from capture.errors import InputError
from capture.files.rotation import TEMPLATES_FILE
from capture.flows.decoder import Datagrams, FlowDecoder
from capture.flows.kernels import sessions as session_row
from capture.flows.kernels.datagrams import (
    JOB_ADDRESS_VERSION,
    JOB_ARRIVAL,
    JOB_HIGH,
    JOB_LENGTH,
    JOB_LOW,
    JOB_PORT,
    JOB_ROWS,
    JOB_START,
)
from capture.flows.stored_templates import load, save
from capture.metrics import Samples
from capture.native import kernel
from capture.sflow.lister import Datagrams as SflowDatagrams
from capture.sflow.lister import SampleLister

STORE_SECONDS = 10
"""Minimum seconds between two writes of the template file."""

STORED_WORDS = [session_row.UNKNOWN_KEY_NUM, session_row.UNKNOWN_KEY_DEN, session_row.INIT_TIME]
"""Words of a session's row that are stored: the sampling rate of all its records, and the start of the exporter."""

MAX_DATAGRAMS = CHUNK_BYTES // (RECORD_HEADER + IPV4_HEADER + UDP_HEADER) + 1
"""Maximum number of datagrams in a chunk, reached if all datagrams are empty."""

MAX_DECODED_ROWS = 4096
"""Number of flow records, or of sFlow samples, that are decoded at once."""

SFLOW_VERSION = 5
"""Version in the first four bytes of an sFlow datagram. In NetFlow, the version has two bytes."""


@kernel("i64(u8*, i64, i64*, i64, i64*, i64*)")
def list_datagrams(records, end, flow_datagrams, stride, sflow_datagrams, counts):  # type: ignore[no-untyped-def]
    """List the datagrams in `records[:end]`, which a recorder wrote. Return the number of flow datagrams.

    * `flow_datagrams`: receives the flow datagrams, JOB_ROWS x `stride`.
    * `sflow_datagrams`: receives the sFlow datagrams, three rows (offset, length, time) x `stride`.
    * `counts`: one word, receives the number of sFlow datagrams.

    `stride` is at least the number of datagrams.
    """
    offset = np.int64(0)
    flow_count = np.int64(0)
    sflow_count = np.int64(0)
    while offset < end:
        arrival = u32le(records, offset) * 1_000_000_000 + u32le(records, offset + 4)
        frame = offset + RECORD_HEADER
        offset = frame + u32le(records, offset + 8)
        version = np.int64(records[frame] >> 4)
        udp = frame + (IPV4_HEADER if version == 4 else IPV6_HEADER)
        payload = udp + UDP_HEADER
        if offset - payload >= 4 and u32be(records, payload) == SFLOW_VERSION:
            sflow_datagrams[sflow_count] = payload
            sflow_datagrams[stride + sflow_count] = offset - payload
            sflow_datagrams[2 * stride + sflow_count] = arrival
            sflow_count += 1
            continue
        flow_datagrams[JOB_START * stride + flow_count] = payload
        flow_datagrams[JOB_LENGTH * stride + flow_count] = offset - payload
        flow_datagrams[JOB_ARRIVAL * stride + flow_count] = arrival
        flow_datagrams[JOB_ADDRESS_VERSION * stride + flow_count] = version
        flow_datagrams[JOB_HIGH * stride + flow_count] = 0 if version == 4 else np.int64(u64be(records, frame + 8))
        flow_datagrams[JOB_LOW * stride + flow_count] = (
            u32be(records, frame + 12) if version == 4 else np.int64(u64be(records, frame + 16))
        )
        flow_datagrams[JOB_PORT * stride + flow_count] = u16be(records, udp)
        flow_count += 1
    counts[0] = sflow_count
    return flow_count


class ExportInspector:
    """An Inspector that decodes flows and sFlow with the decoders of queries.

    Announcements of exporters are stored in the template file of the folder. The next collector and all queries of the
    folder load this file, because the newest capture file often contains no templates.
    """

    def __init__(self, folder: Path, warn: Callable[[str], None]) -> None:
        """The label `link` of the counters is the name of the folder. `warn` receives errors of the template file."""
        self.link = folder.resolve().name
        self._path = folder / TEMPLATES_FILE
        self._warn = warn
        self._flows = FlowDecoder((), MAX_DECODED_ROWS)
        self._sflow = SampleLister(MAX_DECODED_ROWS)
        self._flow_datagrams: npt.NDArray[np.int64] = np.zeros((JOB_ROWS, MAX_DATAGRAMS), np.int64)
        self._sflow_datagrams: npt.NDArray[np.int64] = np.zeros((3, MAX_DATAGRAMS), np.int64)
        self._counts = np.zeros(1, np.int64)
        self._lock = threading.Lock()
        self._may_store = self._load()
        self._stored_state = self._announcement_state()
        self._stored_at = -math.inf

    def inspect(self, records: npt.NDArray[np.uint8]) -> None:
        """Decode whole records. Implements Inspector.inspect."""
        with self._lock:
            flows = list_datagrams(
                records,
                len(records),
                self._flow_datagrams.reshape(-1),
                MAX_DATAGRAMS,
                self._sflow_datagrams.reshape(-1),
                self._counts,
            )
            for _ in self._flows.decode(records, Datagrams(self._flow_datagrams, flows)):
                pass
            offsets, lengths, times = self._sflow_datagrams[:, : int(self._counts[0])]
            for _ in self._sflow.list(records, SflowDatagrams(offsets, lengths, times)):
                pass
        if time.monotonic() >= self._stored_at + STORE_SECONDS:
            self._store()

    def samples(self) -> Samples:
        """Return the counters so far."""
        with self._lock:
            samples = self._flows.samples(self.link)
            samples.update(self._sflow.metric_samples(self.link))
        return samples

    def close(self) -> None:
        """Store the announcements."""
        self._store()

    def _load(self) -> bool:
        """Load the template file. Return whether it may be replaced. An unreadable file may not be replaced."""
        if self._path.exists():
            try:
                load(self._path, self._flows)
            except InputError as error:
                self._warn(f"{error}; templates are not kept: delete it, or choose another folder")
                return False
        return True

    def _announcement_state(self) -> tuple[object, ...]:
        """Return a value that changes with each new announcement that must be stored."""
        changes = [count for change, count in self._flows.templates.changes.items() if change != "same"]
        sessions = self._flows.sessions
        return *changes, self._flows.removed_sessions, sessions.keys.tobytes(), sessions.rows[:, STORED_WORDS].tobytes()

    def _store(self) -> None:
        """Replace the template file if there are new announcements.

        No lock is needed, because only the thread that calls this method changes the announcements.
        """
        announced = self._announcement_state()
        if not self._may_store or announced == self._stored_state:
            return
        try:
            save(self._path, self._flows)
        except OSError as error:
            self._stored_at = time.monotonic()
            if is_shortage(error):
                return  # the next inspection retries
            self._warn(f"{self._path}: cannot be written: {error.strerror}; templates are not kept")
            self._may_store = False
        self._stored_state, self._stored_at = announced, time.monotonic()
