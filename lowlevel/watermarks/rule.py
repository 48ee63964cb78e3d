"""Watermark rules, as users write them. A rule states in which order the rows of a link arrive.

exact                the watermarks that the source declares: from the scan of a file, and at its end
ordered              no row is older than a row that arrived before it
late 2s              no row is more than 2 s older than the newest row before it
late 100 rows        at most 100 newer rows arrive before a row
exported 15s late 5m a flow record is exported at most 15 s after its end, so sequence numbers show which records have
arrived; and no row is more than 5 min older than the newest row before it
blocks               no row of a file of a followed folder is older than a row of an earlier file
blocks 1m            no row of an earlier minute (since the epoch) arrives after a row of a later minute
"""

from __future__ import annotations

import re
from enum import StrEnum

from capture.lazy_dataclasses import dataclass
from lowlevel.durations import parse_duration
from lowlevel.watermarks.generators import (
    BlockWatermark,
    ExactWatermark,
    LateByExport,
    LateByRows,
    LateByTime,
    OrderedWatermark,
    WatermarkGenerator,
)
from lowlevel.watermarks.idle import IdleWatermark
from lowlevel.watermarks.jumps import JUMP, MIN_JUMP, JumpGuard

CHOICES = (
    "exact, ordered, late TIME (late 2s), late N rows (late 100 rows), exported TIME late TIME (exported 15s late 5m), "
    "blocks, blocks TIME (blocks 1m)"
)

_ROWS = r"([0-9]{1,18})\s*rows?"


class Kind(StrEnum):
    """Kinds of rules."""

    EXACT = "exact"
    ORDERED = "ordered"
    LATE_BY_TIME = "late by time"
    LATE_BY_ROWS = "late by rows"
    BLOCKS = "blocks"


@dataclass(frozen=True, slots=True)
class WatermarkRule:
    """One rule.

    * `amount`: ns or rows; None if the kind has no amount. `lull`: the idle threshold in ns, or None.
    * `export_delay`: for LATE_BY_TIME, the time in ns after which a flow record is exported at the latest, or None.
    * `jump`: a row more than `jump` ns ahead is accepted only if other rows agree (`lowlevel.watermarks.jumps`).

    Raises ValueError if `amount` does not fit `kind`.
    """

    kind: Kind = Kind.EXACT
    amount: int | None = None
    lull: int | None = None
    jump: int = JUMP
    export_delay: int | None = None

    def __post_init__(self) -> None:
        """Check that the amount fits the kind."""
        needed = self.kind in (Kind.LATE_BY_TIME, Kind.LATE_BY_ROWS)
        if self.amount is None if needed else self.amount is not None and self.kind is not Kind.BLOCKS:
            raise ValueError(f"got {self.amount} as the amount of {self.kind}, expected {'one' if needed else 'none'}")
        self.make()

    @property
    def needs_rows(self) -> bool:
        """True if the watermark depends on rows or on idle times. Otherwise the generator does not need the rows."""
        return self.kind is not Kind.EXACT or self.lull is not None

    def make(self) -> WatermarkGenerator:
        """Return a new generator of this rule, for one kind of rows on one link."""
        generator = self._generator()
        return generator if self.lull is None else IdleWatermark(generator, self.lull)

    def _generator(self) -> WatermarkGenerator:
        match self.kind:
            case Kind.ORDERED:
                return OrderedWatermark(jump=self.jump)
            case Kind.LATE_BY_TIME if self.export_delay is not None:
                return LateByExport(min(self.export_delay, self.amount or 0), self.amount or 0, jump=self.jump)
            case Kind.LATE_BY_TIME:
                return LateByTime(self.amount or 0, jump=self.jump)
            case Kind.LATE_BY_ROWS:
                return LateByRows(self.amount or 0, jump=self.jump)
            case Kind.BLOCKS:
                return BlockWatermark(self.amount, jump=self.jump)
        return ExactWatermark(JumpGuard(self.jump, self.jump))


EXACT = WatermarkRule()
"""The default rule."""


def parse_rule(text: str, lull: str | int | None = None, jump: str | None = None) -> WatermarkRule:
    """Parse a rule. `lull` is a duration or ns, `jump` a duration. Raises ValueError with a list of the choices.

    >>> rule = parse_rule("late 2s", lull="5s")
    >>> rule.kind, rule.amount, rule.lull, rule.jump
    (<Kind.LATE_BY_TIME: 'late by time'>, 2000000000, 5000000000, 3600000000000)
    """
    lull_and_jump = (parse_lull(lull) if isinstance(lull, str) else lull, JUMP if jump is None else parse_jump(jump))
    word, _, amount = text.strip().lower().partition(" ")
    amount = amount.strip()
    try:
        match word:
            case "exact" | "ordered" if not amount:
                return WatermarkRule(Kind(word), None, *lull_and_jump)
            case "late" if rows := re.fullmatch(_ROWS, amount):
                return WatermarkRule(Kind.LATE_BY_ROWS, int(rows[1]), *lull_and_jump)
            case "exported" if " late " in amount:
                exported, late = map(parse_duration, amount.split(" late "))
                if exported > late:
                    raise ValueError("a record cannot be exported later than it may be late")
                return WatermarkRule(Kind.LATE_BY_TIME, late, *lull_and_jump, exported)
            case "late" if amount:
                return WatermarkRule(Kind.LATE_BY_TIME, parse_duration(amount), *lull_and_jump)
            case "blocks":
                return WatermarkRule(Kind.BLOCKS, parse_duration(amount) if amount else None, *lull_and_jump)
    except ValueError as error:
        raise ValueError(f"the promise {text!r}: {error}; the choices are {CHOICES}") from error
    raise ValueError(f"got the promise {text!r}, expected one of {CHOICES}")


def parse_lull(text: str) -> int:
    """Parse the idle threshold into ns. Raises ValueError for text that is not a duration.

    >>> parse_lull("5s")
    5000000000
    """
    try:
        return parse_duration(text)
    except ValueError as error:
        raise ValueError(f"got a lull of {text!r}: {error}") from error


def parse_jump(text: str) -> int:
    """Parse a clock jump into ns. Raises ValueError for text that is not a duration, and for less than 1 s.

    >>> parse_jump("10m")
    600000000000
    """
    try:
        jump = parse_duration(text)
    except ValueError as error:
        raise ValueError(f"got a clock jump of {text!r}: {error}") from error
    if jump < MIN_JUMP:
        raise ValueError(f"got a clock jump of {text!r}, expected at least 1s: ordinary pauses are not wrong clocks")
    return jump
