"""Consistency of a query: how long results wait, and how late a row may arrive (CEDR, §1.1).

    WAIT (B)        a window is published when the newest row is this much later than the end of the window
    REMEMBER (M)    a row that is older than the newest row by more than this is late
    EARLY           a window is also published before its end, at most once per this length of time

A CTI of CEDR is a watermark (`highlevel.speculation.lifetimes.model`). A result is final when the watermark has reached
the end of its window. REMEMBER is the disorder that the low level allows: the watermark of a link is the time of its
newest row minus REMEMBER.

The three extreme choices, which CEDR names:

    STRONG    WAIT without limit: only final results, and no corrections
    MIDDLE    WAIT 0: provisional results at once, and corrections until the watermark passes the window
    WEAK      WAIT 0, REMEMBER 0: results at once, and no corrections; each row below the newest one is late
"""

from __future__ import annotations

from capture.lazy_dataclasses import dataclass

FOREVER = 2**62
"""The value of REMEMBER that means no limit, ns: 146 years."""

WEIGHT, FINAL = "weight", "final"
"""Columns after those of the result. WEIGHT: +1 or -1, or a number of larger magnitude for several equal rows. FINAL:
true if no later change of the row follows.
"""


@dataclass(frozen=True, slots=True)
class Consistency:
    """The consistency of a query; all values in ns.

    `wait`: with None results wait for the watermark. `remember`: with None the watermarks of the input are used.
    `early`: with None no result is returned before the end of its window. Raises ValueError for negative values, if
    `wait` is longer than `remember`, and for `early` if `wait` is None.
    """

    wait: int | None = 0
    remember: int | None = None
    early: int | None = None

    def __post_init__(self) -> None:
        """Check the values."""
        for name, value, least in (("wait", self.wait, 0), ("remember", self.remember, 0), ("early", self.early, 1)):
            if value is not None and value < least:
                raise ValueError(f"got {name} {value} ns, expected at least {least}")
        if self.wait is not None and self.remember is not None and self.wait > self.remember:
            raise ValueError(f"got wait {self.wait} ns, expected at most remember {self.remember} ns")
        if self.early is not None and self.wait is None:
            raise ValueError(f"got early {self.early} ns without a limit of wait, expected a wait too")
