"""Bucket against the definition of window ids, a tuple at a time.

* The printed example catches a ceiling in punctuation, which closes a window too early.
* Random specifications catch a pane that is cut by a window, ids below 0, and tuples between windows that are lost
  without being counted.
"""

from math import gcd
from random import Random

import pyarrow as pa
import pytest

from highlevel.sliding.aggregate import END_WID, FIRST_WID, Bucket
from highlevel.windows.kind import SlidingWindow
from lowlevel.punctuation import BEGINNING, END, Punctuation
from tests.conftest import Rounds
from tests.references.operator_contract import Contract, all_rows, batched, check, check_restart, reordered
from tests.references.windows_oracle import Arrival, Spec, random_spec, random_stream

NOON = 12 * 3600


def bucket(spec: Spec) -> Bucket:
    return Bucket(SlidingWindow(spec.range, spec.slide, spec.origin), gcd(spec.range, spec.slide))


def tagged(spec: Spec, times: list[int]) -> list[tuple[int, int]]:
    """The ranges of ids that the tuples at `times` get, half-open."""
    pane = gcd(spec.range, spec.slide)
    batch = pa.record_batch({"pane": pa.array([(ts - spec.origin) // pane for ts in times], pa.int64())})
    return [tuple(row.values()) for out in bucket(spec).process_rows(0, batch) for row in out.to_pylist()]


@pytest.mark.parametrize("seconds", [600, 601, 659])
def test_a_tuple_gets_one_range_of_ids_however_many_windows_hold_it(seconds: int) -> None:
    assert tagged(Spec(600, 60, NOON), [NOON + seconds]) == [(10, 20)]


@pytest.mark.parametrize(("seconds", "wid"), [(660, 11), (630, 10)])
def test_punctuation_is_rounded_down_to_windows(seconds: int, wid: int) -> None:
    mark = Punctuation("M", NOON + seconds)
    assert list(bucket(Spec(600, 60, NOON)).punctuate(0, mark)) == [Punctuation("M", wid)]


def test_the_end_stays_the_end() -> None:
    assert list(bucket(Spec(600, 60)).punctuate(0, Punctuation("M", END))) == [Punctuation("M", END)]


def test_tuples_before_the_origin_are_in_the_windows_that_end_after_it() -> None:
    # RANGE 10, SLIDE 5: window 0 is [-5, 5), window 1 is [0, 10).
    assert tagged(Spec(10, 5, 100), [94, 95, 99, 100, 105]) == [(0, 1), (0, 1), (0, 2), (1, 3)]


def test_tuples_between_windows_are_counted_and_go_no_further() -> None:
    gapped = bucket(Spec(1, 10))
    batch = pa.record_batch({"pane": pa.array([8, 9, 10, 19], pa.int64())})
    rows = [row for out in gapped.process_rows(0, batch) for row in out.to_pylist()]
    assert rows == [{FIRST_WID: 0, END_WID: 1}, {FIRST_WID: 1, END_WID: 2}]
    assert gapped.outside == 2
    nothing = pa.record_batch({"pane": pa.array([8], pa.int64())})
    assert list(gapped.process_rows(0, nothing)) == []


def test_any_stream_in_any_order_keeps_the_contract(rounds: Rounds) -> None:
    for seed in rounds(300):
        random = Random(seed)
        spec = random_spec(random)
        pane = gcd(spec.range, spec.slide)
        window = SlidingWindow(spec.range, spec.slide, spec.origin)

        def batch(arrivals: list[Arrival], spec: Spec = spec, pane: int = pane) -> pa.RecordBatch:
            panes = [(each.ts - spec.origin) // pane for each in arrivals]
            numbers = [each.number for each in arrivals]
            return pa.record_batch({"pane": pa.array(panes, pa.int64()), "number": pa.array(numbers, pa.int64())})

        kept = Contract(
            make=lambda spec=spec: bucket(spec),
            ports=1,
            progress=lambda rows: min(rows[FIRST_WID].to_pylist()),
            watermark=lambda lows, window=window: (
                lows[0] if lows[0] in (BEGINNING, END) else window.first_open_window(*lows)
            ),
            held=len,
            once=False,
        )
        stream = random_stream(random)
        found = all_rows(check(kept, batched(random, ((0, each) for each in stream), batch)))
        wids = [(each.number, spec.wids(each.ts)) for each in stream if not isinstance(each, int)]
        assert sorted(found.elements()) == sorted((number, ids.start, ids.stop) for number, ids in wids if ids)
        events = batched(random, ((0, each) for each in reordered(random, stream)), batch)
        trace = check(kept, events)
        assert all_rows(trace) == found, seed
        check_restart(kept, events, trace, random.randint(0, len(events)), ipc=True)
