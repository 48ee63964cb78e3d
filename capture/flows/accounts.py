"""What a decoder of flow exports counted, as metrics: by sender where that is bounded, else by cause."""

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

LABELS = 64
"""Senders that are counted one by one; all that come later are `other` for good."""

OTHER = "other"
UNKNOWN = "unknown"
"""The sender of the datagrams in a file of nothing else."""

BY_WORD: dict[int, tuple[Metric, tuple[str, ...]]] = {
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
"""Counters in a session's row, their metric and the labels behind sender and version."""

REFUSED = ("header_cut", "version_unknown")
MALFORMED = COUNTS[COUNTS.index("count_beyond_datagram") :]


class Accounts:
    """Counters by sender and version, kept when a session is forgotten."""

    def __init__(self) -> None:
        """Begin without senders."""
        self.labels: dict[Address | None, str] = {}
        self.closed: Counter[tuple[int, str, int]] = Counter()

    def opened(self, session: Session) -> None:
        """Give a session's sender a label, if there still are any."""
        address = session.key.address
        if address not in self.labels and len(self.labels) < LABELS:
            self.labels[address] = UNKNOWN if address is None else str(address)

    def closing(self, session: Session, row: npt.NDArray[np.int64]) -> None:
        """Keep what a session counted that is about to be forgotten."""
        self._add(self.closed, session, row)

    def _add(self, counter: Counter[tuple[int, str, int]], session: Session, row: npt.NDArray[np.int64]) -> None:
        label = self.labels.get(session.key.address, OTHER)
        for word in BY_WORD:
            counter[word, label, session.key.version] += int(row[word])

    def add_to(self, samples: Samples, link: str, sessions: Sessions) -> None:
        """Add the counters of all sessions, those of now and those forgotten."""
        counter = self.closed.copy()
        for session in sessions:
            self._add(counter, session, sessions.rows[session.number])
        for (word, label, version), count in counter.items():
            metric, events = BY_WORD[word]
            samples.add(metric, count, link, label, str(version), *events)
