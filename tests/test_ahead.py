"""`ahead`: a thread that computes items before they are taken.

What these can catch: items out of order or lost, an error that is swallowed or comes before items computed earlier, a
thread that outlives its consumer, and a queue without a bound.
"""

import threading
from collections.abc import Iterator

import pytest

from highlevel.ahead import ahead


def threads() -> set[str]:
    """Names of the threads alive."""
    return {thread.name for thread in threading.enumerate()}


@pytest.mark.parametrize("depth", [1, 2, 100])
def test_items_come_in_their_order_and_none_is_lost(depth: int) -> None:
    assert list(ahead(iter(range(1000)), depth, threading.Event())) == list(range(1000))
    assert "wiretide-ahead" not in threads()


def test_an_error_comes_after_the_items_before_it() -> None:
    def items() -> Iterator[int]:
        yield 1
        yield 2
        raise LookupError("third")

    taken: list[int] = []
    with pytest.raises(LookupError, match="third"):
        taken.extend(ahead(items(), 1, threading.Event()))
    assert taken == [1, 2]
    assert "wiretide-ahead" not in threads()


def test_a_consumer_that_stops_early_leaves_no_thread_behind_and_closes_the_iterator() -> None:
    closed = threading.Event()

    def endless() -> Iterator[int]:
        try:
            number = 0
            while True:
                yield number
                number += 1
        finally:
            closed.set()

    items = ahead(endless(), 2, threading.Event())
    assert [next(items), next(items)] == [0, 1]
    items.close()  # type: ignore[attr-defined]
    assert closed.is_set()
    assert "wiretide-ahead" not in threads()


def test_no_more_than_depth_items_are_computed_ahead() -> None:
    computed = []

    def items() -> Iterator[int]:
        for number in range(50):
            computed.append(number)
            yield number

    most = 0
    for item in ahead(items(), 3, threading.Event()):
        most = max(most, len(computed) - item)
    # One is in the consumer's hands, one in the thread's, and three wait between them.
    assert most <= 5
