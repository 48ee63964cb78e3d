"""Run an iterator in a thread of its own, a bounded number of items ahead of whoever takes them."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from queue import Full, Queue
from threading import Event, Thread
from typing import TypeVar

T = TypeVar("T")

POLL = 0.05
"""Seconds after which a thread that waits at the queue looks whether it is still wanted."""


def ahead(items: Iterator[T], depth: int, unwanted: Event) -> Iterator[T]:
    """Yield `items` in their order, up to `depth` of them computed ahead.

    It pays where the work behind `items` releases the GIL, as kernels do. What `items` raises is raised here, after
    the items before it. When the consumer stops early `unwanted` is set, and the thread ends at its next item, or
    sooner where `items` looks at `unwanted` itself and raises.
    """
    queue: Queue[tuple[list[T], BaseException | None]] = Queue(depth)

    def put(entry: tuple[list[T], BaseException | None]) -> None:
        while not unwanted.is_set():
            try:
                queue.put(entry, timeout=POLL)
            except Full:
                continue
            return

    def work() -> None:
        failure: BaseException | None = None
        try:
            for item in items:
                put(([item], None))
                if unwanted.is_set():
                    break
            if isinstance(items, Generator):
                items.close()  # here and now, and not when somebody collects it
        except BaseException as error:  # it is raised again, in the consumer's thread
            failure = error
        put(([], failure))

    thread = Thread(target=work, name="wiretide-ahead", daemon=True)
    thread.start()
    try:
        while True:
            item, failure = queue.get()
            if failure is not None:
                raise failure
            if not item:
                return
            yield item[0]
    finally:
        unwanted.set()
        thread.join()
