"""Topics of Kafka as inputs, with the package confluent-kafka: partitions, their ends, and ranges of messages.

An offset is the number of a message in its partition. Offsets may have gaps: a compacted topic has deleted messages,
and transactions write marks. Messages of aborted transactions are not returned, and the end of a partition is before
the first open transaction. So a range of offsets before the end always has the same messages, until the broker
deletes some of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from capture.errors import InputError
from capture.lazy_dataclasses import dataclass

BROKER_TIMEOUT_SECONDS = 10.0
"""Time to wait for a broker."""

MAX_CALL_SECONDS = 2.0
"""Maximum seconds of a call of the client. Ctrl-C has an effect only after a call."""

OUTAGE_SECONDS = 600.0
"""Maximum seconds without an answer of the brokers, after the start. A longer outage is an error."""

OUTAGES = (
    "_TIMED_OUT",
    "_TRANSPORT",
    "_ALL_BROKERS_DOWN",
    "_RESOLVE",
    "LEADER_NOT_AVAILABLE",
    "NOT_LEADER_FOR_PARTITION",
)
"""Names of errors that end without an action of the user. The client connects again."""

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Topic:
    """A topic: its brokers, `HOST:PORT` with commas between them, and settings of librdkafka."""

    name: str
    brokers: str
    conf: tuple[tuple[str, str], ...] = ()


class TopicClient:
    """A connection to the brokers of a topic. Close it after use. Not thread safe."""

    def __init__(self, topic: Topic) -> None:
        """Connect at the first request. Raises InputError without confluent-kafka, and for a wrong setting."""
        try:
            import confluent_kafka
        except ImportError:
            expected = "the package confluent-kafka: pip install 'wiretide[kafka]'"
            raise InputError(f"topic {topic.name}: a topic of Kafka needs {expected}") from None
        self._kafka: Any = confluent_kafka
        self._topic = topic
        self._outages = [getattr(confluent_kafka.KafkaError, name) for name in OUTAGES]
        self._consumer = self._connect("read_committed")
        self._writer_view: Any = None
        """A consumer whose ends are after the messages of open transactions, after the first request of such an end."""

    def __enter__(self) -> TopicClient:
        """Return this client."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connections."""
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()
        if self._writer_view is not None:
            self._writer_view.close()

    def count_partitions(self, seconds: float | None = None) -> int:
        """Return the number of partitions. Raises InputError for a topic that does not exist.

        Waits for the brokers for up to `seconds`, by default SECONDS.
        """

        def find_partitions(timeout: float) -> int:
            topic = self._consumer.list_topics(self._topic.name, timeout=timeout).topics[self._topic.name]
            if topic.error is not None:
                raise self._kafka.KafkaException(topic.error)
            return len(topic.partitions)

        count: int = self._request(find_partitions, BROKER_TIMEOUT_SECONDS if seconds is None else seconds)
        if not count:
            raise self._make_error("it has no partitions")
        return count

    def find_bounds(self, partition: int) -> tuple[int, int]:
        """Return the first offset of a partition, and its end: the offset of the next message.

        Waits for the brokers for up to OUTAGE_SECONDS.
        """
        return self._request_bounds(self._consumer, partition)

    def find_written_end(self, partition: int) -> int:
        """Return the end of a partition, after the messages of open transactions. Waits as `find_bounds` does."""
        if self._writer_view is None:
            self._writer_view = self._connect("read_uncommitted")
        return self._request_bounds(self._writer_view, partition)[1]

    def _connect(self, isolation: str) -> Any:
        return self._call(
            lambda: self._kafka.Consumer(
                {
                    "logger": SilentLogger(),
                    **dict(self._topic.conf),
                    "bootstrap.servers": self._topic.brokers,
                    "group.id": "wiretide",  # required, but no group is joined
                    "enable.auto.commit": False,
                    "enable.partition.eof": True,
                    "auto.offset.reset": "error",
                    "isolation.level": isolation,
                }
            )
        )

    def _request_bounds(self, consumer: Any, partition: int) -> tuple[int, int]:
        place = self._kafka.TopicPartition(self._topic.name, partition)
        find = consumer.get_watermark_offsets
        first, end = self._request(lambda timeout: find(place, timeout=timeout), OUTAGE_SECONDS)
        return first, end

    def read(self, partition: int, start: int, end: int) -> Iterator[tuple[int, bytes | None]]:
        """Yield offset and value of the messages of a partition in `[start, end)`. A value may be None.

        Raises InputError if the broker has deleted the first message, or does not answer for OUTAGE_SECONDS.
        """
        if start >= end:
            return
        self._call(lambda: self._consumer.assign([self._kafka.TopicPartition(self._topic.name, partition, start)]))
        deadline = time.monotonic() + OUTAGE_SECONDS
        while True:
            message: Any = self._call(lambda: self._consumer.poll(BROKER_TIMEOUT_SECONDS))
            error = None if message is None else message.error()
            is_end = error is not None and error.code() == self._kafka.KafkaError._PARTITION_EOF
            if message is None or (error is not None and not is_end):
                if error is not None and error.code() not in self._outages:
                    raise self._make_error(error.str())
                if time.monotonic() > deadline:
                    raise self._make_error(f"no message of partition {partition} within {OUTAGE_SECONDS:g} s")
                continue
            deadline = time.monotonic() + OUTAGE_SECONDS
            if message.offset() < end and not is_end:
                yield message.offset(), message.value()
            if message.offset() + (not is_end) >= end:
                return

    def _request(self, request: Callable[[float], Any], seconds: float) -> Any:
        """Return the answer to a request, whose argument is a time limit in s. Repeat it during an outage."""
        begin = time.monotonic()
        while True:
            waited = time.monotonic() - begin
            # A short outage needs only short calls, and a slow answer a long one.
            limit = min(max(waited, MAX_CALL_SECONDS / 4), MAX_CALL_SECONDS, max(seconds - waited, 0.1))
            try:
                return request(limit)
            except self._kafka.KafkaException as error:
                if error.args[0].code() not in self._outages or time.monotonic() - begin >= seconds:
                    raise self._make_error(error.args[0].str()) from error
                time.sleep(0.1)  # a broker may answer at once that it is not ready

    def _call(self, request: Callable[[], Answer]) -> Answer:
        try:
            return request()
        except self._kafka.KafkaException as error:
            raise self._make_error(error.args[0].str()) from error

    def _make_error(self, reason: str) -> InputError:
        return InputError(f"topic {self._topic.name} at {self._topic.brokers}: {reason}")


class SilentLogger:
    """A logger that drops the lines of librdkafka, because its errors are raised as exceptions."""

    def log(self, *_: object) -> None:
        """Drop a line."""
