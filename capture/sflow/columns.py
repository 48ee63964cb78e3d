"""The columns of the stream `samples`: a row is a flow sample of an sFlow datagram.

The sampled packet has the columns of `frames`, decoded from the bytes that the agent sent along. Like a row of
`frames` it may hold no IP packet; its IP columns are then NULL. What one row stands for is said by `sampling_rate`.
"""

from __future__ import annotations

from dataclasses import replace

from capture.packets.columns import FRAME_COLUMNS, ColumnSpec

# What a listed sample says beside its packet: the rows of the matrix that datagrams are listed into, and the counts.
#
# A sample is where its packet's header lies in the capture's data, how that is to be read, and what the agent said of
# the sampling. A NULL is -1, as in a decoded packet.


NULL = -1

SAMPLE_FIELDS = (
    "header", "captured", "wire", "link_type", "ts", "datagram", "agent_version", "agent_high", "agent_low",
    "sub_agent", "source_class", "source_id", "sampling_rate", "sample_pool", "sample_drops", "input_if", "output_if",
    "input_vlan", "output_vlan",
)  # fmt: skip
"""Rows of the matrix of listed samples: the sampled packet (offset and length of its header in the data, length on the
wire, link type), the time and the number of the datagram, and what the sample says by itself."""

(
    HEADER, CAPTURED, WIRE, LINK_TYPE, TIME, DATAGRAM, AGENT_VERSION, AGENT_HIGH, AGENT_LOW, SUB_AGENT, SOURCE_CLASS,
    SOURCE_ID, SAMPLING_RATE, SAMPLE_POOL, SAMPLE_DROPS, INPUT_IF, OUTPUT_IF, INPUT_VLAN, OUTPUT_VLAN,
) = range(len(SAMPLE_FIELDS))  # fmt: skip

UNKNOWN_HEADER = -1
"""Link type of a header whose protocol has no LINKTYPE_ number."""

SAMPLED_IPV4 = -4
SAMPLED_IPV6 = -6
"""Link types of samples without a packet header: `header` is where the sampled_ipv4 or sampled_ipv6 record begins."""

SAMPLES = ("flow", "counter", "other")
"""Kinds of samples: of packets, of an interface's counters, and everything else (vendors' own, dropped packets)."""

DATAGRAMS_SKIPPED = ("header_cut", "other_version", "address_type")
"""Why a datagram is not read: it ends inside its header; it is not version 5; its agent's address is of no type that
the version defines."""

SAMPLES_SKIPPED = ("cut", "malformed", "no_header")
"""Why a sample is no row: its datagram ends before it does, and nothing behind it is read (`cut` also counts once the
samples that were announced and are not there); it contradicts itself; it carries no packet header and no IP record."""

SEQUENCES = (
    "datagrams_missing",
    "datagrams_reordered",
    "datagrams_repeated",
    "samples_missing",
    "samples_reordered",
    "samples_repeated",
    "restarts",
    "untracked",
)
"""What sequence numbers tell: numbers left out, those of them that came after a higher one, numbers from behind that
were not missing (they came twice, or are from before the first), agents or sources that began anew, and numbers that
were not looked at because the table of agents is full."""

COUNTS = ("datagrams", *SAMPLES, *DATAGRAMS_SKIPPED, *SAMPLES_SKIPPED, *SEQUENCES)
"""Words of the kernel's counts."""

(
    DATAGRAMS, FLOW, COUNTER, OTHER, HEADER_CUT, OTHER_VERSION, ADDRESS_TYPE, CUT, MALFORMED, NO_HEADER,
    DATAGRAMS_MISSING, DATAGRAMS_REORDERED, DATAGRAMS_REPEATED, SAMPLES_MISSING, SAMPLES_REORDERED, SAMPLES_REPEATED,
    RESTARTS, UNTRACKED,
) = range(len(COUNTS))  # fmt: skip


OF_THE_SAMPLE: dict[str, ColumnSpec] = {
    spec.name: spec
    for spec in (
        ColumnSpec(
            "sampling_rate", "integer", 32, False, "one in how many packets is sampled: what one row stands for", False
        ),
        ColumnSpec(
            "sample_pool", "integer", 32, False, "packets that could have been sampled so far, by the source", False
        ),
        ColumnSpec(
            "sample_drops", "integer", 32, False, "samples that the agent lost so far for want of resources", False
        ),
        ColumnSpec(
            "input_if",
            "integer",
            32,
            True,
            "ifIndex the packet came in on (1073741823 inside the device); NULL: unknown",
            False,
        ),
        ColumnSpec(
            "output_if",
            "integer",
            32,
            True,
            "ifIndex the packet left on (1073741823 inside the device); NULL: unknown, several, or discarded",
            False,
        ),
        ColumnSpec("input_vlan", "integer", 32, True, "VLAN the packet came in on, where the agent says", False),
        ColumnSpec("output_vlan", "integer", 32, True, "VLAN the packet left on, where the agent says", False),
        ColumnSpec(
            "source_class", "integer", 32, False, "kind of the data source: 0 interface, 1 VLAN, 2 entity", False
        ),
        ColumnSpec("source_id", "integer", 32, False, "ifIndex, VLAN or entity that was sampled", False),
        ColumnSpec("agent", "address", 128, True, "address of the agent that sampled, as its datagrams say", False),
        ColumnSpec("sub_agent", "integer", 32, False, "number of the agent's process that sampled", False),
        ColumnSpec("exporter", "address", 128, False, "address that the datagram was sent from", False),
    )
}
"""What a sample says beside its packet."""

CHANGED: dict[str, str] = {
    "ts": "time at which the sample's datagram was captured, nanoseconds since the epoch, UTC",
    "interface": "name of the capture's interface that the datagram came in on, or its number",
    "len": "length of the sampled frame on its wire as the agent says, mostly with its checksum, in bytes",
    "caplen": "bytes of the sampled frame that the agent sent along",
}
"""What columns of `frames` mean here."""

SAMPLE_COLUMNS: dict[str, ColumnSpec] = {
    name: replace(spec, help=CHANGED[name]) if name in CHANGED else spec for name, spec in FRAME_COLUMNS.items()
} | OF_THE_SAMPLE
"""Every column of the stream `samples`."""
