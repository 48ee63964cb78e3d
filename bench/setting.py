"""The settings of a run of benches."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Setting:
    """`quick` shrinks the work to a smoke run; captures are kept in `data`; plots go to `plots`, if anywhere."""

    data: Path
    quick: bool = False
    plots: Path | None = None

    def packets(self, full: int) -> int:
        """How many packets to measure on: `full`, or 100 000 in a smoke run."""
        return min(full, 100_000) if self.quick else full

    def runs(self, full: int) -> int:
        """How often to repeat: `full` times, or once in a smoke run."""
        return 1 if self.quick else full
