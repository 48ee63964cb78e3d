"""How much a decoder of flow exports remembers at most: what a sender can make it remember is bounded."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class Bounds:
    """Numbers are of things, or bytes where they say so. ValueError where one is below 1."""

    sessions: int = 4096
    """Sessions; beyond them the one that was silent longest is forgotten, with all that belongs to it."""
    session_templates: int = 1024
    """Templates of one session; a new one evicts the one that was announced longest ago."""
    templates: int = 16_384
    """Templates of all sessions; a new one evicts the one that was announced longest ago."""
    session_waiting_bytes: int = 1 << 18
    """Bytes of data of one session that waits for its template; beyond them the oldest is dropped."""
    waiting_bytes: int = 1 << 24
    """Bytes of data of all sessions that waits; beyond them the oldest is dropped."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if value < 1:
                raise ValueError(f"{each.name}: got {value}, expected at least 1")
