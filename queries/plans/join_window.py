"""The windows of a join: `[RANGE 3 minutes, WA ts]` after each item, or `[RANGE TUMBLING 5 minutes, WA ts]` for all.

A row of an item with RANGE n can match rows of other items up to n later. BOUNDARY states if the bounds are included
(`highlevel.joins.window`). With RANGE 0 s a row matches no later rows.
"""

from __future__ import annotations

from capture.lazy_dataclasses import dataclass
from highlevel.joins.window import MAX_RANGE, Boundary
from lowlevel.durations import UNITS
from queries.text.errors import QueryError
from queries.text.literals import duration_of, origin_of
from queries.text.tree import Attribute, Constant, Length, Parameter, Window, Word
from queries.text.windows import JOIN_PARAMETER, JOIN_PARAMETERS, ROWS

BOUNDARIES = {"CLOSED": Boundary.CLOSED, "HALF-OPEN": Boundary.HALF_OPEN, "OPEN": Boundary.OPEN}


@dataclass(frozen=True, slots=True)
class ItemWindow:
    """The window of one item in a join.

    `range` is in ns. `origin` is the earliest start of a tumbling window at or after the epoch, in ns. `time` is the
    column of WA as (table, column), or None. `start` is the position of the clause.
    """

    start: int
    range: int
    is_tumbling: bool
    origin: int = 0
    boundary: Boundary | None = None
    time: tuple[Word | None, Word] | None = None


def bind_item_window(sql: str, window: Window) -> ItemWindow:
    """Return the window of an item of a join. Raises QueryError for parameters that such windows do not have."""
    values = {parameter.name: parameter for parameter in window.parameters}
    for parameter in window.parameters:
        if parameter.name not in JOIN_PARAMETERS:
            problem = f"got {parameter.keyword.name_in_messages} in the window of a join"
            word = parameter.keyword
            raise QueryError(problem, sql, word.start, JOIN_PARAMETER, JOIN_PARAMETERS, word.text)
    if "RANGE" not in values:
        raise QueryError("the window of a join has no RANGE", sql, window.start, "for example RANGE 1 minute")
    length = values["RANGE"].value
    tumbling = isinstance(length, Length) and length.tumbling
    if not tumbling and "ORIGIN" in values:
        raise QueryError("ORIGIN without TUMBLING", sql, window.start, "ORIGIN together with RANGE TUMBLING")
    if tumbling and "BOUNDARY" in values:
        expected = "RANGE without TUMBLING: tumbling windows are half-open"
        raise QueryError("BOUNDARY together with TUMBLING", sql, window.start, expected)
    range_ = _range(sql, values["RANGE"])
    origin, boundary, time = 0, None, None
    if "ORIGIN" in values and isinstance(value := values["ORIGIN"].value, Constant):
        origin = origin_of(sql, value) % range_
    if "BOUNDARY" in values and isinstance(value := values["BOUNDARY"].value, Word):
        boundary = BOUNDARIES[value.text]
    if "WA" in values and isinstance(value := values["WA"].value, Attribute):
        if value.text != value.word.text.lower():
            expected = "the time column of this item, for example ts"
            raise QueryError(f"got WA '{value.text}'", sql, value.word.start, expected)
        time = value.table, value.word
    return ItemWindow(window.start, range_, tumbling, origin, boundary, time)


def _range(sql: str, parameter: Parameter) -> int:
    length = parameter.value
    if not isinstance(length, Length):
        raise QueryError("got 'ALL'", sql, parameter.start, "a length of time, for example 3 minutes or 0 s")
    if length.unit.lower() in ROWS:
        problem = f"got '{length.unit}' after {length.number}"
        raise QueryError(problem, sql, length.unit_start, "a unit of time", tuple(UNITS), length.unit)
    if length.number.strip("0.") == "" and not length.tumbling:
        return 0
    nanoseconds = duration_of(sql, length)
    if nanoseconds > MAX_RANGE:
        problem = f"RANGE {length.number} {length.unit} is too long"
        raise QueryError(problem, sql, length.start, "18 years at most")
    return nanoseconds
