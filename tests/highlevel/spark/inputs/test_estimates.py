"""Times for which a node sampled, and the windows that overlap them.

Random ranges against the definition find a wrong edge, a lost range, and a bound that drops ranges instead of joining
them.
"""

from random import Random

import numpy as np
import pyarrow as pa

from highlevel.spark.inputs.estimates import (
    ESTIMATED,
    MAX_RANGES,
    mark_estimates,
    merge_pane_times,
    merge_ranges,
    overlap_mask,
)


def test_a_window_is_estimated_if_it_overlaps_a_sampled_pane() -> None:
    for seed in range(200):
        random = Random(seed)
        origin, pane = random.randrange(-50, 50), random.randrange(1, 9)
        panes = [random.randrange(-40, 40) for _ in range(random.randrange(1, 12))]
        cut = random.randrange(len(panes))
        parts = [np.array(part, np.int64) for part in (panes[:cut], panes[cut:]) if part]
        ranges: list[tuple[int, int]] = []
        for part in parts:
            ranges = merge_ranges(ranges, merge_pane_times(part, origin, pane))
        starts = np.array([random.randrange(-400, 400) for _ in range(50)])
        ends = starts + np.array([random.randrange(1, 60) for _ in range(50)])
        sampled = {origin + each * pane + offset for each in panes for offset in range(pane)}
        expected = [any(time in sampled for time in range(start, end)) for start, end in zip(starts, ends, strict=True)]
        assert overlap_mask(starts, ends, ranges).tolist() == expected, seed


def test_the_oldest_ranges_become_one_if_there_are_too_many() -> None:
    ranges: list[tuple[int, int]] = []
    for number in range(MAX_RANGES + 50):
        ranges = merge_ranges(ranges, [(10 * number, 10 * number + 1)])
    assert len(ranges) == MAX_RANGES
    assert ranges[0] == (0, 501)
    assert ranges[-1] == (10 * (MAX_RANGES + 49), 10 * (MAX_RANGES + 49) + 1)


def test_results_without_windows_or_with_a_column_of_that_name_stay_as_they_are() -> None:
    rows = pa.table({"n": [1]})
    taken = pa.table({"window_start": [0], "window_end": [9], ESTIMATED: [5]})
    assert mark_estimates(rows, [(0, 5)]) == rows
    assert mark_estimates(taken, [(0, 5)]) == taken
    empty = mark_estimates(
        pa.table({"window_start": pa.array([], pa.int64()), "window_end": pa.array([], pa.int64())}), []
    )
    assert (empty.num_rows, empty.schema.field(ESTIMATED).type) == (0, pa.bool_())
