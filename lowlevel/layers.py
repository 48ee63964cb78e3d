"""The IP layers of a packet. Help texts of the command line list them, so this module imports nothing heavy."""

from __future__ import annotations

from enum import StrEnum


class Layer(StrEnum):
    """The IP header of plain column names: the outermost, or the innermost inside known tunnels."""

    OUTER = "outer"
    INNER = "inner"
