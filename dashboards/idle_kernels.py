"""Which kernels a run has no use for: the first run on a machine then does not wait until they are compiled."""

from __future__ import annotations

from capture.files.messages import ExportFormat
from capture.files.pcap import PcapFormat
from capture.files.pcapng import PcapngFormat
from capture.files.stream import StreamedCapture
from capture.files.tpacket import RingFormat
from capture.native import Kernel
from highlevel.aggregation import LINK
from highlevel.inline.engine import InlineRun
from highlevel.plan.nodes import Join
from lowlevel.expressions.types import Type

OF_KINDS = {
    "capture.flows.": {"flows"},
    "lowlevel.table.spread": {"flows"},
    "capture.sflow.": {"samples"},
    "capture.files.messages": {"flows"},
}
"""Modules by the beginning of their names, and the kinds of rows that need their kernels."""

OF_FORMATS = {
    PcapFormat: {"scan_blocks", "guess_boundary", "decode_pcap"},
    PcapngFormat: {"scan_pcapng", "decode_pcapng"},
    ExportFormat: {"walk_messages", "list_messages"},
    RingFormat: {"scan_ring", "decode_ring"},
}
"""Kernels that read one format alone."""


class IdleKernels:
    """Says of a kernel whether a run will leave it alone, as far as can be told before it has read anything.

    A live input is taken for a classic pcap, unless it is an interface. A kernel that is called all the same is
    compiled then.
    """

    def __init__(self, run: InlineRun) -> None:
        """Look at the kinds of rows, the columns, the promises, and at the formats of the inputs."""
        leaves = [leaf for plan in run.plans for leaf in plan.leaves]
        nodes = [node for plan in run.plans for node in plan.nodes]
        self.kinds = {leaf.low.kind for leaf in leaves}
        if "flows" in self.kinds:
            import lowlevel.rows.flows  # declares its kernels
        if "samples" in self.kinds:
            import lowlevel.rows.samples  # noqa: F401
        self.unused = set() if any(lane.port.knowledge.by_rows for lane in run.lanes) else {"lowlevel.watermarks.jumps"}
        self.unused.add("lowlevel.table.flush_kernels")  # nothing waits in a ring: entries leave at once
        if not any(column.endswith("payload") for leaf in leaves for column in leaf.low.columns):
            self.unused.add("lowlevel.expressions.byte_functions")
        texts = (key for leaf in leaves for key in leaf.low.keys if key.expression.type is Type.TEXT)
        scans = [plan.scan for plan in run.plans]
        linked = any(scan is None or LINK in scan.aggregation.group_by for scan in scans)
        if not any(texts) and not linked:
            self.unused.add("highlevel.groups.long_strings")
        self.joins = any(isinstance(node, Join) for node in nodes)
        captures = [lane.capture for lane in run.lanes]
        unknown = [isinstance(capture, StreamedCapture) and not capture.recognised for capture in captures]
        formats = {type(capture.format) for capture, waits in zip(captures, unknown, strict=True) if not waits}
        formats |= {PcapFormat} if any(unknown) else set()
        self.formats = {name for form, names in OF_FORMATS.items() if form not in formats for name in names}

    def __call__(self, kernel: Kernel) -> bool:
        """Return whether the run has no use for `kernel`."""
        module = kernel.function.__module__
        needed_for = [kinds for beginning, kinds in OF_KINDS.items() if module.startswith(beginning)]
        idle = kernel.name in self.formats or module in self.unused
        idle = idle or (not self.joins and module.startswith("highlevel.joins."))
        return idle or any(not kinds & self.kinds for kinds in needed_for)
