"""The columns of the stream `samples`. A row is a flow sample of an sFlow datagram.

The sampled packet has the columns of `frames`, decoded from the bytes that the agent has sent. As in `frames`, its IP
columns are NULL if it has no IP packet. `sampling_rate` is the number of packets that a row represents.
"""

from __future__ import annotations

from dataclasses import replace

from capture.packets.columns import FRAME_COLUMNS, ColumnSpec

# The fields of a listed sample, as matrix rows, and the counters of the kernel.
#
# The kernel does not copy the packet of a sample. It lists the offset of the packet's header in the data of the
# capture, the link type of the header, and the fields that describe the sampling. NULL is -1, as in decoded packets.


NULL = -1
"""Value of a field that a sample does not contain."""

SAMPLE_FIELDS = (
    "header", "captured", "wire", "link_type", "ts", "datagram", "agent_version", "agent_high", "agent_low",
    "sub_agent", "source_class", "source_id", "sampling_rate", "sample_pool", "sample_drops", "input_if", "output_if",
    "input_vlan", "output_vlan",
)  # fmt: skip
"""Rows of the matrix of listed samples: the sampled packet (offset and length of its header in the data, length on the
wire, link type), the time and the index of the datagram, and the fields of the sample."""

(
    HEADER, CAPTURED_LENGTH, WIRE_LENGTH, LINK_TYPE, TIME, DATAGRAM, AGENT_VERSION, AGENT_HIGH, AGENT_LOW, SUB_AGENT,
    SOURCE_CLASS, SOURCE_ID, SAMPLING_RATE, SAMPLE_POOL, SAMPLE_DROPS, INPUT_IF, OUTPUT_IF, INPUT_VLAN, OUTPUT_VLAN,
) = range(len(SAMPLE_FIELDS))  # fmt: skip

UNKNOWN_HEADER = -1
"""Link type of a header whose protocol has no LINKTYPE_ number."""

SAMPLED_IPV4 = -4
SAMPLED_IPV6 = -6
"""Link types of samples without packet header; `header` is the offset of the sampled_ipv4 or sampled_ipv6 record."""

SAMPLE_KINDS = ("flow", "counter", "other")
"""Kinds of samples: of packets, of interface counters, and others (vendor-specific, dropped packets)."""

DATAGRAM_SKIP_CAUSES = ("header_cut", "other_version", "address_type")
"""Causes for which a datagram is skipped: a truncated header, not version 5, an unknown type of agent address."""

SAMPLE_SKIP_CAUSES = ("cut", "malformed", "no_header")
"""Causes for which a sample does not become a row. cut: the sample and the rest of the datagram are missing (counted
once per datagram). malformed: it is invalid. no_header: it has no packet header and no IP record."""

SEQUENCE_EVENTS = (
    "datagrams_missing",
    "datagrams_reordered",
    "datagrams_repeated",
    "samples_missing",
    "samples_reordered",
    "samples_repeated",
    "restarts",
    "untracked",
)
"""Events of sequence numbers. missing: numbers skipped. reordered: missing numbers that arrived late. repeated: other
old numbers, which are duplicates or from before the first number. restarts: restarts of agents or sources. untracked:
numbers that were not checked, because the table of sequences is full."""

COUNTER_NAMES = ("datagrams", *SAMPLE_KINDS, *DATAGRAM_SKIP_CAUSES, *SAMPLE_SKIP_CAUSES, *SEQUENCE_EVENTS)
"""Names of the counters of the kernel, in the order of its array of counters."""

(
    DATAGRAMS, FLOW, COUNTER, OTHER, HEADER_CUT, OTHER_VERSION, ADDRESS_TYPE, CUT, MALFORMED, NO_HEADER,
    DATAGRAMS_MISSING, DATAGRAMS_REORDERED, DATAGRAMS_REPEATED, SAMPLES_MISSING, SAMPLES_REORDERED, SAMPLES_REPEATED,
    RESTARTS, UNTRACKED,
) = range(len(COUNTER_NAMES))  # fmt: skip


SAMPLING_COLUMNS: dict[str, ColumnSpec] = {
    spec.name: spec
    for spec in (
        ColumnSpec(
            "sampling_rate", "integer", 32, False, "number of packets that the sampled packet represents", False
        ),
        ColumnSpec(
            "sample_pool", "integer", 32, False, "packets of the source that could have been sampled so far", False
        ),
        ColumnSpec(
            "sample_drops", "integer", 32, False, "samples that the agent has lost so far for lack of resources", False
        ),
        ColumnSpec(
            "input_if",
            "integer",
            32,
            True,
            "ifIndex of the input interface (1073741823: the device itself); NULL: unknown",
            False,
        ),
        ColumnSpec(
            "output_if",
            "integer",
            32,
            True,
            "ifIndex of the output interface (1073741823: the device itself); NULL: unknown, several, or discarded",
            False,
        ),
        ColumnSpec("input_vlan", "integer", 32, True, "VLAN at the input, if the agent reports it", False),
        ColumnSpec("output_vlan", "integer", 32, True, "VLAN at the output, if the agent reports it", False),
        ColumnSpec(
            "source_class", "integer", 32, False, "kind of the data source: 0 interface, 1 VLAN, 2 entity", False
        ),
        ColumnSpec("source_id", "integer", 32, False, "ifIndex, VLAN or entity that was sampled", False),
        ColumnSpec("agent", "address", 128, True, "address of the sampling agent, from its datagrams", False),
        ColumnSpec("sub_agent", "integer", 32, False, "number of the agent's process that sampled", False),
        ColumnSpec("exporter", "address", 128, False, "source address of the datagram", False),
    )
}
"""Columns of a sample in addition to the columns of its packet."""

CHANGED_HELP: dict[str, str] = {
    "ts": "capture time of the sample's datagram, nanoseconds since the epoch, UTC",
    "interface": "name or number of the capture's interface that received the datagram",
    "len": "length of the sampled frame on its wire as reported by the agent, usually with its checksum, in bytes",
    "caplen": "bytes of the sampled frame in the datagram",
}
"""Help texts of the columns of `frames` that have another meaning in `samples`."""

SAMPLE_COLUMNS: dict[str, ColumnSpec] = {
    name: replace(spec, help=CHANGED_HELP[name]) if name in CHANGED_HELP else spec
    for name, spec in FRAME_COLUMNS.items()
} | SAMPLING_COLUMNS
"""All columns of the stream `samples`."""
