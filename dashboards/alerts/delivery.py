"""The delivery of messages: one thread per receiver sends its outbox in order, again and again until it is accepted.

A message that was accepted is removed afterwards. So after a crash it may arrive twice, with the same `message` ID.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from threading import Event, Lock, Thread

from dashboards.alerts.evaluation import Message
from dashboards.alerts.receivers import RESEND, DeliveryError, Send, send
from dashboards.alerts.store import AlertStore
from queries.pipeline.alert_settings import Receiver

FIRST_DELAY, LAST_DELAY = 1.0, 60.0
"""Seconds until a repetition: the first, doubled up to the last."""

MOST_MESSAGES = 100
"""Largest number of messages of one request or mail."""

CLOSE_SECONDS = 6.0
"""Seconds that `close` waits for messages that are on their way."""


class Delivery:
    """Sends the messages for one receiver in a thread. Must be closed."""

    def __init__(
        self,
        receiver: Receiver,
        store: AlertStore,
        firing: Callable[[str], Sequence[Message]],
        say: Callable[[str], None],
        send: Send = send,
        delays: tuple[float, float] = (FIRST_DELAY, LAST_DELAY),
    ) -> None:
        """`firing` returns the messages about the alerts of a receiver that are firing, which Alertmanager needs."""
        self.receiver = receiver
        self._store, self._firing, self._say, self._send, self._delays = store, firing, say, send, delays
        self._wake, self._stop = Event(), Event()
        self._lock = Lock()
        self._counts: Counter[str] = Counter()
        self._resent_at = time.monotonic()
        self._thread = Thread(target=self._run, name=f"alerts-{receiver.name}", daemon=True)
        self._thread.start()

    def notify(self) -> None:
        """Say that the outbox has new messages."""
        self._wake.set()

    def counts(self) -> dict[str, int]:
        """Return the number of messages by result: sent, failed (and tried again), refused (and removed)."""
        with self._lock:
            return dict(self._counts)

    def close(self) -> None:
        """Try to send the outbox once more, then stop. Messages that were not accepted stay in the store."""
        self._stop.set()
        self._wake.set()
        self._thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        delay, failures = self._delays[0], 0
        while True:
            try:
                while self._send_next():
                    delay, failures = self._delays[0], 0
                self._resend()
            except DeliveryError as error:
                failures += 1
                if failures == 1:
                    self._say(f"warning: {error}; the messages stay in {self._store.path} and are sent again")
                if self._stop.wait(delay):
                    return
                delay = min(2 * delay, self._delays[1])
                continue
            if self._stop.is_set():
                return
            self._wake.wait(RESEND / 4 if self.receiver.kind == "alertmanager" else None)
            self._wake.clear()

    def _send_next(self) -> bool:
        """Send the oldest messages; return False if there are none. Raises DeliveryError."""
        waiting = self._store.next_messages(self.receiver.name, MOST_MESSAGES)
        if not waiting:
            return False
        numbers, messages = [number for number, _ in waiting], [message for _, message in waiting]
        try:
            self._send(self.receiver, messages)
        except DeliveryError as error:
            if not error.final:
                self._count("failed", len(messages))
                raise
            self._count("refused", len(messages))
            self._say(f"warning: {error}; {len(messages)} messages are removed, because they would be refused again")
        else:
            self._count("sent", len(messages))
        self._store.remove(numbers)
        return True

    def _resend(self) -> None:
        """Repeat the alerts that are firing: an Alertmanager ends an alert without further messages."""
        now = time.monotonic()
        if self.receiver.kind != "alertmanager" or now - self._resent_at < RESEND:
            return
        self._resent_at = now
        messages = self._firing(self.receiver.name)
        for begin in range(0, len(messages), MOST_MESSAGES):
            self._send(self.receiver, messages[begin : begin + MOST_MESSAGES])

    def _count(self, result: str, messages: int) -> None:
        with self._lock:
            self._counts[result] += messages
