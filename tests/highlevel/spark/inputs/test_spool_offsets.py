"""How spools are read by the stream engine, the parts without I/O: offsets, gaps, and which plan is whose.

Offsets are compared with a reader that reads the numbers one by one. An off-by-one error would lose or repeat a segment
between two micro-batches or tasks.
"""

from random import Random

import pytest

from highlevel.spark.inputs.spool_backlog import SegmentRange, WaitingSegment, select_segments, split_segments
from highlevel.spark.inputs.spool_plans import PlanMatches, SpoolQuery, describe_missing_plan, match_plans


def waiting(*numbers: int, every: int = 10, size: int = 1) -> list[WaitingSegment]:
    """Segments of `size` bytes whose newest times are `every` ns apart, by their numbers."""
    return [WaitingSegment(number, size, number * every) for number in numbers]


def test_a_spool_with_nothing_new_stays_where_it_is() -> None:
    assert select_segments([0, 4], [[], waiting(2, 3)], 100) == [0, 4]


def test_what_was_read_and_is_still_there_is_not_read_again() -> None:
    assert select_segments([3], [waiting(1, 2)], 100) == [3]
    assert select_segments([3], [waiting(1, 2, 3, 5)], 100) == [6]


def test_a_micro_batch_takes_as_many_bytes_as_it_may_and_at_least_one_segment() -> None:
    assert select_segments([0], [waiting(0, 1, 2, 3, size=10)], 20) == [2]
    assert select_segments([2], [waiting(2, 3, size=10)], 1) == [3]


def test_the_spool_that_lags_behind_goes_on_first() -> None:
    slow, fast = waiting(*range(9), every=1), waiting(*range(9), every=4)
    assert select_segments([0, 0], [slow, fast], 5) == [5, 2]
    assert select_segments([0, 0], [slow, []], 5) == [5, 0]


def test_a_run_covers_the_numbers_that_are_lost() -> None:
    assert split_segments(3, 9, [1, 2, 5, 6, 8, 9], 1) == [SegmentRange(3, 9)]
    assert split_segments(3, 9, [5, 6, 8], 2) == [SegmentRange(3, 6), SegmentRange(6, 9)]
    assert split_segments(3, 9, [5, 6, 8], 5) == [SegmentRange(3, 6), SegmentRange(6, 8), SegmentRange(8, 9)]


def test_a_run_of_nothing_but_lost_segments_is_one_too() -> None:
    assert split_segments(3, 5, [5, 6], 4) == [SegmentRange(3, 5)]


@pytest.mark.parametrize("seed", range(50))
def test_every_number_is_in_one_run_up_to_the_last_segment(seed: int) -> None:
    random = Random(seed)
    last = [random.randrange(1, 60) for _ in range(3)]
    spools = [
        [WaitingSegment(n, random.randrange(1, 9), n) for n in range(end) if random.random() < 0.7] for end in last
    ]
    there = [[each.number for each in spool] for spool in spools]
    places, covered = [0] * 3, [[] for _ in spools]
    for step in range(1000):
        # As far as it is written by now; all of it in the end.
        shown = [spool[: random.randrange(len(spool) + 1) if step < 900 else None] for spool in spools]
        after = select_segments(places, shown, random.choice([1, 10, 1000]))
        for n in range(3):
            runs = (
                split_segments(places[n], after[n], there[n], random.randrange(1, 5)) if after[n] != places[n] else []
            )
            for run in runs:
                covered[n] += range(run.first, run.end)
        places = after
    assert covered == [list(range(numbers[-1] + 1)) if numbers else [] for numbers in there]


def test_a_plan_is_found_by_its_fingerprint_whatever_its_name() -> None:
    found = match_plans({0: SpoolQuery("talkers", "f1")}, [("old", "f1"), ("talkers", "f2")])
    assert found == PlanMatches({("old", "f1"): (0,)}, ())


def test_a_plan_of_the_same_name_with_another_fingerprint_is_not_taken() -> None:
    assert match_plans({4: SpoolQuery("talkers", "f1")}, [("talkers", "f2")]) == PlanMatches({}, (4,))


def test_of_equal_plans_each_query_takes_one() -> None:
    """Otherwise every partial would count twice."""
    offered = [("a", "same"), ("b", "same")]
    assert match_plans({0: SpoolQuery("b", "same"), 1: SpoolQuery("c", "same")}, offered) == PlanMatches(
        {("b", "same"): (0,), ("a", "same"): (1,)}, ()
    )
    assert match_plans({0: SpoolQuery("x", "same"), 1: SpoolQuery("y", "same")}, offered) == PlanMatches(
        {("a", "same"): (0, 1)}, ()
    )


def test_a_query_that_the_node_does_not_know_is_told_with_what_it_was_started_with() -> None:
    text = describe_missing_plan("/spool/eth0", SpoolQuery("talkers", "f1"), [("ports", "f7"), ("pairs", "f9")])
    assert text.startswith("/spool/eth0: has no query talkers: got ports (f7), pairs (f9), with which the node was")
    assert "expected one with the fingerprint f1" in text
    assert "has another query by the name of ports" in describe_missing_plan(
        "/s", SpoolQuery("ports", "f1"), [("ports", "f7")]
    )
