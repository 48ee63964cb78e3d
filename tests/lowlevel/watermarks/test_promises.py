"""Promises by what is known of a source: each against its definition, on random streams of which it is true.

* A row below a promise that was made before it catches every bound that is too high, strict or not.
* The definition, computed again after every batch, detects a bound that is too low, and a dependence on batches.
* Streams that break the knowledge by little catch a test that could not fail.
* The worked example of the lull timer catches a threshold off by one, a rule that speaks only once, and rounding up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from lowlevel.durations import parse_duration
from lowlevel.punctuation import BEGINNING, END, WatermarkRounder
from lowlevel.watermarks.generators import (
    MAX_ROWS,
    BlockWatermark,
    ExactWatermark,
    LateByRows,
    LateByTime,
    OrderedWatermark,
    WatermarkGenerator,
)
from lowlevel.watermarks.idle import IdleWatermark, ReplayClock
from lowlevel.watermarks.jumps import JUMP
from lowlevel.watermarks.rule import CHOICES, Kind, WatermarkRule, parse_rule
from tests.references.promised import MadeRows

STREAMS = 60


def disordered(random: Random, most: int = 60) -> list[int]:
    """Times that tie often, each delivered up to some delay after it."""
    span, delay = random.choice([60, 200]), random.choice([1, 11, 80])
    times = [random.randrange(span) for _ in range(random.randrange(1, most))]
    return sorted(times, key=lambda time: time + random.randrange(delay))


def broken(promise: WatermarkGenerator, times: list[int], random: Random, most: int = 4) -> int:
    """Return the rows that were below the watermark when their batch arrived. Batches have up to `most` rows."""
    found = place = 0
    while place < len(times):
        batch = times[place : place + random.randrange(1, most + 1)]
        found += sum(time < promise.watermark for time in batch)
        lowest = promise.watermark
        promise.advance(MadeRows(batch))
        assert promise.watermark >= lowest
        place += len(batch)
    assert promise.rows_below == found
    return found


def agrees(
    promise: WatermarkGenerator, times: list[int], definition: Callable[[list[int]], int], random: Random
) -> None:
    """After every batch the watermark equals the definition over all rows so far."""
    place = 0
    while place < len(times):
        batch = times[place : place + random.choice([1, 3, 8, 100])]
        place += len(batch)
        promise.advance(MadeRows(batch))
        assert promise.watermark == definition(times[:place])


def test_ordered_rows_may_tie_with_the_promise() -> None:
    random = Random(1)
    for _ in range(STREAMS):
        times = sorted(disordered(random))
        assert broken(OrderedWatermark(agreeing_rows=1), times, random) == 0
        agrees(OrderedWatermark(agreeing_rows=1), times, lambda seen: seen[-1], random)
    assert broken(OrderedWatermark(agreeing_rows=1), [5, 5, 5, 4], random, most=1) == 1


def test_rows_that_are_late_by_no_more_than_so_long_are_not_below_the_promise() -> None:
    random = Random(2)
    worse = 0
    for _ in range(STREAMS):
        times = disordered(random)
        latest = max(max(times[: place + 1]) - time for place, time in enumerate(times))
        assert broken(LateByTime(latest, agreeing_rows=1), times, random, most=1) == 0
        agrees(LateByTime(latest, agreeing_rows=1), times, lambda seen, late=latest: max(seen) - late, random)  # type: ignore[misc]
        worse += latest > 0 and broken(LateByTime(latest - 1, agreeing_rows=1), times, random, most=1) > 0
    assert worse > STREAMS // 3


def newer_before(times: list[int]) -> int:
    """The most rows before a row that are newer."""
    return max(sum(other > time for other in times[:place]) for place, time in enumerate(times))


def to_the_first_newer(times: list[int]) -> int:
    """The greatest distance of a row to the first row that is newer."""
    return max(
        next((place - before for before, other in enumerate(times[:place]) if other > time), 0)
        for place, time in enumerate(times)
    )


def displacements(times: list[int]) -> list[int]:
    """Return the distance of each row from its position in the order of time. Ties keep the order of arrival."""
    order = sorted(range(len(times)), key=lambda place: times[place])
    ranks = {place: rank for rank, place in enumerate(order)}
    return [place - ranks[place] for place in range(len(times))]


READINGS: dict[str, Callable[[list[int]], int]] = {
    "newer rows before it": newer_before,
    "distance to the first newer": to_the_first_newer,
    "places behind": lambda times: max(0, *displacements(times)),
    "places away": lambda times: max(0, *map(abs, displacements(times))),
}


@pytest.mark.parametrize("reading", READINGS.values(), ids=READINGS)
def test_rows_late_by_n_rows_are_not_below_the_promise_however_that_is_read(
    reading: Callable[[list[int]], int],
) -> None:
    random = Random(3)
    for _ in range(400):
        times = disordered(random)
        assert broken(LateByRows(reading(times), agreeing_rows=1), times, random, most=1) == 0


def test_the_promise_of_late_rows_is_the_largest_but_n_so_far() -> None:
    random = Random(4)
    worse = 0
    for _ in range(STREAMS):
        times = disordered(random, 200)
        rows = random.choice([0, 1, 2, 7, 30, newer_before(times)])
        promise = LateByRows(rows, agreeing_rows=1)
        agrees(
            promise, times, lambda seen, n=rows: sorted(seen)[-n - 1] if len(seen) > n else BEGINNING, random  # type: ignore[misc]
        )  # fmt: skip
        needed = newer_before(times)
        worse += needed > 0 and broken(LateByRows(needed - 1, agreeing_rows=1), times, random, most=1) > 0
    assert worse > STREAMS // 2


def test_a_promise_of_late_rows_keeps_no_more_times_than_it_was_told() -> None:
    promise = LateByRows(100, agreeing_rows=1)
    for start in range(0, 100_000, 5_000):
        promise.advance(MadeRows(list(range(start, start + 5_000))))
        assert len(promise._largest) == 101
        assert promise.watermark == start + 4_999 - 100


def test_blocks_are_promised_when_their_source_says_that_they_have_ended() -> None:
    random = Random(5)
    for _ in range(STREAMS):
        start, promise, below = 0, BlockWatermark(agreeing_rows=1), 0
        for _ in range(random.randrange(1, 8)):
            end = start + random.randrange(1, 50)
            rows = [random.randint(start, end) for _ in range(random.randrange(1, 30))]
            lowest = promise.watermark
            below += broken(promise, rows, random)
            assert promise.watermark == lowest  # nothing inside a block
            promise.end_block()
            assert promise.watermark == max(lowest, *rows)
            start = promise.watermark  # the next may begin with a tie
        assert below == 0


def test_blocks_of_equal_length_are_told_by_the_first_row_beyond() -> None:
    random = Random(6)
    for _ in range(STREAMS):
        length = random.choice([1, 7, 60])
        times = []
        for block in sorted(random.sample(range(-5, 40), random.randrange(1, 12))):
            times += [block * length + random.randrange(length) for _ in range(random.randrange(1, 20))]
        assert broken(BlockWatermark(length, agreeing_rows=1), times, random) == 0
        agrees(BlockWatermark(length, agreeing_rows=1), times, lambda seen, by=length: max(seen) // by * by, random)  # type: ignore[misc]


def test_what_a_source_declares_holds_beside_what_its_rows_say() -> None:
    exact, late = ExactWatermark(), LateByTime(10, agreeing_rows=1)
    for promise in (exact, late):
        promise.advance(MadeRows([100]))
    assert (exact.watermark, late.watermark) == (BEGINNING, 90)
    for promise in (exact, late):
        promise.declare(95)
        promise.declare(80)
        assert promise.watermark == 95
        promise.advance(MadeRows([101]))
        assert promise.watermark == 95
        promise.declare(END)
        promise.advance(MadeRows([102]))
        assert promise.watermark == END


def test_the_timer_says_in_a_lull_what_the_worked_example_says() -> None:
    """Threshold 5, slide 2, a timer each second; times arrive as 1@1, 2@2, 3@3, 6@12."""
    promise, slides = IdleWatermark(OrderedWatermark(agreeing_rows=1), 5), WatermarkRounder(2)
    arrivals = {1: 1, 2: 2, 3: 3, 12: 6}
    said = {}
    for now in range(1, 16):
        if now in arrivals:
            promise.advance(MadeRows([arrivals[now]]))
        promise.tick(now)
        mark = slides.next_boundary(promise.watermark)
        if mark is not None:
            said[now] = mark
    assert said == {1: 0, 2: 2, 9: 4, 11: 6, 13: 8, 15: 10}
    assert (promise.rows_below, promise.lulls) == (0, 7)  # at 9, 10, 11 and from 12 on
    assert promise.newest == promise.watermark == 10


def delivered(random: Random, delay: int, offset: int) -> list[tuple[int, int]]:
    """Return (arrival by the receiver's clock, ts) of rows with lulls between them.

    The delay is at most `delay`; one row has all of it.
    """
    rows, now = [], 1000
    for _ in range(40):
        now += random.choice([0, 0, 1, 3, 30])
        rows.append((now + random.randint(0, delay) + offset, now))
    now += 50
    return sorted([*rows, (now + delay + offset, now)])


@pytest.mark.parametrize("inner", ["ordered", "late", "rows", "blocks", "exact"])
@pytest.mark.parametrize("speaks_at_once", [True, False])
def test_a_lull_is_safe_if_and_only_if_delay_and_offset_are_within_its_threshold(
    inner: str, speaks_at_once: bool
) -> None:
    random = Random(f"{inner}{speaks_at_once}")
    violated = 0
    for number in range(STREAMS):
        delay, offset = random.choice([(0, 0), (5, 0), (0, 3), (5, 3), (2, -2)])
        rows = delivered(random, delay, offset)
        latest = max(max(ts for _, ts in rows[: place + 1]) - ts for place, (_, ts) in enumerate(rows))
        threshold = max(0, delay + offset - (number % 2))  # every other one is too small by 1
        made = {
            "ordered": LateByTime(latest, agreeing_rows=1), "late": LateByTime(latest + 3, agreeing_rows=1),
            "rows": LateByRows(len(rows), agreeing_rows=1), "blocks": BlockWatermark(agreeing_rows=1),
            "exact": ExactWatermark(),
        }[inner]  # fmt: skip
        promise = IdleWatermark(made, threshold)
        waiting = list(rows)
        begin = rows[0][0] if speaks_at_once else rows[0][0] - 20
        for now in range(begin, rows[-1][0] + 30):
            lowest, behind = promise.watermark, promise.newest < now - threshold
            promise.tick(now)  # all that came before has been read
            assert promise.watermark == (now - threshold if behind else lowest)
            while waiting and waiting[0][0] <= now:  # rows that arrive now arrive directly after the poll
                promise.advance(MadeRows([waiting.pop(0)[1]]))
        if threshold >= delay + offset:
            assert promise.rows_below == 0
        else:
            violated += promise.rows_below > 0
    assert violated > STREAMS // 8


def test_a_source_that_has_never_spoken_is_covered_by_the_clock() -> None:
    for promise in (
        IdleWatermark(ExactWatermark(), 5),
        IdleWatermark(LateByTime(10), 5),
        IdleWatermark(LateByRows(3), 5),
    ):
        promise.tick(BEGINNING)  # a clock that has not begun
        assert (promise.watermark, promise.newest) == (BEGINNING, BEGINNING)
        promise.tick(100)
        assert (promise.watermark, promise.newest, promise.lulls) == (95, 95, 1)
        promise.tick(60)  # a clock that goes back
        assert promise.watermark == 95
        promise.advance(MadeRows([96, 94]))
        assert (promise.newest, promise.rows_below) == (96, 1)
    silent = parse_rule("late 10s").make()
    silent.tick(100)
    assert silent.watermark == BEGINNING


def test_rows_after_a_long_lull_are_believed_at_once_and_those_that_waited_are_not_from_the_future() -> None:
    hour = parse_duration("1h")
    promise = IdleWatermark(LateByTime(0), 0)
    promise.advance(MadeRows([0] * 64))
    promise.advance(MadeRows([3 * hour, 9 * hour]))
    assert (promise.newest, promise.watermark) == (0, 0)
    promise.tick(3 * hour)
    promise.advance(MadeRows([3 * hour + 1]))
    assert (promise.newest, promise.watermark, promise.future_rows) == (3 * hour + 1, 3 * hour + 1, 1)


def test_boundaries_of_other_slides_are_of_no_use_to_a_consumer() -> None:
    """Slides of 5 and 7: rounding to the smaller alone would tell of 14 at 15 only, and of 21 at 25."""
    five, seven = WatermarkRounder(5), WatermarkRounder(7, origin=0)
    told: dict[int, list[int]] = {5: [], 7: []}
    for low in range(36):
        for slide, described in ((5, five), (7, seven)):
            mark = described.next_boundary(low)
            if mark is not None:
                assert mark == low  # at once, and only at its own boundaries
                told[slide].append(mark)
    assert told == {5: list(range(0, 36, 5)), 7: list(range(0, 36, 7))}
    assert [five.next_boundary(low) for low in (36, 39, 30, 62, END, END)] == [None, None, None, 60, END, None]
    assert WatermarkRounder(5, origin=3).next_boundary(-1) == -2
    assert WatermarkRounder(5).next_boundary(BEGINNING) is None
    near = WatermarkRounder(1000)
    assert [near.next_boundary(low) for low in (END - 1, END - 1, END, END)] == [END // 1000 * 1000, None, END, None]


def test_the_clock_of_a_trace_is_the_newest_time_of_its_links() -> None:
    clock = ReplayClock()
    assert clock() == BEGINNING
    for newest, now in ((5, 5), (3, 5), (BEGINNING, 5), (9, 9)):
        clock.advance(newest)
        assert clock() == now


READ = [
    ("exact", None, WatermarkRule()),
    (" Ordered ", None, WatermarkRule(Kind.ORDERED)),
    ("late 2s", None, WatermarkRule(Kind.LATE_BY_TIME, 2 * 10**9)),
    ("late 1.5 minutes", "5s", WatermarkRule(Kind.LATE_BY_TIME, 90 * 10**9, 5 * 10**9)),
    ("late 0", 7, WatermarkRule(Kind.LATE_BY_TIME, 0, 7)),
    ("late 100 rows", None, WatermarkRule(Kind.LATE_BY_ROWS, 100)),
    ("late 1 row", None, WatermarkRule(Kind.LATE_BY_ROWS, 1)),
    ("blocks", "0", WatermarkRule(Kind.BLOCKS, None, 0)),
    ("blocks 1m", None, WatermarkRule(Kind.BLOCKS, 60 * 10**9)),
]


@pytest.mark.parametrize(("text", "lull", "watermark_rule"), READ, ids=[text for text, *_ in READ])
def test_what_is_written_is_what_is_known(text: str, lull: str | int | None, watermark_rule: WatermarkRule) -> None:
    assert parse_rule(text, lull) == watermark_rule
    promise = parse_rule(text, lull).make()
    assert isinstance(promise, IdleWatermark) == (lull is not None)
    assert parse_rule(text, lull, "10m") == replace(watermark_rule, jump=600 * 10**9)
    assert parse_rule(text, lull).make().guard.jump == JUMP
    assert parse_rule(text, lull, "10m").make().guard.jump == 600 * 10**9


UNREADABLE = [
    ("", None, f"got the promise '', expected one of {CHOICES}"),
    ("sorted", None, f"got the promise 'sorted', expected one of {CHOICES}"),
    ("exact 5s", None, "got the promise 'exact 5s'"),
    ("late", None, "got the promise 'late'"),
    (
        "late soon",
        None,
        f"the promise 'late soon': expected a duration such as 500ms, 10s or 2 minutes; the choices are {CHOICES}",
    ),
    ("late -3 rows", None, "the promise 'late -3 rows': expected a duration"),
    (f"late {MAX_ROWS + 1} rows", None, "got rows that are late by 1048577 rows, expected 0 to 1,048,576"),
    ("late 1000000 days", None, "expected less than 146 years"),
    ("blocks 0", None, "got blocks of 0 ns, expected at least 1"),
    ("exact", "soon", "got a lull of 'soon': expected a duration such as 500ms"),
    ("exact", -1, "got a lull of -1 ns, expected 0 or more"),
]


@pytest.mark.parametrize(
    ("text", "lull", "message"), UNREADABLE, ids=[f"{text} {lull}" for text, lull, _ in UNREADABLE]
)
def test_what_nothing_can_be_made_of_is_refused_with_the_choices(
    text: str, lull: str | int | None, message: str
) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011  # the message is compared
        parse_rule(text, lull)
    assert message in str(error.value)


@pytest.mark.parametrize(("kind", "amount"), [(Kind.LATE_BY_TIME, None), (Kind.ORDERED, 5), (Kind.EXACT, 0)])
def test_an_amount_is_for_the_kinds_that_have_one(kind: Kind, amount: int | None) -> None:
    with pytest.raises(ValueError, match=f"as the amount of {kind}, expected"):
        WatermarkRule(kind, amount)
