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
    "Sequence numbers of agents' datagrams and sources' samples that were missing, came late or twice, began anew, or "
    "were not followed because there are too many; what was lost is what is missing less what came late.",
)

METRICS = (
    RECORDS_READ,
    BYTES_READ,
    PACKETS_DECODED,
    RECORDS_SKIPPED,
    TIMES_REPLACED,
    FILES_DAMAGED,
    SFLOW_DATAGRAMS,
    SFLOW_DATAGRAMS_SKIPPED,
    SFLOW_SAMPLES,
    SFLOW_SAMPLES_SKIPPED,
    SFLOW_SEQUENCES,
)
