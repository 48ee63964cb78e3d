"""Times of records against a loop over the records: it finds a wrong comparison at the border of two blocks."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from capture.units import SECOND
from dashboards.report.record_times import (
    LATENESS_BOUNDS,
    MAX_LULLS,
    LinkTimes,
    class_names,
    late_by_class,
    lateness_of,
)

NAMES = ("eth0", "eth1", "eth2")


def measured_slowly(
    times: list[int], interfaces: list[int]
) -> tuple[list[int], int, dict[tuple[str, str], tuple[int, int]], list[int]]:
    """Return the late records by class, the largest lateness, the pairs of interfaces, and the longest lulls."""
    classes, most, pairs, lulls = (
        [0] * (len(LATENESS_BOUNDS) + 1),
        0,
        dict[tuple[str, str], tuple[int, int]](),
        list[int](),
    )
    newest, newest_interface = None, -1
    for time, interface in zip(times, interfaces, strict=True):
        if newest is not None and time < newest:
            lateness = newest - time
            classes[sum(bound <= lateness for bound in LATENESS_BOUNDS)] += 1
            most = max(most, lateness)
            if interface >= 0 and newest_interface >= 0:
                pair = (NAMES[interface], NAMES[newest_interface])
                rows, before = pairs.get(pair, (0, 0))
                pairs[pair] = (rows + 1, max(before, lateness))
            continue
        if newest is not None and time > newest:
            lulls.append(time - newest)
        newest, newest_interface = time, interface
    return classes, most, pairs, sorted(lulls, reverse=True)[:MAX_LULLS]


@pytest.mark.parametrize("seed", range(40))
def test_times_are_those_of_a_loop_over_the_records(seed: int) -> None:
    random = Random(seed)
    count = random.choice((1, 2, 30, 300))
    step, jitter = random.choice(((1000, 10**5), (SECOND, 0), (SECOND, 100 * SECOND), (0, 3)))
    times = [number * step + random.randint(0, jitter) for number in range(count)]
    interfaces = [random.randint(-1, 2) for _ in times]
    link = LinkTimes("a")
    cuts = sorted(random.randint(0, count) for _ in range(random.randint(0, 5)))
    for first, end in zip([0, *cuts], [*cuts, count], strict=True):
        link.add(np.array(times[first:end], np.int64), np.array(interfaces[first:end], np.int64), NAMES)
    classes, most, pairs, lulls = measured_slowly(times, interfaces)
    assert (link.rows, link.first, link.last) == (count, min(times), max(times))
    assert link.late_by_class.tolist() == classes
    assert (link.late_rows, link.lateness.largest) == (sum(classes), most)
    assert link.pairs == pairs
    assert [lull.length for lull in link.lulls()] == lulls


def test_records_without_interfaces_have_no_pairs() -> None:
    link = LinkTimes("a")
    link.add(np.array([5, 3, 9], np.int64))
    assert (link.late_rows, link.pairs) == (1, {})


def test_the_lateness_of_links_is_that_of_all_their_late_records() -> None:
    links = [LinkTimes("a"), LinkTimes("b"), LinkTimes("c")]
    for link, amounts in zip(links, ([3_000, 5_000_000], [4 * SECOND], []), strict=True):
        for amount in amounts:
            link.add(np.array([10**12, 10**12 - amount], np.int64))
    united = lateness_of(links)
    assert (united.late_rows, united.largest, united.quantile(0.6)) == (3, 4 * SECOND, 5_000_000)


def test_every_class_has_a_name() -> None:
    link = LinkTimes("a")
    link.add(np.array([10**15, *(10**15 - bound for bound in LATENESS_BOUNDS), 10**15 - 1], np.int64))
    assert len(class_names()) == len(LATENESS_BOUNDS) + 1
    assert late_by_class([link]) == dict.fromkeys(class_names(), 1)
