"""Metrics of a flow decoder: counters by exporter, for a limited number of exporters, and counters by cause."""

from __future__ import annotations

from collections import Counter

import numpy as np
import numpy.typing as npt

from capture import metrics
from capture.flows.kernels import sessions as words
from capture.flows.kernels.datagrams import COUNTS
from capture.flows.sampling import Address
from capture.flows.sessions import Session, Sessions
from capture.metrics import Metric, Samples

MAX_LABELLED_EXPORTERS = 64
"""Maximum number of exporters with a separate label. All later exporters are counted as `other`."""

OTHER = "other"
UNKNOWN = "unknown"
"""Label of the exporter in files of export datagrams, which do not record senders."""

METRICS_BY_WORD: dict[int, tuple[Metric, tuple[str, ...]]] = {
    words.DATAGRAMS: (metrics.FLOW_DATAGRAMS, ()),
    words.RECORDS: (metrics.FLOW_RECORDS, ()),
    words.OPTION_RECORDS: (metrics.FLOW_OPTION_RECORDS, ()),
    words.LOST: (metrics.FLOW_UNITS_LOST, ()),
    words.RECOVERED: (metrics.FLOW_UNITS_RECOVERED, ()),
    words.GAPS: (metrics.FLOW_SEQUENCE_EVENTS, ("gap",)),
    words.LATE: (metrics.FLOW_SEQUENCE_EVENTS, ("late",)),
    words.DUPLICATES: (metrics.FLOW_SEQUENCE_EVENTS, ("duplicate",)),
    words.RESETS: (metrics.FLOW_SEQUENCE_EVENTS, ("reset",)),
    words.GUESSED: (metrics.FLOW_TIMES_GUESSED, ()),
    words.UNREADABLE: (metrics.FLOW_FIELDS_UNREADABLE, ()),
}
"""Counter word of a session row -> metric, and the labels that follow exporter and version."""

REFUSED = ("header_cut", "version_unknown")
MALFORMED = COUNTS[COUNTS.index("count_beyond_datagram") :]


class SessionCounters:
    """Counters by exporter and version. They include the sessions that have been removed."""

    def __init__(self) -> None:
        """Begin without exporters."""
        self.labels: dict[Address | None, str] = {}
        self.closed: Counter[tuple[int, str, int]] = Counter()

    def add_label(self, session: Session) -> None:
        """Add a label for the exporter of a session if the limit is not reached."""
        address = session.key.address
        if address not in self.labels and len(self.labels) < MAX_LABELLED_EXPORTERS:
            self.labels[address] = UNKNOWN if address is None else str(address)

    def keep_counters(self, session: Session, row: npt.NDArray[np.int64]) -> None:
        """Add the counters of a session that is about to be removed."""
        self._add(self.closed, session, row)

    def _add(self, counter: Counter[tuple[int, str, int]], session: Session, row: npt.NDArray[np.int64]) -> None:
        label = self.labels.get(session.key.address, OTHER)
        for word in METRICS_BY_WORD:
            counter[word, label, session.key.version] += int(row[word])

    def add_to(self, samples: Samples, link: str, sessions: Sessions) -> None:
        """Add the counters of all sessions, open and removed."""
        counter = self.closed.copy()
        for session in sessions:
            self._add(counter, session, sessions.rows[session.number])
        for (word, label, version), count in counter.items():
            metric, events = METRICS_BY_WORD[word]
            samples.add(metric, count, link, label, str(version), *events)
