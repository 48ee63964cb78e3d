"""Envelopes of Debezium as tables: random change logs are written as envelopes and read as rows.

The tests detect an update that is one row only, a row of the wrong side, a line without a row that is counted, and an
event whose row is missing.
"""

import json
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from capture.errors import InputError
from highlevel.inline.table_sources import open_source, read_batches
from tests.conftest import Rounds

SCHEMA = pa.schema([("ts", pa.int64()), ("host", pa.string()), ("op", pa.string())])
SOURCE = {"connector": "postgresql", "table": "log", "ts_ms": 7}


def events_of(random: Random) -> list[dict]:
    """Random events; each has a source and a time."""
    events = []
    for number in range(random.randint(1, 12)):
        operation = random.choice("crud")
        rows = [{"ts": number, "host": random.choice(["a", "b", None])} for _ in range(2)]
        before, after = (rows[0] if operation in "ud" else None), (rows[1] if operation in "cru" else None)
        events.append({"before": before, "after": after, "source": SOURCE, "op": operation, "ts_ms": number})
    return events


def rows_of(events: list[dict]) -> list[tuple]:
    """The rows by the rules of the operations, one event at a time."""
    rows = []
    for event in events:
        operation, before, after = event["op"], event["before"], event["after"]
        if operation in ("u", "d"):
            rows.append((before["ts"], before["host"], "d"))
        if operation != "d":
            rows.append((after["ts"], after["host"], "r" if operation == "r" else "c"))
    return rows


def random_tombstone(seed: object) -> str:
    return Random(f"tombstone {seed}").choice(["null", '{"schema": null, "payload": null}', ""])


def read(source: Path | pa.Table, schema: pa.Schema = SCHEMA) -> list[tuple]:
    with open_source(source, schema) as opened:
        positions = [opened.names.index(name) for name in schema.names]
        batches = [batch for _, batch in read_batches(source, opened, 0)]
        return [row for batch in batches for row in zip(*(batch.column(at).to_pylist() for at in positions))]  # noqa: B905


@pytest.mark.parametrize("form", ["lines", "lines with schemas", "parquet", "arrow", "table"])
def test_the_rows_are_those_of_the_events(rounds: Rounds, form: str, tmp_path: Path) -> None:
    for seed in rounds(40):
        events = events_of(Random(f"envelopes {seed}"))
        path: Path | pa.Table
        if form.startswith("lines"):
            path = tmp_path / "log.jsonl"
            wrapped = events if form == "lines" else [{"schema": {}, "payload": event} for event in events]
            path.write_text("null\n" + "".join(f"{json.dumps(line)}\n{random_tombstone(seed)}\n" for line in wrapped))
        else:
            row = pa.struct([("ts", pa.int64()), ("host", pa.string())])
            fields = [("before", row), ("after", row), ("op", pa.string()), ("ts_ms", pa.int64())]
            path = table = pa.Table.from_pylist(events, pa.schema(fields))
            if form == "parquet":
                path = tmp_path / "log.parquet"
                pq.write_table(table, path)
            elif form == "arrow":
                path = tmp_path / "log.arrow"
                with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
                    writer.write_table(table)
        assert read(path) == rows_of(events), seed
        times = read(path, pa.schema([("op", pa.string()), ("ts_ms", pa.int64()), ("ts", pa.int64())]))
        assert all(time == ts for _, time, ts in times), seed


@pytest.mark.parametrize("operation", ["c", "d"])
def test_a_table_in_memory_whose_events_have_no_row_of_one_side(operation: str) -> None:
    """Such a column has the type null."""
    row = {"ts": 5, "host": "a"}
    events = [
        {"op": operation, "before": row if operation == "d" else None, "after": row if operation == "c" else None}
    ]
    assert read(pa.Table.from_pylist(events)) == [(5, "a", operation)]


ROW = {"ts": 1, "host": "a"}
WRONG = [
    ({"op": "u", "before": None, "after": ROW}, "got an event 'u' without the row 'before', expected the whole row"),
    ({"op": "d", "before": None, "after": None}, "got an event 'd' without the row 'before'"),
    ({"op": "c", "before": None, "after": None}, "got an event 'c' without the row 'after'"),
    ({"op": "t", "before": None, "after": None}, "got an event with the operation 't', expected one of c, r, u, d"),
    ({"op": None, "before": None, "after": ROW}, "got an event with the operation None"),
]


@pytest.mark.parametrize(("event", "message"), WRONG, ids=[message for _, message in WRONG])
def test_events_that_cannot_be_read_are_errors(event: dict, message: str, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps(event))
    with pytest.raises(InputError, match=f"log.jsonl: cannot be read further: {message}"):
        read(path)


EVENT = {"op": "c", "before": None, "after": ROW}
MIXED = [
    ([EVENT, ROW], "got an event with the operation None, expected one of c, r, u, d"),
    ([EVENT, {"payload": EVENT}], "got an event with the operation None"),
    ([{"payload": EVENT}, EVENT], "got an event with the operation None"),
    ([{"payload": EVENT}, {"payload": {"status": "BEGIN"}}], "got an event with the operation None"),
    ([EVENT, {}], "got an event with the operation None"),
    ([ROW, EVENT], "got an event of Debezium, expected a row as in the first line"),
    ([ROW, {"payload": EVENT}], "got an event of Debezium, expected a row as in the first line"),
    ([ROW, None], "got the line null, expected one JSON object in each line"),
]


@pytest.mark.parametrize(("lines", "message"), MIXED)
def test_files_of_rows_and_events_are_errors(lines: list, message: str, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    with pytest.raises(InputError, match=f"log.jsonl: cannot be read further: {message}"):
        read(path)


def test_columns_that_are_called_before_and_after_are_columns(tmp_path: Path) -> None:
    """A schema with these columns reads rows, and no envelopes."""
    path = tmp_path / "log.jsonl"
    path.write_text('{"op": "c", "before": "x", "after": "y"}\n')
    assert read(path, pa.schema([(name, pa.string()) for name in ("op", "before", "after")])) == [("c", "x", "y")]
