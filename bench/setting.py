"""The settings of a run of benches."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Setting:
    """`quick`: a smoke run with less work. `data`: the folder of captures. `plots`: the folder of plots, or None.

    `minutes` is the length of the bench `soak`.
    """

    data: Path
    quick: bool = False
    plots: Path | None = None
    minutes: float = 5.0

    def packets(self, full: int) -> int:
        """Return the number of packets: `full`, or 100 000 in a smoke run."""
        return min(full, 100_000) if self.quick else full

    def runs(self, full: int) -> int:
        """Return the number of runs: `full`, or 1 in a smoke run."""
        return 1 if self.quick else full
