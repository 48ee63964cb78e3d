"""Topics of Kafka on the stream engine: each partition is an input, and its offsets are those of the broker.

    planner    ends of all partitions ──► end of the micro-batch ──► ends again: which partitions have no more rows?
    task       messages of a range ──► rows, and after each batch its watermark

The schema promises how much older than the newest row of the *topic* a row is when it is sent. A partition without
rows would delay all windows, so it receives the watermark of the others if it has been read to its end:

    first request for all ends      the micro-batch reads up to them: its rows A were all sent before the answer
    second request                  a partition has the same end: each of its later rows is sent after all rows A

The first request excludes the messages of open transactions, and the second one includes them. So a partition with an
open transaction, whose rows were sent earlier and are read later, is not at its end. If a partition is at its end, its
later rows keep the promise in relation to the newest row of A. The watermark follows with the next micro-batch, from
the totals of this one, so that a repeated micro-batch has the same watermarks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from capture.errors import InputError
from capture.lazy_dataclasses import dataclass
from capture.metrics import Samples
from capture.topics import OUTAGE_SECONDS, TopicClient
from highlevel.inline.engine import Input
from highlevel.inline.topic_rows import TopicPartition
from highlevel.metrics import TOPIC_MESSAGES_LOST, TOPIC_MESSAGES_READ, TOPIC_MESSAGES_WRONG, TOPIC_PARTITIONS_UNREAD
from highlevel.spark.inputs.assignment import InputAssignment
from highlevel.spark.inputs.quarantine import Damage
from highlevel.spark.inputs.reading import LeafOutput, TaskOutput, make_batch, pack_output
from highlevel.spark.inputs.table_reading import make_arrivals
from highlevel.spark.run_folder.totals import Totals
from lowlevel.punctuation import BEGINNING

LISTING_LIFETIME = 200_000_000
"""Nanoseconds for which the end of a partition is valid, because Spark asks more often than messages arrive."""

MAX_MESSAGES = 1 << 18
"""Maximum number of offsets of a partition in a micro-batch."""

UNKNOWN_END = -1
"""End of a partition before the first request."""


@dataclass(frozen=True)
class TopicRange:
    """Offsets `[start, end)` of input `input_number`: the complete input of a task.

    The broker has deleted the messages before `first`. `newest_end` is the end of the partition that was requested
    after `end` was chosen; it includes the messages of open transactions. `unread_partitions`: the number of partitions
    that the topic has, but the run does not read.
    """

    input_number: int
    start: int
    first: int
    end: int
    newest_end: int
    unread_partitions: int = 0


class TopicPlanner:
    """Planner for one partition. Not thread safe. Input `input_number` of the run reads it."""

    def __init__(self, input_number: int, partition: TopicPartition, client: TopicClient, partition_count: int) -> None:
        """`client` is a connection for the topic of the partition. Planners may share it.

        The run reads `partition_count` partitions of the topic.
        """
        self.input_number = input_number
        self.partition = partition
        self._client = client
        self._partition_count = partition_count
        self._end = UNKNOWN_END
        self._listing_time: int | None = None

    def first_position(self) -> int:
        """Return the first position of a new run: the oldest message."""
        return self._client.find_bounds(self.partition.partition)[0]

    def find_end(self, position: int, now: int) -> int:
        """Return the end of the partition. It is at most LISTING_LIFETIME older than `now` (any clock, ns).

        `position` has been reached. Raises InputError if the topic was created again since.
        """
        if self._listing_time is None or now - self._listing_time >= LISTING_LIFETIME:
            _, self._end = self._client.find_bounds(self.partition.partition)
            self._listing_time = now
            self._check_end(self._end, position)
        return self._end

    def plan_range(self, start: int, end: int) -> TopicRange:
        """Return the range between two offsets. Raises InputError if the topic was created again since."""
        first, _ = self._client.find_bounds(self.partition.partition)
        newest_end = self._client.find_written_end(self.partition.partition)
        self._check_end(newest_end, end)
        first = min(max(start, first), end)
        return TopicRange(self.input_number, start, first, end, newest_end, self._count_unread_partitions())

    def _count_unread_partitions(self) -> int:
        """Return the number of partitions that were added to the topic. Only the planner of partition 0 counts them."""
        if self.partition.partition != 0:
            return 0
        return max(self._client.count_partitions(OUTAGE_SECONDS) - self._partition_count, 0)

    def _check_end(self, end: int, position: int) -> None:
        if end < position:
            raise InputError(
                f"{self.partition.name}: got {end} as its end, expected at least {position}: the topic was created "
                "again since it was read; take another folder for the run"
            )


def read_topic_range(assignment: InputAssignment, topic_range: TopicRange) -> Iterator[pa.RecordBatch]:
    """Run one task: yield the rows of each batch of messages, then the counters."""
    number = topic_range.input_number
    partition = assignment.inputs[number].topic
    assert partition is not None, "the input is a topic"
    newest = dict.fromkeys(partition.stream.times, BEGINNING)
    samples, damages = Samples(), []
    labels = (assignment.inputs[number].link,)
    lost = topic_range.first - topic_range.start
    samples.add(TOPIC_MESSAGES_LOST, lost, *labels)
    samples.add(TOPIC_MESSAGES_READ, 0, *labels)
    samples.add(TOPIC_MESSAGES_WRONG, 0, *labels)
    if partition.partition == 0:
        samples.set(TOPIC_PARTITIONS_UNREAD, topic_range.unread_partitions, *labels)
    warnings = [f"{partition.name}: {lost:,} messages were deleted before they were read"] if lost else []
    if topic_range.first < topic_range.end:
        with TopicClient(partition.topic) as client:
            messages = client.read(partition.partition, topic_range.first, topic_range.end)
            for batch in partition.batches(messages):
                samples.add(TOPIC_MESSAGES_READ, batch.message_count, *labels)
                samples.add(TOPIC_MESSAGES_WRONG, len(batch.wrong_messages), *labels)
                damages += [
                    Damage(partition.name, f"offset {offset}", reason) for offset, reason in batch.wrong_messages
                ]
                if batch.rows is not None:
                    yield make_batch(make_arrivals(assignment, number, batch.first_offset, batch.rows, newest))
    if damages:
        warnings.append(
            f"{partition.name}: {len(damages):,} wrong {'message' if len(damages) == 1 else 'messages'}, "
            f"at {damages[0].place}: {damages[0].reason}"
        )
    if unread := topic_range.unread_partitions:
        are = "partition is" if unread == 1 else "partitions are"
        warnings.append(f"topic {partition.topic.name}: {unread} new {are} not read; take another folder for the run")
    time = newest.get(next(iter(newest), ""), BEGINNING)
    output = TaskOutput(
        input_number=number,
        sequence=topic_range.end,
        leaf_outputs={reader: LeafOutput(BEGINNING, []) for reader in assignment.readers(number)},
        samples=samples,
        newest_time=None if time == BEGINNING else time,
        position=topic_range.end,
        input_size=topic_range.newest_end + 1,  # a topic has no end, so the size is never reached
        warnings=tuple(warnings),
        damages=tuple(damages),
    )
    yield pack_output(assignment, output)


def check_topic(partition: TopicPartition) -> None:
    """Raise InputError if the brokers do not answer, or the topic has no such partition."""
    with TopicClient(partition.topic) as client:
        count = client.count_partitions()
    if partition.partition >= count:
        raise InputError(f"{partition.name}: the topic has {count} partitions, expected more")


def find_newest_times(assignment: InputAssignment, totals: Totals) -> Mapping[int, int]:
    """Return the newest time of its link, ns, for each partition of a topic that was read to its end.

    A DataFrame is always read to its end. The keys are the numbers of inputs. `totals` are those after the last
    micro-batch.
    """
    newest: dict[str, int] = {}
    for input_, number in zip(assignment.inputs, assignment.input_ids, strict=True):
        if _has_no_end(input_) and number in totals.newest_times:
            newest[input_.link] = max(newest.get(input_.link, BEGINNING), totals.newest_times[number])
    return {
        position: newest[input_.link]
        for position, (input_, number) in enumerate(zip(assignment.inputs, assignment.input_ids, strict=True))
        if _has_no_end(input_) and input_.link in newest and _is_read(totals, number)
    }


def _has_no_end(input_: Input) -> bool:
    return input_.topic is not None or input_.frame is not None


def _is_read(totals: Totals, input_id: int) -> bool:
    """Return whether a partition was read to its end: its size is then one more than its position."""
    position, size = totals.progress.get(input_id, (0, 0))
    return position + 1 == size
