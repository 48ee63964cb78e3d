"""`run_ahead`: threads that compute items before they are taken.

The tests detect items of one producer that are out of order or lost, and an error that is swallowed or precedes earlier
items. They detect a thread that outlives its consumer or another's failure, and a queue without a bound.
"""

import threading
from collections.abc import Iterator

import pytest

from highlevel.inline.schedule import run_ahead


def threads() -> set[str]:
    """Names of the threads alive."""
    return {thread.name for thread in threading.enumerate()}


@pytest.mark.parametrize("depth", [1, 2, 100])
def test_items_come_in_their_order_and_none_is_lost(depth: int) -> None:
    assert list(run_ahead([iter(range(1000))], depth, threading.Event())) == list(range(1000))
    assert "wiretide-ahead" not in threads()


@pytest.mark.parametrize("depth", [1, 7])
def test_items_of_each_producer_come_in_their_order_and_none_is_lost(depth: int) -> None:
    producers = [iter([(number, place) for place in range(10 * number)]) for number in range(6)]
    taken = list(run_ahead(producers, depth, threading.Event()))
    assert sorted(taken) == [(number, place) for number in range(6) for place in range(10 * number)]
    for number in range(6):
        assert [place for each, place in taken if each == number] == list(range(10 * number))
    assert "wiretide-ahead" not in threads()


def test_without_producers_there_are_no_items() -> None:
    assert list(run_ahead([], 1, threading.Event())) == []


def test_an_error_comes_after_the_items_before_it() -> None:
    def items() -> Iterator[int]:
        yield 1
        yield 2
        raise LookupError("third")

    taken: list[int] = []
    with pytest.raises(LookupError, match="third"):
        taken.extend(run_ahead([items()], 1, threading.Event()))
    assert taken == [1, 2]
    assert "wiretide-ahead" not in threads()


def endless(closed: threading.Event) -> Iterator[int]:
    try:
        number = 0
        while True:
            yield number
            number += 1
    finally:
        closed.set()


def test_the_error_of_one_producer_ends_the_others() -> None:
    def failing() -> Iterator[int]:
        raise LookupError("at once")
        yield 1

    closed = [threading.Event() for _ in range(3)]
    with pytest.raises(LookupError, match="at once"):
        list(run_ahead([*map(endless, closed), failing()], 2, threading.Event()))
    assert all(each.is_set() for each in closed)
    assert "wiretide-ahead" not in threads()


def test_a_consumer_that_stops_early_leaves_no_thread_behind_and_closes_the_iterators() -> None:
    closed = [threading.Event() for _ in range(3)]
    items = run_ahead([endless(each) for each in closed], 2, threading.Event())
    assert [next(items), next(items)]
    items.close()  # type: ignore[attr-defined]
    assert all(each.is_set() for each in closed)
    assert "wiretide-ahead" not in threads()


@pytest.mark.parametrize("count", [1, 4])
def test_no_more_than_depth_items_are_computed_ahead(count: int) -> None:
    computed = []

    def items(number: int) -> Iterator[int]:
        for place in range(50):
            computed.append((number, place))
            yield place

    most = 0
    for taken, _ in enumerate(run_ahead([items(number) for number in range(count)], 3, threading.Event())):
        most = max(most, len(computed) - taken)
    # One is in the consumer's hands, one in each thread's, and three wait between them.
    assert most <= 4 + count


def test_an_interrupt_while_threads_start_leaves_no_thread_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = [threading.Event() for _ in range(3)]
    start, started = threading.Thread.start, list[threading.Thread]()

    def interrupted(thread: threading.Thread) -> None:
        if len(started) == 2:
            raise KeyboardInterrupt
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        next(run_ahead([endless(each) for each in closed], 1, threading.Event()))
    assert [each.is_set() for each in closed] == [True, True, False]
    assert "wiretide-ahead" not in threads()
