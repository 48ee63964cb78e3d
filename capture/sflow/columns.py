"""The columns of the stream `samples`: a row is a flow sample of an sFlow datagram.

The sampled packet has the columns of `frames`, decoded from the bytes that the agent sent along. Like a row of
`frames` it may hold no IP packet; its IP columns are then NULL. What one row stands for is said by `sampling_rate`.
"""

from __future__ import annotations

from dataclasses import replace

from capture.packets.columns import FRAME_COLUMNS, ColumnSpec

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
