"""What this folder counts, and the form in which every folder declares and carries its counters.

`records_read = packets_decoded + records_skipped (all causes)`: what comes in is what goes on plus what was counted
away.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

LabelledName = tuple[str, tuple[str, ...]]
"""Metric name and its label values, in the order the metric declares its labels."""


@dataclass(frozen=True, slots=True)
class Metric:
    """Declaration of one metric: `kind` is `counter` (only grows; values add up) or `gauge` (the last value stands)."""

    name: str
    kind: str
    labels: tuple[str, ...]
    help: str


class Samples(dict[LabelledName, float]):
    """Values by metric name and label values; small, picklable, no locks. Not thread safe."""

    def add(self, metric: Metric, amount: float, *labels: str) -> None:
        """Grow a counter by `amount`."""
        key = (metric.name, labels)
        self[key] = self.get(key, 0) + amount

    def set(self, metric: Metric, value: float, *labels: str) -> None:
        """Set a gauge."""
        self[metric.name, labels] = value

    def merge(self, other: Mapping[LabelledName, float], metrics: Mapping[str, Metric]) -> None:
        """Take in the samples of another part of the pipeline: counters add up, gauges are replaced."""
        for key, value in other.items():
            counts = metrics[key[0]].kind == "counter"
            self[key] = self.get(key, 0) + value if counts else value

    def total(self, metric: Metric, **match: str) -> float:
        """Sum of a metric over all label sets that have the given label values."""
        places = {metric.labels.index(label): value for label, value in match.items()}
        return sum(
            value
            for (name, labels), value in self.items()
            if name == metric.name and all(labels[place] == wanted for place, wanted in places.items())
        )


def by_name(*groups: Iterable[Metric]) -> dict[str, Metric]:
    """Index declarations by metric name."""
    return {metric.name: metric for group in groups for metric in group}


RECORDS_READ = Metric(
    "wiretide_records_read_total", "counter", ("link",), "Whole records read from captures, whatever they hold."
)
BYTES_READ = Metric("wiretide_bytes_read_total", "counter", ("link",), "Bytes of whole records read, headers included.")
PACKETS_DECODED = Metric(
    "wiretide_packets_decoded_total", "counter", ("link",), "Records that became a row of the stream packets."
)
RECORDS_SKIPPED = Metric(
    "wiretide_records_skipped_total",
    "counter",
    ("link", "cause"),
    "Records that hold no IP packet with readable addresses, by cause.",
)
DECODED_BY_FALLBACK = Metric(
    "wiretide_records_decoded_by_fallback_total",
    "counter",
    ("link", "header"),
    "Records that dpkt decoded, by the header that only dpkt knows; they are rows like all others.",
)
REFUSED_BY_FALLBACK = Metric(
    "wiretide_records_refused_by_fallback_total",
    "counter",
    ("link", "cause"),
    "Records with such a header in which dpkt found no IP packet (no_ip), raised an error (unreadable) or found an IP"
    " header that is cut or malformed (ip_header), or that waited for dpkt in vain (not_installed).",
)
TIMES_REPLACED = Metric(
    "wiretide_times_replaced_total",
    "counter",
    ("link", "kind", "cause"),
    "Records, by the kind of rows read, that have no time (no_timestamp: 0 is taken) or one outside 1970 to 2116"
    " (out_of_range: the nearest bound is taken).",
)
FILES_DAMAGED = Metric(
    "wiretide_files_damaged_total",
    "counter",
    ("link", "cause"),
    "Captures that end in something other than a whole record, by cause; all records before it were read.",
)

FILES_FOLLOWED = Metric(
    "wiretide_followed_files_total",
    "counter",
    ("link",),
    "Files begun of those that are followed as they grow.",
)
FILES_REPLACED = Metric(
    "wiretide_followed_files_replaced_total",
    "counter",
    ("link",),
    "Such files whose content was replaced by another in its place, which was then read from its beginning.",
)
FILES_REFUSED = Metric(
    "wiretide_followed_files_refused_total",
    "counter",
    ("link",),
    "Files of a followed folder that are no capture or cannot be read; they are passed over.",
)
FILES_RETRIED = Metric(
    "wiretide_followed_files_retried_total",
    "counter",
    ("link",),
    "Times that a followed file or its folder could not be opened because no file descriptor was free; it is tried "
    "again.",
)
INTERFACE_RECEIVED = Metric(
    "wiretide_interface_received_total",
    "counter",
    ("link",),
    "Packets that the system had for the ring of a live interface: those read, dropped, unreadable, and still in it.",
)
INTERFACE_DROPPED = Metric(
    "wiretide_interface_dropped_total",
    "counter",
    ("link",),
    "Packets of a live interface that the system dropped because the ring was full.",
)
INTERFACE_FREEZES = Metric(
    "wiretide_interface_ring_full_total", "counter", ("link",), "Times that the ring of a live interface became full."
)
INTERFACE_TRUNCATED = Metric(
    "wiretide_interface_truncated_total",
    "counter",
    ("link",),
    "Packets of a live interface that were longer than the snapshot length; what was captured of them was read.",
)
INTERFACE_UNREADABLE = Metric(
    "wiretide_interface_unreadable_total",
    "counter",
    ("link",),
    "Packets of a live interface behind a place in the ring that contradicts itself; they were not read.",
)
INTERFACE_DOWN = Metric(
    "wiretide_interface_down_total",
    "counter",
    ("link",),
    "Times that a live interface went down, or was down at first.",
)
INTERFACE_WAITING = Metric(
    "wiretide_interface_ring_waiting_blocks",
    "gauge",
    ("link",),
    "Blocks of the ring that hold packets and have not been given back; packets are dropped when all do.",
)
INTERFACE_BLOCKS = Metric("wiretide_interface_ring_blocks", "gauge", ("link",), "Blocks of the ring.")
INTERFACE_RING_BYTES = Metric(
    "wiretide_interface_ring_bytes", "gauge", ("link",), "Bytes of the ring, all memory that packets wait in."
)

SFLOW_DATAGRAMS = Metric(
    "wiretide_sflow_datagrams_total",
    "counter",
    ("link",),
    "UDP datagrams in captures that went to the port of sFlow, or are sFlow through and through.",
)
SFLOW_DATAGRAMS_SKIPPED = Metric(
    "wiretide_sflow_datagrams_skipped_total",
    "counter",
    ("link", "cause"),
    "Such datagrams that are not read: cut in their header, of another version, or with an agent's address of no type.",
)
SFLOW_SAMPLES = Metric(
    "wiretide_sflow_samples_total",
    "counter",
    ("link", "kind"),
    "Samples in sFlow datagrams: of packets (flow), which became rows of the stream samples, of counters, and others.",
)
SFLOW_SAMPLES_SKIPPED = Metric(
    "wiretide_sflow_samples_skipped_total",
    "counter",
    ("link", "cause"),
    "Flow samples that became no row: cut with all that follows in their datagram, malformed, or without a packet.",
)
SFLOW_SEQUENCES = Metric(
    "wiretide_sflow_sequences_total",
    "counter",
    ("link", "event"),
    "Sequence numbers of agents' datagrams and sources' samples that were missing, came late after all (reordered), "
    "were repeated, began anew, or were not followed because there are too many; lost is what is missing less "
    "reordered.",
)

FLOW_DATAGRAMS = Metric(
    "wiretide_flow_datagrams_total",
    "counter",
    ("link", "exporter", "version"),
    "Datagrams of NetFlow and IPFIX that were read, by sender; other are all senders beyond the bound.",
)
FLOW_RECORDS = Metric(
    "wiretide_flow_records_total",
    "counter",
    ("link", "exporter", "version"),
    "Flow records in those datagrams that became rows of the stream flows.",
)
FLOW_OPTION_RECORDS = Metric(
    "wiretide_flow_option_records_total",
    "counter",
    ("link", "exporter", "version"),
    "Option records in those datagrams, which say how flows are to be read and are no rows.",
)
FLOW_UNITS_LOST = Metric(
    "wiretide_flow_units_lost_total",
    "counter",
    ("link", "exporter", "version"),
    "What sequence numbers say was skipped: records of v5, v7 and IPFIX, datagrams of v9.",
)
FLOW_UNITS_RECOVERED = Metric(
    "wiretide_flow_units_recovered_total",
    "counter",
    ("link", "exporter", "version"),
    "Units that were counted as lost and came late after all; never more than were lost. Duplicates are none of them.",
)
FLOW_SEQUENCE_EVENTS = Metric(
    "wiretide_flow_sequence_events_total",
    "counter",
    ("link", "exporter", "version", "event"),
    "Datagrams whose sequence number was not the expected one: after a gap, late, a duplicate, or of a new beginning.",
)
FLOW_TIMES_GUESSED = Metric(
    "wiretide_flow_times_guessed_total",
    "counter",
    ("link", "exporter", "version"),
    "Flow records without a start, or without an end: the other one stands for it, or the time of the export.",
)
FLOW_FIELDS_UNREADABLE = Metric(
    "wiretide_flow_fields_unreadable_total",
    "counter",
    ("link", "exporter", "version"),
    "Fields that a query asked for and whose bytes are no value of their type; they are NULL.",
)
FLOW_DATAGRAMS_REFUSED = Metric(
    "wiretide_flow_datagrams_refused_total",
    "counter",
    ("link", "cause"),
    "UDP datagrams that are no exports, by cause: to an export port with a version or header that is none, or to"
    " another port and, though they begin with a version, not an export through and through.",
)
FLOW_MALFORMED = Metric(
    "wiretide_flow_malformed_total",
    "counter",
    ("link", "cause"),
    "Places where an export contradicts itself, by cause; what is whole before them is read.",
)
FLOW_TEMPLATES = Metric(
    "wiretide_flow_templates_total",
    "counter",
    ("link", "change"),
    "Template records, by what they did: new, the same again, another one of the same number, withdrawn, or evicted by "
    "a newer one.",
)
FLOW_TEMPLATES_REFUSED = Metric(
    "wiretide_flow_templates_refused_total",
    "counter",
    ("link", "cause"),
    "Template records that were not taken, by cause; their data waits and is dropped.",
)
FLOW_SETS_KEPT = Metric(
    "wiretide_flow_sets_kept_total", "counter", ("link",), "Sets of data that came before their template and were kept."
)
FLOW_SETS_WAITING = Metric(
    "wiretide_flow_sets_waiting", "gauge", ("link",), "Sets of data that wait for their template."
)
FLOW_SETS_DROPPED = Metric(
    "wiretide_flow_sets_dropped_total",
    "counter",
    ("link", "cause"),
    "Sets of data that waited for their template and were dropped unread, by cause: a bound, or the node was started"
    " again.",
)
FLOW_SESSIONS = Metric(
    "wiretide_flow_sessions", "gauge", ("link",), "Sessions (sender, port, observation domain, version) remembered."
)
FLOW_SESSIONS_FORGOTTEN = Metric(
    "wiretide_flow_sessions_forgotten_total",
    "counter",
    ("link",),
    "Sessions that were forgotten with their templates, silent longest when there were too many.",
)
FLOW_SAMPLING_REFUSED = Metric(
    "wiretide_flow_sampling_refused_total",
    "counter",
    ("link",),
    "Announced rates of samplers, selectors and interfaces that were not taken because there are too many.",
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
