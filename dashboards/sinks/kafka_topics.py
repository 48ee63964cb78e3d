"""Topics of Kafka, with the package confluent-kafka.

Each query has a topic with its name. A message is a row as JSON. The key of the message contains the columns that
identify the row, so a compacted topic keeps the newest row for each key. For a query with changes, each change is a
message, with `weight` and `final`.

All messages of a query in a micro-batch and its ID are one transaction. The ID is a message in the topic
`wiretide-batches`. The key of this message consists of the run, the ID of the query, and its name. So consumers with
`isolation.level = read_committed`, the default, receive each row once.

A process that was killed may leave an open transaction, which the broker may still commit. So a new producer first ends
this transaction. Then the last ID is read, up to the current end of the topic. Open transactions of other runs could
hide messages before this end, so the read has a time limit.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from capture.topics import BROKER_TIMEOUT_SECONDS, SilentLogger
from dashboards.sinks.target import SinkError, StoredQuery, UnreachableError
from lowlevel.times import time_texts

BATCHES_TOPIC = "wiretide-batches"

TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")

PERMANENT_ERRORS = (
    "_INVALID_ARG",
    "UNKNOWN_TOPIC_OR_PART",
    "TOPIC_EXCEPTION",
    "MSG_SIZE_TOO_LARGE",
    "TOPIC_AUTHORIZATION_FAILED",
    "GROUP_AUTHORIZATION_FAILED",
    "CLUSTER_AUTHORIZATION_FAILED",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    "INVALID_TRANSACTION_TIMEOUT",
)
"""Names of errors that would occur again at the next attempt."""


class KafkaTopics:
    """The topics of a cluster."""

    def __init__(self, brokers: str, prefix: str, conf: Mapping[str, str]) -> None:
        """Raises SinkError without the package confluent-kafka, and for wrong settings."""
        try:
            import confluent_kafka
        except ImportError:
            expected = "the package confluent-kafka: pip install 'wiretide[kafka]'"
            raise SinkError(f"a sink for Kafka needs {expected}") from None
        self._kafka: Any = confluent_kafka
        self._conf = {"logger": SilentLogger(), **conf, "bootstrap.servers": brokers}
        self._prefix = prefix
        self._permanent = [getattr(confluent_kafka.KafkaError, name) for name in PERMANENT_ERRORS]
        self._producers: dict[str, Any] = {}

    def prepare(self, query: StoredQuery) -> None:
        """Check the name of the topic, and check that a broker answers."""
        topic = self._prefix + query.name
        if not TOPIC_NAME.fullmatch(topic) or topic in (".", ".."):
            expected = "1 to 249 letters of ASCII, digits, `.`, `_` and `-`; rename the query"
            raise SinkError(f"topic {topic!r}: expected {expected}")
        consumer = self._call(self._consumer)
        try:
            self._call(lambda: consumer.list_topics(timeout=BROKER_TIMEOUT_SECONDS))
        finally:
            consumer.close()

    def last_batch(self, run: str, query: StoredQuery) -> int:
        """Return the last micro-batch of a run that is stored; -1 if there is none."""
        return int(self._call(lambda: self._last_batch(run, query)))

    def _last_batch(self, run: str, query: StoredQuery) -> int:
        self._producer(run, query)
        ends = self._find_ends(self._prefix + BATCHES_TOPIC)
        consumer = self._consumer()
        try:
            return self._read_last(consumer, _batch_key(run, query), ends)
        finally:
            consumer.close()

    def _find_ends(self, topic: str) -> dict[int, int]:
        """Return the end offset of each partition that is not empty, including open transactions."""
        consumer = self._consumer("read_uncommitted")
        try:
            metadata = consumer.list_topics(topic, timeout=BROKER_TIMEOUT_SECONDS).topics[topic]
            ends = {}
            for partition in metadata.partitions if metadata.error is None else ():
                place = self._kafka.TopicPartition(topic, partition)
                first, end = consumer.get_watermark_offsets(place, timeout=BROKER_TIMEOUT_SECONDS)
                if first < end:
                    ends[partition] = end
            return ends
        finally:
            consumer.close()

    def _read_last(self, consumer: Any, key: bytes, ends: dict[int, int]) -> int:
        """Return the number in the last message with `key` before `ends` (offsets by partition), or -1."""
        topic = self._prefix + BATCHES_TOPIC
        last, unread = -1, dict(ends)
        begin = self._kafka.OFFSET_BEGINNING
        consumer.assign([self._kafka.TopicPartition(topic, partition, begin) for partition in unread])
        deadline = time.monotonic() + BROKER_TIMEOUT_SECONDS
        while unread:
            message = consumer.poll(max(deadline - time.monotonic(), 0))
            if message is None:
                raise UnreachableError(f"topic {topic}: its end cannot be read, another run's transaction may be open")
            if message.error() is None:
                last = max(last, int(message.value())) if message.key() == key else last
                deadline = time.monotonic() + BROKER_TIMEOUT_SECONDS
            elif message.error().code() != self._kafka.KafkaError._PARTITION_EOF:
                raise self._kafka.KafkaException(message.error())
            elif message.offset() >= unread[message.partition()]:
                del unread[message.partition()]
        return last

    def store(self, run: str, query: StoredQuery, batch: int, rows: Iterator[pa.RecordBatch]) -> None:
        """Send the rows of a micro-batch and its ID in one transaction."""
        self._call(lambda: self._send(run, query, batch, rows))

    def _send(self, run: str, query: StoredQuery, batch: int, rows: Iterator[pa.RecordBatch]) -> None:
        producer = self._producer(run, query)
        producer.begin_transaction()
        try:
            for chunk in rows:
                for key, value in encode_rows(query, chunk):
                    self._produce(producer, self._prefix + query.name, key, value)
            self._produce(producer, self._prefix + BATCHES_TOPIC, _batch_key(run, query), str(batch).encode())
            producer.commit_transaction(BROKER_TIMEOUT_SECONDS)
        except BaseException:
            # The next attempt begins with a new producer, which ends the transaction of this one.
            del self._producers[query.name]
            raise

    def _producer(self, run: str, query: StoredQuery) -> Any:
        """Return the producer of a query. A new producer ends the transaction of an earlier process."""
        if query.name not in self._producers:
            conf = {**self._conf, "transactional.id": f"wiretide-{run}-{query.name}"}
            producer = self._kafka.Producer(conf)
            producer.init_transactions(BROKER_TIMEOUT_SECONDS)
            self._producers[query.name] = producer
        return self._producers[query.name]

    def _produce(self, producer: Any, topic: str, key: bytes | None, value: bytes) -> None:
        while True:
            try:
                producer.produce(topic, value, key)
            except BufferError:  # the queue is full
                producer.poll(0.1)
            else:
                producer.poll(0)
                return

    def _consumer(self, isolation: str = "read_committed") -> Any:
        conf = {**self._conf, "group.id": "wiretide", "enable.auto.commit": False, "enable.partition.eof": True}
        return self._kafka.Consumer({**conf, "fetch.wait.max.ms": 50, "isolation.level": isolation})

    def _call(self, action: Callable[[], Any]) -> Any:
        try:
            return action()
        except self._kafka.KafkaException as error:
            reason = error.args[0]
            is_wrong = reason.code() in self._permanent
            raise (SinkError if is_wrong else UnreachableError)(reason.str()) from error

    def close(self) -> None:
        """Drop the producers. A transaction that is not committed has no effect."""
        self._producers.clear()


def _batch_key(run: str, query: StoredQuery) -> bytes:
    return f"{run}/{query.id}/{query.name}".encode()


def encode_rows(query: StoredQuery, rows: pa.RecordBatch) -> Iterator[tuple[bytes | None, bytes]]:
    """Yield the key and the value of the message for each row. The key is None if rows may be equal."""
    columns = {
        name: time_texts(column.cast(pa.int64())).to_pylist()
        if pa.types.is_timestamp(column.type)
        else column.to_pylist()
        for name, column in zip(rows.schema.names, rows.columns, strict=True)
    }
    for values in zip(*columns.values(), strict=True):
        row = dict(zip(columns, values, strict=True))
        key = None if query.key is None else json.dumps([row[name] for name in query.key]).encode()
        yield key, json.dumps(row).encode()
