"""The metrics of this folder, and the types with which every folder declares and carries its metrics.

Invariant: `records_read = packets_decoded + records_skipped (all causes)`. Every record becomes a row or is counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from capture.lazy_dataclasses import dataclass

LabelledName = tuple[str, tuple[str, ...]]
"""Metric name and label values, in the order of the metric's labels."""


@dataclass(frozen=True, slots=True)
class Metric:
    """Declaration of a metric.

    Its `kind` is

    * `counter`: only grows; values are added.
    * `gauge`: the last value is used.
    * `histogram`: the last label `le` is a bound, and the value is the number of values up to it; values are added.
    """

    name: str
    kind: str
    labels: tuple[str, ...]
    help: str

    @property
    def is_histogram(self) -> bool:
        """Return whether the values are counts by bound."""
        return self.kind == "histogram"


class Samples(dict[LabelledName, float]):
    """Metric samples: values by metric name and label values. Small, picklable, without locks. Not thread safe."""

    def add(self, metric: Metric, amount: float, *labels: str) -> None:
        """Add `amount` to a counter."""
        key = (metric.name, labels)
        self[key] = self.get(key, 0) + amount

    def set(self, metric: Metric, value: float, *labels: str) -> None:
        """Set a gauge."""
        self[metric.name, labels] = value

    def merge(self, other: Mapping[LabelledName, float], metrics: Mapping[str, Metric]) -> None:
        """Merge the samples of another part of the pipeline: counters and histograms are added, gauges are replaced."""
        for key, value in other.items():
            is_gauge = metrics[key[0]].kind == "gauge"
            self[key] = value if is_gauge else self.get(key, 0) + value

    def total(self, metric: Metric, **match: str) -> float:
        """Return the sum of a metric over all label sets with the given label values."""
        label_indices = {metric.labels.index(label): value for label, value in match.items()}
        return sum(
            value
            for (name, labels), value in self.items()
            if name == metric.name and all(labels[index] == expected for index, expected in label_indices.items())
        )


def by_name(*groups: Iterable[Metric]) -> dict[str, Metric]:
    """Index metrics by name."""
    return {metric.name: metric for group in groups for metric in group}


RECORDS_READ = Metric(
    "wiretide_records_read_total", "counter", ("link",), "Complete records read from captures, of any content."
)
BYTES_READ = Metric("wiretide_bytes_read_total", "counter", ("link",), "Bytes of complete records, with their headers.")
PACKETS_DECODED = Metric(
    "wiretide_packets_decoded_total", "counter", ("link",), "Records that became a row of the stream packets."
)
RECORDS_SKIPPED = Metric(
    "wiretide_records_skipped_total",
    "counter",
    ("link", "cause"),
    "Records that contain no IP packet, or an IP packet whose addresses cannot be read, by cause.",
)
DECODED_BY_FALLBACK = Metric(
    "wiretide_records_decoded_by_fallback_total",
    "counter",
    ("link", "header"),
    "Records that dpkt decoded, by the header that only dpkt supports. They are normal rows.",
)
REFUSED_BY_FALLBACK = Metric(
    "wiretide_records_refused_by_fallback_total",
    "counter",
    ("link", "cause"),
    "Records that did not become a row, although dpkt supports their header, by cause. no_ip: dpkt found no IP packet. "
    "unreadable: dpkt raised an error. ip_header: dpkt found a truncated or malformed IP header. not_installed: dpkt "
    "is not installed.",
)
TIMES_REPLACED = Metric(
    "wiretide_times_replaced_total",
    "counter",
    ("link", "kind", "cause"),
    "Records, by kind of row, without a time (no_timestamp: the time is 0) or with a time outside 1970 to 2116"
    " (out_of_range: the nearest bound is used).",
)
FILES_DAMAGED = Metric(
    "wiretide_files_damaged_total",
    "counter",
    ("link", "cause"),
    "Captures that do not end with a complete record, by cause. All records before were read.",
)

FILES_FOLLOWED = Metric(
    "wiretide_followed_files_total",
    "counter",
    ("link",),
    "Followed files that the reader has begun to read.",
)
FILES_REPLACED = Metric(
    "wiretide_followed_files_replaced_total",
    "counter",
    ("link",),
    "Followed files whose content was replaced in place. The new content is read from its beginning.",
)
FILES_REFUSED = Metric(
    "wiretide_followed_files_refused_total",
    "counter",
    ("link",),
    "Files of a followed folder that are not captures or cannot be read. They are skipped.",
)
FILES_RETRIED = Metric(
    "wiretide_followed_files_retried_total",
    "counter",
    ("link",),
    "Failed attempts to open a followed file or its folder because no file descriptor was free. They are repeated.",
)
INTERFACE_RECEIVED = Metric(
    "wiretide_interface_received_total",
    "counter",
    ("link",),
    "Packets that the system received for a live interface: read, dropped, unreadable, and still in the ring.",
)
INTERFACE_DROPPED = Metric(
    "wiretide_interface_dropped_total",
    "counter",
    ("link",),
    "Packets of a live interface that the system dropped because the ring was full.",
)
INTERFACE_FREEZES = Metric(
    "wiretide_interface_ring_full_total",
    "counter",
    ("link",),
    "Number of times that the ring of a live interface became full.",
)
INTERFACE_TRUNCATED = Metric(
    "wiretide_interface_truncated_total",
    "counter",
    ("link",),
    "Packets of a live interface that were longer than the snapshot length. Only the captured part was read.",
)
INTERFACE_UNREADABLE = Metric(
    "wiretide_interface_unreadable_total",
    "counter",
    ("link",),
    "Packets of a live interface that follow an inconsistent frame in the ring. They were not read.",
)
INTERFACE_DOWN = Metric(
    "wiretide_interface_down_total",
    "counter",
    ("link",),
    "Number of times that a live interface went down, or was down at the start.",
)
INTERFACE_WAITING = Metric(
    "wiretide_interface_ring_waiting_blocks",
    "gauge",
    ("link",),
    "Blocks of the ring whose packets are not all read. If this applies to all blocks, packets are dropped.",
)
INTERFACE_BLOCKS = Metric("wiretide_interface_ring_blocks", "gauge", ("link",), "Blocks of the ring.")
INTERFACE_RING_BYTES = Metric(
    "wiretide_interface_ring_bytes", "gauge", ("link",), "Bytes of the ring, the memory in which packets wait."
)

SFLOW_DATAGRAMS = Metric(
    "wiretide_sflow_datagrams_total",
    "counter",
    ("link",),
    "UDP datagrams in captures that were sent to the sFlow port, or whose whole content is valid sFlow.",
)
SFLOW_DATAGRAMS_SKIPPED = Metric(
    "wiretide_sflow_datagrams_skipped_total",
    "counter",
    ("link", "cause"),
    "Skipped sFlow datagrams: truncated header, other version, or unknown type of agent address.",
)
SFLOW_SAMPLES = Metric(
    "wiretide_sflow_samples_total",
    "counter",
    ("link", "kind"),
    "Samples in sFlow datagrams by kind. Flow samples contain a packet and became rows of the stream samples.",
)
SFLOW_SAMPLES_SKIPPED = Metric(
    "wiretide_sflow_samples_skipped_total",
    "counter",
    ("link", "cause"),
    "Flow samples that did not become a row: truncated (counted once per datagram), malformed, or without a packet.",
)
SFLOW_SEQUENCES = Metric(
    "wiretide_sflow_sequences_total",
    "counter",
    ("link", "event"),
    "Sequence numbers of datagrams and samples that are missing, late (reordered), repeated, restarted, or not checked"
    " because there are too many agents (untracked). The number of lost datagrams and samples is missing minus "
    "reordered.",
)

FLOW_DATAGRAMS = Metric(
    "wiretide_flow_datagrams_total",
    "counter",
    ("link", "exporter", "version"),
    "NetFlow and IPFIX datagrams read, by exporter. `other`: exporters beyond the limit.",
)
FLOW_RECORDS = Metric(
    "wiretide_flow_records_total",
    "counter",
    ("link", "exporter", "version"),
    "Flow records of these datagrams that became rows of the stream flows.",
)
FLOW_OPTION_RECORDS = Metric(
    "wiretide_flow_option_records_total",
    "counter",
    ("link", "exporter", "version"),
    "Option records of these datagrams. They describe how flows are decoded and are not rows.",
)
FLOW_UNITS_LOST = Metric(
    "wiretide_flow_units_lost_total",
    "counter",
    ("link", "exporter", "version"),
    "Units missing by sequence numbers: records of v5, v7 and IPFIX, datagrams of v9.",
)
FLOW_UNITS_RECOVERED = Metric(
    "wiretide_flow_units_recovered_total",
    "counter",
    ("link", "exporter", "version"),
    "Units that were counted as lost and arrived late. Never more than the units counted as lost; duplicates are not "
    "counted.",
)
FLOW_SEQUENCE_EVENTS = Metric(
    "wiretide_flow_sequence_events_total",
    "counter",
    ("link", "exporter", "version", "event"),
    "Datagrams with an unexpected sequence number: after a gap, late, duplicate, or after a reset of the exporter.",
)
FLOW_TIMES_GUESSED = Metric(
    "wiretide_flow_times_guessed_total",
    "counter",
    ("link", "exporter", "version"),
    "Flow records without a start or an end time. The other of the two times, or the export time, is used instead.",
)
FLOW_FIELDS_UNREADABLE = Metric(
    "wiretide_flow_fields_unreadable_total",
    "counter",
    ("link", "exporter", "version"),
    "Fields used by a query whose bytes are not a valid value of their type. They are NULL.",
)
FLOW_DATAGRAMS_REFUSED = Metric(
    "wiretide_flow_datagrams_refused_total",
    "counter",
    ("link", "cause"),
    "UDP datagrams that look like exports but are not exports, by cause. If the port is an export port, the "
    "version is unknown or the header is invalid. If it is another port, the version is that of an export, but another "
    "part is invalid.",
)
FLOW_MALFORMED = Metric(
    "wiretide_flow_malformed_total",
    "counter",
    ("link", "cause"),
    "Inconsistencies inside exports, by cause. The complete parts before them are read.",
)
FLOW_TEMPLATES = Metric(
    "wiretide_flow_templates_total",
    "counter",
    ("link", "change"),
    "Template records by effect: new, same as before, other content with the same ID, withdrawn, or evicted by a "
    "newer one.",
)
FLOW_TEMPLATES_REFUSED = Metric(
    "wiretide_flow_templates_refused_total",
    "counter",
    ("link", "cause"),
    "Rejected template records, by cause. Their data sets wait for another definition of the template until they are "
    "dropped.",
)
FLOW_SETS_KEPT = Metric(
    "wiretide_flow_sets_kept_total", "counter", ("link",), "Data sets that arrived before their template and were kept."
)
FLOW_SETS_WAITING = Metric("wiretide_flow_sets_waiting", "gauge", ("link",), "Data sets that wait for their template.")
FLOW_SETS_DROPPED = Metric(
    "wiretide_flow_sets_dropped_total",
    "counter",
    ("link", "cause"),
    "Data sets that waited for their template and were dropped, by cause: a limit, or a restart of the node.",
)
FLOW_SESSIONS = Metric(
    "wiretide_flow_sessions", "gauge", ("link",), "Sessions (sender, port, observation domain, version) in memory."
)
FLOW_SESSIONS_FORGOTTEN = Metric(
    "wiretide_flow_sessions_forgotten_total",
    "counter",
    ("link",),
    "Sessions removed with their templates. If there are too many, the session that is idle longest is removed.",
)
FLOW_SAMPLING_REFUSED = Metric(
    "wiretide_flow_sampling_refused_total",
    "counter",
    ("link",),
    "Rejected sampling rates of samplers, selectors and interfaces, because there are too many.",
)

METRICS = (
    RECORDS_READ,
    BYTES_READ,
    PACKETS_DECODED,
    RECORDS_SKIPPED,
    DECODED_BY_FALLBACK,
    REFUSED_BY_FALLBACK,
    TIMES_REPLACED,
    FILES_DAMAGED,
    FILES_FOLLOWED,
    FILES_REPLACED,
    FILES_REFUSED,
    FILES_RETRIED,
    INTERFACE_RECEIVED,
    INTERFACE_DROPPED,
    INTERFACE_FREEZES,
    INTERFACE_TRUNCATED,
    INTERFACE_UNREADABLE,
    INTERFACE_DOWN,
    INTERFACE_WAITING,
    INTERFACE_BLOCKS,
    INTERFACE_RING_BYTES,
    SFLOW_DATAGRAMS,
    SFLOW_DATAGRAMS_SKIPPED,
    SFLOW_SAMPLES,
    SFLOW_SAMPLES_SKIPPED,
    SFLOW_SEQUENCES,
    FLOW_DATAGRAMS,
    FLOW_RECORDS,
    FLOW_OPTION_RECORDS,
    FLOW_UNITS_LOST,
    FLOW_UNITS_RECOVERED,
    FLOW_SEQUENCE_EVENTS,
    FLOW_TIMES_GUESSED,
    FLOW_FIELDS_UNREADABLE,
    FLOW_DATAGRAMS_REFUSED,
    FLOW_MALFORMED,
    FLOW_TEMPLATES,
    FLOW_TEMPLATES_REFUSED,
    FLOW_SETS_KEPT,
    FLOW_SETS_WAITING,
    FLOW_SETS_DROPPED,
    FLOW_SESSIONS,
    FLOW_SESSIONS_FORGOTTEN,
    FLOW_SAMPLING_REFUSED,
)
