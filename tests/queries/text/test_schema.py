"""Schemas as text: columns with inheritance and temporal attributes, and a table of wrong schemas.

It can catch an inherited column that is lost, a band in the wrong unit, and a message without position or choices.
"""

import pytest

from lowlevel.expressions.types import Type
from queries.text.errors import QueryError
from queries.text.schema import COLUMN_TYPES, parse_schema

SECOND = 10**9

# A schema with « before the position of the error, then parts of the message.
WRONG = [
    ("«", "got the end of the query", "PROTOCOL"),
    ("«PROTOCL a { INT b; }", "got 'PROTOCL'", "valid: PROTOCOL"),
    ("PROTOCOL «{ INT b; }", "the name of a protocol"),
    ("PROTOCOL a «INT b;", "'{' after the name"),
    ("PROTOCOL a «{ INT b;", "never closed"),
    ("PROTOCOL «a { }", "has no columns"),
    ("PROTOCOL a { «UNIT b; }", "unknown type 'UNIT'", "valid: UINT"),
    ("PROTOCOL a { INT «; }", "the name of a column of type INT"),
    ("PROTOCOL a { INT b «}", "';' after a column"),
    ("PROTOCOL a { INT b; INT «B; }", "a second column 'B'"),
    ("PROTOCOL a { INT b; } PROTOCOL c («d) { INT e; }", "unknown protocol 'd'", "valid: a"),
    ("PROTOCOL a { INT b; } PROTOCOL c (a) { INT «b; }", "a second column 'b'", "of the bases"),
    ("PROTOCOL a { INT b; } PROTOCOL c { TEXT d; }".replace("TEXT", "«TEXT"), "unknown type 'TEXT'"),
    ("PROTOCOL a { INT x; } PROTOCOL b { FLOAT x; } PROTOCOL c (a, «b) { INT d; }", "a second column 'x'"),
    ("PROTOCOL a { INT b; } PROTOCOL «A { INT c; }", "already means a protocol"),
    ("PROTOCOL «packets { INT c; }", "already means a kind of rows"),
    ("PROTOCOL a { TIME t («increasin); }", "unknown attribute 'increasin'", "valid: increasing"),
    ("PROTOCOL a { INT t («increasing); }", "increasing of a column of type integer", "type TIME"),
    ("PROTOCOL a { TIME t (banded_increasing«); }", "'(' after banded_increasing"),
    ("PROTOCOL a { TIME t (banded_increasing(«)); }", "a length of time"),
    ("PROTOCOL a { TIME t (banded_increasing(5 «weeks)); }", "unknown unit 'weeks'", "seconds"),
    ("PROTOCOL a { TIME t (banded_increasing(«0)); }", "a duration of 0"),
    ("PROTOCOL a { TIME t (banded_increasing(«-1)); }", "got '-'"),
    ("PROTOCOL a { TIME t (increasing, «constant); }", "a second attribute 'constant'", "one order in time, and key"),
    ("PROTOCOL a { INT t (key, «key); }", "a second attribute 'key'"),
    ("PROTOCOL a { INT t (key «constant); }", "')' after the attributes"),
    ("PROTOCOL a { INT t (key, «); }", "unknown attribute ')'", "valid: increasing, banded_increasing, constant, key"),
    ("PROTOCOL a { «INT ts; }", "got the type INT of the column ts", "TIME"),
    ("PROTOCOL a { «INT link; }", "STRING"),
    ("PROTOCOL a { INT b; } «SELECT b FROM a", "got 'SELECT'", "PROTOCOL"),
]


@pytest.mark.parametrize(("marked", "parts"), [(case[0], case[1:]) for case in WRONG])
def test_a_wrong_schema_has_an_error_at_its_position(marked: str, parts: tuple[str, ...]) -> None:
    with pytest.raises(QueryError) as error:
        parse_schema(marked.replace("«", ""))
    assert all(part in str(error.value) for part in parts), str(error.value)
    assert error.value.position == marked.index("«")


def test_a_protocol_has_the_columns_of_its_bases_first() -> None:
    protocols = parse_schema(
        "PROTOCOL base { TIME ts (increasing); } -- a comment\n"
        "PROTOCOL left_ (base) { INT a; }; PROTOCOL right_ (base) { TIME end (banded_increasing(1.5 minutes)); }"
        'PROTOCOL both (left_, right_) { STRING "site name" (constant); }'
    )
    both = protocols["both"]
    assert [(column.name, column.slack_ns) for column in both.columns] == [
        ("ts", 0),
        ("a", None),
        ("end", 90 * SECOND),
        ("site name", None),
    ]
    assert both.times == ("ts", "end")


def test_columns_of_a_key() -> None:
    text = "PROTOCOL base { INT id (key); } PROTOCOL a (base) { TIME ts (key, increasing); STRING host (constant); }"
    columns = parse_schema(text)["a"].columns
    assert [(column.name, column.slack_ns, column.is_key) for column in columns] == [
        *(("id", None, True), ("ts", 0, True)),
        ("host", None, False),
    ]


def test_types_have_their_ranges_and_a_band_without_unit_counts_seconds() -> None:
    text = " ".join(f"{word} c{number};" for number, word in enumerate(COLUMN_TYPES))
    columns = {column.type_name: column for column in parse_schema(f"PROTOCOL a {{ {text} }}")["a"].columns}
    assert {word: (column.minimum, column.maximum) for word, column in columns.items() if column.maximum} == {
        "USHORT": (0, 65535),
        "UINT": (0, 2**32 - 1),
        "INT": (-(2**31), 2**31 - 1),
    }
    assert {column.type for column in columns.values()} == set(Type) - {Type.BYTES}
    column = parse_schema("PROTOCOL a { TIME b (banded_increasing(7)); TIME c; }")["a"]
    assert (column.columns[0].slack_ns, column.times) == (7 * SECOND, ("b", "c"))
