"""The types of Spark SQL that columns have in DataFrames."""

from __future__ import annotations

from lowlevel.expressions import Type

SPARK_TYPES = {
    Type.INT: "bigint",
    Type.FLOAT: "double",
    Type.BOOL: "boolean",
    Type.ADDRESS: "binary",
    Type.TEXT: "string",
    Type.MAC: "binary",
    Type.BYTES: "binary",
}
"""An address is 4 or 16 bytes in network order, a MAC 6."""
