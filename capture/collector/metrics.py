"""What the collector counts.

`datagrams received by the sockets = collector_datagrams + collector_refused`, and every datagram that was sent to a
socket and is in neither is in `collector_dropped`. What is in the files is `collector_datagrams -
collector_unwritten`, and nothing is unwritten unless the disk fails.
"""

from __future__ import annotations

from capture.metrics import Metric

DATAGRAMS = Metric(
    "wiretide_collector_datagrams_total",
    "counter",
    ("exporter",),
    "Datagrams received and recorded, by sender; other are all senders beyond the bound.",
)
BYTES = Metric(
    "wiretide_collector_bytes_total",
    "counter",
    ("exporter",),
    "Bytes of payload of the datagrams recorded, by sender.",
)
NEWEST = Metric(
    "wiretide_collector_newest_datagram_seconds",
    "gauge",
    ("exporter",),
    "Time at which the sender's newest datagram arrived (seconds since the epoch).",
)
EXPORTERS = Metric(
    "wiretide_collector_exporters", "gauge", (), "Senders that are counted one by one since the collector started."
)
REFUSED = Metric(
    "wiretide_collector_refused_total",
    "counter",
    ("cause",),
    "Datagrams received and thrown away, by cause; not_allowed: the sender is in no allowed prefix.",
)
DROPPED = Metric(
    "wiretide_collector_dropped_total",
    "counter",
    ("socket",),
    "Datagrams that the system threw away because the socket's buffer was full (or their checksum wrong); Linux only.",
)
BUFFER = Metric(
    "wiretide_collector_receive_buffer_bytes", "gauge", ("socket",), "Bytes of receive buffer that the system granted."
)
BUFFER_USED = Metric(
    "wiretide_collector_receive_buffer_used_bytes",
    "gauge",
    ("socket",),
    "Bytes of the receive buffer in use, by the system's own account; Linux only.",
)
WAITING = Metric(
    "wiretide_collector_waiting_chunks",
    "gauge",
    (),
    "Chunks of recorded datagrams that wait for the disk; datagrams wait in the sockets when all are full.",
)
WRITTEN = Metric("wiretide_collector_written_bytes_total", "counter", (), "Bytes written into files, headers included.")
UNWRITTEN = Metric(
    "wiretide_collector_unwritten_total",
    "counter",
    (),
    "Datagrams recorded that are in no file because the disk failed; the collector ends then.",
)
FILES = Metric("wiretide_collector_files_total", "counter", (), "Files begun.")
FILES_DELETED = Metric(
    "wiretide_collector_files_deleted_total", "counter", (), "Oldest files deleted to keep the bound of the folder."
)
FILES_RETRIED = Metric(
    "wiretide_collector_files_retried_total",
    "counter",
    (),
    "Times that the next file could not be opened because no file descriptor was free; datagrams wait in the sockets "
    "until it can.",
)
UNINSPECTED = Metric(
    "wiretide_collector_uninspected_total",
    "counter",
    (),
    "Datagrams recorded but not decoded on the side, because decoding fell behind; the counters of flows lack them.",
)

METRICS = (
    DATAGRAMS, BYTES, NEWEST, EXPORTERS, REFUSED, DROPPED, BUFFER, BUFFER_USED, WAITING, WRITTEN, UNWRITTEN, FILES,
    FILES_DELETED, FILES_RETRIED, UNINSPECTED,
)  # fmt: skip
