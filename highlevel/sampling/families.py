"""The families of functions with a state, and their names in GSQL."""

from __future__ import annotations

from capture.lazy_dataclasses import dataclass
from highlevel.sampling.reservoir import ReservoirState
from highlevel.sampling.state import SampleState
from highlevel.sampling.subset_sum import SubsetSumState


@dataclass(frozen=True, slots=True)
class Family:
    """Functions that share a state.

    admit(weight, size, seed) in WHERE, without the weight if not `weighted`, and the seed may be left out; due(groups)
    in CLEANING WHEN; clean and finish in CLEANING BY and HAVING, over the weight of a group, or without an argument,
    over its ticket, if not `weighted`; `value()`, if there is one, in SELECT.
    """

    state: type[SampleState]
    weighted: bool
    admit: str
    due: str
    clean: str
    finish: str
    value: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all functions."""
        return (self.admit, self.due, self.clean, self.finish, *([] if self.value is None else [self.value]))


FAMILIES: dict[str, Family] = {
    "subset-sum": Family(SubsetSumState, True, "ssample", "ssdo_clean", "ssclean_with", "ssfinal_clean", "ssthreshold"),
    "reservoir": Family(ReservoirState, False, "rsample", "rsdo_clean", "rsclean_with", "rsfinal_clean"),
}
"""Families by name."""
