"""Lines of JSON, each with one object, as batches of Arrow.

Arrow reads the objects of a text without regard to its lines. So an object in two lines would be a row, two objects in
one line would be two rows, and some texts with a `null` outside of an object crash the process. Therefore each line
must begin with `{` and end with `}`, and the number of rows must be the number of lines:

    outside of strings, JSON has a `{` after a `}` only if the `}` ends the outermost object
    a string contains no newline
    so an object ends at the end of each line, and each line has one object if there are as many objects as lines
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

SPACES = b" \t\r"

BOM = b"\xef\xbb\xbf"
"""The mark of UTF-8 at the beginning of a file."""

OUTER_NULL = re.compile(rb"\}\s*null")
"""A `null` after an object. Inside a string it has no effect."""

SHOWN_BYTES = 60
"""Bytes of a wrong line in messages."""


def split_lines(text: bytes) -> list[bytes]:
    """Return the lines of a text that are not empty, without spaces around them."""
    lines = (line.strip(SPACES) for line in text.removeprefix(BOM).split(b"\n"))
    return [line for line in lines if line]


def read_objects(lines: Sequence[bytes], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the values of lines with the columns of `schema`: one row for each line, in batches of any size.

    Other values of an object are ignored, and missing values are NULL. Raises ValueError for a line that is not one
    object, or has a value of another type.
    """
    from pyarrow import json as arrow_json

    if not lines:
        return
    for line in lines:
        if line[:1] != b"{" or line[-1:] != b"}" or (OUTER_NULL.search(line) and not _is_object(line)):
            raise _make_error(line)
    text = b"\n".join(lines)
    table = arrow_json.read_json(
        pa.BufferReader(text),
        arrow_json.ReadOptions(block_size=len(text) + 1),
        arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
    )
    if table.num_rows != len(lines):
        raise _make_error(next((line for line in lines if not _is_object(line)), text))
    yield from table.to_batches()


def parse_line(line: bytes) -> Any:
    """Return the value of a line. Raises ValueError for a line that is not JSON, or has thousands of levels."""
    try:
        return json.loads(line)
    except RecursionError:
        raise ValueError("got too many levels of objects and lists") from None


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(parse_line(line), dict)
    except ValueError:
        return False


def _make_error(line: bytes) -> ValueError:
    shown = line[:SHOWN_BYTES].decode(errors="backslashreplace") + ("…" if len(line) > SHOWN_BYTES else "")
    return ValueError(f"got the line {shown}, expected one JSON object in each line")
