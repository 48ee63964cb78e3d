"""Closed windows as server-sent events (WHATWG HTML, §9.2).

The ID of an event is the ID of the window in the history. A browser that reconnects sends the last ID, and receives the
windows since then. A browser that is more than MAX_MISSED_WINDOWS windows late receives an event `skipped` with the
number of windows that it misses. A comment is sent every COMMENT_SECONDS, because a write to a dead connection fails.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator

from dashboards.page.history import History
from dashboards.page.rows import rows_of
from dashboards.page.stored_windows import Window

MAX_MISSED_WINDOWS = 500
COMMENT_SECONDS = 10.0
EVENT_ROWS = 10
"""Number of rows in the event of a window: the rows with the largest values."""

WINDOWS_PER_READ = 50
"""Maximum number of windows that one call reads from the store."""

RETRY = b"retry: 2000\n\n"


def event_of(history: History, window: Window) -> bytes:
    """Return the event of a window."""
    plan = history.plans[window.query]
    data = {
        "id": window.id,
        "query": window.query,
        "start": _seconds(window.start),
        "end": _seconds(window.end),
        "final": history.is_final(window.query, window.end),
        "groups": window.groups,
        "totals": window.totals,
        **rows_of(window.rows.slice(0, EVENT_ROWS), plan.times, history.values_of(window.query)),
    }
    return f"id: {window.id}\nevent: window\ndata: {json.dumps(data)}\n\n".encode()


def _seconds(time_ns: int | None) -> float | None:
    return None if time_ns is None else time_ns / 1e9


class Events:
    """The streams of events of one server."""

    def __init__(
        self, history: History, count_skipped: Callable[[int], None], clock: Callable[[], float] = time.monotonic
    ):
        """`count_skipped` is called with the number of windows that a browser misses. `clock` returns seconds."""
        self._history = history
        self._count_skipped = count_skipped
        self._clock = clock
        self._closed = False

    def close(self) -> None:
        """End all streams."""
        self._closed = True
        with self._history.added:
            self._history.added.notify_all()

    def stream(self, last_id: int | None) -> Iterator[bytes]:
        """Yield the events after the ID `last_id`, or with None only events of new windows. Ends with `close`."""
        history = self._history
        seen = history.newest if last_id is None or not 0 <= last_id <= history.newest else last_id
        yield RETRY
        written_at = self._clock()
        while not self._closed:
            if history.newest - seen > MAX_MISSED_WINDOWS:
                skipped = history.newest - seen - MAX_MISSED_WINDOWS
                seen += skipped
                self._count_skipped(skipped)
                yield f"id: {seen}\nevent: skipped\ndata: {skipped}\n\n".encode()
            windows = history.stored.since(seen, WINDOWS_PER_READ)
            for window in windows:
                seen = window.id
                yield event_of(history, window)
            if windows:
                written_at = self._clock()
                continue
            with history.added:
                if history.newest <= seen and not self._closed:
                    history.added.wait(1.0)
            if self._clock() - written_at >= COMMENT_SECONDS:
                written_at = self._clock()
                yield b": waiting\n\n"
