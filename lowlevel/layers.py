"""The IP layers of a packet. This module imports no large library, because help texts of the command line use it."""

from __future__ import annotations

from enum import StrEnum


class Layer(StrEnum):
    """The IP header to which column names without a prefix refer: the outermost, or the innermost in known tunnels."""

    OUTER = "outer"
    INNER = "inner"


def check_layer(layer: str) -> None:
    """Raise ValueError for text that is not a layer."""
    if layer not in list(Layer):
        raise ValueError(f"got the layer {layer!r}, expected one of {', '.join(Layer)}")
