"""The types of Spark SQL that columns have in DataFrames."""

from __future__ import annotations

import pyarrow as pa

from lowlevel.expressions.types import Type
from lowlevel.plan import ARROW_TYPES

SPARK_TYPES = {
    Type.INT: "bigint",
    Type.TIME: "bigint",
    Type.FLOAT: "double",
    Type.BOOL: "boolean",
    Type.ADDRESS: "binary",
    Type.TEXT: "string",
    Type.MAC: "binary",
    Type.BYTES: "binary",
}
"""An address is 4 or 16 bytes in network order, a MAC 6."""

_OF_ARROW = {ARROW_TYPES[each]: spelled for each, spelled in SPARK_TYPES.items()}


def columns_of(schema: pa.Schema) -> str:
    """Spell a schema as Spark does."""
    return ", ".join(f"`{field.name}` {_OF_ARROW[field.type]}" for field in schema)
