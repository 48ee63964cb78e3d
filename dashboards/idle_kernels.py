"""Determine the kernels that a run does not use, so that the first run on a machine does not compile them."""

from __future__ import annotations

from capture.files.messages import ExportFormat
from capture.files.pcap import PcapFormat
from capture.files.pcapng import PcapngFormat
from capture.files.ring_frames import RingFormat
from capture.files.stream import StreamedCapture
from capture.native import Kernel
from highlevel.aggregation import LINK
from highlevel.inline.engine import InlineRun
from highlevel.plan.nodes import Join
from lowlevel.expressions.types import Type

KINDS_BY_MODULE = {
    "capture.flows.": {"flows"},
    "lowlevel.table.spread": {"flows"},
    "capture.sflow.": {"samples"},
    "capture.files.messages": {"flows"},
}
"""Kinds of rows by the prefix of a module name: only runs over these kinds use the kernels of the module."""

KERNELS_BY_FORMAT = {
    PcapFormat: {"scan_blocks", "find_plausible_chain", "decode_pcap"},
    PcapngFormat: {"scan_pcapng", "decode_pcapng"},
    ExportFormat: {"walk_messages", "list_messages"},
    RingFormat: {"scan_ring", "decode_ring"},
}
"""Kernels that only one format uses."""


class IdleKernels:
    """A predicate over kernels: True if a run will not use the kernel. Created before the run reads its input.

    The format of a live input is not known yet. Except for interfaces, a classic pcap is assumed. If this is wrong, the
    missing kernel is compiled at its first call.
    """

    def __init__(self, run: InlineRun) -> None:
        """Inspect the kinds of rows, the columns, the watermark rules and the formats of the inputs."""
        leaves = [leaf for plan in run.plans for leaf in plan.leaves]
        nodes = [node for plan in run.plans for node in plan.nodes]
        self.kinds = {leaf.low.kind for leaf in leaves}
        if "flows" in self.kinds:
            import lowlevel.rows.flows  # declares its kernels
        if "samples" in self.kinds:
            import lowlevel.rows.samples  # noqa: F401
        self.unused = (
            set()
            if any(shard.input.watermark_rule.needs_rows for shard in run.shards)
            else {"lowlevel.watermarks.jumps"}
        )
        self.unused.add("lowlevel.table.flush_kernels")  # the inline engine flushes entries at once
        if not any(column.endswith("payload") for leaf in leaves for column in leaf.low.columns):
            self.unused.add("lowlevel.expressions.byte_functions")
        if not any(leaf.low.depends_on_earlier_rows for leaf in leaves):
            self.unused.add("lowlevel.node.filter_join")
        texts = (key for leaf in leaves for key in leaf.low.keys if key.expression.type is Type.TEXT)
        scans = [plan.scan for plan in run.plans]
        groups_by_link = any(scan is None or LINK in scan.aggregation.group_by for scan in scans)
        if not any(texts) and not groups_by_link:
            self.unused.add("highlevel.groups.long_strings")
        self.joins = any(isinstance(node, Join) for node in nodes)
        captures = [shard.capture for shard in run.shards]
        unknown = [isinstance(capture, StreamedCapture) and not capture.is_recognised for capture in captures]
        known = [capture for capture, is_unknown in zip(captures, unknown, strict=True) if not is_unknown]
        formats = {type(capture.format) for capture in known}
        formats |= {PcapFormat} if any(unknown) else set()
        self.unused_names = {name for kind, names in KERNELS_BY_FORMAT.items() if kind not in formats for name in names}

    def __call__(self, kernel: Kernel) -> bool:
        """Return True if the run does not use `kernel`."""
        module = kernel.function.__module__
        needed_for = [kinds for prefix, kinds in KINDS_BY_MODULE.items() if module.startswith(prefix)]
        idle = kernel.name in self.unused_names or module in self.unused
        idle = idle or (not self.joins and module.startswith("highlevel.joins."))
        return idle or any(not kinds & self.kinds for kinds in needed_for)
