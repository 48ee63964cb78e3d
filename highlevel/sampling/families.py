"""The families of functions with a state, and their names in GSQL."""

from __future__ import annotations

from capture.lazy_dataclasses import dataclass
from highlevel.sampling.reservoir import ReservoirState
from highlevel.sampling.state import SampleState
from highlevel.sampling.subset_sum import SubsetSumState


@dataclass(frozen=True, slots=True)
class Family:
    """The names of the functions that share a state, and the clauses in which they are called.

    WHERE                  admit(weight, size [, seed]); without the weight if not `weighted`
    CLEANING WHEN          due(groups)
    CLEANING BY, HAVING    clean(weight), finish(weight); if not `weighted`, clean() and finish(), which use the
                           random number (ticket) of each group
    SELECT                 value(), if the family has this function
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
"""Families by the names that plans use."""
