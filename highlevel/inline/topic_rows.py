"""Messages of a topic as rows of a stream with a schema. A message is a JSON object.

A message without a value, or with the value `null`, has no row: a topic has them after deletions.

A wrong message does not end a run, because it would stay in the topic and end every later run too. It is skipped and
reported with its offset. The rows of a message do not depend on the division of a topic into batches.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from capture.errors import InputError
from capture.lazy_dataclasses import dataclass
from capture.topics import Topic
from highlevel.inline.debezium_envelopes import is_tombstone
from highlevel.inline.table_files import FileStream
from highlevel.inline.table_sources import Messages
from highlevel.inline.tables import BATCH_ROWS

EMPTY = "got an empty message, expected a JSON object"

Message = tuple[int, bytes | None]
"""Offset and value of a message."""


@dataclass(frozen=True, slots=True)
class MessageBatch:
    """A batch of consecutive messages. `wrong_messages`: pairs of the offset of a wrong message and the reason.

    `rows` is None if no message has a row.
    """

    first_offset: int
    message_count: int
    rows: pa.RecordBatch | None
    wrong_messages: Sequence[tuple[int, str]]


@dataclass(frozen=True)
class TopicPartition:
    """A partition of a topic. `stream` has the columns of its rows, and no files."""

    stream: FileStream
    topic: Topic
    partition: int

    @property
    def name(self) -> str:
        """The name of the partition in error texts."""
        return f"topic {self.topic.name}, partition {self.partition}"

    def batches(self, messages: Iterable[Message]) -> Iterator[MessageBatch]:
        """Convert messages, BATCH_ROWS at a time. A message is wrong if it alone cannot be converted."""
        iterator = iter(messages)
        while chunk := list(itertools.islice(iterator, BATCH_ROWS)):
            values = [(offset, value) for offset, value in chunk if value is not None and not is_tombstone(value)]
            wrong = [(offset, EMPTY) for offset, value in values if not value.strip()]
            rows = list(self._convert([(offset, value) for offset, value in values if value.strip()], wrong))
            joined = pa.concat_batches(rows) if rows else None
            yield MessageBatch(chunk[0][0], len(chunk), joined, sorted(wrong))

    def _convert(self, messages: Sequence[tuple[int, bytes]], wrong: list[tuple[int, str]]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of messages.

        If a batch cannot be converted, halve it until single messages fail, and append these to `wrong`.
        """
        if not messages:
            return
        source = Messages(self.name, tuple(value for _, value in messages))
        try:
            batches = [rows for _, rows, _ in replace(self.stream, sources=(source,)).rows()]
        except InputError as error:
            if len(messages) == 1:
                wrong.append((messages[0][0], str(error).removeprefix(f"{self.name}: ")))
                return
            half = len(messages) // 2
            yield from self._convert(messages[:half], wrong)
            yield from self._convert(messages[half:], wrong)
        else:
            yield from batches
