"""The targets by name.

This module imports no target, because the modules of a target must be instrumented during their import.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).resolve().parent
CORPUS = HERE / "corpus"
"""Seeds: one folder per target. Inputs that made a target fail are stored here as `found-*`."""

FOUND = HERE / "found"
"""Inputs that break something now; not kept in the repository."""


@dataclass(frozen=True)
class Target:
    """One target: the module with its `check` and `seeds`, and the longest input that is tried, bytes."""

    name: str
    module: str
    longest: int
    reads: str

    def load(self) -> ModuleType:
        """Import the module."""
        return importlib.import_module(f"tests.fuzz.{self.module}")

    def corpus(self) -> list[Path]:
        """The seeds, in the order of their names."""
        return sorted((CORPUS / self.name).iterdir())


TARGETS = {
    target.name: target
    for target in (
        Target("pcap", "pcap_files", 2048, "files of classic pcap"),
        Target("pcapng", "pcapng_files", 1536, "files of pcapng"),
        Target("compressed", "compressed", 1024, "compressed files and pipes, and the captures in them"),
        Target("frames", "frames", 400, "link layers, IP and tunnels of a frame"),
        Target("ring", "ring_blocks", 2048, "blocks of a live interface's ring"),
        Target("exports", "flow_exports", 1024, "NetFlow v5, v7, v9 and IPFIX datagrams"),
        Target("export-files", "export_files", 1024, "files of bare export datagrams"),
        Target("sflow", "sflow", 1792, "sFlow datagrams and the packets in them"),
        Target("sql", "sql", 300, "the text of a query"),
    )
}
