"""Rows that contain only times, for tests of watermarks."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from lowlevel.expressions.columns import Columns, Vector
from lowlevel.punctuation import BEGINNING


@dataclass
class MadeRows:
    times: list[int]
    earliest: int = BEGINNING
    arrived: list[int] | None = None
    columns: Columns = field(init=False)

    def __post_init__(self) -> None:
        self.columns = {"ts": Vector(np.array(self.times, np.int64))}

    @property
    def arrivals(self) -> np.ndarray | None:
        return None if self.arrived is None else np.array(self.arrived, np.int64)

    @property
    def count(self) -> int:
        return len(self.times)
