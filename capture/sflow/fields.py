"""What a listed sample says beside its packet: the rows of the matrix that datagrams are listed into, and the counts.

A sample is where its packet's header lies in the capture's data, how that is to be read, and what the agent said of
the sampling. A NULL is -1, as in a decoded packet.
"""

from __future__ import annotations

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
