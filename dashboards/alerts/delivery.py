"""The delivery of messages: one thread per receiver sends its outbox in order, and repeats failed messages.

A message is removed after it was accepted. So after a crash it may arrive twice, with the same `message` ID.
"""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Sequence
from threading import Event, Thread

from capture.lazy_dataclasses import dataclass
from capture.units import SECOND
from dashboards.alerts.messages import Message
from dashboards.alerts.receivers import MAX_MESSAGES, RESEND, DeliveryError, Send, send
from dashboards.alerts.store import AlertStore
from queries.pipeline.alert_settings import Receiver

RESULTS = ("sent", "failed", "refused", "dropped")
"""Results of a message, the values of a metric label. The store counts the dropped messages."""


@dataclass(frozen=True, slots=True)
class DeliveryTimes:
    """Times in seconds.

    `first_delay`: the delay before the first repetition of a failed delivery. Each further delay is twice as long, up
    to `max_delay`. `resend_interval`: the time between two messages about an alert that is still firing.
    """

    first_delay: float = 1.0
    max_delay: float = 60.0
    resend_interval: float = RESEND


DELIVERY_TIMES = DeliveryTimes()


class Delivery:
    """Sends the messages for one receiver in a thread. Must be closed.

    The thread is a daemon: a receiver that does not answer cannot keep the process alive.
    """

    def __init__(
        self,
        receiver: Receiver,
        store: AlertStore,
        firing: Callable[[str], Sequence[Message]],
        print_line: Callable[[str], None],
        send: Send = send,
        times: DeliveryTimes = DELIVERY_TIMES,
    ) -> None:
        """`firing` returns the messages about the firing alerts of a receiver. Only an Alertmanager needs them."""
        self.receiver = receiver
        self.counts: Counter[str] = Counter()
        """Number of messages by result: sent, failed (will be sent again), refused (and removed)."""
        self._store, self._firing, self._print_line, self._send, self._times = store, firing, print_line, send, times
        self._max_messages = MAX_MESSAGES.get(receiver.kind, 100)
        self._wake, self._stop = Event(), Event()
        self._sent_at: float | None = None
        self._resent_at = float("-inf")
        self._has_failed = False
        self._thread = Thread(target=self._run, name=f"alerts-{receiver.name}", daemon=True)
        self._thread.start()

    def notify(self) -> None:
        """Wake the thread, because the outbox has new messages."""
        self._wake.set()

    def stop(self) -> None:
        """Let the thread send the outbox once more and then end. Does not wait for the end."""
        self._stop.set()
        self._wake.set()

    def join(self, seconds: float) -> None:
        """Wait for the end of the thread after `stop`. Messages that were not accepted stay in the store."""
        self._thread.join(seconds)

    def _run(self) -> None:
        delay = self._times.first_delay
        while True:
            is_last = self._stop.is_set()
            self._wake.clear()
            try:
                pause = self._deliver(is_last)
                delay = self._times.first_delay
                if self._has_failed:
                    self._has_failed = False
                    self._print_line(f"receivers.{self.receiver.name}: messages are sent again")
            except DeliveryError as error:
                self._warn(f"{error}; the messages stay in {self._store.path} until they are accepted")
                pause, delay = max(delay, error.wait), min(2 * delay, self._times.max_delay)
                if not is_last:
                    self._stop.wait(pause)  # not `_wake`: new messages must not cause an earlier repetition
                    continue
            except sqlite3.Error as error:
                if not is_last:  # otherwise the store may be closed already
                    self._warn(f"{self._store.path}: messages for {self.receiver.name} are not sent: {error}")
                pause, delay = delay, min(2 * delay, self._times.max_delay)
            if is_last:
                return
            self._wake.wait(pause)

    def _deliver(self, is_last: bool) -> float | None:
        """Send the outbox, and firing alerts if they are due. Return the seconds until the next delivery, or None."""
        interval = self.receiver.interval / SECOND
        while True:
            early = 0.0 if self._sent_at is None or is_last else self._sent_at + interval - time.monotonic()
            if early > 0:
                return early
            if not self._send_next():
                break
        if self.receiver.kind != "alertmanager":
            return None
        if time.monotonic() - self._resent_at >= self._times.resend_interval:
            self._resend()
        return self._times.resend_interval / 4

    def _send_next(self) -> bool:
        """Send the oldest messages. Return False if no message waits. Raises DeliveryError."""
        waiting = self._store.next_messages(self.receiver.name, self._max_messages)
        if not waiting:
            return False
        self._send_and_count([message for _, message in waiting])
        self._sent_at = time.monotonic()
        self._store.remove(self.receiver.name, waiting[-1][0])
        return True

    def _resend(self) -> None:
        """Repeat the alerts that are firing, because an Alertmanager ends an alert that is not repeated."""
        messages = self._firing(self.receiver.name)
        for begin in range(0, len(messages), self._max_messages):
            self._send_and_count(messages[begin : begin + self._max_messages])
        self._resent_at = time.monotonic()

    def _send_and_count(self, messages: Sequence[Message]) -> None:
        """Send messages. Raises DeliveryError if they may be accepted later."""
        try:
            self._send(self.receiver, messages)
        except DeliveryError as error:
            self.counts["refused" if error.final else "failed"] += len(messages)
            if not error.final:
                raise
            self._print_line(
                f"warning: {error}; {len(messages):,} messages are removed, because they would be refused again"
            )
        else:
            self.counts["sent"] += len(messages)

    def _warn(self, text: str) -> None:
        """Print a warning, only for the first of several failures in succession."""
        if not self._has_failed:
            self._has_failed = True
            self._print_line(f"warning: {text}")
