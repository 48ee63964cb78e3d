"""Dynamic subset-sum sampling: `size` groups, from which the sum of any subset can be estimated.

Let z be the threshold. A row with the weight x is admitted with the probability min(1, x/z), and then represents
max(x, z) (threshold sampling; Duffield, Lund and Thorup, IEEE Trans. Inf. Theory 2005). If there are too many groups,
cleaning raises z to z', for which sum(min(1, w/z')) = size over the represented weights w = max(x, z). Cleaning keeps
each group with the probability min(1, w/z'). The group then represents max(w, z') = max(x, z').

The estimate is unbiased: z' depends on the groups only. So given the groups, the expectation of the represented weight
after cleaning is w: w/z' * z' if w < z', and w otherwise. The represented weight of each row is a martingale that
begins with x.

Variance: if no z exceeds Z, the represented weight of a row is at most max(x, Z), with the expectation x. So its
variance is at most x * max(Z - x, 0). Rows are admitted independently. Cleaning draws by the pivotal method (Deville
and Tille, Biometrika 1998). This method keeps exactly `size` groups. No two groups have a positive covariance (VarOpt;
Cohen et al., SIAM J. Comput. 2011). So the variance of the sum of a subset is at most the sum of the variances of its
rows. This sum is at most Z times the sum of the subset.

The first z of a window is that of the window before, divided by RELAXATION: the traffic may have decreased. Without a
window before, z is 0, and all rows with a weight above 0 are admitted.
"""

from __future__ import annotations

from typing import Self

import numpy as np

from capture.lazy_dataclasses import dataclass
from highlevel.sampling.state import Numbers, SampleState, random_hashes
from lowlevel.expressions.columns import Mask
from lowlevel.expressions.hashing import uniform

TOLERANCE = 2
"""Cleaning is due if there are more than TOLERANCE times `size` groups."""

RELAXATION = 10
"""Divisor of the threshold of the window before: the traffic may have decreased, and cleanings raise it again."""

MIN_WEIGHT = float(np.finfo(np.float64).tiny)
"""Minimum weight of a group in cleaning, so that a threshold is not 0."""

ADMISSIONS, DRAWS = 0, 1
"""The purposes of the random numbers."""


@dataclass
class SubsetSumState(SampleState):
    """The state of ssample, ssdo_clean, ssclean_with, ssfinal_clean and ssthreshold. `draws` counts random numbers."""

    threshold: float = 0.0
    draws: int = 0

    @classmethod
    def start_window(cls, size: int, seed: int, previous: Self | None) -> Self:
        """Return a state with the threshold of the window before, divided by RELAXATION."""
        return cls(size, seed, threshold=0.0 if previous is None else previous.threshold / RELAXATION)

    @property
    def value(self) -> float:
        """The threshold."""
        return self.threshold

    def admit(self, weights: Numbers | None, count: int) -> tuple[Mask, Numbers]:
        """Admit each row with the probability min(1, weight / threshold). Only finite weights above 0 are admitted."""
        assert weights is not None
        numbers = np.asarray(uniform(random_hashes(self.seed, ADMISSIONS, self.rows, count)).data)
        admitted = (weights > 0) & (weights < np.inf) & (numbers * self.threshold <= weights)
        return admitted, np.zeros(count, np.int64)

    def is_due(self, group_counts: Numbers) -> Mask:
        """Return a mask of the numbers of groups above TOLERANCE times `size`."""
        return np.asarray(group_counts > TOLERANCE * self.size)

    def clean(self, weights_or_tickets: Numbers) -> Mask:
        """Raise the threshold, and return a mask of the groups that remain: `size`, or all if they are fewer."""
        if len(weights_or_tickets) <= self.size:
            return np.ones(len(weights_or_tickets), np.bool_)
        weights = np.maximum(np.nan_to_num(weights_or_tickets), max(self.threshold, MIN_WEIGHT))
        self.threshold = threshold_of(weights, self.size)
        probabilities = np.minimum(1.0, weights / self.threshold)
        numbers = np.asarray(uniform(random_hashes(self.seed, DRAWS, self.draws, len(weights))).data)
        self.draws += len(weights)
        return pivotal_sample(probabilities, numbers)

    def finish(self, weights_or_tickets: Numbers) -> Mask:
        """Return a mask of the groups that remain after a last cleaning."""
        return self.clean(weights_or_tickets)


def threshold_of(weights: Numbers, size: int) -> float:
    """Return z with sum(min(1, w/z)) = size. There are more weights than `size`, and all are above 0."""
    ordered = np.sort(weights)[::-1]
    suffix_sums = np.cumsum(ordered[::-1])[::-1]
    large_counts = np.arange(size)  # candidates for the number of weights above z; these weights are always kept
    thresholds = suffix_sums[:size] / (size - large_counts)
    suitable = np.flatnonzero(thresholds >= ordered[:size])
    return float(thresholds[suitable[0]]) if len(suitable) else float(ordered[size - 1])


def pivotal_sample(probabilities: Numbers, random_numbers: Numbers) -> Mask:
    """Return a mask of the elements in a random sample.

    The sum of `probabilities` is an integer, the size of the sample.

    In each step two undecided elements with the probabilities p and q are compared. If p + q < 1, one element is
    excluded, and the other receives the probability p + q. Otherwise one element is included, and the other receives p
    + q - 1. No step changes an element's expectation. `random_numbers`: random numbers in (0, 1], one for each step.
    """
    kept = probabilities >= 1
    undecided = np.flatnonzero(~kept)
    if not len(undecided):
        return kept
    undecided_size = round(float(probabilities[undecided].sum()))
    undecided_element, p = int(undecided[0]), float(probabilities[undecided[0]])
    elements = undecided[1:]
    for element, q, draw in zip(elements.tolist(), probabilities[elements].tolist(), random_numbers, strict=False):
        total = p + q
        if total < 1:
            if draw * total <= q:
                undecided_element = element
            p = total
        else:
            # `element` is in with the probability (1 - p) / (2 - total); then `undecided_element` stays undecided.
            if draw * (2 - total) <= 1 - p:
                kept[element] = True
            else:
                kept[undecided_element] = True
                undecided_element = element
            p = total - 1
    # p is 0 or 1, except for rounding errors.
    kept[undecided_element] = int(kept[undecided].sum()) < undecided_size
    return kept
