"""Messages of a topic as rows, in random divisions into batches.

The tests detect a message whose rows depend on the messages around it, a message that is neither a row nor wrong, and
a wrong message that ends the process.
"""

from random import Random

import pytest

from capture.topics import Topic
from highlevel.inline import topic_rows
from highlevel.inline.table_files import FileStream
from highlevel.inline.topic_rows import TopicPartition
from queries.text.schema import parse_schema
from tests.conftest import Rounds

ROW = b'{"name":"a","n":1}'
EVENT = b'{"op":"c","before":null,"after":{"name":"e","n":2}}'
UPDATE = b'{"op":"u","before":{"name":"f","n":3},"after":{"name":"g","n":4}}'
ONE_LINE = "expected one JSON object in each line"

MESSAGES = {
    ROW: [("a", 1)],
    b'{"op":"c","n":7}': [(None, 7)],
    EVENT: [("e", 2)],
    UPDATE: [("f", 3), ("g", 4)],
    b'{"payload":%b,"schema":null}' % EVENT: [("e", 2)],
    b'{"payload":null,"schema":null}': [],
    b" null ": [],
    b'{"n":1,"o":{"payload":null}}': [(None, 1)],
    b'{"schema":{"payload":null},"payload":5}': [(None, None)],
    None: [],
    b'\n{\n"n": 5}': [(None, 5)],
    b"": topic_rows.EMPTY,
    b" \n": topic_rows.EMPTY,
    b'{"name":"a",': ONE_LINE,
    b'"n":2}': ONE_LINE,
    ROW + ROW: ONE_LINE,
    ROW + b"\n" + ROW: ONE_LINE,
    ROW + b"null" + ROW: ONE_LINE,
    ROW + b"}": "JSON parse error",
    b"[1]": ONE_LINE,
    b"1": ONE_LINE,
    b"\xff": ONE_LINE,
    b'{"name":"\xff"}': r"column name: got b'\xff', expected text in UTF-8",
    b'{"n":-1}': "column n: got -1, expected UINT",
    b'{"op":"x","before":null,"after":null}': "got an event with the operation 'x'",
}
"""Messages, and their rows or the reason why they are wrong."""


def test_each_message_has_its_rows_or_a_reason_in_any_division(rounds: Rounds, monkeypatch: pytest.MonkeyPatch) -> None:
    protocol = parse_schema("PROTOCOL l { STRING name; UINT n; }")["l"]
    stream = FileStream.make("l", (), protocol.columns, protocol.times, [])
    partition = TopicPartition(stream, Topic("t", "b:1"), 0)
    for seed in rounds(150):
        random = Random(f"messages {seed}")
        chosen = random.sample([*MESSAGES], random.randint(1, 6))
        messages = list(enumerate(random.choices(chosen, k=random.randrange(1, 15)), 100))
        monkeypatch.setattr(topic_rows, "BATCH_ROWS", random.choice([1, 3, 100]))
        batches = list(partition.batches(messages))
        assert sum(batch.message_count for batch in batches) == len(messages)
        rows = [tuple(row.values()) for batch in batches if batch.rows for row in batch.rows.to_pylist()]
        expected = [MESSAGES[value] for _, value in messages]
        assert rows == [row for each in expected if isinstance(each, list) for row in each], seed
        wrong = [pair for batch in batches for pair in batch.wrong_messages]
        reasons = [(offset, MESSAGES[value]) for offset, value in messages if isinstance(MESSAGES[value], str)]
        assert [offset for offset, _ in wrong] == [offset for offset, _ in reasons], seed
        assert all(expected in reason for (_, reason), (_, expected) in zip(wrong, reasons, strict=True)), (seed, wrong)
