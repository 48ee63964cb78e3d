"""Lines of JSON as rows. The reference reads each line alone with the module json of Python.

The tests detect an object in two lines that is read as a row, two objects in one line that are read as two rows, a
`null` that ends the process, and a wrong line that is left out.
"""

import json
from random import Random

import pyarrow as pa
import pytest

from highlevel.inline.json_lines import parse_line, read_objects, split_lines
from tests.conftest import Rounds

SCHEMA = pa.schema([("name", pa.string()), ("n", pa.int64())])
PARTS = [
    '{"name":"a"',
    ',"n":1',
    "}",
    "{}",
    "null",
    " ",
    '{"name":"}null{","n":2}',
    "\t",
    ",",
    "[1]",
    '"x"',
    '{"o":{}}',
]


def rows_of(text: str) -> list[tuple] | None:
    """The rows of a text, None if a line is not one object."""
    rows = []
    for line in text.split("\n"):
        try:
            value = json.loads(line) if line.strip() else {"is_empty": True}
        except ValueError:
            return None
        if not isinstance(value, dict):
            return None
        if "is_empty" not in value:
            rows.append((value.get("name"), value.get("n")))
    return rows


def read(text: bytes) -> list[tuple] | None:
    try:
        batches = list(read_objects(split_lines(text), SCHEMA))
    except ValueError:
        return None
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def test_rows_are_those_of_each_line_alone(rounds: Rounds) -> None:
    accepted = 0
    for seed in rounds(3000):
        random = Random(f"lines {seed}")
        good = ["{}", '{"name":"a","n":1}', ' {"name":"}null{","n":2}\r', "", '{"o":{}}']
        lines = random.choices(good, k=random.randrange(4))
        if random.random() < 0.8:
            parts = [*PARTS, "\n"]
            lines.insert(random.randrange(len(lines) + 1), "".join(random.choices(parts, k=random.randrange(1, 6))))
        text = "\n".join(lines)
        expected = rows_of(text)
        accepted += expected is not None
        assert read(text.encode()) == expected, (seed, text)
    assert accepted


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (b"null\n{}", "null"),
        (b'{"name":"a",\n"n":2}', '{"name":"a",'),
        (b'{"name":"a"}{"n":2}', '{"name":"a"}{"n":2}'),
        (b"{}\n\xff", r"\xff"),
        (b'{"name":"a"}null{"name":"' + b"b" * 60 + b'"}', '{"name":"a"}null{"name":"' + "b" * 35 + "…"),
    ],
)
def test_the_error_shows_the_wrong_line(text: bytes, shown: str) -> None:
    with pytest.raises(ValueError, match="expected one JSON object in each line") as raised:
        list(read_objects(split_lines(text), SCHEMA))
    assert str(raised.value).startswith(f"got the line {shown}, expected")


def test_many_levels_are_no_crash() -> None:
    nested = b'{"name":"a","o":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    assert read(nested) == [("a", None)]
    with pytest.raises(ValueError, match="too many levels"):
        parse_line(nested)
