"""Decoding on the side: what the exporters' datagrams hold, for counters alone.

Nothing that is recorded depends on it. It reads the records that were just written, as a query does later, and keeps
of them what the flow decoder counts: records and losses by exporter, templates that are missing, datagrams that are
malformed.
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
from capture.files.rotation import TEMPLATES
from capture.flows.decoder import Datagrams, FlowDecoder
from capture.flows.kernels import sessions as words
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

KEEP_SECONDS = 10
"""The file of templates is written no more often than this."""

KEPT_WORDS = [words.ELSE_NUM, words.ELSE_DEN, words.INIT]
"""What is kept of a session's row: the rate of all its records, and when the exporter was started."""

MOST = CHUNK_BYTES // (RECORD_HEADER + IPV4_HEADER + UDP_HEADER) + 1
"""Datagrams in a chunk at most: all of them empty."""

ROWS = 4096
"""Flow records and samples decoded at a time."""

SFLOW = 5
"""An sFlow datagram begins with this number in four bytes, NetFlow v5 in two."""


@kernel("i64(u8*, i64, i64*, i64, i64*, i64*)")
def list_recorded(records, end, jobs, stride, sflow, counts):  # type: ignore[no-untyped-def]
    """List the datagrams of the recorder's own records in `records[:end]`; return how many carry flows.

    Those go to `jobs` (JOB_ROWS x `stride`), and the `counts[0]` others, of sFlow, to `sflow` (three rows of `stride`:
    offset, length, time). `stride` is room for all.
    """
    at = np.int64(0)
    flows = np.int64(0)
    samples = np.int64(0)
    while at < end:
        time = u32le(records, at) * 1_000_000_000 + u32le(records, at + 4)
        frame = at + RECORD_HEADER
        at = frame + u32le(records, at + 8)
        version = np.int64(records[frame] >> 4)
        udp = frame + (IPV4_HEADER if version == 4 else IPV6_HEADER)
        payload = udp + UDP_HEADER
        if at - payload >= 4 and u32be(records, payload) == SFLOW:
            sflow[samples] = payload
            sflow[stride + samples] = at - payload
            sflow[2 * stride + samples] = time
            samples += 1
            continue
        jobs[JOB_START * stride + flows] = payload
        jobs[JOB_LENGTH * stride + flows] = at - payload
        jobs[JOB_ARRIVAL * stride + flows] = time
        jobs[JOB_ADDRESS_VERSION * stride + flows] = version
        jobs[JOB_HIGH * stride + flows] = 0 if version == 4 else np.int64(u64be(records, frame + 8))
        jobs[JOB_LOW * stride + flows] = (
            u32be(records, frame + 12) if version == 4 else np.int64(u64be(records, frame + 16))
        )
        jobs[JOB_PORT * stride + flows] = u16be(records, udp)
        flows += 1
    counts[0] = samples
    return flows


class ExportInspector:
    """An Inspector that decodes flows and sFlow with the decoders that queries use.

    What exporters announce is kept in the folder's file of templates, from which the next run and every query of the
    folder begin: a template that was sent an hour ago is not in the newest file.
    """

    def __init__(self, folder: Path, warn: Callable[[str], None]) -> None:
        """Count under the folder's name, as one link; `warn` takes what is wrong with the file of templates."""
        self.link = folder.resolve().name
        self._path = folder / TEMPLATES
        self._warn = warn
        self._flows = FlowDecoder((), ROWS)
        self._sflow = SampleLister(ROWS)
        self._jobs: npt.NDArray[np.int64] = np.zeros((JOB_ROWS, MOST), np.int64)
        self._samples: npt.NDArray[np.int64] = np.zeros((3, MOST), np.int64)
        self._counts = np.zeros(1, np.int64)
        self._lock = threading.Lock()
        self._keeps = self._load()
        self._kept = self._announced()
        self._kept_at = -math.inf

    def inspect(self, records: npt.NDArray[np.uint8]) -> None:
        """Decode whole records, as the Inspector says."""
        with self._lock:
            flows = list_recorded(
                records, len(records), self._jobs.reshape(-1), MOST, self._samples.reshape(-1), self._counts
            )
            for _ in self._flows.decode(records, Datagrams(self._jobs, flows)):
                pass
            offsets, lengths, times = self._samples[:, : int(self._counts[0])]
            for _ in self._sflow.list(records, SflowDatagrams(offsets, lengths, times)):
                pass
        if time.monotonic() >= self._kept_at + KEEP_SECONDS:
            self._keep()

    def samples(self) -> Samples:
        """Return the counters so far."""
        with self._lock:
            found = self._flows.samples(self.link)
            found.update(self._sflow.samples(self.link))
        return found

    def close(self) -> None:
        """Keep what exporters announced."""
        self._keep()

    def _load(self) -> bool:
        """Begin with what is kept; return whether the file may be replaced: one that cannot be read is not ours."""
        if self._path.exists():
            try:
                load(self._path, self._flows)
            except InputError as error:
                self._warn(f"{error}; templates are not kept: delete it, or choose another folder")
                return False
        return True

    def _announced(self) -> tuple[object, ...]:
        """Return what differs when there is something new to keep."""
        changes = [count for change, count in self._flows.templates.changes.items() if change != "same"]
        sessions = self._flows.sessions
        return *changes, self._flows.forgotten, sessions.keys.tobytes(), sessions.rows[:, KEPT_WORDS].tobytes()

    def _keep(self) -> None:
        """Replace the file where something is new. Only the inspecting thread changes what is read here."""
        announced = self._announced()
        if not self._keeps or announced == self._kept:
            return
        try:
            save(self._path, self._flows)
        except OSError as error:
            self._kept_at = time.monotonic()
            if is_shortage(error):
                return  # they are kept a little later
            self._warn(f"{self._path}: cannot be written: {error.strerror}; templates are not kept")
            self._keeps = False
        self._kept, self._kept_at = announced, time.monotonic()
