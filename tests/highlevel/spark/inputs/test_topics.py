"""Topics of Kafka as streams of queries, with the broker for tests of librdkafka.

The tests find a message that is read twice or not at all, also after a restart; a window that is final before the
promise of the schema allows it, also with wrong messages and open transactions; a partition without messages that
delays all windows; and a wrong message that ends a run or is lost without a report.
"""

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

import wiretide
from capture import topics
from capture.errors import InputError
from capture.topics import Topic, TopicClient
from highlevel.inline import topic_rows
from highlevel.metrics import TOPIC_MESSAGES_LOST, TOPIC_MESSAGES_READ, TOPIC_MESSAGES_WRONG, TOPIC_PARTITIONS_UNREAD
from highlevel.results.user_types import readable
from highlevel.spark.inputs.assignment import InputAssignment
from highlevel.spark.inputs.topic_reading import TopicPlanner, TopicRange, read_topic_range
from highlevel.spark.run_folder.totals import Totals
from queries.pipeline.file import PipelineFile, parse_pipeline
from queries.pipeline.sections import PipelineError
from tests.harness.stream_steps import spec, steps

SECOND = 1_000_000_000
PIPELINE = """
[links.logins]
topic = "TOPIC"
brokers = "BROKERS"
schema = "PROTOCOL logins { TIME ts (banded_increasing(2 seconds)); STRING user; UINT bytes; }"
[links.logins.conf]
log_level = 0
[queries.users]
sql = "SELECT user, count(*) AS n, sum(bytes) AS b FROM logins [RANGE 3 seconds] GROUP BY user"
[queries.total]
sql = "SELECT sum(n) AS n FROM users [RANGE 9 seconds]"
"""
kafka: Any = pytest.importorskip("confluent_kafka", reason="no package confluent-kafka")


class Broker:
    """The broker for tests, and its only producer. A topic has four partitions."""

    def __init__(self) -> None:
        self.producer = kafka.Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "none", "log_level": 0})
        found = self.producer.list_topics(timeout=30).brokers.values()
        self.address = ",".join(f"{one.host}:{one.port}" for one in found)

    def send(self, topic: str, messages: list[tuple[int, bytes | None]]) -> None:
        """Send messages to partitions, in this order in time."""
        for partition, value in messages:
            self.producer.produce(topic, value, partition=partition)
            self.producer.flush()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    broker = Broker()
    yield broker
    del broker.producer  # the broker ends with its producer


def pipeline_of(broker: Broker, topic: str, folder: Path) -> PipelineFile:
    return parse_pipeline(PIPELINE.replace("TOPIC", topic).replace("BROKERS", broker.address), folder)


def message(time: float, user: str, length: int) -> bytes:
    return json.dumps(
        {"ts": f"2024-05-01T10:{time // 60:02.0f}:{time % 60:06.3f}Z", "user": user, "bytes": length}
    ).encode()


Rows = list[tuple[float, str, int]]


def draw_rows(random: Random, count: int, start: float) -> Rows:
    """Rows in the order in which they are sent, of which none is more than 2 s older than the newest before."""
    return [
        (start + number * 0.1 - random.random() * 1.9, f"u{random.randrange(3)}", random.randrange(100))
        for number in range(count)
    ]


def windows_of(rows: Rows) -> dict[tuple[int, str], tuple[int, int]]:
    """The groups of windows of 3 s, by definition: number and sum, by start of the window and user."""
    groups: defaultdict[tuple[int, str], list[int]] = defaultdict(list)
    for time, user, length in rows:
        groups[int(round(time, 3) // 3) * 3, user].append(length)
    return {key: (len(lengths), sum(lengths)) for key, lengths in groups.items()}


def found_windows(rows: Any) -> list[tuple[int, str, int, int]]:
    return [
        (row["window_start"].minute * 60 + row["window_start"].second, row["user"], row["n"], row["b"])
        for row in rows.to_pylist()
    ]


@pytest.mark.parametrize("seed", range(3))
def test_every_window_is_final_once_and_complete_although_partitions_have_no_messages(
    seed: int, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(seed)
    print("seed", seed)
    monkeypatch.setattr(topic_rows, "BATCH_ROWS", 7)
    pipeline = pipeline_of(broker, f"windows{seed}", tmp_path)
    plans = pipeline.plans()
    used_partitions = [[0], [1, 3], [0, 1, 2, 3]][seed]
    sent: Rows = []
    stable_ends: dict[int, int] = {}
    find_bounds = TopicClient.find_bounds

    def find_stable_bounds(client: TopicClient, partition: int) -> tuple[int, int]:
        """The broker for tests has no open transactions: the end of a partition with one does not change."""
        first, end = find_bounds(client, partition)
        return first, min(end, stable_ends.get(partition, end))

    monkeypatch.setattr(TopicClient, "find_bounds", find_stable_bounds)

    def send() -> None:
        rows = draw_rows(random, random.randrange(30, 80), 10 + len(sent) * 0.1)
        texts = [message(*row) for row in rows]
        for at in random.sample(range(len(texts)), 3):
            texts.insert(at, b"{")
        broker.send(f"windows{seed}", [(random.choice(used_partitions), text) for text in texts])
        sent.extend(rows)

    send()
    inputs = pipeline.inputs(plans)
    assert [str(source.path) for source in inputs] == [f"/kafka/windows{seed}/{number}" for number in range(4)]
    found: list[tuple[int, str, int, int]] = []
    micro_batches = 0
    for results, totals in steps(spec(inputs, random, plans), tmp_path / "state", random):
        if "users" in results:
            found += found_windows(readable(results["users"], plans[0].times))
        samples, micro_batches = totals.samples, micro_batches + 1
        if micro_batches == 2 and len(used_partitions) > 1:
            with TopicClient(Topic(f"windows{seed}", broker.address)) as client:
                stable_ends[used_partitions[0]] = find_bounds(client, used_partitions[0])[1]
        elif micro_batches == 5:
            stable_ends.clear()
        if micro_batches < 6:
            send()
    wrong_count = 3 * 6
    assert samples.total(TOPIC_MESSAGES_READ) == len(sent) + wrong_count
    assert samples.total(TOPIC_MESSAGES_WRONG) == wrong_count
    expected = windows_of(sent)
    assert Counter((start, user) for start, user, *_ in found).most_common(1)[0][1] == 1
    assert {(start, user): values for start, user, *values in found} == {
        key: [*expected[key]] for key in {(start, user) for start, user, *_ in found}
    }
    # The rows of the last micro-batches do not close windows yet. All earlier windows are final.
    last = max(start for start, *_ in found)
    assert {key for key in expected if key[0] <= last} == {(start, user) for start, user, *_ in found}
    assert last >= 12


def test_wrong_messages_are_left_out_and_reported_with_their_offset(broker: Broker, tmp_path: Path) -> None:
    good = [message(10 + number, "u", number) for number in range(4)]
    wrong = [b"\xff{", b'{"ts": "yesterday", "user": "u"}', b'{"user": "u", "bytes": 1}', b'{"ts": 5}']
    pretty = json.dumps({"ts": "2024-05-01T10:00:20Z", "user": "two\nlines", "bytes": 7}, indent=2).encode()
    values = [good[0], wrong[0], good[1], None, wrong[1], wrong[2], good[2], pretty, wrong[3], good[3]]
    broker.send("wrong", [(2, value) for value in values])
    pipeline = pipeline_of(broker, "wrong", tmp_path)
    plans = pipeline.plans()
    inputs = pipeline.inputs(plans)
    ((_, totals),) = steps(spec(inputs, Random(1), plans), tmp_path / "state", Random(1))
    assert [damage.place for damage in totals.damages] == ["offset 1", "offset 4", "offset 5", "offset 8"]
    assert {damage.path for damage in totals.damages} == {"topic wrong, partition 2"}
    reasons = [damage.reason for damage in totals.damages]
    assert "got 'yesterday', expected TIME, for example" in reasons[1]
    assert reasons[2] == "column ts: got a row without a time, expected TIME in all rows"
    assert totals.samples.total(TOPIC_MESSAGES_READ, link="logins") == 10
    assert totals.samples.total(TOPIC_MESSAGES_WRONG, link="logins") == 4
    assert "topic wrong, partition 2: 4 wrong messages, at offset 1:" in totals.warnings[0]


def test_messages_that_the_broker_has_deleted_are_counted(broker: Broker, tmp_path: Path) -> None:
    broker.send("deleted", [(0, message(10 + number, "u", 1)) for number in range(5)])
    pipeline = pipeline_of(broker, "deleted", tmp_path)
    plans = pipeline.plans()
    assignment = InputAssignment.of(plans, pipeline.inputs(plans))
    totals = Totals()
    counters = [
        payload
        for batch in read_topic_range(assignment, TopicRange(0, 0, 3, 5, 5))
        for part, payload in zip(batch["part"].to_pylist(), batch["payload"].to_pylist(), strict=True)
        if part < 0
    ]
    totals.add(assignment, counters, [])
    assert totals.samples.total(TOPIC_MESSAGES_LOST, link="logins") == 3
    assert totals.samples.total(TOPIC_MESSAGES_READ, link="logins") == 2
    assert totals.warnings == ["topic deleted, partition 0: 3 messages were deleted before they were read"]


def test_partitions_that_are_added_later_are_reported(broker: Broker, tmp_path: Path) -> None:
    broker.send("added", [(0, message(10, "u", 1)), (3, message(11, "u", 1))])
    pipeline = pipeline_of(broker, "added", tmp_path)
    plans = pipeline.plans()
    inputs = pipeline.inputs(plans)[:2]  # those of a topic with two partitions; two others were added
    ((_, totals), *_) = steps(spec(inputs, Random(1), plans), tmp_path / "state", Random(1))
    assert totals.samples.total(TOPIC_PARTITIONS_UNREAD, link="logins") == 2
    assert totals.warnings == ["topic added: 2 new partitions are not read; take another folder for the run"]


def test_the_source_closes_its_connections(broker: Broker, tmp_path: Path) -> None:
    from highlevel.spark.inputs.source import CaptureReader, index_captures

    broker.send("closed", [(0, message(10, "u", 1))])
    pipeline = pipeline_of(broker, "closed", tmp_path)
    plans = pipeline.plans()
    run = spec(pipeline.inputs(plans), Random(1), plans)
    reader = CaptureReader(run, index_captures(run))
    reader.initialOffset()
    (client,) = reader.topic_clients.values()
    reader.stop()
    with pytest.raises(RuntimeError, match="closed"):
        client.count_partitions()


def test_a_wait_for_a_broker_consists_of_short_calls(broker: Broker) -> None:
    """Ctrl-C has an effect only between calls."""
    broker.send("slow", [(0, message(10, "u", 1))])
    limits: list[float] = []
    with TopicClient(Topic("slow", broker.address, (("log_level", "0"),))) as client:
        answers = client._consumer

        class SlowConsumer:
            def list_topics(self, topic: str, timeout: float) -> Any:
                limits.append(timeout)
                if len(limits) < 4:
                    raise kafka.KafkaException(kafka.KafkaError(kafka.KafkaError._TRANSPORT))
                return answers.list_topics(topic, timeout=30)

        client._consumer = SlowConsumer()
        assert client.count_partitions() == 4
        client._consumer = answers
    assert len(limits) == 4
    assert max(limits) <= topics.MAX_CALL_SECONDS


def test_a_topic_that_was_created_again_and_a_missing_broker_are_errors(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "BROKER_TIMEOUT_SECONDS", 1.0)
    broker.send("again", [(0, message(10, "u", 1))])
    pipeline = pipeline_of(broker, "again", tmp_path)
    (source, *_) = pipeline.inputs(pipeline.plans())
    assert source.topic is not None
    client = TopicClient(source.topic.topic)
    planner = TopicPlanner(0, source.topic, client, 4)
    assert planner.find_end(1, 0) == 1
    again = "topic again, partition 0: got 1 as its end, expected at least 2: the topic was created again"
    with pytest.raises(InputError, match=again):
        TopicPlanner(0, source.topic, client, 4).find_end(2, 0)
    with pytest.raises(InputError, match=again):
        planner.plan_range(1, 2)
    with (
        TopicClient(Topic("logins", "127.0.0.1:1", (("log_level", "0"),))) as client,
        pytest.raises(InputError, match=r"topic logins at 127\.0\.0\.1:1: .*"),
    ):
        client.count_partitions()
    with pytest.raises(InputError, match=r"topic logins at .*: No such configuration property"):
        TopicClient(Topic("logins", broker.address, (("no.such", "1"),)))


def test_without_the_package_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(InputError, match=r"topic t: a topic of Kafka needs the package confluent-kafka: pip install"):
        TopicClient(Topic("t", "127.0.0.1:1"))


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ('brokers = "BROKERS"', "", "links.logins.brokers is missing: expected HOST:PORT"),
        ('topic = "TOPIC"', 'topic = ""', "links.logins.topic: got '', expected the name of a topic"),
        ('topic = "TOPIC"', 'topic = "t"\ncapture = "x"', "links.logins.capture is not known; valid here: topic"),
        ("log_level = 0", '"group.id" = "x"', "links.logins.conf: got group.id, which the link sets itself"),
        ("PROTOCOL logins", "PROTOCOL other", "links.logins.protocol: logins is no protocol of the schema"),
        (
            "STRING user",
            "STRING user (key)",
            "links.logins.schema: got the key user, expected no column with the attribute",
        ),
    ],
)
def test_wrong_links_are_errors(old: str, new: str, error: str, tmp_path: Path) -> None:
    assert old in PIPELINE
    with pytest.raises(PipelineError) as raised:
        parse_pipeline(PIPELINE.replace(old, new), tmp_path)
    assert error in str(raised.value)


@pytest.mark.spark
def test_a_run_on_spark_continues_after_its_last_message(spark, broker: Broker, tmp_path: Path) -> None:
    from highlevel.spark.stream import StreamRun

    sent = draw_rows(Random(5), 100, 10)
    broker.send("run", [(number % 3, message(*row)) for number, row in enumerate(sent)])
    pipeline = pipeline_of(broker, "run", tmp_path)
    plans = pipeline.plans()

    def run_until(count: int) -> StreamRun:
        """Run until this number of messages was read, and another micro-batch has followed."""

        class EnoughError(Exception):
            pass

        def on_batch(*_: object) -> None:
            if run.totals.samples.total(TOPIC_MESSAGES_READ) >= count:
                raise EnoughError

        run = StreamRun(spark, plans, pipeline.inputs(plans), tmp_path / "run", partitions=2, on_batch=on_batch)
        run.start()
        with pytest.raises(EnoughError):
            run.wait()
        run.stop()
        return run

    run_until(100)
    sent += (later := draw_rows(Random(6), 100, 20))
    broker.send("run", [(number % 2, message(*row)) for number, row in enumerate(later)])
    run = run_until(200)
    assert run.samples.total(TOPIC_MESSAGES_READ) == 200
    found = found_windows(wiretide.query("SELECT * FROM users", tmp_path / "run"))
    expected = windows_of(sent)
    assert found
    assert sorted(found) == sorted(
        (start, user, *values) for (start, user), values in expected.items() if start <= max(each[0] for each in found)
    )
