"""Metrics of the collector.

The sockets receive `collector_datagrams + collector_refused` datagrams. All other datagrams sent to a socket are in
`collector_dropped`. The files contain `collector_datagrams - collector_unwritten` datagrams. `collector_unwritten` is 0
unless the disk fails.
"""

from __future__ import annotations

from capture.metrics import Metric

DATAGRAMS = Metric(
    "wiretide_collector_datagrams_total",
    "counter",
    ("exporter",),
    "Datagrams received and recorded, by sender. `other`: senders beyond the limit.",
)
BYTES = Metric(
    "wiretide_collector_bytes_total",
    "counter",
    ("exporter",),
    "Payload bytes of the recorded datagrams, by sender.",
)
NEWEST = Metric(
    "wiretide_collector_newest_datagram_seconds",
    "gauge",
    ("exporter",),
    "Arrival time of the sender's newest datagram (seconds since the epoch).",
)
EXPORTERS = Metric(
    "wiretide_collector_exporters", "gauge", (), "Senders with separate counters since the collector started."
)
REFUSED = Metric(
    "wiretide_collector_refused_total",
    "counter",
    ("cause",),
    "Datagrams received and discarded, by cause. not_allowed: no allowed prefix contains the sender.",
)
DROPPED = Metric(
    "wiretide_collector_dropped_total",
    "counter",
    ("socket",),
    "Datagrams that the system discarded because the socket's buffer was full (or the checksum was wrong). Linux only.",
)
BUFFER = Metric(
    "wiretide_collector_receive_buffer_bytes", "gauge", ("socket",), "Bytes of receive buffer that the system granted."
)
BUFFER_USED = Metric(
    "wiretide_collector_receive_buffer_used_bytes",
    "gauge",
    ("socket",),
    "Bytes of the receive buffer in use, as counted by the system. Linux only.",
)
WAITING = Metric(
    "wiretide_collector_waiting_chunks",
    "gauge",
    (),
    "Chunks of recorded datagrams that wait for the disk. If all are full, datagrams wait in the sockets.",
)
WRITTEN = Metric("wiretide_collector_written_bytes_total", "counter", (), "Bytes written to files, with headers.")
UNWRITTEN = Metric(
    "wiretide_collector_unwritten_total",
    "counter",
    (),
    "Recorded datagrams that are in no file because the disk failed. The collector then ends.",
)
FILES = Metric("wiretide_collector_files_total", "counter", (), "Files that the collector has begun.")
FILES_DELETED = Metric(
    "wiretide_collector_files_deleted_total", "counter", (), "Oldest files deleted to keep the limit of the folder."
)
FILES_RETRIED = Metric(
    "wiretide_collector_files_retried_total",
    "counter",
    (),
    "Failed attempts to open the next file because no file descriptor was free. Datagrams wait in the sockets.",
)
UNINSPECTED = Metric(
    "wiretide_collector_uninspected_total",
    "counter",
    (),
    "Recorded datagrams that were not decoded because decoding was too slow. The flow counters do not include them.",
)

METRICS = (
    DATAGRAMS, BYTES, NEWEST, EXPORTERS, REFUSED, DROPPED, BUFFER, BUFFER_USED, WAITING, WRITTEN, UNWRITTEN, FILES,
    FILES_DELETED, FILES_RETRIED, UNINSPECTED,
)  # fmt: skip
