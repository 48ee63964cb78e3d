"""What is known of the order of a link's rows, as people write it, and the promise that can be made of it.

exact                what the source declares: a file's scan, and the end
ordered              no row is older than one before it
late 2s              no row is more than 2 s older than the newest before it
late 100 rows        no more than 100 newer rows come before a row
blocks               each file of a followed folder is wholly after the one before it
blocks 1m            the same of the minutes of the epoch
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from lowlevel.durations import parse_duration
from lowlevel.promises.guard import JUMP, LEAST_JUMP, Guard
from lowlevel.promises.lull import Lull
from lowlevel.promises.promise import Blocks, Exact, LateByRows, LateByTime, Ordered, Promise

CHOICES = "exact, ordered, late TIME (late 2s), late N rows (late 100 rows), blocks, blocks TIME (blocks 1m)"

_ROWS = re.compile(r"(\d{1,18})\s*rows?", re.ASCII)


class Kind(StrEnum):
    """Kinds of knowledge."""

    EXACT = "exact"
    ORDERED = "ordered"
    LATE_BY_TIME = "late by time"
    LATE_BY_ROWS = "late by rows"
    BLOCKS = "blocks"


@dataclass(frozen=True, slots=True)
class Knowledge:
    """One kind of knowledge, its `amount` (ns, or rows; None where it has none), and the `lull` threshold (ns), if any.

    A row more than `jump` (ns) ahead of the link is not believed before others agree (`lowlevel.promises.guard`).
    Checked when it is made: ValueError.
    """

    kind: Kind = Kind.EXACT
    amount: int | None = None
    lull: int | None = None
    jump: int = JUMP

    def __post_init__(self) -> None:
        """Refuse what no promise can be made of."""
        needed = self.kind in (Kind.LATE_BY_TIME, Kind.LATE_BY_ROWS)
        if self.amount is None if needed else self.amount is not None and self.kind is not Kind.BLOCKS:
            raise ValueError(f"got {self.amount} as the amount of {self.kind}, expected {'one' if needed else 'none'}")
        self.make()

    @property
    def by_rows(self) -> bool:
        """Whether rows move the promise, or silence after them does; otherwise they need not be followed."""
        return self.kind is not Kind.EXACT or self.lull is not None

    def make(self) -> Promise:
        """Make the promise of one kind of rows on one link."""
        promise = self._without_lull()
        return promise if self.lull is None else Lull(promise, self.lull)

    def _without_lull(self) -> Promise:
        match self.kind:
            case Kind.ORDERED:
                return Ordered(jump=self.jump)
            case Kind.LATE_BY_TIME:
                return LateByTime(self.amount or 0, jump=self.jump)
            case Kind.LATE_BY_ROWS:
                return LateByRows(self.amount or 0, jump=self.jump)
            case Kind.BLOCKS:
                return Blocks(self.amount, jump=self.jump)
        return Exact(Guard(self.jump, self.jump))


EXACT = Knowledge()
"""What is known of a link of which nothing was said."""


def parse_knowledge(text: str, lull: str | int | None = None, jump: str | None = None) -> Knowledge:
    """Read a kind of knowledge; `lull` is a duration, or ns, `jump` one too. Raises ValueError that lists the choices.

    >>> parse_knowledge("late 2s", lull="5s")
    Knowledge(kind=<Kind.LATE_BY_TIME: 'late by time'>, amount=2000000000, lull=5000000000, jump=3600000000000)
    """
    beside = (parse_lull(lull) if isinstance(lull, str) else lull, JUMP if jump is None else parse_jump(jump))
    word, _, rest = text.strip().lower().partition(" ")
    rest = rest.strip()
    try:
        match word:
            case "exact" | "ordered" if not rest:
                return Knowledge(Kind(word), None, *beside)
            case "late" if rows := _ROWS.fullmatch(rest):
                return Knowledge(Kind.LATE_BY_ROWS, int(rows[1]), *beside)
            case "late" if rest:
                return Knowledge(Kind.LATE_BY_TIME, parse_duration(rest), *beside)
            case "blocks":
                return Knowledge(Kind.BLOCKS, parse_duration(rest) if rest else None, *beside)
    except ValueError as error:
        raise ValueError(f"the promise {text!r}: {error}; the choices are {CHOICES}") from error
    raise ValueError(f"got the promise {text!r}, expected one of {CHOICES}")


def parse_lull(text: str) -> int:
    """Read the threshold of lulls in ns. Raises ValueError.

    >>> parse_lull("5s")
    5000000000
    """
    try:
        return parse_duration(text)
    except ValueError as error:
        raise ValueError(f"got a lull of {text!r}: {error}") from error


def parse_jump(text: str) -> int:
    """Read how far ahead of its link a row may be and is believed, ns. Raises ValueError, for less than 1 s too.

    >>> parse_jump("10m")
    600000000000
    """
    try:
        jump = parse_duration(text)
    except ValueError as error:
        raise ValueError(f"got a clock jump of {text!r}: {error}") from error
    if jump < LEAST_JUMP:
        raise ValueError(f"got a clock jump of {text!r}, expected at least 1s: ordinary pauses are no wrong clocks")
    return jump
