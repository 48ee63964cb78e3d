"""The IP layers of a packet. Help texts of the command line list them, so this module imports nothing heavy."""

from __future__ import annotations

from enum import StrEnum


class Layer(StrEnum):
    """The IP header of plain column names: the outermost, or the innermost inside known tunnels."""

    OUTER = "outer"
    INNER = "inner"


def check_layer(layer: str) -> None:
    """Raise ValueError for text that is not a layer."""
    if layer not in list(Layer):
        raise ValueError(f"got the layer {layer!r}, expected one of {', '.join(Layer)}")
