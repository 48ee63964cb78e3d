"""`[links.NAME]` with `topic`: the messages of a topic of Kafka, which Spark reads as a link.

[links.logins]
topic = "logins"
brokers = "kafka1:9092,kafka2:9092"
schema = "my.protocol"        # schema and protocol as for files (`queries.pipeline.table_settings`)
protocol = "logins"
[links.logins.conf]           # settings of librdkafka
"security.protocol" = "SSL"
"""

from __future__ import annotations

from pathlib import Path

from capture.lazy_dataclasses import dataclass
from capture.topics import Topic, TopicClient
from highlevel.inline.engine import Input
from highlevel.inline.table_files import FileStream
from highlevel.inline.topic_rows import TopicPartition
from highlevel.plan.plan import Plan
from queries.pipeline.kafka_settings import read_brokers, read_conf
from queries.pipeline.sections import PipelineError, Section
from queries.pipeline.table_settings import read_protocol
from queries.plans.subqueries import ReadableQuery
from queries.text.schema import Protocol

TOPIC_KEYS = ("topic", "brokers", "schema", "protocol", "conf")


@dataclass(frozen=True, slots=True)
class TopicLink:
    """A link whose rows are the messages of a topic."""

    name: str
    topic: Topic
    protocol: Protocol
    paths: tuple[str, ...] = ()

    @property
    def description(self) -> str:
        """The topic in words."""
        return f"the topic {self.topic.name}"

    @property
    def stream(self) -> FileStream:
        """The columns of the rows."""
        return FileStream.make(self.name, (), self.protocol.columns, self.protocol.times, [])

    def readable(self) -> ReadableQuery:
        """Return the rows for queries. No broker is contacted."""
        return ReadableQuery(
            self.stream.columns, self.stream.times, self.stream.node, Plan(self.name, "", self.stream.node(None))
        )

    def inputs(self) -> list[Input]:
        """Return an input for each partition. Raises InputError if the brokers do not answer, or have no such topic."""
        with TopicClient(self.topic) as client:
            count = client.count_partitions()
        return [topic_input(TopicPartition(self.stream, self.topic, partition)) for partition in range(count)]


def topic_input(partition: TopicPartition) -> Input:
    """Return a partition as an input of Spark. Its path is only a name, without the brokers, which may move."""
    stream, path = partition.stream, Path("/kafka", partition.topic.name, str(partition.partition))
    return Input(stream.name, path, stream.name, topic=partition)


def topic_link(name: str, section: Section, base: Path) -> TopicLink:
    """Read a link with `topic`. Raises PipelineError for a wrong key, schema or protocol."""
    topic = section.value("topic", str, "")
    if not topic:
        raise PipelineError(f"{section.prefix}topic: got {topic!r}, expected the name of a topic")
    brokers, protocol = read_brokers(section), read_protocol(name, section, base)
    if key := next((column.name for column in protocol.columns if column.is_key), None):
        raise PipelineError(
            f"{section.prefix}schema: got the key {key}, expected no column with the attribute key: rows of a topic "
            "are not stored by key, so events of Debezium need the whole row 'before'"
        )
    return TopicLink(name, Topic(topic, brokers, tuple(read_conf(section, "link").items())), protocol)
