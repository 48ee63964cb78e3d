"""The columns of stored results, with types that Arrow and Parquet do not have.

An address is text in result files, and bytes in the history of the live page. So both contain a JSON list of the
columns: name, type, and true if a value may be NULL.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

import pyarrow as pa

from highlevel.aggregation import BOUNDS
from highlevel.operators.window_operator import WINDOW_END
from lowlevel.expressions.tree import Column
from lowlevel.expressions.types import Type

COLUMNS_KEY = b"wiretide.columns"
"""The key in the metadata of a Parquet file."""

ROW_KEY = b"wiretide.key"
"""The key of a JSON list with the columns that identify a row; absent if rows have no key."""

TIME_KEY = b"wiretide.time"
"""The metadata key of the name of the time column of changes. By this column readers find the rows of a correction."""


def encode_columns(columns: Iterable[Column]) -> str:
    """Return columns as JSON.

    >>> encode_columns([Column("srcIP", Type.ADDRESS), Column("n", Type.INT, nullable=True)])
    '[["srcIP", "address", false], ["n", "integer", true]]'
    """
    return json.dumps([[column.name, column.type, column.nullable] for column in columns])


def decode_columns(text: str | bytes) -> tuple[Column, ...]:
    """Return the columns of a JSON text. Raises ValueError for another text.

    >>> decode_columns('[["n", "integer", true]]')
    (Column(name='n', type=<Type.INT: 'integer'>, nullable=True, bits=64),)
    """
    try:
        return tuple(Column(name, Type(kind), bool(nullable)) for name, kind, nullable in json.loads(text))
    except TypeError as error:
        raise ValueError(f"got {text!r}, expected a list of columns") from error


def times_of(columns: Iterable[Column]) -> tuple[str, ...]:
    """Return the time columns that windows over stored results can use. The first is the default.

    >>> times_of([Column(name, Type.TIME) for name in ("first", "window_start", "window_end")])
    ('window_end', 'window_start', 'first')
    """
    times = [column.name for column in columns if column.type is Type.TIME and not column.nullable]
    return tuple(sorted(times, key=lambda name: (name not in BOUNDS, name)))


def with_columns(
    rows: pa.Table, columns: Iterable[Column], time: str | None = None, key: Sequence[str] = ()
) -> pa.Table:
    """Return rows whose schema contains the columns of the result, for a Parquet file.

    `time`: the time column of changes; None for other results. `key`: the columns that identify a row.
    """
    metadata: dict[bytes, str] = {COLUMNS_KEY: encode_columns(columns)}
    if time is not None:
        metadata[TIME_KEY] = time
    if key:
        metadata[ROW_KEY] = json.dumps(list(key))
    return rows.replace_schema_metadata(metadata)


def key_of_rows(schema: pa.Schema) -> tuple[str, ...]:
    """Return the columns that identify a row of a file of results; none if rows have no key.

    >>> key_of_rows(with_columns(pa.table({"n": [1]}), [], key=["n"]).schema)
    ('n',)
    """
    return tuple(json.loads((schema.metadata or {}).get(ROW_KEY, b"[]")))


def time_of(schema: pa.Schema) -> str:
    """Return the name of the time column that the metadata of a file contain, otherwise `window_end`.

    >>> time_of(with_columns(pa.table({"ts": [1]}), [Column("ts", Type.TIME)], "ts").schema)
    'ts'
    """
    return (schema.metadata or {}).get(TIME_KEY, WINDOW_END.encode()).decode()
