"""Sinks in real systems: SQLite, PostgreSQL, Delta tables, a server with the protocol of S3, and librdkafka's broker.

The tests detect a micro-batch that is stored twice after a crash, a correction that leaves the withdrawn row, a row
that a failed attempt has stored, and a sink that is given up too early. The broker for tests does not separate
transactions: aborted messages are visible in it, as in no real broker.
"""

import json
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from capture.metrics import Samples
from dashboards.sinks import sinks
from dashboards.sinks.kafka_topics import KafkaTopics
from dashboards.sinks.metrics import SINK_RETRIES, SINK_ROWS
from dashboards.sinks.object_files import ObjectFiles
from dashboards.sinks.sinks import RETRY_SECONDS, Sinks, rows_of_batch, stored_query
from dashboards.sinks.target import SinkError, UnreachableError
from highlevel.spark.run_folder import result_files
from highlevel.spark.run_folder.result_files import write_results
from highlevel.spark.run_folder.staged_results import stored_form
from queries.gsql import compile_query
from queries.pipeline.sink_settings import SinkSettings
from tests.harness.postgresql import run_postgresql

SECOND = 1_000_000_000
GROUPS = "SELECT srcIP, destPort, count(*) AS n, avg(len) AS mean FROM a [RANGE 10 seconds] GROUP BY srcIP, destPort"
FINAL = compile_query(GROUPS, "talkers")
CHANGES = compile_query(f"{GROUPS} EMIT CHANGES", "talkers")
PACKETS = compile_query("SELECT ts, srcIP FROM a", "talkers")


@pytest.fixture(scope="module")
def postgresql() -> Iterator[str]:
    pytest.importorskip("psycopg", reason="no package psycopg")
    with run_postgresql() as url:
        yield url


@pytest.fixture(scope="module")
def brokers() -> Iterator[str]:
    kafka = pytest.importorskip("confluent_kafka", reason="no package confluent-kafka")
    broker = kafka.Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "none", "log_level": 0})
    found = broker.list_topics(timeout=30).brokers.values()
    yield ",".join(f"{one.host}:{one.port}" for one in found)
    del broker  # the broker ends with its producer


@pytest.fixture(scope="module")
def object_store() -> Iterator[str]:
    """The URL of a server with an empty bucket `lake`."""
    moto = pytest.importorskip("moto.server", reason="no package moto")
    from pyarrow.fs import S3FileSystem

    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b", "EC2_METADATA_DISABLED": "true"}.items():
            patch.setenv(f"AWS_{name}", value)
        server = moto.ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
        server.start()
        url = "http://{}:{}".format(*server.get_host_and_port())
        S3FileSystem(endpoint_override=url, allow_bucket_creation=True).create_dir("lake")
        yield url
        server.stop()


Rows = Counter[tuple]


def read_sqlite(path: Path) -> Rows:
    with sqlite3.connect(path) as connection:
        return Counter(connection.execute('select "window_end", "srcIP", "destPort", n FROM talkers').fetchall())


def row_of(key: int, end: int, n: int) -> tuple[Any, ...]:
    """A row as the readers of this module return it."""
    seconds = f"{end // 60:02}:{end % 60:02}"
    return f"1970-01-01 00:{seconds}.000000000Z", f"10.0.0.{key}", None if key == 3 else key, n


def make_rows(plan: Any, rows: list[tuple[int, int, int]], weights: list[int] | None = None) -> pa.Table:
    """Rows of (group, end of the window in s, count)."""
    columns: list[list[Any]] = [
        [(end - 10) * SECOND for _, end, _ in rows], [end * SECOND for _, end, _ in rows],
        [bytes([10, 0, 0, key]) for key, _, _ in rows], [None if key == 3 else key for key, _, _ in rows],
        [n for *_, n in rows], [n / 2 for *_, n in rows],
    ]  # fmt: skip
    if weights is not None:
        columns += [weights, [False] * len(rows)]
    return pa.table(
        [pa.array(values, field.type) for values, field in zip(columns, plan.schema, strict=True)], schema=plan.schema
    )


def settings_of(kind: str, request: pytest.FixtureRequest, folder: Path, prefix: str) -> SinkSettings:
    """A sink with the name of its kind, whose system needs no server."""
    if kind == "kafka":
        brokers = request.getfixturevalue("brokers")
        return SinkSettings(kind, kind, brokers, prefix=prefix, conf={"log_level": "0"})
    if kind == "s3":
        endpoint = request.getfixturevalue("object_store")
        return SinkSettings(kind, kind, f"s3://lake/{prefix}", conf={"endpoint": endpoint})
    if kind == "delta":
        pytest.importorskip("deltalake", reason="no package deltalake")
        return SinkSettings(kind, kind, str(folder / "lake"))
    return SinkSettings(kind, kind, f"sqlite:///{folder / 'results.db'}")


class Pipeline:
    """The part of a run that writes result files and calls the sinks. A crash makes new sinks."""

    def __init__(self, folder: Path, plan: Any, settings: SinkSettings, wait: Callable[[float], None] | None) -> None:
        self.output, self.plan, self.settings, self.wait = folder / "output", plan, settings, wait
        self.lines: list[str] = []
        self.query_id = self.next_batch = 0
        self.run: str | None = None
        self.start()

    def start(self) -> None:
        query = stored_query(self.plan, reads_spool=False, query_id=self.query_id)
        self.sinks = Sinks([self.settings], [query], self.lines.append, self.wait)
        self.sinks.prepare(self.run, self.output, self.next_batch)

    def batch(self, number: int, rows: pa.Table, run: str = "run") -> None:
        files = write_results(self.output, number, {self.plan.name: stored_form(self.plan, rows, None)})
        self.run = run
        self.sinks.write(run, number, files)
        self.next_batch = number + 1

    def crash(self) -> None:
        self.sinks.close()
        self.start()


def never(seconds: float) -> None:
    raise AssertionError(f"no wait of {seconds} s is expected")


def test_a_micro_batch_reads_only_its_own_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So the cost of a sink does not grow with the dates of the run."""
    read: list[Path] = []
    of_file = result_files.batches_of

    def batches_of(path: Path) -> list[tuple[int, int]]:
        read.append(path)
        return of_file(path)

    pipeline = Pipeline(tmp_path, FINAL, SinkSettings("db", "sql", f"sqlite:///{tmp_path / 'results.db'}"), never)
    for day in range(20):
        pipeline.batch(day, make_rows(FINAL, [(1, 10 + 86_400 * day, 5)]))
    monkeypatch.setattr(result_files, "batches_of", batches_of)
    pipeline.batch(20, make_rows(FINAL, [(1, 10 + 86_400 * 20, 5)]))
    assert [path.parent.name for path in read] == ["date=1970-01-21"] * 2
    pipeline.sinks.close()


@pytest.mark.parametrize("seed", range(3))
def test_sqlite_has_each_row_once_through_crashes_and_the_newest_version_of_changes(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    path = tmp_path / "results.db"
    plan = random.choice([FINAL, CHANGES])
    pipeline = Pipeline(tmp_path, plan, SinkSettings("db", "sql", f"sqlite:///{path}"), never)
    expected: dict[tuple[int, int], int] = {}
    for number in range(20):
        changes: list[tuple[tuple[int, int, int], int]] = []
        for key, end in {(random.randrange(6), random.choice([10, 20]) + 20 * number) for _ in range(5)}:
            changes.append(((key, end, random.randrange(9)), 1))
        if plan.has_changes:
            for key, end in random.sample(sorted(expected), min(4, len(expected))):
                changes.append(((key, end, expected[key, end]), -1))
                if random.random() < 0.5:
                    changes.append(((key, end, random.randrange(100, 200)), 1))
        random.shuffle(changes)
        for (key, end, _), weight in changes:
            if weight < 0:
                del expected[key, end]
        expected.update({(key, end): n for (key, end, n), weight in changes if weight > 0})
        weights = [weight for _, weight in changes] if plan.has_changes else None
        rows = make_rows(plan, [row for row, _ in changes], weights)
        pipeline.batch(number, rows)
        if random.random() < 0.4:
            pipeline.crash()
            pipeline.batch(number, rows)  # Spark repeats it
        assert read_sqlite(path) == Counter(row_of(key, end, n) for (key, end), n in expected.items()), (seed, number)
    pipeline.sinks.close()


def test_a_query_without_a_key_inserts_each_row_once_and_another_run_inserts_again(tmp_path: Path) -> None:
    path = tmp_path / "results.db"
    pipeline = Pipeline(tmp_path, PACKETS, SinkSettings("db", "sql", f"sqlite:///{path}"), never)
    rows = pa.table([[5, 5], [bytes(4), bytes(4)]], schema=PACKETS.schema)
    for run in ("first", "first", "second"):
        pipeline.batch(0, rows, run)
        pipeline.crash()
    pipeline.sinks.close()
    with sqlite3.connect(path) as connection:
        assert (
            connection.execute("select * from talkers").fetchall()
            == [("1970-01-01 00:00:00.000000005Z", "0.0.0.0")] * 4
        )
    samples = Samples()
    pipeline.sinks.add_samples(samples)
    assert samples.total(SINK_RETRIES, sink="db") == 0


def test_a_locked_database_is_tried_again_and_then_ends_the_run(tmp_path: Path, monkeypatch) -> None:
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda path, **options: connect(path, **{**options, "timeout": 0}))
    path = tmp_path / "results.db"
    waits: list[float] = []
    pipeline = Pipeline(tmp_path, FINAL, SinkSettings("db", "sql", f"sqlite:///{path}"), waits.append)
    other = connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(SinkError, match=r"sinks\.db: database is locked; the last of 9 attempts"):
        pipeline.batch(0, make_rows(FINAL, [(1, 10, 5)]))
    assert tuple(waits) == RETRY_SECONDS
    assert pipeline.lines[0] == "warning: sinks.db: database is locked; next attempt in 1 s"
    other.execute("ROLLBACK")
    pipeline.batch(0, make_rows(FINAL, [(1, 10, 5)]))
    samples = Samples()
    pipeline.sinks.add_samples(samples)
    assert samples.total(SINK_RETRIES, sink="db") == len(RETRY_SECONDS)
    assert samples.total(SINK_ROWS, sink="db", query="talkers") == 1
    pipeline.sinks.close()
    assert read_sqlite(path) == Counter([row_of(1, 10, 5)])


def test_a_run_that_is_stopped_does_not_wait_for_a_locked_database(tmp_path: Path, monkeypatch) -> None:
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda path, **options: connect(path, **{**options, "timeout": 0}))
    path = tmp_path / "results.db"
    pipeline = Pipeline(tmp_path, CHANGES, SinkSettings("db", "sql", f"sqlite:///{path}"), None)
    other = connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    pipeline.sinks.stop()
    with pytest.raises(SinkError, match=r"sinks\.db: database is locked; the run was stopped before the next attempt"):
        pipeline.batch(0, make_rows(CHANGES, [(1, 10, 5)], [1]))
    other.close()
    pipeline.crash()  # the sink lacks the changes of the micro-batch that is repeated, which is no error
    pipeline.batch(0, make_rows(CHANGES, [(1, 10, 5)], [1]))
    pipeline.sinks.close()
    assert read_sqlite(path) == Counter([row_of(1, 10, 5)])


def test_a_table_that_was_deleted_ends_the_run_at_once(tmp_path: Path) -> None:
    path = tmp_path / "results.db"
    pipeline = Pipeline(tmp_path, FINAL, SinkSettings("db", "sql", f"sqlite:///{path}"), never)
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE talkers")
    with pytest.raises(SinkError, match=r"sinks\.db: no such table: talkers$"):
        pipeline.batch(0, make_rows(FINAL, [(1, 10, 5)]))


def test_a_table_with_other_columns_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "results.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE talkers (a, b)")
    with pytest.raises(SinkError) as refused:
        Pipeline(tmp_path, FINAL, SinkSettings("db", "sql", f"sqlite:///{path}"), never)
    assert str(refused.value) == (
        "sinks.db: table talkers: got the columns a, b, expected wiretide_key, window_start, window_end, srcIP, "
        "destPort, n, mean; rename the table or the query"
    )


def test_postgresql_replaces_corrected_rows_and_an_aborted_transaction_leaves_nothing(
    postgresql: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    pipeline = Pipeline(tmp_path, CHANGES, SinkSettings("db", "sql", postgresql), never)
    pipeline.batch(0, make_rows(CHANGES, [(1, 10, 5), (3, 10, 7)], [1, 1]))
    second = make_rows(CHANGES, [(3, 10, 7), (3, 10, 9), (1, 10, 5)], [-1, 1, -1])

    def rows_until_the_process_ends(*arguments: Any) -> Iterator[pa.RecordBatch]:
        yield from rows_of_batch(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(sinks, "rows_of_batch", rows_until_the_process_ends)
        with pytest.raises(KeyboardInterrupt):
            pipeline.batch(1, second)
    text = 'select extract(epoch FROM window_end)::int, "srcIP", "destPort", n, mean, weight FROM talkers ORDER BY 2'
    with psycopg.connect(postgresql) as connection:
        before = connection.execute(text).fetchall()
        assert before == [(10, "10.0.0.1", 1, 5, 2.5, 1), (10, "10.0.0.3", None, 7, 3.5, 1)]
        connection.execute("select pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
    pipeline.crash()
    for _ in range(2):
        pipeline.batch(1, second)
        pipeline.crash()
    pipeline.sinks.close()
    with psycopg.connect(postgresql) as connection:
        assert connection.execute(text).fetchall() == [(10, "10.0.0.3", None, 9, 4.5, 1)]


@pytest.mark.parametrize("kind", ["sql", "delta", "s3", "kafka"])
def test_a_query_with_another_text_repeats_the_micro_batch_that_the_sink_has_of_the_earlier_text(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """The process ended after the sink and before Spark. Then the text of the query was changed."""
    pipeline = Pipeline(tmp_path, FINAL, settings_of(kind, request, tmp_path, "edited-"), never)
    pipeline.batch(3, make_rows(FINAL, [(1, 10, 5)]))
    shutil.rmtree(pipeline.output)
    pipeline.query_id = 4
    for stored in (1, 0):
        pipeline.crash()
        pipeline.batch(3, make_rows(FINAL, [(2, 10, 6)]))
        samples = Samples()
        pipeline.sinks.add_samples(samples)
        assert samples.total(SINK_ROWS, sink=kind) == stored
    pipeline.sinks.close()


@pytest.mark.parametrize("kind", ["sql", "delta", "s3"])
def test_a_sink_with_changes_of_another_text_or_without_earlier_changes_is_refused(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    pipeline = Pipeline(tmp_path, CHANGES, settings_of(kind, request, tmp_path, "refused-"), never)
    pipeline.batch(0, make_rows(CHANGES, [(1, 10, 5)], [1]))
    pipeline.crash()  # with the same text the run continues
    folder = pipeline.output / "talkers"
    pipeline.plan = compile_query(f"{GROUPS} EMIT CHANGES", "renamed")
    folder.rename(pipeline.output / "renamed")
    for _ in range(2):
        with pytest.raises(SinkError, match=rf"sinks\.{kind}: query renamed: the sink lacks its earlier changes"):
            pipeline.start()
    pipeline.plan, pipeline.query_id = CHANGES, 1
    (pipeline.output / "renamed").rename(pipeline.output / "talkers until 0")
    for _ in range(2):
        with pytest.raises(SinkError, match=rf"sinks\.{kind}: query talkers: the sink contains changes of another te"):
            pipeline.start()
    pipeline.plan = compile_query(f"{GROUPS} EMIT CHANGES", "new")
    pipeline.start()
    pipeline.sinks.close()


def test_a_server_that_does_not_answer_is_an_error_before_the_run_starts(tmp_path: Path) -> None:
    pytest.importorskip("psycopg", reason="no package psycopg")
    settings = SinkSettings("db", "sql", "postgresql://wiretide@127.0.0.1:1/traffic")
    with pytest.raises(SinkError, match=r"sinks\.db: connection failed.* port 1 failed: Connection refused"):
        Pipeline(tmp_path, FINAL, settings, never)


def test_delta_tables_have_each_change_once(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake", reason="no package deltalake")
    pipeline = Pipeline(tmp_path, CHANGES, SinkSettings("lake", "delta", str(tmp_path / "lake")), never)
    batches = [make_rows(CHANGES, [(1, 10, 5), (3, 10, 7)], [1, 1]), make_rows(CHANGES, [(1, 10, 5)], [-1])]
    for number, rows in enumerate(batches):
        for _ in range(2):
            pipeline.batch(number, rows)
            pipeline.crash()
    table = deltalake.DeltaTable(str(tmp_path / "lake" / "talkers"))
    found = pa.table(table.to_pyarrow_table() if hasattr(table, "to_pyarrow_table") else table.to_arrow())
    rows = zip(*(found[name].to_pylist() for name in ("srcIP", "n", "weight")), strict=True)
    assert sorted(rows) == [("10.0.0.1", 5, -1), ("10.0.0.1", 5, 1), ("10.0.0.3", 7, 1)]
    assert table.version() == 1


def test_an_object_store_has_each_row_once_in_files_that_other_programs_read(object_store: str, tmp_path: Path) -> None:
    """Also after a crash between the object with the rows and the object with the number of the micro-batch."""
    from pyarrow.dataset import dataset
    from pyarrow.fs import S3FileSystem

    store = S3FileSystem(endpoint_override=object_store)
    settings = SinkSettings("lake", "s3", "s3://lake/once/results", conf={"endpoint": object_store})
    pipeline = Pipeline(tmp_path, CHANGES, settings, never)
    batches = [make_rows(CHANGES, [(1, 10, 5), (3, 10, 7)], [1, 1]), make_rows(CHANGES, [(1, 10, 5)], [-1])]
    for number, rows in enumerate(batches):
        pipeline.batch(number, rows)
        if number:
            store.delete_file("lake/once/results/talkers/_batches/run-0")
        pipeline.run = None
        pipeline.crash()
        pipeline.batch(number, rows)
    found = dataset("lake/once/results/talkers", filesystem=store).to_table()
    rows = zip(*(found[name].to_pylist() for name in ("srcIP", "n", "weight")), strict=True)
    assert sorted(rows) == [("10.0.0.1", 5, -1), ("10.0.0.1", 5, 1), ("10.0.0.3", 7, 1)]
    assert store.open_input_stream("lake/once/results/talkers/_batches/run-0").read() == b"1"


def test_a_missing_bucket_ends_the_run_and_a_server_that_is_away_is_tried_again(
    object_store: str, tmp_path: Path
) -> None:
    missing = SinkSettings("lake", "s3", "s3://none/x", conf={"endpoint": object_store})
    with pytest.raises(SinkError, match=r"sinks\.lake: s3://none: no such bucket"):
        Pipeline(tmp_path, FINAL, missing, never)
    target = ObjectFiles("s3://none/x", {"endpoint": object_store})
    with pytest.raises(SinkError, match="NO_SUCH_BUCKET") as refused:
        target.store("run", stored_query(FINAL, reads_spool=False), 1, iter(()))
    assert not isinstance(refused.value, UnreachableError)
    with pytest.raises(UnreachableError, match=r"^s3://lake/x: "):
        ObjectFiles("s3://lake/x", {"endpoint": "http://127.0.0.1:1"}).last_batch(
            "run", stored_query(FINAL, reads_spool=False)
        )


def test_kafka_topics_have_each_row_once_with_the_key_of_its_group(brokers: str, tmp_path: Path) -> None:
    import confluent_kafka

    settings = SinkSettings("bus", "kafka", brokers, prefix="wt-", conf={"log_level": "0"})
    pipeline = Pipeline(tmp_path, FINAL, settings, never)
    for number in (0, 1, 1):
        pipeline.batch(number, make_rows(FINAL, [(1, 10 + 10 * number, 5), (3, 10 + 10 * number, 7)]))
        if number:
            pipeline.crash()
    pipeline.sinks.close()
    conf = {"bootstrap.servers": brokers, "group.id": "reader", "enable.partition.eof": True, "log_level": 0}
    reader = confluent_kafka.Consumer(conf)
    unread = set(reader.list_topics("wt-talkers", timeout=30).topics["wt-talkers"].partitions)
    begin = confluent_kafka.OFFSET_BEGINNING
    reader.assign([confluent_kafka.TopicPartition("wt-talkers", partition, begin) for partition in unread])
    found = []
    while unread:
        message = reader.poll(30)
        if message.error() is None:
            found.append(message)
        else:
            unread.discard(message.partition())
    reader.close()
    rows = [(json.loads(message.key()), json.loads(message.value())) for message in found]
    assert sorted((row["window_end"], row["srcIP"], row["destPort"], row["n"]) for _, row in rows) == [
        (f"1970-01-01T00:00:{end}Z", f"10.0.0.{key}", None if key == 3 else key, n)
        for end in (10, 20)
        for key, n in ((1, 5), (3, 7))
    ]
    assert all(key == [row["window_end"], row["srcIP"], row["destPort"]] for key, row in rows)


def test_a_transaction_of_an_earlier_process_ends_before_the_last_micro_batch_is_read(
    brokers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker could commit it afterwards: a micro-batch would be in the topic twice.

    A real broker ends it when another producer begins; the broker for tests does not, so the test sees the order.
    """
    import confluent_kafka

    calls: list[str] = []

    class Producer(confluent_kafka.Producer):  # type: ignore[misc]
        def init_transactions(self, *arguments: Any) -> None:
            calls.append("end the earlier transaction")
            super().init_transactions(*arguments)

    class Consumer(confluent_kafka.Consumer):  # type: ignore[misc]
        def assign(self, *arguments: Any) -> None:
            calls.append("read")
            super().assign(*arguments)

    monkeypatch.setattr(confluent_kafka, "Producer", Producer)
    monkeypatch.setattr(confluent_kafka, "Consumer", Consumer)
    topics = KafkaTopics(brokers, "ended-", {"log_level": "0"})
    query = stored_query(FINAL, reads_spool=False)
    for batch in (-1, 7):
        assert topics.last_batch("run", query) == batch
        assert calls == ["end the earlier transaction", "read"]
        topics.store("run", query, 7, iter(()))
        topics.close()
        calls.clear()


class HiddenEnd:
    """A consumer of committed messages: an open transaction hides the end of the partition for some time."""

    def __init__(self) -> None:
        self.events = [(0, "3"), (1, None), (1, "4"), (2, None)]

    def assign(self, partitions: list[Any]) -> None:
        assert [one.partition for one in partitions] == [0]

    def poll(self, seconds: float) -> Any:
        if not self.events:
            return None
        offset, value = self.events.pop(0)
        end = SimpleNamespace(code=lambda: -191)  # the end of a partition
        return SimpleNamespace(
            error=lambda: None if value else end,
            offset=lambda: offset,
            partition=lambda: 0,
            key=lambda: b"run/talkers",
            value=lambda: value,
        )


def test_the_last_micro_batch_is_found_behind_an_open_transaction_of_another_run() -> None:
    pytest.importorskip("confluent_kafka", reason="no package confluent-kafka")
    topics = KafkaTopics("127.0.0.1:1", "", {})
    assert topics._read_last(HiddenEnd(), b"run/talkers", {0: 2}) == 4
    with pytest.raises(SinkError, match="topic wiretide-batches: its end cannot be read"):
        topics._read_last(HiddenEnd(), b"run/talkers", {0: 3})


def test_kafka_refuses_names_that_no_topic_has_and_rows_that_no_message_can_contain(
    brokers: str, tmp_path: Path
) -> None:
    settings = SinkSettings("bus", "kafka", brokers, prefix="wt-", conf={"log_level": "0"})
    with pytest.raises(SinkError, match=r"sinks\.bus: topic 'wt-two words': expected 1 to 249 letters of ASCII"):
        Pipeline(tmp_path, compile_query(GROUPS, "two words"), settings, never)
    long = SinkSettings("bus", "kafka", brokers, prefix="long-", conf={"log_level": "0", "message.max.bytes": "1000"})
    pipeline = Pipeline(tmp_path, compile_query(f"SELECT ts, '{'x' * 2000}' AS text FROM a", "talkers"), long, never)
    with pytest.raises(SinkError, match=r"sinks\.bus: .*too large"):
        pipeline.batch(0, pa.table([[5], ["x" * 2000]], schema=pipeline.plan.schema))
    pipeline.sinks.close()


@pytest.mark.parametrize(
    "kind, target, package",
    [("sql", "postgresql://a/b", "psycopg"), ("delta", "lake", "deltalake"), ("kafka", "a:1", "confluent_kafka")],
)
def test_a_missing_package_is_an_error_with_the_command_that_installs_it(
    kind: str, target: str, package: str, monkeypatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, package, None)
    with pytest.raises(SinkError, match=r"needs the package [a-z-]+: pip install 'wiretide\[\w+\]'"):
        Sinks([SinkSettings("x", kind, target)], [], print, never)
