"""The progress of spools as lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from capture.metrics import Samples
from capture.units import SECOND
from dashboards.output.run_warnings import count
from dashboards.output.table import align_table
from highlevel.metrics import (
    SPOOL_NEWEST,
    SPOOL_PARTIALS_LOST,
    SPOOL_PARTIALS_READ,
    SPOOL_PARTIALS_SHED,
    SPOOL_SEGMENTS_LOST,
    SPOOL_SEGMENTS_READ,
)

_TABLE_COLUMNS = {
    "segments": SPOOL_SEGMENTS_READ,
    "lost": SPOOL_SEGMENTS_LOST,
    "partials": SPOOL_PARTIALS_READ,
    "lost with segments": SPOOL_PARTIALS_LOST,
    "shed": SPOOL_PARTIALS_SHED,
}


def newest_segment_age(samples: Samples, link: str, now: int) -> int | None:
    """Return the age of the newest segment that was read, in ns; None if no segment was read. `now` is in ns."""
    newest_time = samples.total(SPOOL_NEWEST, link=link)
    return max(0, now - round(newest_time * SECOND)) if newest_time else None


def spool_table(samples: Samples, links: Sequence[str], now: int) -> str:
    """Return a table of the segments and partials read from the spools of `links`."""
    rows = [
        [
            link,
            *(f"{samples.total(metric, link=link):,.0f}" for metric in _TABLE_COLUMNS.values()),
            _format_age(samples, link, now),
        ]
        for link in links
    ]
    return align_table(["spool", *_TABLE_COLUMNS, "newest"], rows)


def spool_lines(samples: Samples, links: Sequence[str], now: int) -> Iterator[str]:
    """Yield a line for each spool: segments and partials read, age of the newest segment, losses."""
    for link in links:
        read_count, lost_count = (
            int(samples.total(metric, link=link)) for metric in (SPOOL_SEGMENTS_READ, SPOOL_SEGMENTS_LOST)
        )
        partials_text = count(int(samples.total(SPOOL_PARTIALS_READ, link=link)), "partial")
        age_text = f", newest {_format_age(samples, link, now)} old" if read_count else ""
        lost_text = f", {count(lost_count, 'segment')} lost" if lost_count else ""
        yield f"spool of {link}: {count(read_count, 'segment')}, {partials_text}{age_text}{lost_text}"


def _format_age(samples: Samples, link: str, now: int) -> str:
    age = newest_segment_age(samples, link, now)
    return "-" if age is None else f"{age / SECOND:,.1f} s"
