"""The IP layers of a packet; light, so that the command line can name them before it loads anything."""

from __future__ import annotations

from enum import StrEnum


class Layer(StrEnum):
    """Which IP header a plain name means: the outermost, or the innermost reached through known tunnels."""

    OUTER = "outer"
    INNER = "inner"
