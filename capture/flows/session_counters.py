"""Metrics of a flow decoder: counters by exporter and version, and the causes of refused and malformed datagrams.

Only a limited number of exporters have a separate label, because each label is a new time series.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import numpy.typing as npt

from capture import metrics
from capture.flows.kernels import sessions as session_row
from capture.flows.kernels.datagrams import COUNTER_NAMES
from capture.flows.sampling import Address
from capture.flows.sessions import Session, Sessions
from capture.metrics import Metric, Samples

MAX_LABELLED_EXPORTERS = 64
"""Maximum number of exporters with a separate label. All later exporters are counted as `other`."""

OTHER_LABEL = "other"
"""Label of all exporters above the limit."""

UNKNOWN_LABEL = "unknown"
"""Label of an exporter whose address is unknown: a file of export datagrams does not record the senders."""

METRIC_BY_COUNTER: dict[int, tuple[Metric, tuple[str, ...]]] = {
    session_row.DATAGRAMS: (metrics.FLOW_DATAGRAMS, ()),
    session_row.RECORDS: (metrics.FLOW_RECORDS, ()),
    session_row.OPTION_RECORDS: (metrics.FLOW_OPTION_RECORDS, ()),
    session_row.LOST: (metrics.FLOW_UNITS_LOST, ()),
    session_row.RECOVERED: (metrics.FLOW_UNITS_RECOVERED, ()),
    session_row.GAPS: (metrics.FLOW_SEQUENCE_EVENTS, ("gap",)),
    session_row.LATE: (metrics.FLOW_SEQUENCE_EVENTS, ("late",)),
    session_row.DUPLICATES: (metrics.FLOW_SEQUENCE_EVENTS, ("duplicate",)),
    session_row.RESETS: (metrics.FLOW_SEQUENCE_EVENTS, ("reset",)),
    session_row.GUESSED_TIMES: (metrics.FLOW_TIMES_GUESSED, ()),
    session_row.UNREADABLE: (metrics.FLOW_FIELDS_UNREADABLE, ()),
}
"""For each counter in the row of a session, by its index in the row: its metric, and the values of the labels that come
after the labels link, exporter and version."""

REFUSAL_CAUSES = ("header_cut", "version_unknown")
"""Causes for which no record of a datagram is read."""

MALFORMED_CAUSES = COUNTER_NAMES[COUNTER_NAMES.index("count_beyond_datagram") :]
"""Causes for which a part of a datagram is not read."""


class SessionCounters:
    """Counters by exporter and version. They include the sessions that have been removed."""

    def __init__(self) -> None:
        """Begin without exporters."""
        self.labels: dict[Address | None, str] = {}
        self.removed_counters: Counter[tuple[int, str, int]] = Counter()

    def add_label(self, session: Session) -> None:
        """Add a label for the exporter of a session if the limit is not reached."""
        address = session.key.address
        if address not in self.labels and len(self.labels) < MAX_LABELLED_EXPORTERS:
            self.labels[address] = UNKNOWN_LABEL if address is None else str(address)

    def keep_counters(self, session: Session, row: npt.NDArray[np.int64]) -> None:
        """Add the counters of a session that is about to be removed.

        `row`: the row of the session in `Sessions.rows`.
        """
        self._add(self.removed_counters, session, row)

    def _add(self, counter: Counter[tuple[int, str, int]], session: Session, row: npt.NDArray[np.int64]) -> None:
        label = self.labels.get(session.key.address, OTHER_LABEL)
        for index in METRIC_BY_COUNTER:
            counter[index, label, session.key.version] += int(row[index])

    def add_to(self, samples: Samples, link: str, sessions: Sessions) -> None:
        """Add the counters of all sessions, open and removed."""
        counter = self.removed_counters.copy()
        for session in sessions:
            self._add(counter, session, sessions.rows[session.number])
        for (index, label, version), count in counter.items():
            metric, events = METRIC_BY_COUNTER[index]
            samples.add(metric, count, link, label, str(version), *events)
