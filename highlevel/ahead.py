"""Run iterators in threads of their own, a bounded number of items ahead of whoever takes them."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from queue import Full, Queue
from threading import Event, Thread
from typing import TypeVar

T = TypeVar("T")

POLL = 0.05
"""Seconds after which a thread that waits at the queue looks whether it is still wanted."""

Entry = tuple[list[T], BaseException | None]
"""What waits in the queue: one item, or none at an iterator's end, and what it raised."""


def ahead(producers: Sequence[Iterator[T]], depth: int, unwanted: Event) -> Iterator[T]:
    """Yield the items of all `producers`, each one's in their order, up to `depth` of them computed ahead.

    It pays where the work behind the items releases the GIL, as kernels do. What a producer raises is raised here,
    after its items before it. When the consumer stops early or a producer fails, `unwanted` is set, and each thread
    ends at its next item, or sooner where its producer looks at `unwanted` itself and raises.
    """
    queue: Queue[Entry[T]] = Queue(depth)
    threads = [
        Thread(target=_work, args=(items, queue, unwanted), name="wiretide-ahead", daemon=True) for items in producers
    ]
    for thread in threads:
        thread.start()
    running = len(threads)
    try:
        while running:
            item, failure = queue.get()
            if failure is not None:
                raise failure
            yield from item
            running -= not item
    finally:
        unwanted.set()
        for thread in threads:
            thread.join()


def _work(items: Iterator[T], queue: Queue[Entry[T]], unwanted: Event) -> None:
    """Put all items of one producer, and its end, as long as they are wanted."""
    failure: BaseException | None = None
    try:
        for item in items:
            _put(queue, ([item], None), unwanted)
            if unwanted.is_set():
                break
        if isinstance(items, Generator):
            items.close()  # here and now, and not when somebody collects it
    except BaseException as error:  # it is raised again, in the consumer's thread
        failure = error
    _put(queue, ([], failure), unwanted)


def _put(queue: Queue[Entry[T]], entry: Entry[T], unwanted: Event) -> None:
    while not unwanted.is_set():
        try:
            queue.put(entry, timeout=POLL)
        except Full:
            continue
        return
