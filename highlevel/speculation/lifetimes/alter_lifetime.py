"""AlterLifetime: gives rows other lifetimes. Windows are lifetimes of this kind (Goldstein et al., CEDR, §3).

    length      start          end             a window
    Last        vs + delay     start + length  sliding: a row counts for `length`, and begins to count after `delay`
    Tumbling    of its window  start + length  all rows of a window have its lifetime, so it is one snapshot
    Hopping     rounded up     start + length  a row counts in windows that begin at multiples of `hop`
    Inserts     vs             END             every row that has begun
    Deletes     ve             END             every row that has ended
    Widened     rounded down   rounded up      lifetimes in whole units: a row counts in each second that it touches

The new start is a monotone function of vs, so the CTI of the output is the new start for the CTI of the input. If the
length is constant, the end of the input row has no effect, and a retraction that only shortens a row is dropped. A full
retraction remains a full retraction.

The paper also has a window that rounds the start down and keeps the length of the row. It is not supported, because a
row could then begin below an earlier CTI. `Widened` rounds start and end. With `Deletes` the end of a row becomes its
start, so a retraction moves the start.
"""

from __future__ import annotations

from enum import Enum

import numpy as np
import pyarrow as pa

from capture import arrow_compute as pc
from capture.arrow_compute import array_of
from capture.lazy_dataclasses import dataclass
from highlevel.speculation.lifetimes.kernels.endpoints import CTI, INSERT, RETRACTION
from highlevel.speculation.lifetimes.model import LifetimeError, Words, make_changes, payload_of, times_of
from lowlevel.punctuation import BEGINNING, END


class Window(Enum):
    """The ways in which lifetimes are changed."""

    LAST = "last"
    TUMBLING = "tumbling"
    HOPPING = "hopping"
    INSERTS = "inserts"
    DELETES = "deletes"
    WIDENED = "widened"


@dataclass(frozen=True, slots=True)
class NewLifetime:
    """The new lifetimes of rows.

    Times are in ns: `length` of windows, `unit` to which starts are rounded, `delay` of LAST.
    """

    window: Window
    length: int = 0
    unit: int = 1
    delay: int = 0

    def __post_init__(self) -> None:
        """Raise LifetimeError for a time that is not positive."""
        for name, value in (("length", self.length), ("unit", self.unit)):
            if value < 0 or (value == 0 and (name == "unit" or self.window in LENGTHS)):
                raise LifetimeError(f"got a {name} of {value} ns, expected more than 0")

    def start(self, vs: Words) -> Words:
        """Return the new start of each row; END remains END."""
        if self.window in (Window.TUMBLING, Window.WIDENED):
            return np.where(vs == END, END, vs // self.unit * self.unit)
        if self.window is Window.HOPPING:
            return np.where(vs == END, END, -(-vs // self.unit) * self.unit)
        return np.where(vs > END - self.delay, END, vs + self.delay) if self.delay else vs

    def end(self, start: Words, ve: Words) -> Words:
        """Return the new end of rows with the new start `start`."""
        if self.window is Window.WIDENED:
            return np.where(ve > END - self.unit, END, -(-ve // self.unit) * self.unit)
        if self.window in LENGTHS:
            return np.where(start > END - self.length, END, start + self.length)
        return np.full(len(start), END, np.int64)


LENGTHS = (Window.LAST, Window.TUMBLING, Window.HOPPING)
"""Windows with a constant length."""


class AlterLifetime:
    """Changes lifetimes. The state is the last CTI."""

    def __init__(self, new_lifetime: NewLifetime) -> None:
        """Give rows the lifetimes `new_lifetime`."""
        self._new_lifetime = new_lifetime
        self._cti = BEGINNING

    def process(self, changes: pa.RecordBatch) -> pa.RecordBatch:
        """Return the changes with new lifetimes."""
        kind, start, stop, new_stop = times_of(changes)
        if self._new_lifetime.window is Window.DELETES:
            return self._ended_rows(changes, kind, start, stop, new_stop)
        begin = self._new_lifetime.start(start)
        end = self._new_lifetime.end(begin, stop)
        new_end = np.where(new_stop == start, begin, self._new_lifetime.end(begin, new_stop))
        ctis = np.where(kind == CTI, begin, BEGINNING)
        before = np.maximum.accumulate(np.append(self._cti, ctis))
        is_kept = np.where(kind == CTI, ctis > before[:-1], (kind == INSERT) | (new_end < end))
        self._cti = int(before[-1])
        changed = make_changes(kind, begin, end, new_end, payload_of(changes))
        return changed if is_kept.all() else pc.filter(changed, array_of(is_kept))

    def _ended_rows(
        self, changes: pa.RecordBatch, kind: Words, start: Words, stop: Words, new_stop: Words
    ) -> pa.RecordBatch:
        """Return the rows that ended.

        A retraction withdraws the row that begins at the old end, and inserts a row that begins at the new end.
        """
        withdrawn = (kind == CTI) | (stop < END)
        inserted = (kind == RETRACTION) & (new_stop > start)
        source = np.repeat(np.arange(len(kind)), withdrawn.astype(np.int64) + inserted)
        second = inserted[source] & np.append(
            ~withdrawn[source[:1]], (source[1:] == source[:-1]) | ~withdrawn[source[1:]]
        )
        kinds = np.where(second, INSERT, kind[source])
        ended = np.where(second, new_stop[source], stop[source])
        begin = np.where(kinds == CTI, start[source], ended)
        endless = np.full(len(source), END, np.int64)
        return make_changes(kinds, begin, endless, begin, pc.take(payload_of(changes), array_of(source)))
