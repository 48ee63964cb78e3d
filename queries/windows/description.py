"""Texts about windows for explained plans."""

from __future__ import annotations

from collections.abc import Iterator

from highlevel.windows.kind import AnyWindow, LandmarkWindow, SessionWindow, SlideByTuple, SlidingWindow, TupleWindow
from lowlevel.durations import duration_text


def pane_text(window: AnyWindow) -> str:
    """Return the length of a pane and the reason for it."""
    match window:
        case SlidingWindow() if window.range == window.slide:
            why = "the window itself, as windows do not overlap"
        case SlidingWindow():
            why = "the largest common divisor of RANGE and SLIDE; each row is counted once"
        case LandmarkWindow():
            why = "the SLIDE; running totals add one slide at a time"
        case SessionWindow():
            why = "the gap; rows of a group less than the gap apart are in one session"
        case SlideByTuple():
            why = "windows begin and end at rows, so each row is passed on unchanged"
        case TupleWindow():
            why = "windows are counted in rows, so each row is passed on unchanged"
    return f"{duration_text(window.pane)}: {why}"


def window_lines(window: AnyWindow) -> Iterator[tuple[str, str]]:
    """Yield lines about the window as (heading, text)."""
    match window:
        case SlidingWindow():
            kind = (
                "tumbling" if window.range == window.slide else "gapped" if window.range < window.slide else "sliding"
            )
            size = f"RANGE {duration_text(window.range)}, SLIDE {duration_text(window.slide)}"
            yield "windows", f"{kind}, {size}, from {_since(window.origin)}"
            if window.range > window.pane:
                yield "roll up", f"{window.range // window.pane} panes per window, {_overlap(window)}"
        case LandmarkWindow():
            yield "windows", f"landmark, all since {_since(window.origin)}, SLIDE {duration_text(window.slide)}"
            yield "roll up", f"running totals of up to {window.cap:,} groups, written for each slide with rows"
        case SessionWindow():
            yield "windows", f"sessions of each group, ended by {duration_text(window.gap)} without a row"
            yield "roll up", "intervals from the first ts to the last; intervals less than the gap apart are merged"
        case SlideByTuple():
            yield "windows", f"sliding by rows, RANGE {duration_text(window.range)} up to {_every(window)}"
            yield "roll up", "rows wait until no earlier row can arrive; then they are processed in the order of ts"
        case TupleWindow():
            pane = window.numbers.pane
            whose = "each partition's rows" if window.partitioned else "rows"
            yield "windows", f"of {whose} as they arrive, {_sizes(window)}"
            yield (
                "roll up",
                f"panes of {rows_text(pane)}, {window.range // pane} per window, {_overlap(window.numbers)}",
            )
            if window.idle is not None:
                yield (
                    "forget",
                    f"a partition starts again if its next row is {duration_text(window.idle)} or more later",
                )


def rows_text(count: int) -> str:
    """Return `1 row` or `1,000 rows`."""
    return "1 row" if count == 1 else f"{count:,} rows"


def _sizes(window: TupleWindow) -> str:
    return f"RANGE {rows_text(window.range)}, SLIDE {rows_text(window.slide_rows)}"


def _every(window: SlideByTuple) -> str:
    if window.every == 1:
        return "each row"
    return f"one row in {window.every}, " + ("in the order of ts" if window.by_rank else "as they arrive")


def _since(origin: int) -> str:
    return "the epoch" if origin == 0 else f"{origin} ns after the epoch"


def _overlap(window: SlidingWindow) -> str:
    fewest, rest = divmod(window.range, window.slide)
    return f"each row in {fewest} windows" if rest == 0 else f"each row in {fewest} or {fewest + 1} windows"
