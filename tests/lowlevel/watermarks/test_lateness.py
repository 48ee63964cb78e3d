"""Late rows by steps against a loop over the rows.

* Random batches find a wrong comparison at the border of two batches, and a row that is counted in the next step.
* Shares find an estimate that is too small, because a WAIT of this length would need corrections.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import numpy as np
import pytest

from capture.metrics import Samples
from capture.units import SECOND
from lowlevel.metrics import LATENESS
from lowlevel.watermarks.lateness import BOUNDS, BUCKETS, LARGEST_INDEX, Lateness, count_late_rows
from tests.harness.plain_kernels import plain


def lateness_of(amounts: list[int]) -> Lateness:
    """Late rows of these amounts of ns."""
    lateness = Lateness()
    lateness.add(np.array(amounts, np.int64))
    return lateness


def late_amounts(times: list[int]) -> list[int]:
    """The lateness of each late row."""
    newest, amounts = times[0], []
    for time in times:
        amounts += [newest - time] if time < newest else []
        newest = max(newest, time)
    return amounts


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("is_plain", [False, True])
def test_rows_are_counted_by_steps(seed: int, is_plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if is_plain:
        monkeypatch.setattr("lowlevel.watermarks.lateness.count_late_rows", plain(count_late_rows))
    random = Random(f"lateness {seed}")
    edges = [0, *(int(bound) + change for bound in BOUNDS for change in (-1, 0, 1))]
    times = [10**18 + number - random.choice([0, 0, random.choice(edges)]) for number in range(500)]
    lateness, newest = Lateness(), times[0]
    rest = times
    while rest:
        size = random.randint(1, 90)
        batch, rest = rest[:size], rest[size:]
        lateness.add_rows(np.array(batch), newest)
        newest = max(newest, *batch)
    amounts = late_amounts(times)
    steps = Counter(sum(bound < amount for bound in BOUNDS.tolist()) for amount in amounts)
    assert lateness.words[:LARGEST_INDEX].tolist() == [steps[step] for step in range(LARGEST_INDEX)]
    assert (lateness.late_rows, lateness.largest) == (len(amounts), max(amounts))
    assert lateness.words.tolist() == lateness_of(amounts).words.tolist()


@pytest.mark.parametrize("seed", range(20))
def test_a_share_of_the_late_rows_is_at_most_so_late(seed: int) -> None:
    random = Random(f"shares {seed}")
    amounts = sorted(random.randint(1, random.choice([3, 10**4, 10**10, 10**15])) for _ in range(random.randint(1, 99)))
    parts = [Lateness(), Lateness()]
    for amount in amounts:
        random.choice(parts).add(np.array([amount]))
    parts[0].merge(parts[1])
    for share in (0.01, 0.5, 0.95, 1.0):
        exact = amounts[max(0, -int(-share * len(amounts) // 1) - 1)]
        largest = amounts[-1] if exact > BOUNDS[-1] else max(1000, 1.15 * exact)
        assert exact <= parts[0].quantile(share) <= largest
    assert parts[0].quantile(1.0) == amounts[-1]


def test_a_share_of_no_late_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="without late records"):
        Lateness().quantile(0.5)


@pytest.mark.parametrize(
    ("lateness", "bound"),
    [(1, 10**3), (999, 10**3), (1000, 2000), (3_100_000, 5 * 10**6), (SECOND, 2 * SECOND), (59 * SECOND, 100 * SECOND)],
)
def test_the_round_bound_is_longer_than_every_lateness(lateness: int, bound: int) -> None:
    assert lateness_of([lateness]).round_bound == bound


def test_the_round_bound_of_no_late_rows_is_0_and_of_days_whole_days() -> None:
    day = 24 * 3600 * SECOND
    assert (Lateness().round_bound, lateness_of([23 * day]).round_bound) == (0, 24 * day)


def test_a_bucket_has_the_rows_up_to_its_bound() -> None:
    amounts = [amount for bucket in BUCKETS for amount in (bucket - 1, bucket, bucket + 1)]
    samples = Samples()
    lateness_of(amounts).add_samples(samples, LATENESS, "eth0", "packets")
    counted = {labels[-1]: count for (_, labels), count in samples.items()}
    assert counted.pop("+Inf") == len(amounts)
    assert {round(float(bound) * SECOND): count for bound, count in counted.items()} == {
        bucket: sum(amount <= bucket for amount in amounts) for bucket in BUCKETS
    }
