"""The settings of a run of benches."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Setting:
    """`quick`: a smoke run with less work. `data`: the folder of captures. `plots`: the folder of plots, or None."""

    data: Path
    quick: bool = False
    plots: Path | None = None

    def packets(self, full: int) -> int:
        """Return the number of packets: `full`, or 100 000 in a smoke run."""
        return min(full, 100_000) if self.quick else full

    def runs(self, full: int) -> int:
        """Return the number of runs: `full`, or 1 in a smoke run."""
        return 1 if self.quick else full
